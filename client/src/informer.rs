//! Shared informers: one watch and one copy per kind and process, however many components read it.

use crate::document::Document;
use crate::fold::{Fold, Head, Listed, ReadObject, Step};
pub use crate::object::{Kind, ObjectKey, api_for, decode, deleting, revision_of, try_decode, uid_of};
use crate::object_store::{Arrived, Found, Objects, arrived};
use crate::reflector::{Change, Reflector, Selection};
use parking_lot::{Mutex, MutexGuard};
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

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

/// Returns false when nobody listens any more.
type Handler<K> = Box<dyn Fn(&Delta<K>) -> bool + Send + Sync>;

struct State<K> {
    objects: Objects<K>,
    /// The newest resourceVersion delivered.
    revision: u64,
}

/// What an informer and whoever fills it share. Only one task fills it.
struct Shared<K> {
    /// Never held while anything else is waited for.
    state: Mutex<State<K>>,
    /// Locked before `state` wherever both are. Held while handlers run, which may read every informer: with the lock of what
    /// they read held here, two whose handlers read one another would wait for ever.
    handlers: Mutex<Vec<Handler<K>>>,
}

/// A live, complete copy of all objects of one kind. Cloning shares it.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), synced: self.synced.clone() }
    }
}

impl<K: Kind> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    fn set(&self, key: ObjectKey, new: Arrived<K>) {
        let object = new.object.clone();
        let mut handlers = self.handlers.lock();
        let old = {
            let mut state = self.lock();
            state.revision = state.revision.max(revision_of(object.as_ref()));
            state.objects.insert(key, new, !handlers.is_empty())
        };
        tell(&mut handlers, &Delta { old, new: Some(object) });
    }

    fn remove(&self, key: &ObjectKey) {
        let mut handlers = self.handlers.lock();
        let old = self.lock().objects.remove(key, !handlers.is_empty());
        if old.is_some() {
            tell(&mut handlers, &Delta { old, new: None });
        }
    }
}

fn tell<K>(handlers: &mut Vec<Handler<K>>, delta: &Delta<K>) {
    handlers.retain(|handler| handler(delta));
}

impl<K: Kind> Informer<K> {
    fn start(client: kube::Client, selection: Selection, stop: CancellationToken) -> Self {
        let state = Mutex::new(State { objects: Objects::default(), revision: 0 });
        let shared = Arc::new(Shared { state, handlers: Mutex::default() });
        let (sender, synced) = watch::channel(false);
        tokio::spawn(follow(Reflector::sharing(client, selection), shared.clone(), sender, stop));
        Self { shared, synced }
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
        let found = self.shared.lock().objects.find(key)?;
        let Found::Packed(key, document) = found else { return found.object() };
        let object = Found::Packed(key.clone(), document.clone()).object()?;
        self.shared.lock().objects.keep(&key, &document, &object);
        Some(object)
    }

    /// The keys of all objects, in order; none is decoded.
    pub fn keys(&self) -> BTreeSet<ObjectKey> {
        self.shared.lock().objects.keys().map(|key| ObjectKey::clone(key)).collect()
    }

    /// All objects, ordered by namespace and name. Of a kind with very many, [`iter`](Self::iter) needs less memory.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.iter().collect()
    }

    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.iter_in(namespace).collect()
    }

    /// As [`list`](Self::list), one after the other: an object may be decoded only when its turn comes. The lock is not
    /// held meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        all(self.shared.lock().objects.select(None, |_| true))
    }

    pub fn iter_in(&self, namespace: &str) -> impl Iterator<Item = Arc<K>> + use<K> {
        all(self.shared.lock().objects.select(Some(namespace), |_| true))
    }

    /// The objects of a namespace whose labels are wanted; others are not even decoded.
    pub fn labelled(
        &self,
        namespace: &str,
        wanted: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Vec<Arc<K>> {
        let found = self.shared.lock().objects.select(Some(namespace), wanted);
        all(found).collect()
    }

    /// The objects of a namespace with this value of a label: of EndpointSlices those of a Service are found without a look
    /// at any other.
    pub fn with_label(&self, namespace: &str, label: &str, value: &str) -> Vec<Arc<K>> {
        let found = self.shared.lock().objects.labelled(namespace, label, value);
        all(found).collect()
    }

    /// The objects whose controlling owner reference (`controller: true`) names `uid`.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let found = self.shared.lock().objects.controlled_by(uid);
        all(found).collect()
    }

    /// What `uid` could claim in a namespace: what it controls already, anywhere, and what nobody controls there.
    pub fn claimable(&self, namespace: &str, uid: &str) -> Vec<Arc<K>> {
        let found = self.shared.lock().objects.claimable(namespace, uid);
        all(found).collect()
    }

    /// Calls `handler` for every present object (as added) and then for every change, in order.
    ///
    /// Handlers run one after the other and hold up who fills the informer: they enqueue a key and return. They may read
    /// informers, this one too, and add no handlers.
    pub fn on_change(&self, handler: impl Fn(&Delta<K>) + Send + Sync + 'static) {
        self.on_change_while(move |delta| {
            handler(delta);
            true
        });
    }

    /// As [`on_change`](Self::on_change), until `handler` returns false: so a component that ends leaves nothing
    /// behind in the informers that outlive it.
    pub fn on_change_while(&self, handler: impl Fn(&Delta<K>) -> bool + Send + Sync + 'static) {
        // Held until it is among them: nothing changes meanwhile.
        let mut handlers = self.shared.handlers.lock();
        for object in self.iter() {
            if !handler(&Delta { old: None, new: Some(object) }) {
                return;
            }
        }
        handlers.push(Box::new(handler));
    }

    /// The newest resourceVersion that this copy is known to contain; a write of this kind with a higher one has
    /// not arrived yet. (KEP-5504: resourceVersions of one kind compare as numbers.)
    pub fn revision(&self) -> u64 {
        self.shared.lock().revision
    }
}

fn all<K: Kind>(found: Vec<Found<K>>) -> impl Iterator<Item = Arc<K>> {
    found.into_iter().filter_map(Found::object)
}

/// An object that was not asked for between two of these is kept as JSON only. To decode it again takes 30 microseconds.
const REST_INTERVAL: Duration = Duration::from_secs(20);

/// Objects taken over between two chances for other tasks to run: about a millisecond.
const AT_ONCE: usize = 64;

async fn follow<K: Kind>(
    mut reflector: Reflector,
    shared: Arc<Shared<K>>,
    sender: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let mut fold = Fold::new(reflector.path());
    let mut at_once = 0;
    let mut rest = tokio::time::interval(REST_INTERVAL);
    rest.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(change) = stop.run_until_cancelled(next(&mut reflector, &shared, &mut rest)).await {
        match fold.apply(change, read::<K>) {
            Step::Nothing => {}
            Step::Applied(key, Incoming::Decoded(new)) => shared.set(key, new),
            Step::Applied(key, Incoming::Listed(revision, document)) => {
                take_listed(&shared, &mut fold, key, revision, document);
            }
            Step::Deleted(key, document) => gone(&shared, &key, document.as_ref()),
            Step::Replace(listed) => {
                replace(&shared, &mut fold, listed).await;
                sender.send_replace(true);
            }
        }
        // A server in this process has the next one ready, and the next.
        at_once = (at_once + 1) % AT_ONCE;
        if at_once == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// The next change; objects rest meanwhile. With nothing decoded there is no timer.
async fn next<K: Kind>(
    reflector: &mut Reflector,
    shared: &Shared<K>,
    rest: &mut tokio::time::Interval,
) -> Change<Document> {
    let mut next = std::pin::pin!(reflector.next_document());
    loop {
        let at_rest = shared.lock().objects.is_at_rest();
        tokio::select! {
            biased;
            change = &mut next => return change,
            _ = rest.tick(), if !at_rest => shared.lock().objects.rest(),
        }
    }
}

/// An object as a watch brings it.
enum Incoming<K> {
    Decoded(Arrived<K>),
    /// Of a copy that is being listed, with its resourceVersion as a number: decoded only if that is new.
    Listed(u64, Document),
}

fn read<K: Kind>(document: &Document, listing: bool) -> Result<ReadObject<Incoming<K>>, String> {
    if !listing {
        let new = arrived::<K>(document.clone())?;
        return Ok(ReadObject {
            key: ObjectKey::of(new.object.as_ref()),
            kept: Some(Incoming::Decoded(new)),
        });
    }
    let Head { key, revision } = Head::read(document).map_err(|error| error.to_string())?;
    Ok(ReadObject { key, kept: Some(Incoming::Listed(revision, document.clone().kept())) })
}

fn gone<K: Kind>(shared: &Shared<K>, key: &ObjectKey, document: Option<&Document>) {
    let revision = document.and_then(|d| Head::read(d).ok()).map_or(0, |head| head.revision);
    {
        let mut state = shared.lock();
        state.revision = state.revision.max(revision);
    }
    shared.remove(key);
}

/// Takes over an object of a complete copy; one whose resourceVersion is unchanged makes no delta.
fn take_listed<K: Kind>(
    shared: &Shared<K>,
    fold: &mut Fold<Incoming<K>>,
    key: ObjectKey,
    revision: u64,
    document: Document,
) {
    let known = shared.lock().objects.revision(&key);
    if revision > 0 && known == Some(revision) {
        return;
    }
    match arrived::<K>(document) {
        Ok(new) => shared.set(key, new),
        Err(error) => fold.report_unreadable(&error),
    }
}

/// Replaces everything after a relist.
async fn replace<K: Kind>(shared: &Shared<K>, fold: &mut Fold<Incoming<K>>, listed: Listed<Incoming<K>>) {
    let missing = |key: &&Arc<ObjectKey>| !listed.contains(key);
    let gone: Vec<Arc<ObjectKey>> = shared.lock().objects.keys().filter(missing).cloned().collect();
    gone.iter().for_each(|key| shared.remove(key));
    for (at, (key, incoming)) in listed.objects.into_iter().enumerate() {
        if at % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        match incoming {
            Incoming::Decoded(new) => shared.set(key, new),
            Incoming::Listed(revision, document) => take_listed(shared, fold, key, revision, document),
        }
    }
}

/// Everything of a kind, in all namespaces.
pub fn all_of<K: Kind>() -> Selection {
    Selection::of(K::url_path(&(), None))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_store::arrived;
    use bytes::Bytes;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::sync::mpsc;

    fn informer() -> Informer<ConfigMap> {
        let state = Mutex::new(State { objects: Objects::default(), revision: 0 });
        let (_, synced) = watch::channel(true);
        Informer { shared: Arc::new(Shared { state, handlers: Mutex::default() }), synced }
    }

    fn fill(informer: &Informer<ConfigMap>) {
        for version in 1..2_000 {
            let text =
                format!(r#"{{"metadata":{{"namespace":"n","name":"m","resourceVersion":"{version}"}}}}"#);
            let new = arrived(Bytes::from(text).into()).expect("an object");
            informer.shared.set(ObjectKey::new("n", "m"), new);
        }
        informer.shared.remove(&ObjectKey::new("n", "m"));
    }

    /// Each in a thread of its own, as the workers of a runtime are.
    #[test]
    fn handlers_of_two_informers_read_one_another() {
        let (one, two) = (informer(), informer());
        let (done, ended) = mpsc::channel();
        for (of, other) in [(&one, &two), (&two, &one)] {
            let (own, read, done) = (of.clone(), other.clone(), done.clone());
            let same = of.clone();
            of.on_change(move |delta| {
                assert!(read.list().len() < 2);
                assert_eq!(same.get("n", "m").is_some(), delta.new.is_some(), "it reads its own, too");
            });
            std::thread::spawn(move || {
                fill(&own);
                done.send(own.revision()).expect("somebody waits");
            });
        }
        for _ in 0..2 {
            assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(1_999), "they wait for one another");
        }
    }
}
