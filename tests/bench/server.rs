//! The server under measurement: the release binary, with a data directory and a port of its own.

use crate::Error;
use crate::http::{Call, Target};
use crate::process::Process;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Components that need root; the figures here are the control plane's.
pub const ROOTLESS: [&str; 2] = ["--disable", "kubelet,proxy,dns"];
/// A start that takes longer has failed; the goal is 300 ms.
const START_TIME: Duration = Duration::from_secs(20);
/// An orderly end that takes longer is cut short.
const STOP_TIME: Duration = Duration::from_secs(10);
/// How often a connection is tried while the server starts: the error of a start's figure.
const TRY_EVERY: Duration = Duration::from_millis(2);

/// A running server. Dropping it kills it and removes its data.
pub struct Server {
    child: Guard,
    dir: TempDir,
    /// From before the process was made until `/readyz` said ok.
    pub start_time: Duration,
    pub target: Target,
}

impl Server {
    /// On an empty data directory, without the components that need root.
    pub async fn start(binary: &Path, flags: &[&str]) -> Result<Self, Error> {
        Self::start_in(tempfile::Builder::new().prefix("coracle-bench").tempdir()?, binary, flags).await
    }

    /// On a data directory that an earlier server left.
    pub async fn start_in(dir: TempDir, binary: &Path, flags: &[&str]) -> Result<Self, Error> {
        let port = free_port()?;
        let kubeconfig = dir.path().join("kubeconfig");
        let log = dir.path().join("log");
        let begun = Instant::now();
        let child = Command::new(binary)
            .args(["server", "--bind-address", "127.0.0.1", "--node-ip", "127.0.0.1", "--https-port"])
            .arg(port.to_string())
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .arg("--write-kubeconfig")
            .arg(&kubeconfig)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn();
        let mut child = Guard(child.map_err(|e| format!("{}: {e}", binary.display()))?);
        wait_until_ready(&Target::anonymous(port)?, begun, &mut child.0, &log).await?;
        let start_time = begun.elapsed();
        let target = Target::from_kubeconfig(&kubeconfig)?;
        Ok(Self { child, dir, start_time, target })
    }

    /// Lines that it has written to its log so far.
    pub fn log_lines(&self) -> Result<usize, Error> {
        Ok(std::fs::read_to_string(self.dir.path().join("log"))?.lines().count())
    }

    /// Its data directory is `data` in it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn process(&self) -> Process {
        Process(self.child.0.id())
    }

    /// Ends it in order and hands its data directory on.
    pub fn stop(self) -> Result<TempDir, Error> {
        self.end(Signal::SIGTERM)
    }

    /// Ends it as a power switch would, and hands its data directory on.
    pub fn kill(self) -> Result<TempDir, Error> {
        self.end(Signal::SIGKILL)
    }

    fn end(self, signal: Signal) -> Result<TempDir, Error> {
        let Self { mut child, dir, .. } = self;
        kill(Pid::from_raw(i32::try_from(child.0.id())?), signal)?;
        let begun = Instant::now();
        while child.0.try_wait()?.is_none() {
            if begun.elapsed() > STOP_TIME {
                return Err(format!("the server did not end within {STOP_TIME:?} of {signal}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(dir)
    }

    /// Waits until as many nodes are Ready and carry no taint.
    pub async fn nodes_ready(&self, wanted: usize) -> Result<(), Error> {
        let mut connection = self.target.connect().await?;
        let begun = Instant::now();
        // Thousands of nodes are registered one after the other.
        let patience = START_TIME + Duration::from_millis(20) * u32::try_from(wanted)?;
        loop {
            let asked = Instant::now();
            let nodes = connection.json(Call::get("/api/v1/nodes")).await?;
            let ready =
                nodes["items"].as_array().map_or(0, |nodes| nodes.iter().filter(|n| usable(n)).count());
            if ready >= wanted {
                return Ok(());
            }
            if begun.elapsed() > patience {
                return Err(format!("{ready} of {wanted} nodes ready after {patience:?}").into());
            }
            // A list of thousands costs more than what it waits for; a connection that is idle for long is closed.
            let pause = 10 * asked.elapsed();
            tokio::time::sleep(pause.clamp(Duration::from_millis(100), Duration::from_secs(5))).await;
        }
    }

    /// Waits until pods can be created in a namespace: it has its service account.
    pub async fn namespace(&self, name: &str) -> Result<(), Error> {
        let mut connection = self.target.connect().await?;
        if name != "default" {
            let body = serde_json::json!({"metadata": {"name": name}}).to_string();
            connection.call(Call::post("/api/v1/namespaces", body)).await?;
        }
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        let begun = Instant::now();
        while let Err(error) = connection.call(Call::get(&path)).await {
            if begun.elapsed() > START_TIME {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Ends a process that is left.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn usable(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let ready =
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    ready && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
}

/// Free a moment ago; taking it again is a race that nobody else on loopback is in.
pub fn free_port() -> Result<u16, Error> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn wait_until_ready(
    target: &Target,
    begun: Instant,
    child: &mut Child,
    log: &Path,
) -> Result<(), Error> {
    loop {
        if let Ok(mut connection) = target.connect().await
            && connection.call(Call::get("/readyz")).await.is_ok()
        {
            return Ok(());
        }
        if child.try_wait()?.is_some() || begun.elapsed() > START_TIME {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            return Err(
                format!("the server did not start: {}", text.lines().last().unwrap_or("no log")).into()
            );
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}
