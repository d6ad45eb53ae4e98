//! Claims are prepared and given back, with all that can go wrong between the API server, the file and the drivers.

use super::drivers::Plugin;
use super::error::DraError;
use super::messages::{Claim, ClaimsRequest, PrepareResponse, UnprepareResponse};
use super::object;
use super::references::{Reference, references};
use super::state::{ClaimState, Device, DriverState, Nothing};
use super::{Dra, key};
use crate::metrics::Metric;
use coracle_client::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedMutexGuard;

const PREPARE: &str = "NodePrepareResources";
const UNPREPARE: &str = "NodeUnprepareResources";

/// What is asked of one driver.
type Batches = BTreeMap<String, Vec<Claim>>;

fn failed(done: &Result<(), DraError>) -> &'static str {
    if done.is_err() { "true" } else { "false" }
}

impl Dra {
    /// Makes sure that all claims of the pod are prepared. May be called again at any time, and dropped half-way: what may
    /// have been prepared is known, and given back with [`unprepare`](Self::unprepare).
    pub async fn prepare(&self, pod: &Pod) -> Result<(), DraError> {
        let began = Instant::now();
        let prepared = self.try_prepare(pod).await;
        self.metrics.took(Metric::Dra, &["PrepareResources", failed(&prepared)], began.elapsed());
        prepared
    }

    async fn try_prepare(&self, pod: &Pod) -> Result<(), DraError> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut wanted = Vec::new();
        for reference in references(pod)? {
            wanted.push(self.wanted(pod, &uid, &reference).await?);
        }
        // Before anything is noted: a pod whose driver never came can go without it.
        for driver in wanted.iter().flat_map(|claim| claim.drivers.keys()) {
            self.plugin(driver)?;
        }
        let keys: Vec<ObjectKey> = wanted.iter().map(key).collect();
        let _turns = self.turns(&keys).await;
        let batches = self.note(&uid, wanted)?;
        self.checkpoint().await?;
        for (driver, claims) in &batches {
            self.prepare_by(driver, claims).await?;
        }
        if batches.is_empty() {
            return Ok(());
        }
        for claim in
            self.claims.lock().iter_mut().filter(|(key, _)| keys.contains(key)).map(|(_, claim)| claim)
        {
            claim.prepared = true;
        }
        self.checkpoint().await
    }

    /// The claim as the API server has it, if the pod may have it. Where the server does not answer, what was prepared for
    /// the pod before it may have again.
    async fn wanted(&self, pod: &Pod, uid: &str, reference: &Reference) -> Result<ClaimState, DraError> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let name = &reference.name;
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        let failed = |message: String| DraError::Fetch { name: name.clone(), message };
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
        match self.client.request::<object::Claim>(request).await {
            Ok(claim) => {
                let node = self.node.borrow().clone();
                object::for_pod(&claim, reference, pod, node.as_deref())
            }
            Err(kube::Error::Api(status)) => Err(failed(status.message)),
            Err(error) => {
                let known = self.claims.lock().get(&ObjectKey::new(&namespace, name)).cloned();
                let known = known.filter(|claim| claim.pods.contains_key(uid));
                known.ok_or_else(|| failed(error.to_string()))
            }
        }
    }

    /// Whether all claims of the pod are prepared.
    pub fn is_prepared(&self, pod: &Pod) -> bool {
        let (uid, namespace) = (pod.metadata.uid.clone(), pod.metadata.namespace.clone());
        let (uid, namespace) = (uid.unwrap_or_default(), namespace.unwrap_or_default());
        let claims = self.claims.lock();
        references(pod).is_ok_and(|references| {
            references.iter().all(|reference| {
                let known = claims.get(&ObjectKey::new(&namespace, &reference.name));
                // One from before this process is good enough for containers of a sandbox from before.
                known.is_some_and(|claim| {
                    let complete = claim.prepared || claim.drivers.values().any(|d| !d.devices.is_empty());
                    complete && claim.pods.contains_key(&uid)
                })
            })
        })
    }

    /// Notes that the pod has the claims; what drivers have to prepare of them.
    fn note(&self, uid: &str, wanted: Vec<ClaimState>) -> Result<Batches, DraError> {
        let mut claims = self.claims.lock();
        for claim in &wanted {
            if let Some(known) = claims.get(&key(claim)).filter(|known| known.uid != claim.uid) {
                return Err(DraError::Another { name: claim.name.clone(), uid: known.uid.clone() });
            }
        }
        let mut batches = Batches::new();
        for claim in wanted {
            let known = claims.entry(key(&claim)).or_insert(claim);
            known.pods.insert(uid.to_owned(), Nothing {});
            if !known.prepared {
                batch(&mut batches, known);
            }
        }
        Ok(batches)
    }

    async fn prepare_by(&self, driver: &str, claims: &[Claim]) -> Result<(), DraError> {
        let Plugin { client, service, .. } = self.plugin(driver)?;
        let request = ClaimsRequest { claims: claims.to_vec() };
        let answer: PrepareResponse = client
            .call(service.prepare, request)
            .await
            .map_err(|error| DraError::Call { method: PREPARE, error })?;
        let errors = answer.claims.iter().map(|(uid, prepared)| (uid, prepared.error.as_str()));
        check(PREPARE, claims, errors)?;
        let mut known = self.claims.lock();
        for claim in known.values_mut() {
            let Some(prepared) = answer.claims.get(&claim.uid) else { continue };
            let devices = prepared.devices.iter().map(|device| Device {
                pool_name: device.pool_name.clone(),
                device_name: device.device_name.clone(),
                share_id: device.share_id.clone(),
                request_names: device.request_names.clone(),
                cdi_device_ids: device.cdi_device_ids.clone(),
            });
            claim.drivers.insert(driver.to_owned(), DriverState { devices: devices.collect() });
        }
        Ok(())
    }

    /// Gives back what the pod has and no other pod does. May be called again at any time, and dropped half-way.
    pub async fn unprepare(&self, uid: &str) -> Result<(), DraError> {
        if !self.holds(uid) {
            return Ok(());
        }
        let began = Instant::now();
        let unprepared = self.try_unprepare(uid).await;
        self.metrics.took(Metric::Dra, &["UnprepareResources", failed(&unprepared)], began.elapsed());
        unprepared
    }

    async fn try_unprepare(&self, uid: &str) -> Result<(), DraError> {
        let of_pod = || {
            let claims = self.claims.lock();
            let of_pod = claims.iter().filter(|(_, claim)| claim.pods.contains_key(uid));
            of_pod.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        let _turns = self.turns(&of_pod()).await;
        let (mut batches, mut last) = (Batches::new(), Vec::new());
        for key in of_pod() {
            let mut claims = self.claims.lock();
            let Some(claim) = claims.get_mut(&key) else { continue };
            if claim.pods.len() > 1 {
                claim.pods.remove(uid);
            } else {
                batch(&mut batches, claim);
                last.push(key);
            }
        }
        for (driver, claims) in &batches {
            self.unprepare_by(driver, claims).await?;
        }
        self.claims.lock().retain(|key, _| !last.contains(key));
        self.checkpoint().await
    }

    async fn unprepare_by(&self, driver: &str, claims: &[Claim]) -> Result<(), DraError> {
        let Plugin { client, service, .. } = self.plugin(driver)?;
        let request = ClaimsRequest { claims: claims.to_vec() };
        let answer: UnprepareResponse = client
            .call(service.unprepare, request)
            .await
            .map_err(|error| DraError::Call { method: UNPREPARE, error })?;
        check(UNPREPARE, claims, answer.claims.iter().map(|(uid, claim)| (uid, claim.error.as_str())))
    }

    /// Waits until nobody else asks drivers for these claims, and keeps others from it.
    async fn turns(&self, keys: &[ObjectKey]) -> Vec<OwnedMutexGuard<()>> {
        let mut keys = keys.to_vec();
        // In one order, so that no two wait for each other.
        keys.sort();
        keys.dedup();
        let locks: Vec<Arc<tokio::sync::Mutex<()>>> = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let mut turn = |key: ObjectKey| {
                let known = turns.get(&key).and_then(std::sync::Weak::upgrade);
                known.unwrap_or_else(|| {
                    let new = Arc::<tokio::sync::Mutex<()>>::default();
                    turns.insert(key, Arc::downgrade(&new));
                    new
                })
            };
            keys.into_iter().map(&mut turn).collect()
        };
        let mut held = Vec::new();
        for lock in locks {
            held.push(lock.lock_owned().await);
        }
        held
    }
}

/// Asks all drivers of the claim.
fn batch(batches: &mut Batches, claim: &ClaimState) {
    for driver in claim.drivers.keys() {
        let (namespace, uid) = (claim.namespace.clone(), claim.uid.clone());
        let asked = Claim { namespace, uid, name: claim.name.clone() };
        batches.entry(driver.clone()).or_default().push(asked);
    }
}

/// Whether the driver has answered for exactly what it was asked, and well.
fn check<'a>(
    method: &'static str,
    asked: &[Claim],
    answered: impl Iterator<Item = (&'a String, &'a str)>,
) -> Result<(), DraError> {
    let mut count = 0;
    for (uid, error) in answered {
        let Some(claim) = asked.iter().find(|claim| claim.uid == *uid) else {
            return Err(DraError::Unasked { method, uid: uid.clone() });
        };
        if !error.is_empty() {
            let (claim, message) = (claim.name.clone(), error.to_owned());
            return Err(DraError::Refused { method, claim, message });
        }
        count += 1;
    }
    match asked.len() - count {
        0 => Ok(()),
        count => Err(DraError::Skipped { method, count }),
    }
}
