//! Images that nobody uses are removed before they fill the disk.

use crate::cri::api;
use crate::images::gc::is_called;
use crate::kubelet::Kubelet;
use crate::metrics::Metric;
use crate::pod_facts::termination::is_over;
use crate::signal::Signal;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between looks; upstream's.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(300);
/// Before the first look, while the runtime does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Looks at once, to learn which images were there before, and every five minutes until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let work = async {
        while notice(&kubelet).await.is_err() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            look(&kubelet).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

async fn look(kubelet: &Kubelet) {
    let Ok(mut unused) = notice(kubelet).await else { return };
    let settings = kubelet.now().images.clone();
    if let Some(max_age) = settings.max_age {
        let gone = remove_expired(kubelet, &unused, max_age).await;
        unused.retain(|(id, _)| !gone.contains(id));
    }
    let at = kubelet.observer.look().await;
    let Some(space) = at.amounts.get(&Signal::ImagefsAvailable) else { return };
    let wanted = settings.to_free(space.available, space.capacity);
    if wanted == 0 {
        return;
    }
    let freed = remove_some(kubelet, &unused, wanted, settings.min_age).await;
    let node = kubelet.own.borrow().clone();
    if freed < wanted
        && let Some(node) = node
    {
        let text = format!(
            "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found \
             {freed} bytes eligible to free."
        );
        kubelet.recorder.warning(node.as_ref(), "FreeDiskSpaceFailed", text);
    }
}

/// Ids and sizes of the images that nobody uses, once it is known which are kept.
async fn notice(kubelet: &Kubelet) -> crate::cri::Result<Vec<(String, u64)>> {
    let (unused, used) = images(kubelet, &kubelet.images.kept().await).await?;
    kubelet.images.note(&unused, &used);
    Ok(unused)
}

/// The bytes that the removed ones took.
async fn remove_some(kubelet: &Kubelet, unused: &[(String, u64)], wanted: u64, min_age: Duration) -> u64 {
    let mut freed = 0;
    for image in kubelet.images.choose(unused, wanted, min_age) {
        let size = unused.iter().find(|(id, _)| *id == image).map_or(0, |(_, size)| *size);
        freed += if remove(kubelet, &image, "space").await { size } else { 0 };
    }
    freed
}

/// Removes what nobody has used for so long, and says what that was.
async fn remove_expired(kubelet: &Kubelet, unused: &[(String, u64)], max_age: Duration) -> Vec<String> {
    let mut gone = Vec::new();
    for image in kubelet.images.expired(unused, max_age) {
        if remove(kubelet, &image, "age").await {
            gone.push(image);
        }
    }
    gone
}

/// Removes whatever nobody uses, but for what came a moment ago: the disk is full. Nothing before all archives are in, and
/// it does not wait for them: other things may run short meanwhile.
pub async fn remove_all_unused(kubelet: &Kubelet) {
    if !kubelet.images.are_all_kept() {
        return;
    }
    let min_age = kubelet.now().images.min_age;
    match notice(kubelet).await {
        Ok(unused) => drop(remove_some(kubelet, &unused, u64::MAX, min_age).await),
        Err(error) => tracing::warn!(%error, "unused images not removed"),
    }
}

/// `reason` is upstream's word for metrics.
async fn remove(kubelet: &Kubelet, image: &str, reason: &str) -> bool {
    match kubelet.runtime.remove_image(image).await {
        Ok(()) => tracing::info!(image, "image removed, nobody uses it"),
        Err(error) => {
            tracing::warn!(image, %error, "image not removed");
            return false;
        }
    }
    kubelet.metrics.add(Metric::ImagesRemoved, &[reason]);
    true
}

/// Ids of the images: those that no container has, with their sizes, and those that one has. Pinned and imported images
/// and that of the sandboxes count as neither.
async fn images(
    kubelet: &Kubelet,
    imported: &HashSet<String>,
) -> crate::cri::Result<(Vec<(String, u64)>, HashSet<String>)> {
    let runtime = kubelet.runtime.as_ref();
    let asked = jiff::Timestamp::now();
    let images = runtime.list_images().await?;
    let ids = images.iter().map(|image| image.id.as_str()).collect();
    if let Err(error) = kubelet.puller.retain(&ids, asked) {
        tracing::warn!(%error, "notes of who pulled images are not cleaned up");
    }
    let containers = runtime.list_containers(None).await?;
    let wanted = wanted(kubelet);
    let named: HashSet<&str> = containers
        .iter()
        .flat_map(|c| {
            [c.image_ref.as_str(), c.image_id.as_str(), c.image.as_ref().map_or("", |i| i.image.as_str())]
        })
        .chain(wanted.iter().map(String::as_str))
        .filter(|name| !name.is_empty())
        .collect();
    let pause = &kubelet.config.pause_image;
    let mut unused = Vec::new();
    let mut used = HashSet::new();
    let stays = |image: &api::Image| {
        image.pinned || is_called(image, pause) || imported.iter().any(|name| is_called(image, name))
    };
    for image in images.iter().filter(|image| !stays(image)) {
        if named.iter().any(|name| is_called(image, name)) {
            used.insert(image.id.clone());
        } else {
            unused.push((image.id.clone(), image.size));
        }
    }
    Ok((unused, used))
}

/// What pods of this node ask for, in containers and as volumes: a volume's image has no container, and one that was just
/// pulled has none yet.
fn wanted(kubelet: &Kubelet) -> Vec<String> {
    let pods: Vec<_> = kubelet.register.lock().values().map(|slot| slot.pod.clone()).collect();
    let specs = pods.iter().filter(|pod| !is_over(pod)).filter_map(|pod| pod.spec.as_ref());
    let names = specs.flat_map(|spec| {
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_ref());
        containers.filter_map(|c| c.image.as_ref()).chain(volumes)
    });
    names.flat_map(|name| [name.clone(), format!("{name}:latest")]).collect()
}
