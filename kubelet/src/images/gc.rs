//! Images that nobody uses, removed before they fill the disk
//! (<https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-lifecycle>).

use crate::cri::api;
use crate::kubelet::Kubelet;
use crate::pod::admit::is_over;
use nix::sys::statvfs::statvfs;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between looks; upstream's.
const PERIOD: Duration = Duration::from_secs(300);
/// An image that came so recently stays: its pod may be about to start. Upstream's imageMinimumGCAge.
const MIN_AGE: Duration = Duration::from_secs(120);

/// What is known of an image since this process looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    first_seen: Instant,
    last_used: Option<Instant>,
}

/// Image and size of what is to go, in this order, until `wanted` bytes are free. `seen` are images that nobody uses.
fn choose(seen: &[(String, u64)], known: &HashMap<String, Known>, wanted: u64, now: Instant) -> Vec<String> {
    let old_enough = |image: &&(String, u64)| {
        known.get(&image.0).is_some_and(|k| now.saturating_duration_since(k.first_seen) >= MIN_AGE)
    };
    let mut candidates: Vec<&(String, u64)> = seen.iter().filter(old_enough).collect();
    // Never used, or longest ago, first.
    candidates.sort_by_key(|image| known.get(&image.0).map(|k| (k.last_used, k.first_seen)));
    let mut freed = 0;
    let chosen = candidates.into_iter().take_while(|image| {
        let needed = freed < wanted;
        freed += image.1;
        needed
    });
    chosen.map(|image| image.0.clone()).collect()
}

/// Looks every five minutes until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let mut known = HashMap::new();
    while stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
        look(&kubelet, &mut known).await;
    }
}

async fn look(kubelet: &Kubelet, known: &mut HashMap<String, Known>) {
    let Ok((unused, used)) = images(kubelet).await else { return };
    let now = Instant::now();
    note(known, &unused, &used, now);
    let Some((available, total)) = space(kubelet).await else { return };
    let wanted = kubelet.config.eviction_hard.images_to_free(available, total);
    if wanted == 0 {
        return;
    }
    let mut freed = 0;
    for image in choose(&unused, known, wanted, now) {
        let size = unused.iter().find(|(id, _)| *id == image).map_or(0, |(_, size)| *size);
        freed += if remove(kubelet, &image).await { size } else { 0 };
    }
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

fn note(known: &mut HashMap<String, Known>, unused: &[(String, u64)], used: &HashSet<String>, now: Instant) {
    known.retain(|id, _| used.contains(id) || unused.iter().any(|(other, _)| other == id));
    for id in unused.iter().map(|(id, _)| id).chain(used) {
        let entry = known.entry(id.clone()).or_insert(Known { first_seen: now, last_used: None });
        if used.contains(id) {
            entry.last_used = Some(now);
        }
    }
}

/// Removes whatever nobody uses, however young: the disk is full.
pub async fn remove_all_unused(kubelet: &Kubelet) {
    let Ok((unused, _)) = images(kubelet).await else { return };
    for (image, _) in unused {
        remove(kubelet, &image).await;
    }
}

async fn remove(kubelet: &Kubelet, image: &str) -> bool {
    match kubelet.runtime.remove_image(image).await {
        Ok(()) => tracing::info!(image, "image removed, nobody uses it"),
        Err(error) => {
            tracing::warn!(image, %error, "image not removed");
            return false;
        }
    }
    true
}

/// Ids of the images: those that no container has, with their sizes, and those that one has. Pinned images and that of
/// the sandboxes count as neither.
async fn images(kubelet: &Kubelet) -> crate::cri::Result<(Vec<(String, u64)>, HashSet<String>)> {
    let runtime = kubelet.runtime.as_ref();
    let images = runtime.list_images().await?;
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
    for image in images.iter().filter(|i| !i.pinned && !is_called(i, pause)) {
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

/// Runtimes write short names in full.
fn is_called(image: &api::Image, name: &str) -> bool {
    let same = |known: &String| known == name || known.strip_prefix("docker.io/library/") == Some(name);
    image.id == name || image.repo_tags.iter().chain(&image.repo_digests).any(same)
}

/// Bytes that are free and bytes in all, of the file system that images lie on.
async fn space(kubelet: &Kubelet) -> Option<(u64, u64)> {
    let info = kubelet.runtime.image_fs_info().await.ok()?;
    let path = info.into_iter().find_map(|f| f.fs_id)?.mountpoint;
    let fs = statvfs(path.as_str()).ok()?;
    // As `df` counts: what is reserved is neither used nor free.
    let reserved = fs.blocks_free().saturating_sub(fs.blocks_available());
    let unit = fs.fragment_size();
    Some((fs.blocks_available() * unit, (fs.blocks() - reserved) * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_used_longest_ago_goes_first_and_the_young_stay() {
        let image = |id: &str| (id.to_owned(), 100);
        let mut known = HashMap::new();
        let used = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        note(&mut known, &[image("never")], &used(&["a", "b"]), Instant::now());
        tokio::time::advance(PERIOD).await;
        note(&mut known, &[image("never"), image("a")], &used(&["b"]), Instant::now());
        tokio::time::advance(PERIOD).await;
        let unused = [image("b"), image("a"), image("never"), image("new")];
        note(&mut known, &unused, &used(&[]), Instant::now());
        let now = Instant::now();
        assert_eq!(choose(&unused, &known, 1, now), ["never"]);
        assert_eq!(choose(&unused, &known, 150, now), ["never", "a"]);
        assert_eq!(choose(&unused, &known, 9999, now), ["never", "a", "b"]);
        assert_eq!(choose(&unused, &known, 0, now), [""; 0]);
    }
}
