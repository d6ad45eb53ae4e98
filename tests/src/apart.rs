//! A network of its own, for what must not meet the machine's: floods, and servers that answer a whole network.

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use std::process::Command;

/// Why there is no such network here.
#[derive(Debug)]
pub enum NoNetwork {
    /// It takes root, which has the right to make network namespaces.
    NotAllowed,
    Failed(String),
}

/// Runs `work` in a thread that has a network namespace of its own, whose loopback device has these addresses too. The threads
/// and processes that it starts are in there with it. The network is gone with the last of them.
///
/// # Errors
/// There is no such network here; `work` was not run.
///
/// # Panics
/// As `work` does.
pub fn apart<T: Send>(addresses: &[&str], work: impl FnOnce() -> T + Send) -> Result<T, NoNetwork> {
    std::thread::scope(|scope| {
        let run = || {
            enter(addresses)?;
            Ok(work())
        };
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn enter(addresses: &[&str]) -> Result<(), NoNetwork> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| match error {
        Errno::EPERM => NoNetwork::NotAllowed,
        error => NoNetwork::Failed(error.to_string()),
    })?;
    ip(&["link", "set", "lo", "up"])?;
    addresses.iter().try_for_each(|address| ip(&["address", "add", address, "dev", "lo"]))
}

fn ip(arguments: &[&str]) -> Result<(), NoNetwork> {
    let failed = |why: String| NoNetwork::Failed(format!("ip {}: {why}", arguments.join(" ")));
    let output = Command::new("ip").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
