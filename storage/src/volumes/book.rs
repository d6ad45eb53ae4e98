//! Which volumes the pods of the node want and which of them stand, by plugin; and how long work on volumes takes.

use super::Record;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A plugin was asked what a volume holds; upstream counts that apart from operations.
pub const MEASURE: &str = "volume_stats";

/// How long one piece of work on a volume took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Upstream's word: `volume_mount`, `volume_unmount`, `unmount_device`; or [`MEASURE`].
    pub operation: &'static str,
    /// As upstream names it: `kubernetes.io/empty-dir`, `kubernetes.io/csi:<driver>`.
    pub plugin: String,
    pub time: Duration,
    pub failed: bool,
}

/// Hears of work on volumes. Called where the work was done; must not block.
pub type Listener = Arc<dyn Fn(Timed) + Send + Sync>;

/// How many volumes of a plugin pods want, and how many of them stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub desired: usize,
    pub actual: usize,
}

#[derive(Debug)]
struct Entry {
    plugin: String,
    wanted: bool,
    stands: bool,
}

/// Volumes by the pod's UID and its name of them.
#[derive(Default)]
pub(super) struct Book {
    entries: Mutex<HashMap<(String, String), Entry>>,
    listener: Option<Listener>,
}

/// The plugin's name for metrics: drivers of CSI are told apart.
pub(super) fn plugin_name(plugin: &str, record: Option<&Record>) -> String {
    let of_driver = |record: &Record| {
        let rest = record.unique.strip_prefix(plugin)?.strip_prefix('/')?;
        Some(format!("{plugin}:{}", rest.split_once('^')?.0))
    };
    record.and_then(of_driver).unwrap_or_else(|| plugin.to_owned())
}

impl Book {
    pub fn told_to(listener: Listener) -> Self {
        Self { listener: Some(listener), ..Self::default() }
    }

    pub fn timed(&self, timed: Timed) {
        if let Some(listener) = &self.listener {
            listener(timed);
        }
    }

    /// Notes that a pod wants the volume. Whether it stood before.
    pub fn want(&self, uid: &str, volume: &str, plugin: &str) -> bool {
        let mut entries = self.entries.lock();
        let new = || Entry { plugin: plugin.to_owned(), wanted: true, stands: false };
        let entry = entries.entry((uid.to_owned(), volume.to_owned())).or_insert_with(new);
        entry.wanted = true;
        entry.stands
    }

    pub fn stands(&self, uid: &str, volume: &str) {
        if let Some(entry) = self.entries.lock().get_mut(&(uid.to_owned(), volume.to_owned())) {
            entry.stands = true;
        }
    }

    /// The pod wants nothing any more; what stands is still to be taken away.
    pub fn unwant(&self, uid: &str) {
        let mut entries = self.entries.lock();
        entries.iter_mut().filter(|((of, _), _)| of == uid).for_each(|(_, entry)| entry.wanted = false);
        entries.retain(|_, entry| entry.wanted || entry.stands);
    }

    pub fn gone(&self, uid: &str, volume: &str) {
        self.entries.lock().remove(&(uid.to_owned(), volume.to_owned()));
    }

    /// Nothing of the pod stands any more. The plugins of what did.
    pub fn all_gone(&self, uid: &str) -> Vec<String> {
        let gone = self.entries.lock().extract_if(|(of, _), _| of == uid).collect::<Vec<_>>();
        gone.into_iter().filter(|(_, entry)| entry.stands).map(|(_, entry)| entry.plugin).collect()
    }

    pub fn counts(&self) -> BTreeMap<String, Count> {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for entry in self.entries.lock().values() {
            let count = counts.entry(entry.plugin.clone()).or_default();
            count.desired += usize::from(entry.wanted);
            count.actual += usize::from(entry.stands);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_count_from_when_they_are_wanted_until_they_are_gone() {
        let book = Book::default();
        let count = |desired, actual| Count { desired, actual };
        let of = |book: &Book| book.counts().get("p").copied().unwrap_or_default();
        assert!(!book.want("u", "a", "p") && !book.want("u", "b", "p"));
        assert_eq!(of(&book), count(2, 0));
        book.stands("u", "a");
        assert!(book.want("u", "a", "p"));
        assert_eq!(of(&book), count(2, 1));
        book.unwant("u");
        assert_eq!(of(&book), count(0, 1));
        assert_eq!(book.all_gone("u"), ["p"]);
        assert_eq!(book.counts(), BTreeMap::new());
    }

    #[test]
    fn drivers_are_told_apart() {
        let record = Record {
            plugin: "kubernetes.io/csi".to_owned(),
            volume: String::new(),
            unique: "kubernetes.io/csi/disk.example^7".to_owned(),
            staged: false,
            attached: false,
            path: std::path::PathBuf::new(),
            claim: String::new(),
            data: serde_json::Value::Null,
        };
        assert_eq!(plugin_name("kubernetes.io/csi", Some(&record)), "kubernetes.io/csi:disk.example");
        assert_eq!(plugin_name("kubernetes.io/nfs", None), "kubernetes.io/nfs");
    }
}
