//! Watches what quotas measure, and nothing as long as there is no quota. Events only wake: nothing is kept of the objects.

use super::count::Resources;
use bytes::Bytes;
use coracle_api::pod::is_terminal_phase;
use coracle_api::quota;
use coracle_client::fold::{Fold, ReadObject, Step};
use coracle_client::{Informer, ObjectKey, Reflector, Selection, WorkQueue};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Changes of a namespace are gathered this long before it is counted.
const SETTLE_DEBOUNCE: Duration = Duration::from_millis(200);

/// Before a resource that nobody serves, or a failed discovery, is looked for again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

type Name = (String, String);

pub struct Monitors {
    client: kube::Client,
    quotas: Informer<ResourceQuota>,
    queue: WorkQueue<ObjectKey>,
    changed: Notify,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Meta,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    namespace: String,
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// Nothing is kept of a copy that is listed: when it is complete everything is counted.
fn read(object: &Bytes, listing: bool) -> Result<ReadObject<Head>, serde_json::Error> {
    if listing {
        return Ok(ReadObject { key: ObjectKey::default(), kept: None });
    }
    let head: Head = serde_json::from_slice(object)?;
    Ok(ReadObject { key: ObjectKey::new(&head.metadata.namespace, ""), kept: Some(head) })
}

fn measured(quota: &ResourceQuota) -> BTreeSet<Name> {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    hard.into_iter().flat_map(BTreeMap::keys).map(|name| quota::measured(name)).collect()
}

impl Monitors {
    pub fn new(client: kube::Client, quotas: Informer<ResourceQuota>, queue: WorkQueue<ObjectKey>) -> Self {
        Self { client, quotas, queue, changed: Notify::new() }
    }

    /// Keeps one watch per measured resource until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let me = Arc::downgrade(&self);
        self.quotas.on_change_while(move |_| me.upgrade().map(|me| me.changed.notify_one()).is_some());
        let resources = Resources::new(self.client.clone());
        let mut running: HashMap<Name, AbortHandle> = HashMap::new();
        let mut lacking = false;
        loop {
            let wanted: BTreeSet<Name> = self.quotas.list().iter().flat_map(|q| measured(q)).collect();
            running.retain(|name, task| {
                let stays = wanted.contains(name) && !task.is_finished();
                if !stays {
                    task.abort();
                }
                stays
            });
            for name in wanted {
                if running.contains_key(&name) {
                    continue;
                }
                match resources.prefix(&name.0, &name.1).await {
                    Ok(Some(prefix)) => {
                        let task = tokio::spawn(self.clone().follow(name.clone(), prefix));
                        running.insert(name, task.abort_handle());
                    }
                    Ok(None) => lacking = true,
                    Err(error) => {
                        tracing::warn!(%error, "looking for what a quota measures");
                        lacking = true;
                    }
                }
            }
            let pause = if std::mem::take(&mut lacking) { RETRY_INTERVAL } else { Duration::MAX };
            let next = async {
                let _ = tokio::time::timeout(pause, self.changed.notified()).await;
            };
            if stop.run_until_cancelled(next).await.is_none() {
                break;
            }
        }
        running.values().for_each(AbortHandle::abort);
    }

    async fn follow(self: Arc<Self>, name: Name, prefix: String) {
        let pods = name.0.is_empty() && name.1 == "pods";
        // Of pods it matters when they end; of the rest, that something changed.
        let selection = Selection { metadata_only: !pods, ..Selection::of(format!("{prefix}/{}", name.1)) };
        let mut changes = Reflector::new(self.client.clone(), selection);
        let mut fold = Fold::new(changes.path());
        loop {
            match fold.apply(changes.next().await, read) {
                Step::Nothing => {}
                Step::Replace(_) => self.wake("", &name),
                Step::Deleted(key, _) => self.wake(&key.namespace, &name),
                Step::Applied(key, head) => {
                    let ended = is_terminal_phase(&head.status.phase);
                    let started = head.status.phase.is_empty() || head.status.phase == "Pending";
                    if !pods || ended || started || head.metadata.generation > 1 {
                        self.wake(&key.namespace, &name);
                    }
                }
            }
        }
    }

    /// Counts the quotas of a namespace, or (empty) of all, that measure this.
    fn wake(&self, namespace: &str, name: &Name) {
        let quotas = if namespace.is_empty() { self.quotas.list() } else { self.quotas.list_in(namespace) };
        for quota in quotas.iter().filter(|quota| measured(quota).contains(name)) {
            let key = ObjectKey::new(quota.namespace().unwrap_or_default(), quota.name_any());
            self.queue.add_after(key, SETTLE_DEBOUNCE);
        }
    }
}
