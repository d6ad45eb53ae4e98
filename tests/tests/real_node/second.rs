//! The second machine itself: a network namespace behind a pair of interfaces, a containerd in it, and the agent.

use coracle_tests::Shell;
use coracle_tests::image::{BUSYBOX, busybox};
use coracle_tests::shell::Background;
use coracle_tests::wait_for;
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// The node's name.
pub const NAME: &str = "two";
/// The node's address; the machine's own end has the one before.
pub const ADDRESS: &str = "172.30.77.2";
const NAMESPACE: &str = "coracle-two";
const CA: &str = "/var/lib/coracle/pki";

/// Taken away with the value, pods and all.
pub struct Second<'a> {
    shell: &'a Shell,
    dir: TempDir,
    runtime: Option<Background>,
    agent: Option<Background>,
    /// URL of the server it has joined.
    pub server: String,
}

impl<'a> Second<'a> {
    /// The network and the runtime, with the busybox image; no agent yet.
    pub fn new(shell: &'a Shell) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut this = Self { shell, dir, runtime: None, agent: None, server: String::new() };
        this.network();
        std::fs::write(this.path("containerd.toml"), this.configuration())
            .expect("containerd's configuration");
        let line = this.inside(&format!("containerd --config {}", this.path("containerd.toml").display()));
        this.runtime = Some(shell.start(&line, "containerd.log"));
        shell.until_that(&this.ctr("version"), |text| text.contains("Server:"));
        let archive = busybox(this.dir.path(), BUSYBOX).expect("the busybox image");
        shell.ok(&this.ctr(&format!("-n k8s.io images import {}", archive.display())));
        this
    }

    fn network(&self) {
        let inside = |line: &str| self.inside(line);
        for line in [
            format!("ip netns add {NAMESPACE}"),
            format!("ip link add cor2 type veth peer name cor2 netns {NAMESPACE}"),
            "ip address add 172.30.77.1/30 dev cor2 && ip link set cor2 up".to_owned(),
            inside(&format!("ip address add {ADDRESS}/30 dev cor2")),
            inside("ip link set cor2 up"),
            inside("ip link set lo up"),
            inside("ip route add default via 172.30.77.1"),
        ] {
            self.shell.ok(&line);
        }
    }

    /// As the first one's, but for its places.
    fn configuration(&self) -> String {
        let first = std::fs::read_to_string("/etc/coracle/containerd.toml")
            .expect("the first runtime's configuration");
        let dir = self.dir.path().display();
        let own = format!(
            "version = 2\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n[grpc]\n  address = \"{dir}/containerd.sock\"\n"
        );
        let first = first.replacen("version = 2\n", &own, 1);
        first.replace("conf_dir = \"/etc/cni/net.d\"", &format!("conf_dir = \"{dir}/net.d\""))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Below the agent's data directory.
    pub fn data(&self, name: &str) -> PathBuf {
        self.path("data").join(name)
    }

    /// A command in the second machine's network. `ip netns exec` would hide the control groups.
    pub fn inside(&self, line: &str) -> String {
        format!("nsenter --net=/run/netns/{NAMESPACE} {line}")
    }

    fn ctr(&self, line: &str) -> String {
        format!("ctr --address {} {line}", self.path("containerd.sock").display())
    }

    fn places(&self) -> String {
        let dir = self.dir.path().display();
        format!("--data-dir {dir}/data --container-runtime-endpoint unix://{dir}/containerd.sock")
    }

    /// The agent's command line.
    pub fn line(&self, join: &str) -> String {
        self.inside(&format!(
            "coracle agent --node-name {NAME} --node-ip {ADDRESS} --cni-conf-dir {} --eviction-hard 'nodefs.available<50Mi,imagefs.available<50Mi' {} {join}",
            self.path("net.d").display(),
            self.places()
        ))
    }

    pub fn start(&mut self, join: &str) {
        self.agent = Some(self.shell.start(&self.line(join), "agent.log"));
    }

    pub fn log(&self) -> String {
        self.agent.as_ref().map(Background::printed).unwrap_or_default()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.agent.take().expect("the agent runs").signal(nix::sys::signal::Signal::SIGKILL);
    }

    /// The containers of its runtime, sandboxes among them.
    pub fn containers(&self) -> Vec<String> {
        let all = self.shell.ok(&self.ctr("-n k8s.io containers list -q"));
        let mut all: Vec<String> = all.lines().map(str::to_owned).collect();
        all.sort();
        all
    }

    /// Puts a certificate in the place of the agent's that is good for some minutes more; returns the file.
    pub fn nearly_over(&self) -> String {
        let read = |file: &str| std::fs::read_to_string(Path::new(CA).join(file)).expect(file);
        let authority = KeyPair::from_pem(&read("ca.key")).expect("the CA's key");
        let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), authority).expect("the CA");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{NAME}"));
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = (SystemTime::now() - Duration::from_secs(3600)).into();
        params.not_after = (SystemTime::now() + Duration::from_secs(300)).into();
        let key = KeyPair::generate().expect("a key");
        let text = params.signed_by(&key, &issuer).expect("a certificate").pem() + &key.serialize_pem();
        std::fs::write(self.data("pki/kubelet-client.pem"), &text).expect("the agent's certificate");
        text
    }

    /// The agent is ended as its owner would, and what is left is taken away.
    pub fn leave(mut self) {
        let agent = self.agent.take().expect("the agent runs");
        agent.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(agent.wait(), 0);
        let left = self.take_away();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    /// What could not be taken away.
    fn take_away(&mut self) -> Vec<String> {
        self.agent = None;
        let mut left = Vec::new();
        let mut run = |line: String| {
            let output = self.shell.run(&line);
            if output.code != 0 {
                left.push(format!("{line}: {output}"));
            }
        };
        run(format!("kubectl delete node {NAME} --ignore-not-found --wait=false"));
        if self.runtime.is_some() {
            run(self.inside(&format!("coracle reset --yes {}", self.places())));
        }
        self.runtime = None;
        let dir = self.dir.path().display();
        run(format!(
            "for p in $(awk '$5 ~ \"^{dir}/\" {{print $5}}' /proc/self/mountinfo | sort -r); do umount -l $p; done"
        ));
        // Of itself the pair goes only some time after the namespace.
        run("! ip link show cor2 2>/dev/null || ip link delete cor2".to_owned());
        run(format!("ip netns delete {NAMESPACE}"));
        run(format!("! pgrep -f '^[^ ]*containerd-shim.* -address {dir}'"));
        left
    }
}

impl Drop for Second<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for file in ["agent.log", "containerd.log"] {
            let text = std::fs::read_to_string(self.shell.home().join(file)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!(
                "---- the end of {file} ----\n{}\n----",
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
        let left = self.take_away();
        eprintln!("left behind: {left:?}");
        // The interfaces go with the namespace a moment later.
        wait_for("the end of the second machine's network", Duration::from_secs(10), || {
            let output = self.shell.run("ip netns list");
            if output.stdout.contains(NAMESPACE) { Err(output.to_string()) } else { Ok(()) }
        });
    }
}
