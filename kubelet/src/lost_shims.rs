//! Shims that a kubelet before this one left to the runtime in the middle of a call, and that the runtime has lost. Nobody
//! else would ever end them.

use crate::cri::shims::Shim;
use crate::kubelet::Kubelet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// More than CRI gives a sandbox to start, which takes longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Looks once after the start, and kills what has held nothing for longer than any call takes.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let before = kubelet.shims.idle();
    if before.is_empty() || stop.run_until_cancelled(tokio::time::sleep(CALL_TIMEOUT)).await.is_none() {
        return;
    }
    let Ok(sandboxes) = kubelet.runtime.list_pod_sandboxes(None).await else { return };
    let known = sandboxes.into_iter().map(|sandbox| sandbox.id).collect();
    for shim in lost(&before, kubelet.shims.idle(), &known) {
        if kubelet.shims.kill(&shim) {
            tracing::warn!(pid = shim.pid, sandbox = %shim.id, "killed a shim that the runtime had lost");
        }
    }
}

/// Those that held nothing at both looks, and that the runtime does not know.
fn lost(before: &[Shim], now: Vec<Shim>, known: &HashSet<String>) -> Vec<Shim> {
    now.into_iter().filter(|shim| before.contains(shim) && !known.contains(&shim.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_held_nothing_all_the_time_and_is_unknown_is_lost() {
        let shim = |pid: i32, id: &str| Shim { pid, id: id.to_owned() };
        let before = [shim(1, "a"), shim(2, "b"), shim(3, "c")];
        // `b` is another process by now, and `d` may be of a sandbox that is just being run.
        let now = vec![shim(1, "a"), shim(9, "b"), shim(3, "c"), shim(4, "d")];
        assert_eq!(lost(&before, now, &["c".to_owned()].into()), [shim(1, "a")]);
    }
}
