//! One metadata-only watch per resource that the API serves, custom ones as they come and go.

use super::collect::find;
use super::graph::{Id, Resource, Shared, Work, lock};
use crate::discovery::{self, Served};
use bytes::Bytes;
use coracle_client::fold::{Fold, ReadObject, Step};
use coracle_client::{Change, ObjectKey, Reflector, Selection, WorkQueue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource as _;
use kube::api::{DynamicObject, ObjectMeta};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Changes of the served resources are gathered this long: a chart creates many CustomResourceDefinitions at once.
const SETTLE_DEBOUNCE: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Changes of objects are gathered this long. Who collects garbage can wait; to wake up for each of some thousand writes a
/// second would cost as much as a part of the write itself. Far fewer come in that time than a watcher may be behind.
const GATHER_DEBOUNCE: Duration = Duration::from_millis(10);

/// What the watches share.
pub struct Monitors {
    client: kube::Client,
    graph: Shared,
    queue: WorkQueue<Work>,
    served: Mutex<Vec<Arc<Served>>>,
    /// Watches whose first list is not complete.
    unsynced: AtomicUsize,
    /// Set after the first discovery.
    started: AtomicUsize,
    changed: Notify,
    synced: Notify,
}

/// One running watch.
struct Monitor {
    index: Resource,
    api_version: String,
    task: AbortHandle,
}

impl Monitors {
    pub fn new(client: kube::Client, graph: Shared, queue: WorkQueue<Work>) -> Self {
        Self {
            client,
            graph,
            queue,
            served: Mutex::default(),
            unsynced: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            changed: Notify::new(),
            synced: Notify::new(),
        }
    }

    /// Whether the graph shows everything that existed when it was last looked.
    pub fn synced(&self) -> bool {
        self.started.load(Ordering::Acquire) > 0 && self.unsynced.load(Ordering::Acquire) == 0
    }

    pub async fn wait_synced(&self) {
        loop {
            let notified = self.synced.notified();
            if self.synced() {
                return;
            }
            notified.await;
        }
    }

    pub fn rediscover(&self) {
        self.changed.notify_one();
    }

    pub fn served(&self, api_version: &str, kind: &str) -> Option<Arc<Served>> {
        find(&lock(&self.served), api_version, kind)
    }

    /// Keeps one watch per resource until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut running: HashMap<String, Monitor> = HashMap::new();
        let mut next: Resource = 0;
        while !stop.is_cancelled() {
            match discovery::served(&self.client).await {
                Ok(served) => {
                    self.adjust(&mut running, &mut next, served);
                    self.started.store(1, Ordering::Release);
                    self.synced.notify_waiters();
                    if stop.run_until_cancelled(self.changed.notified()).await.is_none() {
                        break;
                    }
                    let _ = stop.run_until_cancelled(tokio::time::sleep(SETTLE_DEBOUNCE)).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "discovery failed, trying again");
                    let _ = stop.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
                }
            }
        }
        running.values().for_each(|monitor| monitor.task.abort());
    }

    fn adjust(
        self: &Arc<Self>,
        running: &mut HashMap<String, Monitor>,
        next: &mut Resource,
        served: Vec<Served>,
    ) {
        let all: Vec<Arc<Served>> = served.into_iter().map(Arc::new).collect();
        *lock(&self.served) = all.clone();
        let watched: HashMap<String, Arc<Served>> =
            all.into_iter().filter(|s| is_watched(s)).map(|s| (name_of(&s), s)).collect();
        running.retain(|name, monitor| {
            let stays = watched.contains_key(name) && !monitor.task.is_finished();
            if !stays {
                monitor.task.abort();
                self.forget(monitor.index);
            }
            stays
        });
        for (name, served) in watched {
            match running.get_mut(&name) {
                Some(monitor) if monitor.api_version == served.resource.api_version => {}
                // The same objects, by another version: the one before may not be served any more.
                Some(monitor) => {
                    monitor.task.abort();
                    *monitor = self.start(monitor.index, served);
                }
                None => {
                    *next = next.wrapping_add(1);
                    running.insert(name, self.start(*next, served));
                }
            }
        }
    }

    fn start(self: &Arc<Self>, index: Resource, served: Arc<Served>) -> Monitor {
        self.unsynced.fetch_add(1, Ordering::AcqRel);
        let guard = Unsynced(Some(self.clone()));
        let api_version = served.resource.api_version.clone();
        let task = tokio::spawn(self.clone().follow(index, served, guard));
        Monitor { index, api_version, task: task.abort_handle() }
    }

    fn forget(&self, index: Resource) {
        let gone = lock(&self.graph).missing(index, &HashSet::new());
        gone.into_iter().for_each(|id| self.gone(id));
    }

    async fn follow(self: Arc<Self>, index: Resource, served: Arc<Served>, mut guard: Unsynced) {
        // Custom resources, CRDs above all, change what is served.
        let defines = matches!(served.resource.plural.as_str(), "customresourcedefinitions" | "apiservices");
        let path = DynamicObject::url_path(&served.resource, None);
        let mut changes =
            Reflector::new(self.client.clone(), Selection { metadata_only: true, ..Selection::of(path) });
        let mut fold = Fold::new(changes.path());
        loop {
            let change = match changes.now() {
                Some(change) => change,
                None => {
                    tokio::time::sleep(GATHER_DEBOUNCE).await;
                    changes.next().await
                }
            };
            if defines && !fold.is_listing() && matches!(change, Change::Applied(_) | Change::Deleted(_)) {
                self.rediscover();
            }
            // The graph takes objects of a copy that is listed one by one: nothing in it depends on the order.
            let read = |object: &Bytes, _: bool| {
                let meta = read_meta(object)?;
                self.seen(index, &served, &meta);
                Ok::<_, serde_json::Error>(ReadObject { key: key(&meta), kept: Some(id(&meta)) })
            };
            match fold.apply(change, read) {
                Step::Nothing | Step::Applied(..) => {}
                Step::Deleted(_, object) => {
                    if let Some(Ok(meta)) = object.as_ref().map(read_meta) {
                        let work = lock(&self.graph).bury(id(&meta));
                        work.into_iter().for_each(|w| self.queue.add(w));
                    }
                }
                Step::Replace(listed) => {
                    let there = listed.objects.into_values().collect();
                    let gone = lock(&self.graph).missing(index, &there);
                    gone.into_iter().for_each(|id| self.gone(id));
                    guard.done();
                }
            }
        }
    }

    fn seen(&self, index: Resource, served: &Arc<Served>, metadata: &ObjectMeta) {
        let work = lock(&self.graph).observe(index, served, metadata);
        work.into_iter().for_each(|w| self.queue.add(w));
    }

    fn gone(&self, id: Id) {
        let work = lock(&self.graph).remove(id);
        work.into_iter().for_each(|w| self.queue.add(w));
    }
}

/// All that is asked for.
#[derive(Deserialize)]
struct Head {
    metadata: Meta,
}

/// What the graph is made of. Of most objects managedFields are the larger part; they are not even taken apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    uid: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            uid: meta.uid,
            namespace: meta.namespace,
            name: meta.name,
            resource_version: meta.resource_version,
            deletion_timestamp: meta.deletion_timestamp,
            finalizers: meta.finalizers,
            owner_references: meta.owner_references,
            ..Self::default()
        }
    }
}

/// Counts a watch as not yet synced until its first list is complete, or its task ends.
struct Unsynced(Option<Arc<Monitors>>);

impl Unsynced {
    fn done(&mut self) {
        if let Some(monitors) = self.0.take() {
            monitors.unsynced.fetch_sub(1, Ordering::AcqRel);
            monitors.synced.notify_waiters();
        }
    }
}

impl Drop for Unsynced {
    fn drop(&mut self) {
        self.done();
    }
}

fn read_meta(object: &Bytes) -> Result<ObjectMeta, serde_json::Error> {
    serde_json::from_slice::<Head>(object).map(|head| head.metadata.into())
}

fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn id(meta: &ObjectMeta) -> Id {
    Id::of(meta.uid.as_deref().unwrap_or_default())
}

fn name_of(served: &Served) -> String {
    format!("{}.{}", served.resource.plural, served.resource.group)
}

/// Events are many, own nothing, and go by age.
fn is_watched(served: &Served) -> bool {
    served.can_list() && served.can_watch() && served.can_delete() && served.resource.plural != "events"
}
