//! Which images nobody uses and for how long, and which of them go first: pure decisions, and what they are made of
//! (<https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-image-lifecycle>).

use crate::cri::api;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

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

    pub fn are_all_kept(&self) -> bool {
        *self.complete.borrow()
    }

    /// The names that are kept, once all are known.
    pub async fn kept(&self) -> HashSet<String> {
        // The sender is this one's own.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
        self.imported.lock().clone()
    }

    /// Takes note of ids and sizes of the images that nobody uses, and of the ids of those in use.
    pub fn note(&self, unused: &[(String, u64)], used: &HashSet<String>) {
        note(&mut self.known.lock(), unused, used, Instant::now());
    }

    /// Ids of what is to go, in this order, until `wanted` bytes are free; nothing younger than `min_age`.
    pub fn choose(&self, unused: &[(String, u64)], wanted: u64, min_age: Duration) -> Vec<String> {
        let known = self.known.lock().clone().unwrap_or_default();
        choose(unused, &known, wanted, min_age, Instant::now())
    }

    /// Ids of those that nobody has used for so long.
    pub fn expired(&self, unused: &[(String, u64)], max_age: Duration) -> Vec<String> {
        let known = self.known.lock().clone().unwrap_or_default();
        expired(unused, &known, max_age, self.began, Instant::now())
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

/// Runtimes write short names in full.
pub fn is_called(image: &api::Image, name: &str) -> bool {
    let same = |known: &String| known == name || known.strip_prefix("docker.io/library/") == Some(name);
    image.id == name || image.repo_tags.iter().chain(&image.repo_digests).any(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_AGE: Duration = Duration::from_secs(120);
    const PERIOD: Duration = Duration::from_secs(300);

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
