//! One member of etcd, in a directory and at ports of its own. Needs Debian's etcd-server.

use crate::cluster::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Gone with the value.
pub struct Etcd {
    process: Child,
    pub url: String,
    flags: Vec<String>,
    dir: TempDir,
}

impl Etcd {
    pub fn start() -> Self {
        Self::start_with("http", |_| Vec::new())
    }

    /// Likewise, with these further flags; they are told the directory.
    pub fn start_with(scheme: &str, further: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let quick = |dir: &Path| [vec!["--unsafe-no-fsync".to_owned()], further(dir)].concat();
        Self::run(scheme, quick)
    }

    /// One that says only after its disk has it that it has a write: to be measured.
    pub fn durable() -> Self {
        Self::run("http", |_| ["--log-level", "error"].map(str::to_owned).to_vec())
    }

    fn run(scheme: &str, further: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let url = format!("{scheme}://127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let own = [
            ("--data-dir", dir.path().join("data").display().to_string()),
            ("--listen-client-urls", url.clone()),
            ("--advertise-client-urls", url.clone()),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer.clone()),
            ("--initial-cluster", format!("default={peer}")),
        ];
        let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let flags: Vec<String> = own.chain(further(dir.path())).collect();
        Self { process: spawn(&flags), url, flags, dir }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Where its data is, and whatever goes with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in that directory.
    pub fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// kill -9.
    pub fn stop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// At the same place, with what was there.
    pub fn start_again(&mut self) {
        self.stop();
        self.process = spawn(&self.flags);
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a process id"));
        kill(pid, signal).expect("etcd runs");
    }

    /// Of a server that says to be at this address.
    pub fn arguments<'a>(&'a self, ip: &'a str) -> [&'a str; 6] {
        ["--storage-backend", "etcd", "--etcd-servers", &self.url, "--node-ip", ip]
    }
}

fn spawn(flags: &[String]) -> Child {
    let mut etcd = Command::new("etcd");
    etcd.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    etcd.spawn().expect("etcd, of Debian's package etcd-server")
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}
