//! What pods left behind that are gone.

use crate::cgroup::processes;
use crate::cri::Calls;
use crate::kubelet::Kubelet;
use crate::metrics::Metric;
use crate::pod::stubborn::{EndError, Stubborn, patiently};
use crate::pod_facts::labels;
use crate::pod_facts::observed::{Observed, observe};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What containers get whose pod nobody knows any more, so that its own period is not known either; upstream's second.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Between looks whether the runtime answers.
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);

/// Removes what pods left behind that went while nobody looked. Called only after a complete list from the API
/// server, so that one that cannot be reached costs nobody a container.
pub async fn remove_all(kubelet: Arc<Kubelet>, known: HashSet<String>) {
    let runtime = kubelet.runtime.as_ref();
    let sandboxes = loop {
        match runtime.list_pod_sandboxes(None).await {
            Ok(sandboxes) => break sandboxes,
            Err(_) => tokio::time::sleep(REOPEN_INTERVAL).await,
        }
    };
    let uids = sandboxes.iter().filter_map(|s| s.labels.get(labels::POD_UID)).cloned();
    let on_disk: HashSet<String> = kubelet.volumes.pods_on_disk().into_iter().collect();
    let uids = uids.chain(on_disk.iter().cloned()).chain(kubelet.dra.pods()).chain(kubelet.allocation.pods());
    let uids: HashSet<String> = uids.collect();
    // A pod that came meanwhile has a worker by now.
    let alive = |uid: &String| known.contains(uid) || kubelet.register.lock().contains_key(uid);
    for gauge in [Metric::OrphansCleaned, Metric::OrphansLeft] {
        kubelet.metrics.set(gauge, &[], 0);
    }
    let removals = uids.iter().filter(|uid| !alive(uid)).map(async |uid| {
        let calls = Calls::new(kubelet.runtime.clone(), kubelet.calls.clone());
        let mut stubborn = Stubborn::default();
        let has_volumes = on_disk.contains(uid);
        let mut stuck = false;
        while !kubelet.register.lock().contains_key(uid) {
            let removed = remove(&kubelet, &calls, uid, &stubborn).await;
            let sticks = matches!(removed, Err(EndError::Volumes(_)));
            count_stuck(&kubelet, std::mem::replace(&mut stuck, sticks), sticks);
            let Err(error) = removed else {
                kubelet.metrics.change(Metric::OrphansCleaned, &[], i64::from(has_volumes));
                break;
            };
            let pause = stubborn.failed(&error);
            let again_ms = pause.as_millis();
            tracing::warn!(%uid, %error, again_ms, "remains of a pod not removed");
            tokio::time::sleep(pause).await;
        }
        count_stuck(&kubelet, stuck, false);
    });
    futures::future::join_all(removals).await;
}

/// Notes that the volumes of one pod more, or less, cannot be taken away.
fn count_stuck(kubelet: &Kubelet, before: bool, now: bool) {
    let by = i64::from(now) - i64::from(before);
    kubelet.metrics.change(Metric::OrphansLeft, &[], by);
}

async fn remove(kubelet: &Kubelet, calls: &Calls, uid: &str, stubborn: &Stubborn) -> Result<(), EndError> {
    let observed = observe(kubelet.runtime.as_ref(), uid, calls, &Observed::default()).await?;
    if stubborn.wants_force() {
        crate::pod::force(kubelet, uid, &observed);
    }
    tracing::info!(%uid, "removing the remains of a pod that is gone");
    let stops = observed
        .running()
        .map(|c| patiently("StopContainer", GRACE_PERIOD, calls.stop_container(&c.id, GRACE_PERIOD)));
    futures::future::join_all(stops).await.into_iter().collect::<Result<(), _>>()?;
    crate::pod::remove_everything(calls, &observed).await?;
    kubelet.dra.unprepare(uid).await?;
    if kubelet.allocation.release(uid).await {
        kubelet.cpus_changed();
    }
    kubelet.volumes.tear_down(uid).await?;
    processes::remove(&kubelet.cgroup_root, uid)?;
    // Once, however often it was tried.
    if !observed.sandboxes.is_empty() {
        kubelet.metrics.add(Metric::OrphanedPods, &[]);
    }
    Ok(())
}
