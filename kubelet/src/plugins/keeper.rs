//! What goes on with volumes while no pod asks for anything: what nobody has is unstaged, what is there is measured.

use crate::blocking;
use crate::kubelet::Kubelet;
use crate::pods_api::PodsApi;
use coracle_storage::volumes::claim_name;
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;

/// Between attempts to unstage what no pod has; a driver may come back at any time.
const UNSTAGE_INTERVAL: Duration = Duration::from_secs(10);
/// Between measurements; as long as file systems' counts stand.
const MEASURE_INTERVAL: Duration = Duration::from_secs(60);

/// Pods that are measured at once: enough that one driver that hangs keeps few others, and few enough for the disk.
const AT_ONCE: usize = 8;

pub(super) async fn run(kubelet: Arc<Kubelet>) {
    tokio::join!(unstage(&kubelet), measure(&kubelet), attached(&kubelet));
}

/// Tells who mounts volumes what the Node says: of attachments those who wait for them, and by its labels which it may have.
async fn attached(kubelet: &Kubelet) {
    let mut own = kubelet.own.clone();
    loop {
        let node = own.borrow_and_update().clone();
        kubelet.volumes.note_node(node.clone());
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        let volumes = status.and_then(|status| status.volumes_attached.as_ref());
        kubelet.volumes.note_attached(volumes.into_iter().flatten().map(|volume| &volume.name));
        if own.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn unstage(kubelet: &Kubelet) {
    loop {
        for error in kubelet.volumes.unstage_unused().await {
            tracing::warn!(%error, "a volume that no pod has is still staged, trying again");
        }
        tokio::time::sleep(UNSTAGE_INTERVAL).await;
    }
}

async fn measure(kubelet: &Kubelet) {
    loop {
        tokio::time::sleep(MEASURE_INTERVAL).await;
        let measure = futures::stream::iter(kubelet.pods()).for_each_concurrent(AT_ONCE, async |pod| {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let usage = kubelet.volumes.usage(&uid).await;
            kubelet.volume_stats.tell(&uid, usage);
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            if volumes.into_iter().any(|volume| claim_name(&pod, volume).is_some()) {
                let (stats, pods_dir) = (kubelet.volume_stats.clone(), kubelet.config.pods_dir());
                let time = jiff::Timestamp::now().to_string();
                blocking::reading("volumes of a pod", move || stats.of(&pods_dir, &pod, &time)).await;
            }
        });
        measure.await;
    }
}
