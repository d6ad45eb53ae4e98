//! Pods are taken away by their runtime while it answers, and by force where it cannot or is not there.

use super::held::Held;
use super::{remove_file, unmount_below};
use coracle_kubelet::cgroup::processes;
use coracle_kubelet::cri::shims::{LinuxShims, Shim, Shims};
use coracle_kubelet::cri::{CriClient, Runtime, RuntimeError};
use futures::StreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sandboxes that the runtime is asked to end at a time: each costs a plug-in's process and a lock on the packet rules.
const TOGETHER: usize = 8;
/// How long the runtime may take for one call before what it is about is forced; a healthy one needs about a second.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long shims may take to end after their sandbox was removed, and the runtime to notice that they were killed.
const SETTLED_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What taking pods away came to.
#[derive(Debug, Default)]
pub struct Outcome {
    pub forced: Vec<String>,
    pub failures: Vec<String>,
}

/// Takes away all pods of the runtime at `endpoint`, and what is left of those that this node knew by `uids`.
pub async fn take_away(endpoint: &str, uids: &[String]) -> Outcome {
    let shims = LinuxShims::new(endpoint);
    let mut outcome = Outcome::default();
    let mut refused = ask(endpoint).await;
    let left = settled(&shims, refused.is_ok()).await;
    if !left.is_empty() {
        let held = Held::by(&left);
        outcome.forced.extend(refused.err().map(|why| format!("the runtime could not end every pod: {why}")));
        outcome.forced.extend(end(&shims, &left, &held));
        settled(&shims, true).await;
        // Freed of what it could not end, it can forget it; and give addresses back, where it is there.
        refused = ask(endpoint).await;
        let alive = shims.all();
        outcome.failures.extend(alive.iter().map(|shim| format!("process {} is still there", shim.pid)));
        clear(&held, &mut outcome);
    }
    outcome.failures.extend(refused.err());
    empty_cgroups(uids, &mut outcome);
    outcome
}

/// Asks the runtime to end every pod. Stopping a sandbox also gives its address and its interface back to the network
/// plugin. The first refusal is returned, when all have been tried.
async fn ask(endpoint: &str) -> Result<(), String> {
    let runtime = CriClient::new(endpoint);
    let sandboxes =
        within("ListPodSandbox", runtime.list_pod_sandboxes(None)).await.map_err(|e| e.to_string())?;
    let removals = futures::stream::iter(sandboxes).map(async |sandbox| {
        within("StopPodSandbox", runtime.stop_pod_sandbox(&sandbox.id)).await?;
        within("RemovePodSandbox", runtime.remove_pod_sandbox(&sandbox.id)).await
    });
    let results: Vec<Result<(), RuntimeError>> = removals.buffer_unordered(TOGETHER).collect().await;
    results.into_iter().collect::<Result<(), _>>().map_err(|e| e.to_string())
}

async fn within<T>(
    method: &'static str,
    call: impl Future<Output = Result<T, RuntimeError>>,
) -> Result<T, RuntimeError> {
    let late = RuntimeError::Timeout { method, limit: WAIT_TIMEOUT };
    tokio::time::timeout(WAIT_TIMEOUT, call).await.unwrap_or(Err(late))
}

/// The shims that are left when they have had time to end, if `ending`.
async fn settled(shims: &LinuxShims, ending: bool) -> Vec<Shim> {
    let began = Instant::now();
    loop {
        let left = shims.all();
        if left.is_empty() || !ending || began.elapsed() > SETTLED_TIMEOUT {
            return left;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Kills shims and what is below them; says whom.
fn end(shims: &LinuxShims, left: &[Shim], held: &Held) -> Vec<String> {
    let mut said = Vec::new();
    for shim in left {
        let below = held.processes.get(&shim.pid).into_iter().flatten();
        // The shim first: nobody else starts processes there.
        let shim_killed = shims.kill(shim);
        let killed = below.filter(|pid| kill(Pid::from_raw(**pid), Signal::SIGKILL).is_ok()).count();
        if shim_killed {
            said.push(format!("killed the shim of sandbox {} and {killed} processes below it", shim.id));
        }
    }
    said
}

/// What a runtime would have cleared away that had not lost the containers.
fn clear(held: &Held, outcome: &mut Outcome) {
    for network in &held.networks {
        match remove_network(network) {
            Ok(false) => {}
            Ok(true) => outcome.forced.push(format!("removed the network namespace {}", network.display())),
            Err(why) => outcome.failures.push(why),
        }
    }
    for bundles in &held.bundles {
        let sandboxes = sandboxes_beside(bundles);
        for dir in std::iter::once(bundles.as_path()).chain(sandboxes.as_deref()) {
            match unmount_below(dir) {
                Ok(points) => {
                    outcome.forced.extend(points.iter().map(|p| format!("unmounted {}", p.display())))
                }
                Err(why) => outcome.failures.push(why),
            }
        }
    }
}

/// containerd mounts the shared memory of sandboxes below the same directory as the containers' file systems:
/// `<state>/io.containerd.runtime.v2.task/k8s.io` and `<state>/io.containerd.grpc.v1.cri/sandboxes`.
fn sandboxes_beside(bundles: &Path) -> Option<PathBuf> {
    Some(bundles.parent()?.parent()?.join("io.containerd.grpc.v1.cri/sandboxes"))
}

/// Whether it was still there.
fn remove_network(path: &Path) -> Result<bool, String> {
    if !path.exists() {
        return Ok(false);
    }
    unmount_below(path)?;
    remove_file(path)?;
    Ok(true)
}

fn empty_cgroups(uids: &[String], outcome: &mut Outcome) {
    let root = Path::new(processes::ROOT);
    for uid in uids {
        let killed = processes::kill(root, uid);
        if killed > 0 {
            outcome.forced.push(format!("killed {killed} processes in the cgroup of pod {uid}"));
        }
        let began = Instant::now();
        // The kernel needs a moment to let go of what was killed.
        let removed = loop {
            match processes::remove(root, uid) {
                Err(_) if began.elapsed() < Duration::from_secs(2) => std::thread::sleep(LOOK_INTERVAL),
                other => break other,
            }
        };
        outcome.failures.extend(removed.err().map(|e| e.to_string()));
    }
    processes::remove_empty(root);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_lies_beside_the_containers() {
        let bundles = Path::new("/run/containerd/io.containerd.runtime.v2.task/k8s.io");
        let wanted = Path::new("/run/containerd/io.containerd.grpc.v1.cri/sandboxes");
        assert_eq!(sandboxes_beside(bundles).as_deref(), Some(wanted));
    }

    #[tokio::test]
    async fn a_runtime_that_is_not_there_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = dir.path().join("none.sock").display().to_string();
        let outcome = take_away(&endpoint, &[]).await;
        assert!(outcome.forced.is_empty(), "{outcome:?}");
        assert!(outcome.failures[0].contains("not reachable"), "{outcome:?}");
    }
}
