//! Shared informers: one watch and one decoded copy per kind and process, however many components read it.

use crate::reflector::{Change, Reflector, Selection};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    /// As client-go's cache keys: `namespace/name`, or `name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One change: added (`old` is `None`), updated, or deleted (`new` is `None`).
pub struct Delta<K> {
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

impl<K> Delta<K> {
    /// The object as last known.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// What an informer can hold: any typed resource.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static> Kind
    for K
{
}

/// Returns false when nobody listens any more.
type Handler<K> = Box<dyn Fn(&Delta<K>) -> bool + Send + Sync>;

struct State<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    /// By the uid of the controlling owner; objects without one are under the empty uid.
    by_owner: HashMap<String, BTreeSet<ObjectKey>>,
    handlers: Vec<Handler<K>>,
    /// The newest resourceVersion delivered.
    revision: u64,
}

/// A live, complete copy of all objects of one kind. Cloning shares it.
pub struct Informer<K> {
    state: Arc<Mutex<State<K>>>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), synced: self.synced.clone() }
    }
}

fn controller_uid<K: Resource>(object: &K) -> &str {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.find(|o| o.controller == Some(true)).map_or("", |o| o.uid.as_str())
}

impl<K: Kind> State<K> {
    fn index(&mut self, key: &ObjectKey, old: Option<&K>, new: Option<&K>) {
        if let Some(uid) = old.map(controller_uid)
            && let Some(keys) = self.by_owner.get_mut(uid)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_owner.remove(uid);
            }
        }
        if let Some(uid) = new.map(controller_uid) {
            self.by_owner.entry(uid.to_owned()).or_default().insert(key.clone());
        }
    }

    fn set(&mut self, key: ObjectKey, new: Option<Arc<K>>) {
        let old = match &new {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(&key),
        };
        if old.is_none() && new.is_none() {
            return;
        }
        self.index(&key, old.as_deref(), new.as_deref());
        self.revision = self.revision.max(new.as_deref().map_or(0, revision_of));
        let delta = Delta { old, new };
        self.handlers.retain(|handler| handler(&delta));
    }

    /// Replaces everything after a relist; an object whose resourceVersion is unchanged makes no delta.
    fn replace(&mut self, listed: BTreeMap<ObjectKey, Arc<K>>) {
        let gone: Vec<ObjectKey> =
            self.objects.keys().filter(|k| !listed.contains_key(*k)).cloned().collect();
        for key in gone {
            self.set(key, None);
        }
        for (key, object) in listed {
            let same = self
                .objects
                .get(&key)
                .is_some_and(|o| o.meta().resource_version == object.meta().resource_version);
            if !same {
                self.set(key, Some(object));
            }
        }
    }
}

impl<K: Kind> Informer<K> {
    fn start(client: kube::Client, selection: Selection, stop: CancellationToken) -> Self {
        let state = Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            by_owner: HashMap::new(),
            handlers: Vec::new(),
            revision: 0,
        }));
        let (sender, synced) = watch::channel(false);
        tokio::spawn(follow(Reflector::new(client, selection), state.clone(), sender, stop));
        Self { state, synced }
    }

    /// Returns when the first complete list has been taken over.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        // The sender lives as long as the process's informers; when it goes, nobody waits any more.
        let _ = synced.wait_for(|done| *done).await;
    }

    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get_key(&ObjectKey::new(namespace, name))
    }

    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.state.lock().objects.get(key).cloned()
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.state.lock().objects.values().cloned().collect()
    }

    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let from = ObjectKey::new(namespace, "");
        let range = state.objects.range(from..).take_while(|(key, _)| key.namespace == namespace);
        range.map(|(_, object)| object.clone()).collect()
    }

    /// The objects whose controlling owner reference (`controller: true`) names `uid`.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let keys = state.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// What `uid` could claim in a namespace: what it controls already, anywhere, and what nobody controls there.
    pub fn claimable(&self, namespace: &str, uid: &str) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let owned = state.by_owner.get(uid).into_iter().flatten();
        let orphans = state.by_owner.get("").into_iter();
        let from = ObjectKey::new(namespace, "");
        let near = orphans.flat_map(|o| o.range(from.clone()..).take_while(|key| key.namespace == namespace));
        owned.chain(near).filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// Calls `handler` for every present object (as added) and then for every change, in order.
    ///
    /// Handlers run inside the informer's lock: they enqueue a key and return; they never call the informer.
    pub fn on_change(&self, handler: impl Fn(&Delta<K>) + Send + Sync + 'static) {
        self.on_change_while(move |delta| {
            handler(delta);
            true
        });
    }

    /// As [`on_change`](Self::on_change), until `handler` returns false: so a component that ends leaves nothing
    /// behind in the informers that outlive it.
    pub fn on_change_while(&self, handler: impl Fn(&Delta<K>) -> bool + Send + Sync + 'static) {
        let mut state = self.state.lock();
        for object in state.objects.values() {
            if !handler(&Delta { old: None, new: Some(object.clone()) }) {
                return;
            }
        }
        state.handlers.push(Box::new(handler));
    }

    /// The newest resourceVersion that this copy is known to contain; a write of this kind with a higher one has
    /// not arrived yet. (KEP-5504: resourceVersions of one kind compare as numbers.)
    pub fn revision(&self) -> u64 {
        self.state.lock().revision
    }
}

async fn follow<K: Kind>(
    mut reflector: Reflector,
    state: Arc<Mutex<State<K>>>,
    sender: watch::Sender<bool>,
    stop: CancellationToken,
) {
    // The copy that is being made, until it is complete.
    let mut copy = None;
    while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
        match change {
            Change::Restart => copy = Some(BTreeMap::new()),
            Change::Set(bytes) => set(&mut copy, &state, &bytes),
            Change::Gone(bytes) => remove(&mut copy, &state, &bytes),
            Change::Synced => {
                state.lock().replace(copy.take().unwrap_or_default());
                sender.send_replace(true);
            }
        }
    }
}

type Copy<K> = Option<BTreeMap<ObjectKey, Arc<K>>>;

fn set<K: Kind>(copy: &mut Copy<K>, state: &Mutex<State<K>>, bytes: &[u8]) {
    let Some(object) = decode::<K>(bytes).map(slim) else { return };
    let key = ObjectKey::of(object.as_ref());
    match copy {
        Some(copy) => drop(copy.insert(key, object)),
        None => state.lock().set(key, Some(object)),
    }
}

fn remove<K: Kind>(copy: &mut Copy<K>, state: &Mutex<State<K>>, bytes: &[u8]) {
    let Some(object) = decode::<K>(bytes) else { return };
    let key = ObjectKey::of(&object);
    if let Some(copy) = copy {
        copy.remove(&key);
        return;
    }
    let mut state = state.lock();
    state.revision = state.revision.max(revision_of(&object));
    state.set(key, None);
}

/// `None`, and a line in the log, when the object does not fit its type: a newer server's, perhaps.
pub fn decode<K: Kind>(bytes: &[u8]) -> Option<K> {
    // As text, the way kube reads answers: each further kind of reader would be the code of all types once more.
    let decoded = std::str::from_utf8(bytes).map_err(|e| e.to_string());
    let decoded = decoded.and_then(|text| serde_json::from_str(text).map_err(|e| e.to_string()));
    decoded.map_err(|error| tracing::warn!(kind = %K::kind(&()), %error, "an object could not be read")).ok()
}

/// Everything of a kind, in all namespaces.
pub fn all_of<K: Kind>() -> Selection {
    Selection::of(K::url_path(&(), None))
}

/// The object's resourceVersion as a number, 0 when it has none.
pub fn revision_of<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Without what nobody reads ([`crate::slim`]).
///
/// A decoded list has room for four elements at the least, of a kilobyte each where they are containers; a clone has
/// room for what is there.
fn slim<K: Kind>(mut object: K) -> Arc<K> {
    crate::slim::slim(&mut object);
    Arc::new(object.clone())
}

/// The informers of one process, started at first use.
#[derive(Clone)]
pub struct Informers {
    client: kube::Client,
    stop: CancellationToken,
    by_kind: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl Informers {
    /// Informers that read with `client` until `stop` is cancelled.
    pub fn new(client: kube::Client, stop: CancellationToken) -> Self {
        Self { client, stop, by_kind: Arc::default() }
    }

    /// The shared informer of a kind. Must be called inside the tokio runtime. Pods are without what only their kubelet
    /// needs: environment, commands, probes, mounts, and the volumes that it fills by itself.
    pub fn of<K: Kind>(&self) -> Informer<K> {
        let mut by_kind = self.by_kind.lock();
        let entry = by_kind.entry(TypeId::of::<K>()).or_insert_with(|| {
            Box::new(Informer::<K>::start(self.client.clone(), all_of::<K>(), self.stop.clone()))
        });
        match entry.downcast_ref::<Informer<K>>() {
            Some(informer) => informer.clone(),
            None => unreachable!("informers are kept by the type they hold"),
        }
    }

    /// An informer of one's own that holds only what the field selector lets through, until `stop` is cancelled:
    /// for a component that needs few objects of a kind that nobody else reads.
    pub fn selected<K: Kind>(&self, fields: &str, stop: CancellationToken) -> Informer<K> {
        Informer::start(self.client.clone(), all_of::<K>().fields(fields), stop)
    }
}

/// An `Api` for the namespace of `key`.
pub fn api_for<K>(client: &kube::Client, key: &ObjectKey) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &key.namespace)
}

/// Whether an object is on its way out.
pub fn deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// The object's UID, or empty before it was stored.
pub fn uid_of<K: Resource>(object: &K) -> String {
    object.uid().unwrap_or_default()
}
