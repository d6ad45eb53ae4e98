//! Images that nobody uses, removed before they fill the disk
//! (<https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-lifecycle>).

use crate::configuration::images::ImageSettings;
use crate::cri::api;
use crate::kubelet::Kubelet;
use crate::pod_facts::ending::is_over;
use crate::signal::Signal;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between looks; upstream's.
const PERIOD: Duration = Duration::from_secs(300);
/// Before the first look, while the runtime does not answer.
const RETRY: Duration = Duration::from_secs(2);

/// What is known of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// `None` of what was there before this process.
    first_seen: Option<Instant>,
    last_used: Option<Instant>,
}

/// Ids of what is to go, in this order, until `wanted` bytes are free. `seen` are ids and sizes of images that nobody
/// uses.
fn choose(
    seen: &[(String, u64)],
    known: &HashMap<String, Known>,
    wanted: u64,
    min_age: Duration,
    now: Instant,
) -> Vec<String> {
    let old_enough = |image: &&(String, u64)| {
        let old = |since: Instant| now.saturating_duration_since(since) >= min_age;
        known.get(&image.0).is_some_and(|k| k.first_seen.is_none_or(old))
    };
    let mut candidates: Vec<&(String, u64)> = seen.iter().filter(old_enough).collect();
    // Never used, or longest ago, first.
    candidates.sort_by_key(|image| known.get(&image.0).map(|k| (k.last_used, k.first_seen)));
    let mut freed: u64 = 0;
    let chosen = candidates.into_iter().take_while(|image| {
        let needed = freed < wanted;
        freed = freed.saturating_add(image.1);
        needed
    });
    chosen.map(|image| image.0.clone()).collect()
}

/// Ids of those that nobody has used for so long. What was there before this process is as old as the process.
fn expired(
    seen: &[(String, u64)],
    known: &HashMap<String, Known>,
    max_age: Duration,
    began: Instant,
    now: Instant,
) -> Vec<String> {
    let old = |image: &&(String, u64)| {
        let last = known.get(&image.0).map(|k| k.last_used.or(k.first_seen).unwrap_or(began));
        last.is_some_and(|last| now.saturating_duration_since(last) >= max_age)
    };
    seen.iter().filter(old).map(|image| image.0.clone()).collect()
}

/// Looks at once, to learn which images were there before, and every five minutes until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let work = async {
        while kubelet.images.notice(&kubelet).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
        loop {
            tokio::time::sleep(PERIOD).await;
            look(&kubelet).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

async fn look(kubelet: &Kubelet) {
    let Ok(mut unused) = kubelet.images.notice(kubelet).await else { return };
    let settings = kubelet.now().images.clone();
    if let Some(max_age) = settings.max_age {
        let gone = kubelet.images.remove_expired(kubelet, &unused, max_age).await;
        unused.retain(|(id, _)| !gone.contains(id));
    }
    let at = kubelet.observer.look().await;
    let Some(space) = at.amounts.get(&Signal::ImagefsAvailable) else { return };
    let wanted = settings.to_free(space.available, space.capacity);
    if wanted == 0 {
        return;
    }
    let freed = kubelet.images.remove(kubelet, &unused, wanted, &settings).await;
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

/// What is known of the runtime's images, and which of them stay whatever happens.
pub struct Images {
    /// When this process began.
    began: Instant,
    /// `None` before the first look.
    known: Mutex<Option<HashMap<String, Known>>>,
    /// Names of images from archives of this node's own. As upstream keeps what the runtime has pinned: on a machine without
    /// a registry nothing would bring them back before the next start.
    imported: Mutex<HashSet<String>>,
    /// All archives have been imported, or could not be.
    complete: watch::Sender<bool>,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            known: Mutex::default(),
            imported: Mutex::default(),
            complete: watch::Sender::default(),
        }
    }
}

impl Images {
    pub fn keep(&self, names: impl IntoIterator<Item = String>) {
        self.imported.lock().extend(names);
    }

    /// Nothing more will be kept. Nothing is removed before: it might be what is kept a moment later.
    pub fn all_kept(&self) {
        self.complete.send_replace(true);
    }

    /// Ids and sizes of the images that nobody uses, once it is known which are kept.
    async fn notice(&self, kubelet: &Kubelet) -> crate::cri::Result<Vec<(String, u64)>> {
        // The sender is this one's own.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
        let imported = self.imported.lock().clone();
        let (unused, used) = images(kubelet, &imported).await?;
        note(&mut self.known.lock(), &unused, &used, Instant::now());
        Ok(unused)
    }

    /// The bytes that the removed ones took.
    async fn remove(
        &self,
        kubelet: &Kubelet,
        unused: &[(String, u64)],
        wanted: u64,
        settings: &ImageSettings,
    ) -> u64 {
        let known = self.known.lock().clone().unwrap_or_default();
        let mut freed = 0;
        for image in choose(unused, &known, wanted, settings.min_age, Instant::now()) {
            let size = unused.iter().find(|(id, _)| *id == image).map_or(0, |(_, size)| *size);
            freed += if remove(kubelet, &image).await { size } else { 0 };
        }
        freed
    }

    /// Removes what nobody has used for so long, and says what that was.
    async fn remove_expired(
        &self,
        kubelet: &Kubelet,
        unused: &[(String, u64)],
        max_age: Duration,
    ) -> Vec<String> {
        let known = self.known.lock().clone().unwrap_or_default();
        let mut gone = Vec::new();
        for image in expired(unused, &known, max_age, self.began, Instant::now()) {
            if remove(kubelet, &image).await {
                gone.push(image);
            }
        }
        gone
    }

    /// Removes whatever nobody uses, but for what came a moment ago: the disk is full. Nothing before all archives are
    /// in, and it does not wait for them: other things may run short meanwhile.
    pub async fn remove_all_unused(&self, kubelet: &Kubelet) {
        if !*self.complete.borrow() {
            return;
        }
        match self.notice(kubelet).await {
            Ok(unused) => drop(self.remove(kubelet, &unused, u64::MAX, &kubelet.now().images).await),
            Err(error) => tracing::warn!(%error, "unused images not removed"),
        }
    }
}

fn note(
    known: &mut Option<HashMap<String, Known>>,
    unused: &[(String, u64)],
    used: &HashSet<String>,
    now: Instant,
) {
    let first_seen = known.is_some().then_some(now);
    let known = known.get_or_insert_default();
    known.retain(|id, _| used.contains(id) || unused.iter().any(|(other, _)| other == id));
    for id in unused.iter().map(|(id, _)| id).chain(used) {
        let entry = known.entry(id.clone()).or_insert(Known { first_seen, last_used: None });
        if used.contains(id) {
            entry.last_used = Some(now);
        }
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
    if let Err(error) = kubelet.puller.records().retain(&ids, asked) {
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

/// Runtimes write short names in full.
fn is_called(image: &api::Image, name: &str) -> bool {
    let same = |known: &String| known == name || known.strip_prefix("docker.io/library/") == Some(name);
    image.id == name || image.repo_tags.iter().chain(&image.repo_digests).any(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_AGE: Duration = Duration::from_secs(120);

    #[tokio::test(start_paused = true)]
    async fn what_was_used_longest_ago_goes_first_and_the_young_stay() {
        let image = |id: &str| (id.to_owned(), 100);
        let mut known = None;
        let used = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        note(&mut known, &[image("never")], &used(&["a", "b"]), Instant::now());
        tokio::time::advance(PERIOD).await;
        note(&mut known, &[image("never"), image("a")], &used(&["b"]), Instant::now());
        tokio::time::advance(PERIOD).await;
        let unused = [image("b"), image("a"), image("never"), image("new")];
        note(&mut known, &unused, &used(&[]), Instant::now());
        let (known, now) = (known.unwrap(), Instant::now());
        assert_eq!(choose(&unused, &known, 1, MIN_AGE, now), ["never"]);
        assert_eq!(choose(&unused, &known, 150, MIN_AGE, now), ["never", "a"]);
        assert_eq!(
            choose(&unused, &known, u64::MAX, MIN_AGE, now),
            ["never", "a", "b"],
            "the new one stays even then"
        );
        assert_eq!(choose(&unused, &known, 0, MIN_AGE, now), [""; 0]);
        assert_eq!(choose(&unused, &known, 9999, MIN_AGE, now + MIN_AGE), ["never", "new", "a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_there_before_is_old_enough() {
        let there = [("before".to_owned(), 1)];
        let mut known = None;
        note(&mut known, &there, &HashSet::new(), Instant::now());
        assert_eq!(choose(&there, &known.unwrap(), 1, MIN_AGE, Instant::now()), ["before"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_has_used_for_long_goes_whatever_its_age() {
        let began = Instant::now();
        let image = |id: &str| (id.to_owned(), 1);
        let (mut known, hour) = (None, Duration::from_secs(3600));
        note(&mut known, &[image("before")], &HashSet::from(["used".to_owned()]), Instant::now());
        tokio::time::advance(hour).await;
        note(&mut known, &[image("before"), image("used"), image("new")], &HashSet::new(), Instant::now());
        let (known, seen) = (known.unwrap(), [image("before"), image("used"), image("new")]);
        let gone = |after: Duration| expired(&seen, &known, hour, began, began + after);
        assert_eq!(gone(hour - Duration::from_secs(1)), [""; 0]);
        assert_eq!(gone(hour), ["before", "used"]);
        assert_eq!(gone(2 * hour), ["before", "used", "new"]);
    }
}
