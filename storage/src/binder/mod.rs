//! Binds claims to volumes, follows their phases, and starts provisioning and reclaiming.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/>

mod claims;
mod plan;
mod reclaim;
mod scrub;
mod volumes;

pub use scrub::Here;

use crate::metrics::{Collector, Metrics};
use coracle_client::Clients;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::{fmt, io};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The service account, and the events' source.
const ACCOUNT: &str = "persistent-volume-binder";
const COMPONENT: &str = "persistentvolume-controller";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Claim(ObjectKey),
    Volume(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "claim {key}"),
            Self::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

struct Binder {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    recorder: Recorder,
    /// What is being scrubbed, by the volumes' names.
    recyclers: Mutex<HashMap<String, reclaim::Recycling>>,
    /// Directories that are being removed, by the volumes' uids, or emptied, by `<volume>/` and whose data they hold.
    removals: Mutex<HashMap<String, JoinHandle<io::Result<()>>>>,
    here: Option<Here>,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, here: Option<Here>, metrics: Arc<Metrics>, stop: CancellationToken) {
    let client = clients.client(ACCOUNT);
    let informers = &clients.informers;
    let binder = Binder {
        recorder: Recorder::new(client.clone(), COMPONENT, ""),
        client,
        claims: informers.of(),
        volumes: informers.of(),
        classes: informers.of(),
        nodes: informers.of(),
        pods: informers.of(),
        recyclers: Mutex::default(),
        removals: Mutex::default(),
        here,
        metrics: metrics.clone(),
    };
    let (claims, volumes, classes) = (binder.claims.clone(), binder.volumes.clone(), binder.classes.clone());
    let (nodes, pods) = (binder.nodes.clone(), binder.pods.clone());
    let collector = Collector::new(metrics);
    let waiting = {
        let (claims, collector) = (claims.clone(), collector.clone());
        move |delta: &Delta<PersistentVolume>| {
            collector.volume(delta);
            of_volume(delta, &claims)
        }
    };
    let of_claim = move |delta: &Delta<PersistentVolumeClaim>| {
        collector.claim(delta);
        of_claim(delta)
    };
    let of_class = {
        let claims = claims.clone();
        move |delta: &Delta<StorageClass>| of_class(delta, &claims)
    };
    // One worker: two that match at once could promise the same volume twice.
    Controller::new(binder)
        .watch(&claims, of_claim)
        .watch(&volumes, waiting)
        .watch(&classes, of_class)
        .watch(&pods, of_recycler)
        .reads(&nodes)
        .run(stop)
        .await;
}

fn of_claim(delta: &Delta<PersistentVolumeClaim>) -> Vec<Key> {
    let Some(claim) = delta.object() else { return Vec::new() };
    let mut keys = vec![Key::Claim(ObjectKey::of(claim.as_ref()))];
    keys.extend(crate::facts::volume_name(claim).map(|name| Key::Volume(name.to_owned())));
    keys
}

fn of_recycler(delta: &Delta<Pod>) -> Option<Key> {
    delta.object().and_then(|pod| reclaim::volume_of(pod)).map(|volume| Key::Volume(volume.to_owned()))
}

/// The volume, its claim, and, for one that became free, every claim that waits for one of its class.
fn of_volume(delta: &Delta<PersistentVolume>, claims: &Informer<PersistentVolumeClaim>) -> Vec<Key> {
    let Some(volume) = delta.object() else { return Vec::new() };
    let mut keys = vec![Key::Volume(volume.metadata.name.clone().unwrap_or_default())];
    if let Some(reference) = crate::facts::claim_ref(volume) {
        let name = reference.name.clone().unwrap_or_default();
        keys.push(Key::Claim(ObjectKey::new(reference.namespace.clone().unwrap_or_default(), name)));
    } else if delta.new.is_some() && crate::facts::phase(volume) == "Available" {
        keys.extend(unbound(claims, crate::facts::class_of_volume(volume)));
    }
    if let Some(name) = volume.metadata.name.as_deref() {
        let all = claims.list();
        let named = all.iter().filter(|c| crate::facts::volume_name(c) == Some(name));
        keys.extend(named.map(|c| Key::Claim(ObjectKey::of(c.as_ref()))));
    }
    keys
}

/// The claims that wait for this class; of one that is the default, those too that name none.
fn of_class(delta: &Delta<StorageClass>, claims: &Informer<PersistentVolumeClaim>) -> Vec<Key> {
    let Some(class) = delta.new.as_ref() else { return Vec::new() };
    let mut keys = unbound(claims, class.metadata.name.as_deref().unwrap_or_default());
    if crate::facts::is_default(class) {
        keys.extend(unbound(claims, ""));
    }
    keys
}

fn unbound(claims: &Informer<PersistentVolumeClaim>, class: &str) -> Vec<Key> {
    let all = claims.list();
    let waiting =
        all.iter().filter(|c| crate::facts::volume_name(c).is_none() && crate::facts::class_of(c) == class);
    waiting.map(|c| Key::Claim(ObjectKey::of(c.as_ref()))).collect()
}

impl Reconciler for Binder {
    type Key = Key;

    fn name(&self) -> &'static str {
        ACCOUNT
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, ReconcileError> {
        match key {
            Key::Claim(key) => self.sync_claim(key).await,
            Key::Volume(name) => self.sync_volume(name).await,
        }
    }
}
