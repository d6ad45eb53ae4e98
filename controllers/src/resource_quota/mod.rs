//! Keeps the status of resource quotas: `hard` as declared, `used` as counted
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! Admission charges what is added; this controller counts anew when objects go, when a pod ends, when a quota changes,
//! and now and then. It is what brings `used` down.

mod count;
mod monitors;

use crate::clients::Clients;
use coracle_api::quota::{self, Amounts};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::ResourceQuota;
use rand::Rng;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "resourcequota-controller";

/// Upstream's --resource-quota-sync-period; a fifth of it more or less.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

/// A write that admission has charged and the store not yet taken looks like a leak for a moment; this is longer than
/// any write takes.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_millis(500);

/// Passes that find less than what is charged, while charges go on, before the count is believed.
const PATIENCE: u32 = 3;

struct Quotas {
    client: kube::Client,
    quotas: Informer<ResourceQuota>,
    /// Quotas whose count is below their charge: since when, at which version, and how often it was so.
    doubts: Mutex<HashMap<ObjectKey, Doubt>>,
    resources: count::Resources,
}

struct Doubt {
    since: Instant,
    version: String,
    passes: u32,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let quotas = clients.informers.of::<ResourceQuota>();
    let client = clients.client(CONTROLLER);
    let queue = WorkQueue::new();
    let reconciler = Quotas {
        client: client.clone(),
        quotas: quotas.clone(),
        doubts: Mutex::default(),
        resources: count::Resources::new(client.clone()),
    };
    let controller = Controller::with_queue(reconciler, queue.clone()).objects(&quotas);
    let monitors = Arc::new(monitors::Monitors::new(client, quotas, queue));
    tokio::join!(controller.run(stop.clone()), monitors.run(stop));
}

impl Reconciler for Quotas {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(quota) = self.quotas.get_key(key) else {
            self.settled(key);
            return Ok(Action::AwaitChange);
        };
        let quota = serde_json::to_value(quota.as_ref()).map_err(|e| ReconcileError::Other(e.to_string()))?;
        let hard = quota::amounts(&quota["spec"]["hard"]);
        let used = self.resources.used(&quota, &hard).await?;
        let status = json!({ "hard": quota::to_value(&hard), "used": quota::to_value(&used) });
        if same(&quota["status"], &hard, &used) {
            self.settled(key);
            return Ok(resync());
        }
        if let Some(wait) = self.doubted(key, &quota, &used) {
            return Ok(Action::RequeueAfter(wait));
        }
        let mut quota = quota;
        quota["status"] = status;
        self.write(key, &quota).await?;
        self.settled(key);
        Ok(resync())
    }
}

fn resync() -> Action {
    Action::RequeueAfter(RESYNC_INTERVAL.mul_f64(rand::rng().random_range(0.8..1.2)))
}

fn same(status: &Value, hard: &Amounts, used: &Amounts) -> bool {
    quota::amounts(&status["hard"]) == *hard && quota::amounts(&status["used"]) == *used
}

impl Quotas {
    fn doubts(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectKey, Doubt>> {
        // Plain data, whole after a panic.
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self, key: &ObjectKey) {
        self.doubts().remove(key);
    }

    /// How long to wait before less than what is charged is believed.
    fn doubted(&self, key: &ObjectKey, quota: &Value, used: &Amounts) -> Option<Duration> {
        let charged = quota::amounts(&quota["status"]["used"]);
        if !used.iter().any(|(name, counted)| charged.get(name).is_some_and(|charge| counted < charge)) {
            return None;
        }
        let version = quota["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let mut doubts = self.doubts();
        let fresh = || Doubt { since: Instant::now(), version: version.to_owned(), passes: 0 };
        let doubt = doubts.entry(key.clone()).or_insert_with(fresh);
        doubt.passes += 1;
        if doubt.version != version {
            doubt.version = version.to_owned();
            doubt.since = Instant::now();
        }
        let left = IN_FLIGHT_TIMEOUT.checked_sub(doubt.since.elapsed())?;
        (doubt.passes <= PATIENCE && !left.is_zero()).then_some(left)
    }

    async fn write(&self, key: &ObjectKey, quota: &Value) -> Result<(), ReconcileError> {
        let path = format!("/api/v1/namespaces/{}/resourcequotas/{}/status", key.namespace, key.name);
        let body = serde_json::to_vec(quota).map_err(|e| ReconcileError::Other(e.to_string()))?;
        let request = http::Request::put(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|e| ReconcileError::Other(e.to_string()))?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }
}
