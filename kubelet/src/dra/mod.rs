//! Devices of ResourceClaims on this node: dynamic resource allocation (DRA), as
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/> has it.
//!
//! A claim is prepared by its drivers before the first pod that has it gets a sandbox, and given back after the last one has
//! stopped and before its status says so. What is, or may be, prepared stands in `<root>/dra_manager_state`. Containers get
//! CDI devices, which the runtime looks up by their names.

mod drivers;
mod error;
mod health;
pub mod messages;
mod object;
mod prepare;
mod references;
mod shown;
mod state;

pub use error::DraError;
pub use references::has_any;

use crate::blocking;
use crate::metrics::Metrics;
use coracle_client::ObjectKey;
use drivers::Drivers;
use health::Health;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use state::ClaimState;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// First and longest pause before slices that could not be removed are tried again; upstream's.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(300);

type Claims = BTreeMap<ObjectKey, ClaimState>;

/// What it takes to look after claims.
pub struct Parts {
    pub client: kube::Client,
    pub node_name: String,
    /// There is no API server.
    pub standalone: bool,
    pub node: watch::Receiver<Option<Arc<Node>>>,
    /// The kubelet's own directory.
    pub root: PathBuf,
    /// How long a driver may stay away before its slices are removed.
    pub patience: Duration,
    /// Told the UIDs of pods of whose devices something else is known.
    pub changed: Arc<dyn Fn(&str) + Send + Sync>,
    pub metrics: Metrics,
}

pub struct Dra {
    client: kube::Client,
    node_name: String,
    standalone: bool,
    node: watch::Receiver<Option<Arc<Node>>>,
    patience: Duration,
    changed: Arc<dyn Fn(&str) + Send + Sync>,
    file: PathBuf,
    claims: Arc<Mutex<Claims>>,
    /// One writes the file at a time.
    writing: Arc<Mutex<()>>,
    /// One call to drivers for a claim at a time.
    turns: Mutex<HashMap<ObjectKey, Weak<tokio::sync::Mutex<()>>>>,
    drivers: Mutex<Drivers>,
    health: Mutex<Health>,
    stop: CancellationToken,
    metrics: Metrics,
}

impl Dra {
    /// A checkpoint that cannot be read is set aside: nothing is known to be prepared then, and drivers prepare anew.
    pub fn open(parts: Parts) -> Self {
        let Parts { client, node_name, standalone, node, root, patience, changed, metrics } = parts;
        let file = root.join("dra_manager_state");
        let known = state::load(&file).unwrap_or_else(|error| {
            set_aside(&file, &error);
            Vec::new()
        });
        let claims = known.into_iter().map(|claim| (key(&claim), claim)).collect();
        Self {
            client,
            node_name,
            standalone,
            node,
            patience,
            changed,
            file,
            claims: Arc::new(Mutex::new(claims)),
            writing: Arc::default(),
            turns: Mutex::default(),
            drivers: Mutex::default(),
            health: Mutex::default(),
            stop: CancellationToken::new(),
            metrics,
        }
    }

    /// Until `stop`. No driver has registered yet, and none may come back: nobody is to be sent here for its devices.
    pub async fn run(&self, stop: CancellationToken) {
        if !self.standalone {
            stop.run_until_cancelled(self.wipe(None)).await;
        }
        stop.cancelled().await;
        self.stop.cancel();
    }

    /// Removes the ResourceSlices of this node, or those of one driver, trying until that is done.
    async fn wipe(&self, driver: Option<&str>) {
        let mut node = self.node.clone();
        // Without one nobody will register it any more: the kubelet stops.
        if node.wait_for(Option::is_some).await.is_err() {
            return std::future::pending().await;
        }
        let of_driver = driver.map(|driver| format!(",spec.driver={driver}")).unwrap_or_default();
        let selector = format!("spec.nodeName={}{of_driver}", self.node_name);
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("fieldSelector", &selector).finish();
        let path = format!("/apis/resource.k8s.io/v1/resourceslices?{query}");
        let mut pause = RETRY_INTERVAL;
        loop {
            let request = http::Request::delete(&path).body(Vec::new());
            let Ok(request) = request else { return };
            match self.client.request::<serde_json::Value>(request).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(error) => tracing::debug!(selector, %error, "ResourceSlices not removed, trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY_INTERVAL);
        }
    }

    /// Whether something is, or may be, prepared for the pod.
    pub fn holds(&self, pod_uid: &str) -> bool {
        self.claims.lock().values().any(|claim| claim.pods.contains_key(pod_uid))
    }

    /// UIDs of all pods for which something is, or may be, prepared.
    pub fn pods(&self) -> BTreeSet<String> {
        self.claims.lock().values().flat_map(|claim| claim.pods.keys().cloned()).collect()
    }

    /// How many claims each driver has a part in; `<any>` stands for all.
    pub fn in_use(&self) -> BTreeMap<String, usize> {
        let claims = self.claims.lock();
        let mut counts = BTreeMap::from([("<any>".to_owned(), claims.len())]);
        for driver in claims.values().flat_map(|claim| claim.drivers.keys()) {
            *counts.entry(driver.clone()).or_default() += 1;
        }
        counts
    }

    /// Tells the pods that have one of the devices.
    fn tell(&self, driver: &str, devices: &BTreeSet<health::Device>) {
        if devices.is_empty() {
            return;
        }
        let has = |claim: &&ClaimState| {
            let of_driver = claim.drivers.get(driver);
            let mut all = of_driver.iter().flat_map(|state| &state.devices);
            all.any(|d| devices.contains(&(d.pool_name.clone(), d.device_name.clone())))
        };
        let pods: BTreeSet<String> =
            self.claims.lock().values().filter(has).flat_map(|claim| claim.pods.keys().cloned()).collect();
        pods.iter().for_each(|uid| (self.changed)(uid));
    }

    /// Writes what is known now. Durable when this returns.
    async fn checkpoint(&self) -> Result<(), DraError> {
        let (file, claims, writing) = (self.file.clone(), self.claims.clone(), self.writing.clone());
        let write = move || {
            let _alone = writing.lock();
            // Taken when it is its turn: the last to write knows all.
            let entries = claims.lock().values().cloned().collect();
            state::store(&file, entries)
        };
        match blocking::reading("checkpoint of claims", write).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(DraError::Checkpoint(format!("{}: {error}", self.file.display()))),
            None => Err(DraError::Checkpoint(format!("{}: not written", self.file.display()))),
        }
    }
}

fn key(claim: &ClaimState) -> ObjectKey {
    ObjectKey::new(&claim.namespace, &claim.name)
}

fn set_aside(file: &Path, error: &state::CheckpointError) {
    let aside = file.with_extension("bad");
    let path = file.display();
    tracing::error!(%path, %error, "what was prepared for pods is not known any more; the file is set aside");
    if let Err(error) = std::fs::rename(file, &aside) {
        tracing::warn!(%path, %error, "not set aside");
    }
}
