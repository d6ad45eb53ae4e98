//! A cluster of the real binary: its own port, its own data directory, gone with the value.

use crate::http::{Answer, Caller};
use crate::shell::Shell;
use crate::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Longest a server may take to its readiness. It takes a fraction of a second; a busy machine needs more.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How much of the log a failed test shows.
const LOG_LINES: usize = 60;

/// As the value of `--node-ip`: the server finds its address by itself.
pub const FOUND: &str = "found";

/// A running `coracle server` without kubelet, proxy and DNS. Dereferences to the [`Shell`] of its administrator.
pub struct Cluster {
    shell: Shell,
    server: Child,
    port: u16,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    dir: TempDir,
}

impl Deref for Cluster {
    type Target = Shell;

    fn deref(&self) -> &Shell {
        &self.shell
    }
}

impl Cluster {
    /// Starts a server with these further arguments, which may choose another `--node-ip`, `--bind-address` and `--disable`, and waits until pods can be created in it.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// Likewise, in an environment with these variables too.
    pub fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_below(&std::env::temp_dir(), arguments, environment)
    }

    /// Likewise, and waits for the API alone: nobody may be there who makes what pods need.
    pub fn start_bare(arguments: &[&str]) -> Self {
        let mut cluster = Self::spawn_below(&std::env::temp_dir(), arguments, &[]);
        cluster.wait_until_ready();
        cluster
    }

    /// Likewise, on a data directory that `prepare` makes; it is not there yet.
    pub fn start_on(arguments: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        Self::start_on_below(&std::env::temp_dir(), arguments, prepare)
    }

    /// Likewise, with everything it writes in this directory.
    pub fn start_on_below(parent: &Path, arguments: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let mut cluster = Self::prepare_below(parent, arguments, &[], prepare);
        cluster.wait_until_usable();
        cluster
    }

    /// A further server on the store of this one, with the same authorities and keys.
    pub fn start_beside(&self, arguments: &[&str]) -> Self {
        let mut beside = Self::prepare_below(&std::env::temp_dir(), arguments, &[], |data| {
            std::fs::create_dir(data).expect("a data directory");
            let copied = Command::new("cp").arg("-r").arg(self.data_dir().join("pki")).arg(data).status();
            assert!(copied.expect("cp").success());
        });
        beside.wait_until_usable();
        beside
    }

    /// Likewise, with everything it writes in this directory.
    pub fn start_below(parent: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut cluster = Self::spawn_below(parent, arguments, environment);
        cluster.wait_until_usable();
        cluster
    }

    fn spawn_below(parent: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::prepare_below(parent, arguments, environment, |_| {})
    }

    /// `prepare` is given the data directory, which is not there yet.
    fn prepare_below(
        parent: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let dir = tempfile::tempdir_in(parent).expect("temporary directory");
        let home = dir.path().join("home");
        std::fs::create_dir(&home).expect("home");
        let port = free_port();
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let shell = Shell::new(&home, &dir.path().join("kubeconfig"));
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: Vec<_> = environment.collect();
        prepare(&dir.path().join("data"));
        let server = spawn(dir.path(), port, &arguments, &environment);
        Self { shell, server, port, arguments, environment, dir }
    }

    /// kill -9, and the server again on the same data.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// Two simulated nodes: what most tests want.
    pub fn simulated() -> Self {
        let cluster = Self::start(&["--simulate-nodes", "2"]);
        cluster.until_nodes(|nodes| !nodes.is_empty() && nodes.iter().all(is_ready));
        // A controller's; who watches ConfigMaps must not take it for its own.
        cluster.until_there("/api/v1/namespaces/default/configmaps/kube-root-ca.crt");
        cluster
    }

    fn wait_until_ready(&mut self) {
        wait_for("readiness of the server", START_LIMIT, || {
            if let Some(status) = self.server.try_wait().expect("the server's state") {
                panic!("the server ended with {status}:\n{}", self.log_tail());
            }
            // A program is started only where somebody listens.
            if let Err(e) = TcpStream::connect(("127.0.0.1", self.port)) {
                return Err(format!("port {}: {e}\n{}", self.port, self.log_tail()));
            }
            let answer = self.http(&Caller::Nobody, "GET", "/readyz", "");
            if answer.code == 200 { Ok(()) } else { Err(format!("/readyz: {answer:?}\n{}", self.log_tail())) }
        });
    }

    fn wait_until_usable(&mut self) {
        self.wait_until_ready();
        self.until_there("/api/v1/namespaces/default/serviceaccounts/default");
        if let Some(wanted) = self.simulated_nodes() {
            // They come after readiness, and who waits for all of none is told an error.
            self.until_nodes(|nodes| nodes.len() >= wanted);
        }
    }

    /// Waits for an object. Not by kubectl, whose start costs more than the server's.
    #[track_caller]
    fn until_there(&self, path: &str) {
        wait_for(path, START_LIMIT, || {
            let answer = self.raw("GET", path, "");
            if answer.code == 200 { Ok(()) } else { Err(format!("{answer:?}\n{}", self.log_tail())) }
        });
    }

    #[track_caller]
    fn until_nodes(&self, content: impl Fn(&[Value]) -> bool) {
        wait_for("nodes", START_LIMIT, || {
            let answer = self.raw("GET", "/api/v1/nodes", "");
            let seen = || format!("{answer:?}\n{}", self.log_tail());
            if answer.code != 200 {
                return Err(seen());
            }
            let list = answer.json();
            let nodes = list["items"].as_array().expect("a list has items");
            if content(nodes) { Ok(()) } else { Err(seen()) }
        });
    }

    /// The number after `--simulate-nodes`.
    fn simulated_nodes(&self) -> Option<usize> {
        let at = self.arguments.iter().position(|argument| argument == "--simulate-nodes")?;
        self.arguments.get(at + 1)?.parse().ok()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// One HTTP request; see [`crate::http`].
    pub fn http(&self, caller: &Caller, method: &str, path: &str, body: &str) -> Answer {
        crate::http::request(self.port, &self.data_dir().join("pki"), caller, method, path, body)
    }

    /// One HTTP request as the administrator.
    pub fn raw(&self, method: &str, path: &str, body: &str) -> Answer {
        self.http(&Caller::Admin, method, path, body)
    }

    /// kill -9: the server gets no chance to tidy up.
    pub fn kill(&mut self) {
        self.server.kill().expect("the server runs");
        self.server.wait().expect("the server ends");
    }

    /// SIGTERM; returns the exit code.
    pub fn terminate(&mut self) -> i32 {
        let pid = Pid::from_raw(i32::try_from(self.server.id()).expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("the server runs");
        let status = wait_for("end of the server", START_LIMIT, || {
            self.server.try_wait().expect("the server's state").ok_or_else(|| self.log_tail())
        });
        status.code().unwrap_or(-1)
    }

    /// Starts the server again on the same data directory and port, after [`Self::kill`] or [`Self::terminate`].
    pub fn restart(&mut self) {
        self.restart_unwaited();
        self.wait_until_usable();
    }

    /// Likewise, and does not wait: the administrator may be somebody who is let in no more.
    pub fn restart_unwaited(&mut self) {
        let ended = self.server.try_wait().expect("the server's state");
        assert!(ended.is_some(), "the server runs already, and would answer for the new one");
        self.server = spawn(self.dir.path(), self.port, &self.arguments, &self.environment);
    }

    /// As [`Self::restart`], with other further arguments than before.
    pub fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        self.restart();
    }

    /// Whether the server lives and says so.
    #[track_caller]
    pub fn assert_alive(&self) {
        let answer = self.http(&Caller::Nobody, "GET", "/livez", "");
        assert_eq!((answer.code, answer.text.as_str()), (200, "ok"), "{}", self.log_tail());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let log = self.log_tail();
        if std::thread::panicking() {
            eprintln!("---- the end of the server's log ----\n{log}\n----");
        } else {
            assert!(!log.contains("panicked"), "something panicked in the server:\n{log}");
        }
    }
}

fn spawn(dir: &Path, port: u16, arguments: &[String], environment: &[(String, String)]) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("the log");
    let own =
        [("--node-ip", "127.0.0.1"), ("--bind-address", "127.0.0.1"), ("--disable", "kubelet,proxy,dns")];
    let missing = own.iter().filter(|(flag, _)| !arguments.iter().any(|argument| argument == flag));
    Command::new(crate::coracle())
        .args(["server", "--https-port", &port.to_string()])
        .args(missing.flat_map(|(flag, value)| [flag, value]))
        .arg("--data-dir")
        .arg(dir.join("data"))
        .arg("--write-kubeconfig")
        .arg(dir.join("kubeconfig"))
        .args(said(arguments))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle of the log"))
        .stderr(log)
        .spawn()
        .expect("the binary starts")
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Without a `--node-ip` that the server is to find.
fn said(arguments: &[String]) -> impl Iterator<Item = &String> {
    let found = arguments.iter().position(|argument| argument == FOUND);
    let left_out = found.map_or(0..0, |at| at - 1..at + 1);
    arguments.iter().enumerate().filter(move |(at, _)| !left_out.contains(at)).map(|(_, argument)| argument)
}

/// A port that nobody listens on, below those that the kernel gives to outgoing connections (32768 and up), so that
/// a client cannot take it while a server restarts.
pub fn free_port() -> u16 {
    // Tests of one process must not find the same port before one of them takes it.
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let start = (std::process::id() + TAKEN.fetch_add(101, Ordering::Relaxed)) % 10_000;
    let candidates = (start..start + 10_000).map(|n| 20_000 + n % 10_000);
    let mut ports = candidates.filter_map(|port| u16::try_from(port).ok());
    ports.find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok()).expect("a free port")
}
