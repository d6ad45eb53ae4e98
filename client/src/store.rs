//! A live copy of what is kept of some objects, for a component that needs little of each, or of few: an
//! [`Informer`](crate::Informer) holds whole objects for all components of a process.

use crate::fold::{Fold, Head, Listed, ReadObject, Step};
use crate::object::ObjectKey;
use crate::reflector::{Change, Reflector};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What changed in a store by one step of its watch.
#[derive(Debug)]
pub struct Update<T> {
    /// Whether a complete copy was taken over, rather than one change.
    pub synced: bool,
    /// Objects whose kept part changed, came or went.
    pub changed: Vec<Changed<T>>,
}

/// One object before and after.
#[derive(Debug)]
pub struct Changed<T> {
    pub key: ObjectKey,
    pub old: Option<Arc<T>>,
    pub new: Option<Arc<T>>,
}

struct Held<T> {
    objects: BTreeMap<ObjectKey, Arc<T>>,
    /// The newest resourceVersion that the watch has shown.
    revision: u64,
}

/// Cloning shares it.
pub struct Store<T> {
    held: Arc<Mutex<Held<T>>>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { held: self.held.clone() }
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { held: Arc::new(Mutex::new(Held { objects: BTreeMap::new(), revision: 0 })) }
    }
}

impl<T> Store<T> {
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.held.lock().objects.get(key).cloned()
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.held.lock().objects.values().cloned().collect()
    }

    /// All objects with their keys, in the same order.
    pub fn entries(&self) -> Vec<(ObjectKey, Arc<T>)> {
        self.held.lock().objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// The objects of a namespace.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<T>> {
        let held = self.held.lock();
        let from = ObjectKey::new(namespace, "");
        let within = held.objects.range(from..).take_while(|(key, _)| key.namespace == namespace);
        within.map(|(_, object)| object.clone()).collect()
    }
}

/// What is kept of an object; `None` keeps nothing of it. An error means that the object cannot be read.
pub trait Transform<T>: Fn(&Value) -> Result<Option<T>, String> + Send + 'static {}
impl<T, F: Fn(&Value) -> Result<Option<T>, String> + Send + 'static> Transform<T> for F {}

impl<T: PartialEq + Send + Sync + 'static> Store<T> {
    /// Takes in what a write answered, unless the watch has shown something as new already.
    pub fn put_newer(&self, key: ObjectKey, revision: u64, object: T) {
        let mut held = self.held.lock();
        if revision > held.revision {
            held.objects.insert(key, Arc::new(object));
        }
    }

    /// Follows a watch in a task until `stop` is cancelled, and tells of every step that changed something, and of every
    /// complete copy. The receiver turns true with the first of those.
    pub fn follow(
        &self,
        mut reflector: Reflector,
        transform: impl Transform<T>,
        mut tell: impl FnMut(Update<T>) + Send + 'static,
        stop: CancellationToken,
    ) -> watch::Receiver<bool> {
        let (sender, receiver) = watch::channel(false);
        let store = self.clone();
        let mut fold = Fold::new(reflector.path());
        tokio::spawn(async move {
            while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
                let Some(update) = store.apply(&mut fold, change, &transform) else { continue };
                let synced = update.synced;
                tell(update);
                if synced {
                    sender.send_replace(true);
                }
            }
        });
        receiver
    }

    /// Takes a change over. `None`: nothing came of it.
    pub fn apply(
        &self,
        fold: &mut Fold<(u64, T)>,
        change: Change,
        transform: &impl Transform<T>,
    ) -> Option<Update<T>> {
        let gone_at = match &change {
            Change::Deleted(object) => Head::read(object).map(|head| head.revision).unwrap_or(0),
            _ => 0,
        };
        let step = fold.apply(change, |object, _| read(object, transform));
        let mut held = self.held.lock();
        let (synced, changed) = match step {
            Step::Nothing => return None,
            Step::Applied(key, (revision, object)) => {
                (false, held.set(key, revision, object).into_iter().collect())
            }
            Step::Deleted(key, _) => {
                held.revision = held.revision.max(gone_at);
                (false, held.remove(key).into_iter().collect())
            }
            Step::Replace(listed) => (true, held.replace(listed)),
        };
        (synced || !changed.is_empty()).then_some(Update { synced, changed })
    }
}

fn read<T>(object: &Bytes, transform: &impl Transform<T>) -> Result<ReadObject<(u64, T)>, String> {
    let value: Value = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    let key = ObjectKey::new(text("namespace"), text("name"));
    let revision = text("resourceVersion").parse().unwrap_or(0);
    Ok(ReadObject { key, kept: transform(&value)?.map(|kept| (revision, kept)) })
}

impl<T: PartialEq> Held<T> {
    fn set(&mut self, key: ObjectKey, revision: u64, object: T) -> Option<Changed<T>> {
        self.revision = self.revision.max(revision);
        if self.objects.get(&key).is_some_and(|old| **old == object) {
            return None;
        }
        let new = Arc::new(object);
        let old = self.objects.insert(key.clone(), new.clone());
        Some(Changed { key, old, new: Some(new) })
    }

    fn remove(&mut self, key: ObjectKey) -> Option<Changed<T>> {
        let old = self.objects.remove(&key)?;
        Some(Changed { key, old: Some(old), new: None })
    }

    fn replace(&mut self, listed: Listed<(u64, T)>) -> Vec<Changed<T>> {
        let gone: Vec<ObjectKey> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let mut changed: Vec<Changed<T>> = gone.into_iter().filter_map(|key| self.remove(key)).collect();
        for (key, (revision, object)) in listed.objects {
            changed.extend(self.set(key, revision, object));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, revision: u64, size: Value) -> Bytes {
        let metadata = json!({ "namespace": "a", "name": name, "resourceVersion": revision.to_string() });
        json!({ "metadata": metadata, "size": size }).to_string().into()
    }

    fn size(object: &Value) -> Result<Option<u64>, String> {
        let size = object["size"].as_u64().ok_or("the size is no number")?;
        Ok((size > 0).then_some(size))
    }

    struct Test {
        store: Store<u64>,
        fold: Fold<(u64, u64)>,
    }

    impl Test {
        /// What is told of a change: `sync` and the objects with their sizes.
        fn told(&mut self, change: Change) -> String {
            let Some(update) = self.store.apply(&mut self.fold, change, &size) else { return String::new() };
            let size = |object: &Option<Arc<u64>>| object.as_ref().map_or("-".to_owned(), |s| s.to_string());
            let changed =
                update.changed.iter().map(|c| format!("{} {}>{}", c.key.name, size(&c.old), size(&c.new)));
            let sync = update.synced.then(|| "sync".to_owned());
            sync.into_iter().chain(changed).collect::<Vec<_>>().join(", ")
        }

        fn held(&self) -> String {
            let entries = self.store.entries();
            entries.iter().map(|(key, size)| format!("{}={size} ", key.name)).collect()
        }
    }

    #[tokio::test]
    async fn what_was_known_stays_until_the_new_copy_is_complete() {
        let mut test = Test { store: Store::default(), fold: Fold::new("/api/v1/things") };
        for (change, told, held) in [
            (Change::Restart, "", ""),
            (Change::Applied(object("a", 1, json!(1))), "", ""),
            (Change::Applied(object("b", 2, json!(2))), "", ""),
            (Change::Synced, "sync, a ->1, b ->2", "a=1 b=2 "),
            (Change::Applied(object("a", 3, json!(1))), "", "a=1 b=2 "),
            (Change::Applied(object("a", 4, json!(5))), "a 1>5", "a=5 b=2 "),
            (Change::Applied(object("b", 5, json!("much"))), "", "a=5 b=2 "),
            (Change::Applied(object("c", 6, json!(0))), "", "a=5 b=2 "),
            (Change::Restart, "", "a=5 b=2 "),
            (Change::Applied(object("b", 5, json!("much"))), "", "a=5 b=2 "),
            (Change::Applied(object("d", 7, json!(7))), "", "a=5 b=2 "),
            (Change::Synced, "sync, a 5>-, d ->7", "b=2 d=7 "),
            (Change::Deleted(object("d", 8, json!(7))), "d 7>-", "b=2 "),
            (Change::Deleted(object("d", 8, json!(7))), "", "b=2 "),
            (Change::Applied(object("b", 9, json!(0))), "b 2>-", ""),
        ] {
            let shown = format!("{change:?}");
            assert_eq!((test.told(change).as_str(), test.held().as_str()), (told, held), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_write_is_known_before_the_watch_shows_it_and_never_undoes_what_it_showed() {
        let mut test = Test { store: Store::default(), fold: Fold::new("/api/v1/things") };
        let key = ObjectKey::new("a", "a");
        test.store.put_newer(key.clone(), 5, 5);
        assert_eq!(test.held(), "a=5 ");
        test.told(Change::Deleted(object("a", 9, json!(5))));
        test.store.put_newer(key, 7, 7);
        assert_eq!(test.held(), "");
    }
}
