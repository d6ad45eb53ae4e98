//! Three servers, three members of etcd and three agents, each with a network and a disk of its own.

use crate::Error;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For documentation and tests (RFC 5737); nobody outside of these namespaces sees it.
const NET: &str = "198.51.100";
const PORT: u16 = 6443;
/// A debug build on a busy machine.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// What a machine's disk holds: of a member two segments of its log of 64 MB each, and what this program writes.
const DISK: &str = "size=300m";
/// A node that is silent for so long counts as lost; its pods endure some seconds more. Above what any other fault takes.
const LOST_AFTER: &str = "15s";
/// An agent renews its Lease every second, and evicts nobody because its disk is full.
const KUBELET: &str = r#"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
nodeLeaseDurationSeconds: 4
evictionHard: {memory.available: 1Mi}
mergeDefaultEvictionSettings: false
"#;
/// So much of every log is shown after a failure.
const LOG_LINES: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Server,
    Member,
    Agent,
}

/// One machine: a namespace and the process in it.
pub struct Machine {
    pub part: Part,
    pub number: usize,
    process: Option<Child>,
    dir: PathBuf,
    arguments: Vec<String>,
}

impl Machine {
    pub fn name(&self) -> String {
        name(self.part, self.number)
    }

    fn ip(&self) -> String {
        ip(self.part, self.number)
    }

    pub fn begin(&mut self) -> Result<(), Error> {
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("log"))?;
        let program = if self.part == Part::Member { "etcd".into() } else { coracle_tests::coracle() };
        // ip(8) would hide the cgroups.
        let process = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.name()))
            .arg("--")
            .arg(program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    pub fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.try_wait().is_ok_and(|status| status.is_some()))
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), Error> {
        let Some(process) = &self.process else { return Ok(()) };
        // nsenter(1) has become the program by exec.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(process.id())?), signal)?;
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// On the machine's disk.
    pub fn filler(&self) -> PathBuf {
        self.data().join("filler")
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("---- {} ----\n{tail}\n", self.name())
    }
}

pub fn name(part: Part, number: usize) -> String {
    let kind = match part {
        Part::Server => "server",
        Part::Member => "etcd",
        Part::Agent => "agent",
    };
    format!("{kind}{number}")
}

fn ip(part: Part, number: usize) -> String {
    let first = match part {
        Part::Server => 10,
        Part::Member => 20,
        Part::Agent => 30,
    };
    format!("{NET}.{}", number + first)
}

pub struct World {
    pub servers: Vec<Machine>,
    pub members: Vec<Machine>,
    pub agents: Vec<Machine>,
    dir: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        for machine in self.agents.iter_mut().chain(&mut self.servers).chain(&mut self.members) {
            // The namespace of processes ends what this cannot.
            let _ = machine.kill();
            let _ = Command::new("umount").arg("-l").arg(machine.data()).status();
        }
    }
}

impl World {
    /// Returns when all three servers are ready: the first made the cluster, the others have joined it by a token. The agents,
    /// each beside the runtime that listens there, are on their way.
    pub async fn start(runtimes: &[PathBuf]) -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        network()?;
        let mut world = Self { servers: Vec::new(), members: Vec::new(), agents: Vec::new(), dir };
        for number in 1..=3 {
            let mut member = world.machine(Part::Member, number)?;
            member.arguments = member_arguments(&member);
            member.begin()?;
            world.members.push(member);
        }
        let mut first = world.machine(Part::Server, 1)?;
        first.arguments = server_arguments(&first, &[]);
        first.begin()?;
        world.servers.push(first);
        world.ready(0).await?;
        let data = world.servers[0].data().display().to_string();
        let token = world.token(&["--server", "--data-dir", &data])?;
        let join = format!("https://{}:{PORT}", ip(Part::Server, 1));
        for number in 2..=3 {
            let mut server = world.machine(Part::Server, number)?;
            server.arguments = server_arguments(&server, &["--join", &join, "--token", &token]);
            server.begin()?;
            world.servers.push(server);
        }
        world.ready(1).await?;
        world.ready(2).await?;
        let token = world.token(&[])?;
        for (number, runtime) in (1..).zip(runtimes) {
            let mut agent = world.machine(Part::Agent, number)?;
            agent.arguments = agent_arguments(&agent, &join, &token, runtime)?;
            agent.begin()?;
            world.agents.push(agent);
        }
        Ok(world)
    }

    fn machine(&self, part: Part, number: usize) -> Result<Machine, Error> {
        let machine = Machine { part, number, process: None, dir: PathBuf::new(), arguments: Vec::new() };
        let dir = self.dir.path().join(machine.name());
        std::fs::create_dir(&dir)?;
        namespace(&machine.name(), &machine.ip())?;
        let machine = Machine { dir, ..machine };
        disk(&machine.data())?;
        Ok(machine)
    }

    async fn ready(&mut self, index: usize) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let server = &mut self.servers[index];
            if server.has_ended() {
                return Err(format!("{} has ended\n{}", server.name(), self.logs()).into());
            }
            let answer = match self.client(index, Duration::from_secs(2)).await {
                Ok(client) => {
                    let request = http::Request::get("/readyz").body(Vec::new())?;
                    client.request_text(request).await.map_err(Error::from)
                }
                Err(error) => Err(error),
            };
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > STARTED_WITHIN => {
                    return Err(format!("server {index} is not ready: {error}\n{}", self.logs()).into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn token(&self, of: &[&str]) -> Result<String, Error> {
        let dir = self.dir.path().join("server1");
        // The kubeconfig leads to the server's own loopback.
        let made = Command::new("ip")
            .args(["netns", "exec", "server1"])
            .arg(coracle_tests::coracle())
            .args(["token", "create"])
            .args(of)
            .arg("--kubeconfig")
            .arg(dir.join("kubeconfig"))
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    }

    /// A client of this server, as the administrator, that tells every failure.
    pub async fn client(&self, index: usize, patience: Duration) -> Result<kube::Client, Error> {
        let file = Kubeconfig::read_from(self.dir.path().join("server1/kubeconfig"))?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.cluster_url = format!("https://{}:{PORT}/", self.servers[index].ip()).parse()?;
        config.default_retry = false;
        config.connect_timeout = Some(patience);
        config.read_timeout = Some(patience);
        config.write_timeout = Some(patience);
        Ok(kube::Client::try_from(config)?)
    }

    pub fn logs(&self) -> String {
        self.servers.iter().chain(&self.members).chain(&self.agents).map(Machine::log_tail).collect()
    }
}

fn member_arguments(member: &Machine) -> Vec<String> {
    let url = |port: u16| format!("http://{}:{port}", member.ip());
    let cluster: Vec<String> =
        (1..=3).map(|n| format!("etcd{n}=http://{}:2380", ip(Part::Member, n))).collect();
    [
        ("--name", member.name()),
        ("--data-dir", member.data().join("etcd").display().to_string()),
        ("--listen-client-urls", url(2379)),
        ("--advertise-client-urls", url(2379)),
        ("--listen-peer-urls", url(2380)),
        ("--initial-advertise-peer-urls", url(2380)),
        ("--initial-cluster", cluster.join(",")),
        ("--heartbeat-interval", "100".to_owned()),
        ("--election-timeout", "1000".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

fn server_arguments(server: &Machine, further: &[&str]) -> Vec<String> {
    let members: Vec<String> = (1..=3).map(|n| format!("http://{}:2379", ip(Part::Member, n))).collect();
    let file = |name: &str| server.dir.join(name).display().to_string();
    let own = [
        ("--data-dir", file("data")),
        ("--write-kubeconfig", file("kubeconfig")),
        ("--node-ip", server.ip()),
        ("--node-name", server.name()),
        ("--https-port", PORT.to_string()),
        ("--disable", "kubelet,proxy,dns".to_owned()),
        ("--storage-backend", "etcd".to_owned()),
        ("--etcd-servers", members.join(",")),
        ("--node-monitor-grace-period", LOST_AFTER.to_owned()),
        ("--node-eviction-rate", "1".to_owned()),
    ];
    let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    std::iter::once("server".to_owned())
        .chain(own)
        .chain(further.iter().map(|word| (*word).to_owned()))
        .collect()
}

fn agent_arguments(agent: &Machine, join: &str, token: &str, runtime: &Path) -> Result<Vec<String>, Error> {
    let file = |name: &str| agent.dir.join(name).display().to_string();
    std::fs::write(file("kubelet.yaml"), KUBELET)?;
    let own = [
        ("--server", join.to_owned()),
        ("--token", token.to_owned()),
        ("--data-dir", file("data")),
        ("--node-ip", agent.ip()),
        ("--node-name", agent.name()),
        ("--disable", "proxy,network,dns,component-pods".to_owned()),
        ("--cni-conf-dir", file("net.d")),
        ("--container-runtime-endpoint", format!("unix://{}", runtime.display())),
        ("--kubelet-config", file("kubelet.yaml")),
    ];
    let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    Ok(std::iter::once("agent".to_owned()).chain(own).collect())
}

pub fn run(program: &str, arguments: &[&str]) -> Result<(), Error> {
    let done = Command::new(program).args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr)).into())
}

fn ip_words(words: &str) -> Result<(), Error> {
    run("ip", &words.split(' ').collect::<Vec<_>>())
}

/// A disk in memory, that can be filled.
fn disk(at: &Path) -> Result<(), Error> {
    std::fs::create_dir(at)?;
    run("mount", &["-t", "tmpfs", "-o", DISK, "tmpfs", &at.display().to_string()])
}

/// Two switches without a line between them: the clients are at the first.
fn network() -> Result<(), Error> {
    // Names of namespaces are files, which would outlive this one; and agents may neither find the machine's cgroups, nor
    // its pods' logs.
    for at in ["/run/netns", "/sys/fs/cgroup", "/var/log"] {
        std::fs::create_dir_all(at)?;
        run("mount", &["-t", "tmpfs", "tmpfs", at])?;
    }
    for words in [
        "link set lo up",
        "link add there type bridge",
        "link add apart type bridge",
        "link set there up",
        "link set apart up",
    ] {
        ip_words(words)?;
    }
    ip_words(&format!("addr add {NET}.1/24 dev there"))
}

fn namespace(name: &str, ip: &str) -> Result<(), Error> {
    ip_words(&format!("netns add {name}"))?;
    ip_words(&format!("link add v-{name} type veth peer name eth0 netns {name}"))?;
    ip_words(&format!("link set v-{name} master there up"))?;
    ip_words(&format!("-n {name} addr add {ip}/24 dev eth0"))?;
    ip_words(&format!("-n {name} link set eth0 up"))?;
    ip_words(&format!("-n {name} link set lo up"))
}

/// Takes machines to the other switch, or back.
pub fn move_to(switch: &str, machines: &[&Machine]) -> Result<(), Error> {
    machines
        .iter()
        .try_for_each(|machine| ip_words(&format!("link set v-{} master {switch}", machine.name())))
}

/// Whether what the machine sends to members of etcd goes to a station that is not there.
pub fn blind(machine: &Machine, is_blind: bool) -> Result<(), Error> {
    let name = machine.name();
    (1..=3).map(|number| ip(Part::Member, number)).try_for_each(|member| {
        ip_words(&match is_blind {
            true => {
                format!("-n {name} neigh replace {member} lladdr 02:00:00:00:00:01 dev eth0 nud permanent")
            }
            false => format!("-n {name} neigh del {member} dev eth0"),
        })
    })
}

/// Until nothing more fits.
pub fn fill(path: &Path) -> Result<(), Error> {
    let mut file = File::create(path)?;
    let piece = vec![0; 1 << 20];
    loop {
        match std::io::Write::write(&mut file, &piece) {
            Ok(written) if written > 0 => {}
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => return Err(error.into()),
            _ => return Ok(()),
        }
    }
}
