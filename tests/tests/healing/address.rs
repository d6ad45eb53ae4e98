//! A machine whose address comes late, changes, and goes: the server follows it by itself, in the same process. In a network
//! namespace of its own, as the addresses are.

use coracle_tests::{NoNetwork, Shell, apart, skipped};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The change settles for two seconds before it is followed, and a server starts within a fraction of one.
const FOLLOWED: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    shell: Shell,
    port: u16,
    dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Nobody says which address it has.
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let home = dir.path().join("home");
        std::fs::create_dir(&home).expect("home");
        let shell = Shell::new(&home, &dir.path().join("kubeconfig"));
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let child = Self::spawn(dir.path(), port);
        Self { child, shell, port, dir }
    }

    fn spawn(dir: &Path, port: u16) -> Child {
        let log = std::fs::File::create(dir.join("log")).expect("the log");
        Command::new(coracle_tests::coracle())
            .args([
                "server",
                "--disable",
                "kubelet,proxy,dns",
                "--node-name",
                "n1",
                "--https-port",
                &port.to_string(),
            ])
            .args(["--simulate-nodes", "1"])
            .arg("--data-dir")
            .arg(dir.join("data"))
            .arg("--write-kubeconfig")
            .arg(dir.join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the binary starts")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Who asks there with the cluster's authority in hand is answered, the Service leads there, and joining machines are told so.
    fn is_at(&self, address: &str) {
        let (port, ca) = (self.port, self.dir.path().join("data/pki/ca.crt"));
        let line = format!("curl -s --max-time 5 --cacert {} https://{address}:{port}/readyz", ca.display());
        self.shell.within(FOLLOWED, &line, |text| text == "ok");
        self.shell.within(
            FOLLOWED,
            "kubectl get endpointslices kubernetes -o jsonpath='{.endpoints[*].addresses}'",
            |text| text == format!("[\"{address}\"]"),
        );
        let told = self
            .shell
            .ok("kubectl get configmap -n kube-public cluster-info -o jsonpath='{.data.kubeconfig}'");
        assert!(told.contains(&format!("https://{address}:{port}")), "{told}");
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status().expect("ip");
    assert!(done.success(), "ip {arguments}");
}

#[test]
fn an_address_that_comes_late_and_changes_is_followed() {
    let outcome = apart(&[], || {
        let mut server = Server::start();
        server.shell.within(FOLLOWED, "kubectl get nodes --no-headers", |nodes| nodes.contains(" Ready "));
        server.shell.ok("kubectl create deployment web --image=nginx && kubectl rollout status deployment/web --timeout=60s");
        let pods = server.shell.ok("kubectl get pods -o jsonpath='{.items[*].metadata.uid}'");
        ip("address add 192.0.2.7/24 dev lo");
        server.is_at("192.0.2.7");
        ip("address add 198.51.100.8/24 dev lo");
        ip("address del 192.0.2.7/24 dev lo");
        server.is_at("198.51.100.8");
        // The cable is out: nothing is better than what there was.
        ip("address del 198.51.100.8/24 dev lo");
        ip("address add 198.51.100.8/24 dev lo");
        server.is_at("198.51.100.8");
        assert_eq!(server.log().matches("beginning anew").count(), 2, "{}", server.log());
        assert_eq!(server.shell.ok("kubectl get pods -o jsonpath='{.items[*].metadata.uid}'"), pods);
        let ended = server.child.try_wait().expect("its state");
        assert!(ended.is_none(), "it is the same process: {ended:?}");
    });
    match outcome {
        Ok(()) => {}
        Err(NoNetwork::NotAllowed) => skipped("needs root, to have a network of its own"),
        Err(NoNetwork::Failed(why)) => panic!("{why}"),
    }
}
