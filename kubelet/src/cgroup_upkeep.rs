//! Makes the cgroups of pods, weighs them, and removes those that nobody needs.

use crate::blocking::reading;
use crate::cgroup::{CgroupsError, processes};
use crate::kubelet::Kubelet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between attempts to learn from the runtime who makes cgroups.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Between looks at what classes of pods ask for and at what pods left behind; upstream's.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Makes them as soon as the runtime answers, and keeps house until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let work = async {
        let mut told = false;
        while let Err(error) = kubelet.cgroups.ready(kubelet.runtime.as_ref()).await {
            if !told && !matches!(error, CgroupsError::Runtime(_)) {
                tracing::error!(
                    error = coracle_api::error::chain(&error),
                    "pods have no cgroups, and do not start"
                );
                told = true;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let mut empty = HashSet::new();
        loop {
            let pods: Vec<_> = kubelet.register.lock().values().map(|slot| slot.pod.clone()).collect();
            if let Err(error) = kubelet.cgroups.weigh(&pods).await {
                tracing::warn!(error = coracle_api::error::chain(&error), "cgroups of pods not weighed");
            }
            empty = sweep(&kubelet, empty).await;
            tokio::time::sleep(UPKEEP_INTERVAL).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Removes cgroups of pods that nobody knows and that had no process at two looks: a kubelet or a runtime was ended in the
/// middle. Says which have none now.
async fn sweep(kubelet: &Arc<Kubelet>, before: HashSet<String>) -> HashSet<String> {
    let root = kubelet.cgroup_root.clone();
    let found = reading("cgroups without processes", move || processes::without_processes(&root)).await;
    let mut empty: HashSet<String> = found.unwrap_or_default().into_iter().collect();
    empty.retain(|uid| !kubelet.register.lock().contains_key(uid));
    let gone: Vec<String> = empty.intersection(&before).cloned().collect();
    for uid in gone {
        let (root, pod) = (kubelet.cgroup_root.clone(), uid.clone());
        match reading("a pod's cgroup", move || processes::remove(&root, &pod)).await {
            Some(Ok(())) => {
                tracing::info!(%uid, "removed the cgroup of a pod that is gone");
                empty.remove(&uid);
            }
            Some(Err(error)) => tracing::debug!(%uid, %error, "the cgroup of a pod that is gone stays"),
            None => {}
        }
    }
    empty
}
