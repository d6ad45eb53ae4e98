//! What was decided for pods between Reserve and the end of their binding. PreBind ends when the API's claims are seen
//! to show it.

use super::binding;
use super::is_allocated;
use super::taken::Taken;
use crate::framework::Cluster;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The claim for a pod's extended resources.
#[derive(Clone)]
pub struct Extended {
    /// As it is going to be created.
    pub claim: Arc<Value>,
    pub allocation: Value,
    /// Which container's resource is served by which request.
    pub mappings: Vec<Value>,
    /// As it was created.
    pub made: Option<Arc<Value>>,
}

#[derive(Clone, Default)]
pub struct Decided {
    pub claims: Vec<Arc<Value>>,
    /// Of each claim; `None` where it has one already.
    pub allocations: Vec<Option<Value>>,
    pub extended: Option<Extended>,
}

fn key(claim: &Value) -> (String, String) {
    let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl Decided {
    /// Nothing yet for any of the claims.
    pub fn of(claims: &[Arc<Value>]) -> Self {
        Self { claims: claims.to_vec(), allocations: vec![None; claims.len()], extended: None }
    }

    /// Allocations that this decision makes, with their claims as far as they exist.
    fn allocations(&self) -> impl Iterator<Item = (Option<&Arc<Value>>, &Value)> {
        let own = self.claims.iter().zip(&self.allocations);
        let own = own.filter_map(|(claim, allocation)| Some((Some(claim), allocation.as_ref()?)));
        own.chain(self.extended.iter().map(|e| (e.made.as_ref(), &e.allocation)))
    }

    /// Namespaces and names of claims whose devices must become ready first.
    pub fn awaited(&self) -> Vec<(String, String)> {
        let own = self.claims.iter().zip(&self.allocations);
        let waits = |claim: &Value, new: Option<&Value>| {
            binding::has_conditions(new.unwrap_or(&claim["status"]["allocation"]))
        };
        let own = own.filter(|(claim, new)| waits(claim, new.as_ref())).map(|(claim, _)| key(claim));
        let extended = self.extended.iter().filter(|e| binding::has_conditions(&e.allocation));
        own.chain(extended.filter_map(|e| e.made.as_deref().map(key))).collect()
    }

    /// Allocations that the API's claims do not show yet. A claim that was there when this was decided and is not any
    /// more holds nothing.
    fn unseen<'d>(&'d self, cluster: &dyn Cluster) -> Vec<&'d Value> {
        let shown = |claim: &Value| {
            let (namespace, name) = key(claim);
            cluster.resource_claim(&namespace, &name)
        };
        let own = self.claims.iter().zip(&self.allocations);
        let own = own.filter(|(claim, _)| shown(claim).is_some_and(|now| !is_allocated(&now)));
        let made = |extended: &&Extended| {
            let claim = extended.made.as_deref().and_then(shown);
            !claim.is_some_and(|now| is_allocated(&now))
        };
        let extended = self.extended.iter().filter(made).map(|extended| &extended.allocation);
        own.filter_map(|(_, allocation)| allocation.as_ref()).chain(extended).collect()
    }
}

/// By the pod's UID.
#[derive(Default)]
pub struct InBinding(Mutex<HashMap<String, Decided>>);

impl InBinding {
    pub fn put(&self, uid: &str, decided: Decided) {
        self.0.lock().insert(uid.to_owned(), decided);
    }

    pub fn get(&self, uid: &str) -> Option<Decided> {
        self.0.lock().get(uid).cloned()
    }

    pub fn take(&self, uid: &str) -> Option<Decided> {
        self.0.lock().remove(uid)
    }

    /// The claim for extended resources exists.
    pub fn made(&self, uid: &str, claim: Value) {
        if let Some(extended) = self.0.lock().get_mut(uid).and_then(|d| d.extended.as_mut()) {
            extended.made = Some(Arc::new(claim));
        }
    }

    /// Whether another pod is about to allocate the claim with this UID.
    pub fn allocates(&self, claim: &Value, pod: &str) -> bool {
        let all = self.0.lock();
        let others = all.iter().filter(|(uid, _)| *uid != pod);
        let mut claims = others.flat_map(|(_, decided)| decided.allocations());
        claims.any(|(known, _)| known.is_some_and(|known| known["metadata"]["uid"] == *claim))
    }

    /// Adds what is decided and the claims do not show yet.
    pub fn count(&self, cluster: &dyn Cluster, taken: &mut Taken) {
        for allocation in self.0.lock().values().flat_map(|decided| decided.unseen(cluster)) {
            taken.add(allocation);
        }
    }
}
