//! Components that panic, hang, lose a lock or leak, and a process that no longer gives any sign of life.

use coracle_tests::cluster::free_port;
use coracle_tests::{Cluster, coracle, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whatever it was, by then it is over.
const HEALED: Duration = Duration::from_secs(60);
/// What runs in a server without kubelet, proxy and DNS.
const COMPONENTS: [&str; 7] =
    ["api", "cluster-ips", "scheduler", "controllers", "storage", "simulated-nodes", "manifests"];

/// Asks for a fault of every component. The file is read by builds with debug assertions alone.
fn ask(file: &Path, fault: &str, components: &[&str]) {
    let lines: String = components.iter().map(|name| format!("{name} {fault}\n")).collect();
    std::fs::write(file.with_extension("new"), lines).expect("the file");
    std::fs::rename(file.with_extension("new"), file).expect("the file");
}

/// The value of a counter of one component.
fn count(cluster: &Cluster, metric: &str, component: &str) -> u64 {
    let page = cluster.raw("GET", "/metrics", "").text;
    let line = format!("{metric}{{component=\"{component}\"}} ");
    page.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
}

/// A pod goes through controllers, scheduler and simulated node.
fn works(cluster: &Cluster, name: &str) {
    cluster.ok(&format!("kubectl create deployment {name} --image=app:1"));
    cluster.ok(&format!("kubectl rollout status deployment/{name} --timeout=30s"));
}

#[test]
fn every_component_that_panics_hangs_or_leaks_is_started_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("faults");
    let environment = [("CORACLE_FAULTS", file.to_str().expect("plain characters"))];
    let cluster = Cluster::start_in(&["--simulate-nodes", "1"], &environment);
    works(&cluster, "before");
    for (number, fault) in ["exit", "leak", "hang"].into_iter().enumerate() {
        let before: Vec<u64> =
            COMPONENTS.map(|name| count(&cluster, "coracle_component_restarts_total", name)).into();
        let began = Instant::now();
        ask(&file, fault, &COMPONENTS);
        wait_for(&format!("a restart of every component after {fault}"), HEALED, || {
            let now: Vec<u64> =
                COMPONENTS.map(|name| count(&cluster, "coracle_component_restarts_total", name)).into();
            if now.iter().zip(&before).all(|(now, before)| now > before) {
                Ok(())
            } else {
                Err(format!("{now:?}, {before:?}"))
            }
        });
        println!("{fault}: every component was started again after {:?}", began.elapsed());
        works(&cluster, &format!("after-{number}"));
    }
    for name in COMPONENTS {
        assert_eq!(count(&cluster, "coracle_component_hangs_total", name), 1, "{name}");
    }
    cluster.until_that("kubectl get --raw /livez", |text| text.trim() == "ok");
    // What leaked went with its run.
    wait_for("the end of what leaked", HEALED, || {
        let page = cluster.raw("GET", "/metrics", "").text;
        let tasks =
            page.lines().find_map(|line| line.strip_prefix("coracle_process_tasks ")?.parse::<u64>().ok());
        if tasks.is_some_and(|tasks| tasks < 5_000) { Ok(()) } else { Err(format!("{tasks:?} tasks")) }
    });
    let log = cluster.log();
    assert!(log.contains("component hangs") && log.contains("waits in the middle of its work"), "{log}");
}

/// `coracle supervise -- server`, gone with the value.
struct Supervised {
    parent: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Supervised {
    fn start(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let (dir, port) = (tempfile::tempdir().expect("a temporary directory"), free_port());
        let log = std::fs::File::create(dir.path().join("log")).expect("the log");
        let parent = Command::new(coracle())
            .args(["supervise", "--pid-file"])
            .arg(dir.path().join("pid"))
            .args(flags)
            .args([
                "--",
                "server",
                "--bind-address",
                "127.0.0.1",
                "--node-ip",
                "127.0.0.1",
                "--simulate-nodes",
                "1",
            ])
            .args(["--disable", "kubelet,proxy,dns", "--https-port", &port.to_string(), "--data-dir"])
            .arg(dir.path().join("data"))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn()
            .expect("it works");
        Self { parent, dir, port }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.dir.path().join("pid")).ok()?;
        text.trim().parse().ok().map(Pid::from_raw)
    }

    /// The process that answers, another one than `before`.
    fn ready(&self, before: Option<Pid>) -> Pid {
        let path = self.dir.path().join("data/pki");
        wait_for("a server that answers", HEALED, || {
            let Some(pid) = self.pid().filter(|pid| Some(*pid) != before) else { return Err(self.log()) };
            if !path.exists() {
                return Err(self.log());
            }
            // Whoever cannot connect yet is told by a code of 0.
            let connects = std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            let caller = coracle_tests::http::Caller::Nobody;
            let answers = connects
                && coracle_tests::http::request(self.port, &path, &caller, "GET", "/readyz", "").code == 200;
            if answers { Ok(pid) } else { Err(self.log()) }
        })
    }

    fn end(&mut self) -> i32 {
        kill(Pid::from_raw(i32::try_from(self.parent.id()).expect("the process lives")), Signal::SIGTERM)
            .expect("the process lives");
        self.wait()
    }

    fn wait(&mut self) -> i32 {
        wait_for("the end of the supervisor", HEALED, || {
            let status = self.parent.try_wait().expect("a child's state");
            status.map(|status| status.code().unwrap_or(-1)).ok_or_else(|| self.log())
        })
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // The server ends with it.
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

#[test]
fn a_process_that_ends_or_falls_silent_is_started_again() {
    let mut supervised = Supervised::start(&["--watchdog", "12s"], &[]);
    let first = supervised.ready(None);
    kill(first, Signal::SIGKILL).expect("the process lives");
    let began = Instant::now();
    let second = supervised.ready(Some(first));
    println!("a killed server answered again after {:?}", began.elapsed());
    kill(second, Signal::SIGSTOP).expect("the process lives");
    let began = Instant::now();
    let third = supervised.ready(Some(second));
    println!("a silent server answered again after {:?}", began.elapsed());
    assert_eq!(supervised.end(), 0);
    assert!(kill(third, None::<Signal>).is_err(), "it ends with its supervisor");
    assert!(supervised.log().contains("no sign of life"), "{}", supervised.log());
    assert!(supervised.pid().is_none(), "its process id is not left behind");
}

#[test]
fn a_lock_that_is_never_released_ends_the_process_for_its_supervisor() {
    let faults = tempfile::tempdir().expect("a temporary directory");
    let file: PathBuf = faults.path().join("faults");
    let mut supervised =
        Supervised::start(&[], &[("CORACLE_FAULTS", file.to_str().expect("plain characters"))]);
    let mut pid = supervised.ready(None);
    for component in ["scheduler", "api"] {
        ask(&file, "lock", &[component]);
        let began = Instant::now();
        pid = supervised.ready(Some(pid));
        println!("after a lost lock of {component} another server answered within {:?}", began.elapsed());
        let told = format!("coracle: {component} hangs: task {component} does not give its thread back");
        assert!(supervised.log().contains(&told), "{}", supervised.log());
    }
    assert_eq!(supervised.end(), 0);
}

#[test]
fn what_does_not_start_at_all_is_not_tried_again() {
    let mut wrong = Supervised::start(&[], &[("CORACLE_FAULTS", "")]);
    wrong.ready(None);
    let port = wrong.port.to_string();
    let log = Command::new(coracle())
        .args([
            "supervise",
            "--",
            "server",
            "--disable",
            "kubelet,proxy,dns",
            "--https-port",
            &port,
            "--data-dir",
        ])
        .arg(wrong.dir.path().join("another"))
        .output()
        .expect("it works");
    assert_eq!(log.status.code(), Some(1), "{log:?}");
    let none =
        Command::new(coracle()).args(["supervise", "--", "reset", "--yes"]).output().expect("it works");
    assert!(String::from_utf8_lossy(&none.stderr).contains("only server and agent are run"), "{none:?}");
    // With the supervisor, whatever ends it, its server goes.
    let server = wrong.pid().expect("a process id");
    wrong.parent.kill().expect("the process lives");
    wrong.wait();
    wait_for("the end of the server", HEALED, || {
        if kill(server, None::<Signal>).is_err() { Ok(()) } else { Err("it runs".to_owned()) }
    });
}
