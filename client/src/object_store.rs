//! The objects of one informer in little memory.
//!
//! A decoded pod takes several times its JSON. So what came as memory that the server keeps anyway, and every pod, is kept
//! as JSON and decoded when somebody asks; those asked for last stay decoded for as long as somebody does, and those that
//! somebody holds.

use crate::document::Document;
use crate::object::{Kind, ObjectKey, try_decode};
use crate::object_index::ObjectIndex;
use coracle_api::well_known;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::any::TypeId;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// Packed objects of a kind that stay decoded: more than change at a time in all but a flood; some 5 MB of pods.
const DECODED: usize = 512;
/// Looked at for each object that is decoded: those in use go round again.
const TURNS: usize = 4;

pub type Labels = BTreeMap<String, String>;

struct Held<K> {
    /// `None`: always decoded.
    packed: Option<Document>,
    decoded: Option<Arc<K>>,
    /// Whether its key is in the queue of decoded ones.
    queued: bool,
    /// Whether it came or was asked for since the last [rest](Objects::rest).
    used: Cell<bool>,
    labels: Arc<Labels>,
    /// The uid of its controller, empty without one.
    owner: Arc<str>,
    /// resourceVersion as a number.
    revision: u64,
}

/// An object to be decoded without the informer's lock.
pub enum Found<K> {
    Decoded(Arc<K>),
    Packed(Arc<ObjectKey>, Document),
}

impl<K: Kind> Found<K> {
    pub fn object(self) -> Option<Arc<K>> {
        match self {
            Self::Decoded(object) => Some(object),
            Self::Packed(_, document) => unpack(&document).ok(),
        }
    }
}

/// An object that came, decoded once for whoever follows changes.
pub struct Arrived<K> {
    pub object: Arc<K>,
    pub packed: Option<Document>,
}

pub struct Objects<K> {
    objects: BTreeMap<Arc<ObjectKey>, Held<K>>,
    by_owner: ObjectIndex,
    /// By the value of [`indexed_label`].
    by_label: ObjectIndex,
    /// Sets of labels that several objects have are kept once.
    labels: HashSet<Arc<Labels>>,
    decoded: VecDeque<Arc<ObjectKey>>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            by_owner: ObjectIndex::default(),
            by_label: ObjectIndex::default(),
            labels: HashSet::new(),
            decoded: VecDeque::new(),
        }
    }
}

/// What an informer keeps of a document: its object, and, for some, the document.
pub fn arrived<K: Kind>(document: Document) -> Result<Arrived<K>, String> {
    let packs = document.is_shared() || TypeId::of::<K>() == TypeId::of::<Pod>();
    let object = unpack::<K>(&document)?;
    if packs {
        return Ok(Arrived { object, packed: Some(document.kept()) });
    }
    // What stays decoded is cloned: a decoded list has room for four elements at the least, a clone for what is there.
    Ok(Arrived { object: Arc::new(K::clone(&object)), packed: None })
}

/// Without what nobody reads ([`crate::transform`]).
fn unpack<K: Kind>(document: &Document) -> Result<Arc<K>, String> {
    let mut object: K = try_decode(&document.unmanaged())?;
    crate::transform::slim(&mut object);
    Ok(Arc::new(object))
}

fn revision_of<K: Kind>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// The label that objects of a kind are looked up by, one by one of thousands.
fn indexed_label<K: Kind>() -> Option<&'static str> {
    (TypeId::of::<K>() == TypeId::of::<EndpointSlice>()).then_some(well_known::SERVICE_NAME)
}

fn indexed_value<K: Kind>(labels: &Labels) -> Option<&str> {
    labels.get(indexed_label::<K>()?).map(String::as_str)
}

fn controller_uid<K: Kind>(object: &K) -> &str {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.find(|o| o.controller == Some(true)).map_or("", |o| o.uid.as_str())
}

impl<K: Kind> Objects<K> {
    pub fn keys(&self) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.objects.keys()
    }

    /// resourceVersion of an object, as a number.
    pub fn revision(&self, key: &ObjectKey) -> Option<u64> {
        self.objects.get(key).map(|held| held.revision)
    }

    pub fn find(&self, key: &ObjectKey) -> Option<Found<K>> {
        self.objects.get_key_value(key).and_then(|(key, held)| held.found(key))
    }

    /// The objects of a namespace, or with `None` all, whose labels are wanted.
    pub fn select(&self, namespace: Option<&str>, wanted: impl Fn(&Labels) -> bool) -> Vec<Found<K>> {
        let from = ObjectKey::new(namespace.unwrap_or_default(), "");
        let range = self.objects.range::<ObjectKey, _>(from..);
        let within = range.take_while(|(key, _)| namespace.is_none_or(|n| n == key.namespace));
        within.filter(|(_, held)| wanted(&held.labels)).filter_map(|(key, held)| held.found(key)).collect()
    }

    /// The objects of a namespace with this value of a label.
    pub fn labelled(&self, namespace: &str, label: &str, value: &str) -> Vec<Found<K>> {
        if indexed_label::<K>() != Some(label) {
            return self.select(Some(namespace), |labels| labels.get(label).is_some_and(|v| v == value));
        }
        self.by_label.get_in(value, namespace).filter_map(|key| self.find(key)).collect()
    }

    pub fn controlled_by(&self, uid: &str) -> Vec<Found<K>> {
        self.by_owner.get(uid).filter_map(|key| self.find(key)).collect()
    }

    /// What `uid` controls anywhere, and what nobody controls in the namespace.
    pub fn claimable(&self, namespace: &str, uid: &str) -> Vec<Found<K>> {
        let near = self.by_owner.get_in("", namespace);
        self.by_owner.get(uid).chain(near).filter_map(|key| self.find(key)).collect()
    }

    /// The object as it was before, decoded only if `old_wanted`.
    pub fn insert(&mut self, key: ObjectKey, new: Arrived<K>, old_wanted: bool) -> Option<Arc<K>> {
        let old = self.take(&key, old_wanted);
        let Arrived { object, packed } = new;
        let (key, queued) = match old.as_ref() {
            Some((key, queued, _)) => (key.clone(), *queued),
            None => (Arc::new(key), false),
        };
        let queue = packed.is_some() && !queued;
        let held = Held {
            labels: self.shared_labels(object.meta().labels.as_ref()),
            owner: self.by_owner.add(controller_uid(object.as_ref()), &key),
            revision: revision_of(object.as_ref()),
            queued: queued || queue,
            used: Cell::new(true),
            decoded: Some(object),
            packed,
        };
        if let Some(value) = indexed_value::<K>(&held.labels) {
            self.by_label.add(value, &key);
        }
        self.objects.insert(key.clone(), held);
        if queue {
            self.queue(key);
        }
        old.and_then(|(.., object)| object)
    }

    pub fn remove(&mut self, key: &ObjectKey, wanted: bool) -> Option<Arc<K>> {
        self.take(key, wanted).and_then(|(.., object)| object)
    }

    /// Notes that a packed object has been decoded, so that the next who asks need not do it again.
    pub fn keep(&mut self, key: &Arc<ObjectKey>, document: &Document, object: &Arc<K>) {
        let Some(held) = self.objects.get_mut(key) else { return };
        if held.decoded.is_some() || !held.packed.as_ref().is_some_and(|packed| packed.is_same(document)) {
            return;
        }
        held.decoded = Some(object.clone());
        if !std::mem::replace(&mut held.queued, true) {
            self.queue(key.clone());
        }
    }

    /// Takes an object out of the tables: its key, whether that stands in the queue, and the object if it is wanted.
    fn take(&mut self, key: &ObjectKey, wanted: bool) -> Option<(Arc<ObjectKey>, bool, Option<Arc<K>>)> {
        let (key, held) = self.objects.remove_entry(key)?;
        self.by_owner.remove(&held.owner, &key);
        if let Some(value) = indexed_value::<K>(&held.labels) {
            self.by_label.remove(value, &key);
        }
        // One in the set, one here.
        if Arc::strong_count(&held.labels) == 2 {
            self.labels.remove(&held.labels);
        }
        let object = if wanted { held.found(&key).and_then(Found::object) } else { None };
        Some((key, held.queued, object))
    }

    fn shared_labels(&mut self, labels: Option<&Labels>) -> Arc<Labels> {
        let none = Labels::new();
        let labels = labels.unwrap_or(&none);
        if let Some(known) = self.labels.get(labels) {
            return known.clone();
        }
        let labels = Arc::new(labels.clone());
        self.labels.insert(labels.clone());
        labels
    }

    /// Adds a decoded object's key; the oldest go back to their JSON.
    fn queue(&mut self, key: Arc<ObjectKey>) {
        self.decoded.push_back(key);
        for _ in 0..TURNS {
            if self.decoded.len() <= DECODED {
                return;
            }
            self.turn(|_| false);
        }
    }

    /// The oldest of the queue goes back to its JSON, or to the queue's end if it is in use.
    fn turn(&mut self, in_use: impl Fn(&Held<K>) -> bool) {
        let Some(oldest) = self.decoded.pop_front() else { return };
        let Some(held) = self.objects.get_mut(&oldest) else { return };
        // Forgetting what others hold would save nothing, and make two of it.
        let is_held = held.decoded.as_ref().is_some_and(|object| Arc::strong_count(object) > 1);
        if in_use(held) || is_held {
            self.decoded.push_back(oldest);
            return;
        }
        held.queued = false;
        if held.packed.is_some() {
            held.decoded = None;
        }
    }

    /// What nobody has asked for since the last time goes back to its JSON.
    pub fn rest(&mut self) {
        for _ in 0..self.decoded.len() {
            self.turn(|held| held.used.take());
        }
        self.decoded.shrink_to(2 * self.decoded.len());
    }

    /// Whether there is nothing that could go back.
    pub fn is_at_rest(&self) -> bool {
        self.decoded.is_empty()
    }

    #[cfg(test)]
    fn decoded(&self) -> usize {
        self.objects.values().filter(|held| held.decoded.is_some()).count()
    }
}

impl<K: Kind> Held<K> {
    fn found(&self, key: &Arc<ObjectKey>) -> Option<Found<K>> {
        self.used.set(true);
        match (&self.decoded, &self.packed) {
            (Some(object), _) => Some(Found::Decoded(object.clone())),
            (None, Some(document)) => Some(Found::Packed(key.clone(), document.clone())),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde_json::json;

    fn document(name: &str, version: u64, labels: &[(&str, &str)], owner: &str) -> Document {
        let labels: Labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut pod = json!({ "metadata": {
            "namespace": "a", "name": name, "resourceVersion": version.to_string(), "labels": labels,
        } });
        if !owner.is_empty() {
            let owner =
                json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": true });
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        Bytes::from(pod.to_string()).into()
    }

    fn insert(objects: &mut Objects<Pod>, name: &str, version: u64, owner: &str) -> Option<Arc<Pod>> {
        let new = arrived(document(name, version, &[("app", "web")], owner)).unwrap();
        objects.insert(ObjectKey::new("a", name), new, true)
    }

    fn names(found: Vec<Found<Pod>>) -> Vec<String> {
        found.into_iter().filter_map(Found::object).filter_map(|pod| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn few_stay_decoded_and_all_can_be_had() {
        let mut objects = Objects::default();
        let many = DECODED * 3;
        for n in 0..many {
            assert!(insert(&mut objects, &format!("p{n:05}"), 1, "").is_none());
        }
        assert_eq!(objects.decoded(), DECODED);
        assert_eq!(names(objects.select(None, |_| true)).len(), many);
        assert_eq!(objects.decoded(), DECODED, "a look at all of them changes nothing");
        let key = ObjectKey::new("a", "p00000");
        let Some(Found::Packed(key, packed)) = objects.find(&key) else { panic!("still decoded") };
        let object = Found::Packed(key.clone(), packed.clone()).object().unwrap();
        objects.keep(&key, &packed, &object);
        assert!(matches!(objects.find(&key), Some(Found::Decoded(found)) if Arc::ptr_eq(&found, &object)));
        assert_eq!(objects.decoded(), DECODED);
    }

    #[test]
    fn what_nobody_asks_for_goes_back_to_its_json() {
        let mut objects = Objects::default();
        let all = ["asked", "forgotten", "held"];
        assert!(all.map(|name| insert(&mut objects, name, 1, "")).iter().all(Option::is_none));
        let held = objects.find(&ObjectKey::new("a", "held")).and_then(Found::object).unwrap();
        objects.rest();
        assert_eq!(objects.decoded(), 3, "they have just come");
        assert!(matches!(objects.find(&ObjectKey::new("a", "asked")), Some(Found::Decoded(_))));
        objects.rest();
        assert_eq!(objects.decoded(), 2);
        assert!(matches!(objects.find(&ObjectKey::new("a", "forgotten")), Some(Found::Packed(..))));
        drop(held);
        objects.rest();
        assert!(objects.is_at_rest() && objects.decoded() == 0);
        assert_eq!(names(objects.select(None, |_| true)), all, "and all can be had");
    }

    #[test]
    fn what_others_hold_is_not_decoded_twice() {
        let mut objects = Objects::default();
        insert(&mut objects, "held", 1, "");
        let held = objects.find(&ObjectKey::new("a", "held")).and_then(Found::object).unwrap();
        for n in 0..DECODED * 2 {
            insert(&mut objects, &format!("p{n:05}"), 1, "");
        }
        let found = objects.find(&ObjectKey::new("a", "held")).and_then(Found::object).unwrap();
        assert!(Arc::ptr_eq(&held, &found));
    }

    #[test]
    fn the_object_before_a_change_is_told_however_it_is_kept() {
        let mut objects = Objects::default();
        insert(&mut objects, "first", 7, "");
        for n in 0..DECODED * 2 {
            insert(&mut objects, &format!("p{n:05}"), 1, "");
        }
        let key = ObjectKey::new("a", "first");
        assert!(matches!(objects.find(&key), Some(Found::Packed(..))));
        let old = insert(&mut objects, "first", 8, "").unwrap();
        assert_eq!(old.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(objects.revision(&key), Some(8));
        assert_eq!(objects.remove(&key, true).unwrap().metadata.resource_version.as_deref(), Some("8"));
        assert!(objects.remove(&key, true).is_none());
    }

    #[test]
    fn a_version_decoded_late_is_not_taken_for_the_present_one() {
        let mut objects = Objects::default();
        insert(&mut objects, "first", 7, "");
        for n in 0..DECODED * 2 {
            insert(&mut objects, &format!("p{n:05}"), 1, "");
        }
        let found = objects.find(&ObjectKey::new("a", "first"));
        let Some(Found::Packed(key, packed)) = found else { panic!("still decoded") };
        let late = Found::Packed(key.clone(), packed.clone()).object().unwrap();
        insert(&mut objects, "first", 8, "");
        objects.keep(&key, &packed, &late);
        let now = objects.find(&key).and_then(Found::object).unwrap();
        assert_eq!(now.metadata.resource_version.as_deref(), Some("8"));
    }

    #[test]
    fn owners_and_labels_are_found_without_decoding() {
        let mut objects = Objects::default();
        insert(&mut objects, "mine", 1, "u1");
        insert(&mut objects, "orphan", 1, "");
        insert(&mut objects, "other", 1, "u2");
        let api = arrived(document("api", 1, &[("app", "api")], "")).unwrap();
        objects.insert(ObjectKey::new("b", "api"), api, true);
        assert_eq!(names(objects.controlled_by("u1")), ["mine"]);
        assert_eq!(names(objects.claimable("a", "u1")), ["mine", "orphan"]);
        let web = |labels: &Labels| labels.get("app").is_some_and(|app| app == "web");
        assert_eq!(names(objects.select(Some("a"), web)), ["mine", "orphan", "other"]);
        assert_eq!(names(objects.select(Some("b"), web)), Vec::<String>::new());
        assert_eq!(objects.labels.len(), 2);
        insert(&mut objects, "mine", 2, "u2");
        assert_eq!(names(objects.controlled_by("u2")), ["mine", "other"]);
        assert!(objects.controlled_by("u1").is_empty());
        for (namespace, name) in [("a", "mine"), ("a", "orphan"), ("a", "other"), ("b", "api")] {
            objects.remove(&ObjectKey::new(namespace, name), false);
        }
        assert!(objects.labels.is_empty() && objects.by_owner.is_empty() && objects.by_label.is_empty());
    }

    #[test]
    fn slices_are_found_by_their_service() {
        let label = well_known::SERVICE_NAME;
        let mut objects = Objects::<EndpointSlice>::default();
        let mut insert = |namespace: &str, name: &str, service: Option<&str>| {
            let labels: Labels = service.map(|s| (label.to_owned(), s.to_owned())).into_iter().collect();
            let slice = json!({ "metadata": { "namespace": namespace, "name": name, "labels": labels },
                "addressType": "IPv4", "endpoints": [] });
            let new = arrived(Bytes::from(slice.to_string()).into()).unwrap();
            objects.insert(ObjectKey::new(namespace, name), new, false);
        };
        insert("a", "x", Some("web"));
        insert("a", "y", Some("db"));
        insert("b", "x", Some("web"));
        insert("a", "z", None);
        insert("a", "y", Some("web"));
        let names = |objects: &Objects<EndpointSlice>, namespace, value| -> Vec<String> {
            let found = objects.labelled(namespace, label, value).into_iter().filter_map(Found::object);
            found.filter_map(|slice| slice.metadata.name.clone()).collect()
        };
        assert_eq!(names(&objects, "a", "web"), ["x", "y"]);
        assert_eq!(names(&objects, "a", "db"), [] as [&str; 0]);
        objects.remove(&ObjectKey::new("a", "x"), false);
        assert_eq!(
            (names(&objects, "a", "web"), names(&objects, "b", "web")),
            (vec!["y".into()], vec!["x".into()])
        );
        assert!(objects.labelled("a", "another", "web").is_empty());
    }
}
