//! Devices of ResourceClaims: a pod goes where its claims' devices are, or can be had. Mirrors
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>.
//!
//! Done are structured allocation with CEL selectors, constraints, prioritized alternatives, all-devices requests,
//! administrators' access and device taints. Partitionable devices, consumable capacity, extended resources backed by
//! devices and binding conditions are not: such devices are left out and such requests refused.

mod allocate;
mod devices;
mod selector;
mod write;

use super::{Arguments, Handle, Mistakes};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{
    Attempt, Cluster, ClusterEvent, CycleState, ObjectKind, Plugin, Point, PostFilter, Status,
};
use devices::DeviceId;
use parking_lot::Mutex;
use selector::Selectors;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const NAME: &str = "DynamicResources";
pub const POINTS: &[Point] = &[
    Point::PreEnqueue,
    Point::PreFilter,
    Point::Filter,
    Point::PostFilter,
    Point::Reserve,
    Point::PreBind,
    Point::PostBind,
];
/// Upstream's limit of pods that share a claim.
const MOST_CONSUMERS: usize = 256;

/// What was decided for a pod's claims.
#[derive(Clone)]
struct Decided {
    claims: Vec<Arc<Value>>,
    /// Of each claim; `None` where it has one already.
    allocations: Vec<Option<Value>>,
}

pub struct DynamicResources {
    cluster: Arc<dyn Cluster>,
    client: Option<kube::Client>,
    selectors: Mutex<Selectors>,
    /// Of pods between Reserve and the end of their binding, by UID.
    decided: Mutex<HashMap<String, Decided>>,
}

/// The pod's claims in a cycle.
struct Claims {
    all: Vec<Arc<Value>>,
    taken: HashSet<DeviceId>,
    slices: Vec<Arc<Value>>,
}

fn is_allocated(claim: &Value) -> bool {
    claim["status"]["allocation"].is_object()
}

fn reserved_for(claim: &Value, pod: &PodInfo) -> bool {
    let consumers = claim["status"]["reservedFor"].as_array();
    consumers.into_iter().flatten().any(|c| c["uid"] == pod.uid.as_str())
}

/// The name of the claim behind an entry of `spec.resourceClaims`; `Ok(None)` when it was found not to be needed.
fn claim_name(
    pod: &PodInfo,
    entry: &k8s_openapi::api::core::v1::PodResourceClaim,
) -> Result<Option<String>, String> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(name.clone()));
    }
    let statuses = pod.pod.status.as_ref().and_then(|s| s.resource_claim_statuses.as_ref());
    let status = statuses.into_iter().flatten().find(|s| s.name == entry.name);
    match status {
        Some(status) => Ok(status.resource_claim_name.clone()),
        None => Err(format!("pod \"{}\": ResourceClaim not created yet", pod.key)),
    }
}

impl DynamicResources {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, Mistakes> {
        let mut arguments = Arguments::new(arguments);
        // How long Filter may take is bounded by steps here.
        let _timeout = arguments.take("filterTimeout");
        arguments.finish().map(|()| Self {
            cluster: handle.cluster.clone(),
            client: handle.client.clone(),
            selectors: Mutex::default(),
            decided: Mutex::default(),
        })
    }

    fn claims(&self, pod: &PodInfo) -> Result<Vec<Arc<Value>>, String> {
        let entries = pod.spec().and_then(|s| s.resource_claims.as_deref()).unwrap_or_default();
        let mut claims = Vec::new();
        for entry in entries {
            let Some(name) = claim_name(pod, entry)? else { continue };
            let claim = self.cluster.resource_claim(&pod.key.namespace, &name);
            let claim = claim.ok_or_else(|| format!("resourceclaim \"{name}\" not found"))?;
            if !claim["metadata"]["deletionTimestamp"].is_null() {
                return Err(format!("resourceclaim \"{name}\" is being deleted"));
            }
            let owners = claim["metadata"]["ownerReferences"].as_array();
            let owned = owners.into_iter().flatten().any(|o| o["uid"] == pod.uid.as_str());
            if entry.resource_claim_name.is_none() && !owned {
                let text = format!(
                    "ResourceClaim {}/{name} was not created for pod {} (pod is not owner)",
                    pod.key.namespace, pod.key
                );
                return Err(text);
            }
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Devices that claims hold, or pods in their binding cycle are about to.
    fn taken(&self) -> HashSet<DeviceId> {
        let claims = self.cluster.resource_claims();
        let mut taken: HashSet<DeviceId> = claims.iter().flat_map(|c| devices::allocated(c)).collect();
        for decided in self.decided.lock().values() {
            for allocation in decided.allocations.iter().flatten() {
                let claim = serde_json::json!({ "status": { "allocation": allocation } });
                taken.extend(devices::allocated(&claim));
            }
        }
        taken
    }

    fn allocate(&self, claims: &Claims, node: &NodeInfo) -> Result<Option<Vec<Option<Value>>>, String> {
        let open: Vec<Arc<Value>> = claims.all.iter().filter(|c| !is_allocated(c)).cloned().collect();
        if open.is_empty() {
            return Ok(Some(vec![None; claims.all.len()]));
        }
        let devices = devices::on_node(&claims.slices, node);
        let mut selectors = self.selectors.lock();
        let found =
            allocate::allocate(&open, &devices, &claims.taken, self.cluster.as_ref(), &mut selectors)?;
        Ok(found.map(|found| {
            let mut found = found.into_iter();
            claims.all.iter().map(|c| if is_allocated(c) { None } else { found.next() }).collect()
        }))
    }
}

#[async_trait::async_trait]
impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Status {
        match self.claims(pod) {
            Ok(_) => Status::Success,
            Err(why) => Status::unresolvable(why),
        }
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        state.remove(NAME);
        let claims = match self.claims(pod) {
            Ok(claims) if claims.is_empty() => return Status::Skip,
            Ok(claims) => claims,
            Err(why) => return Status::unresolvable(why),
        };
        for claim in &claims {
            let consumers = claim["status"]["reservedFor"].as_array().map_or(0, Vec::len);
            if is_allocated(claim) && !reserved_for(claim, pod) && consumers >= MOST_CONSUMERS {
                return Status::unschedulable("resourceclaim in use");
            }
        }
        let open = claims.iter().any(|c| !is_allocated(c));
        let (taken, slices) =
            if open { (self.taken(), self.cluster.resource_slices()) } else { (HashSet::new(), Vec::new()) };
        state.put(NAME, Claims { all: claims, taken, slices });
        Status::Success
    }

    fn filter(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        let elsewhere = |claim: &&Arc<Value>| {
            let selector = &claim["status"]["allocation"]["nodeSelector"];
            is_allocated(claim) && !selector.is_null() && !devices::selects(selector, node)
        };
        if claims.all.iter().any(|c| elsewhere(&c)) {
            return Status::unresolvable("resourceclaim not available on the node");
        }
        match self.allocate(claims, node) {
            Ok(Some(_)) => Status::Success,
            Ok(None) => Status::unresolvable("cannot allocate all claims"),
            Err(why) => Status::unresolvable(why),
        }
    }

    fn post_filter(&self, attempt: &mut Attempt<'_>) -> PostFilter {
        let claims = self.claims(attempt.pod).unwrap_or_default();
        let none = claims.is_empty();
        PostFilter::Unhelpful(
            if none { "no new claims to deallocate" } else { "still not schedulable" }.to_owned(),
        )
    }

    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        match self.allocate(claims, node) {
            Ok(Some(allocations)) => {
                let decided = Decided { claims: claims.all.clone(), allocations };
                self.decided.lock().insert(pod.uid.clone(), decided);
                Status::Success
            }
            Ok(None) => Status::unschedulable("cannot allocate all claims"),
            Err(why) => Status::Error(why),
        }
    }

    fn unreserve(&self, pod: &PodInfo, _node: &str) {
        let Some(decided) = self.decided.lock().remove(&pod.uid) else { return };
        if let Some(client) = &self.client {
            let (client, pod) = (client.clone(), (pod.uid.clone(), pod.key.clone()));
            tokio::spawn(async move { write::release(&client, &decided.claims, &pod.0).await });
        }
    }

    async fn pre_bind(&self, pod: &PodInfo, _node: &str) -> Status {
        let Some(decided) = self.decided.lock().get(&pod.uid).cloned() else { return Status::Success };
        let Some(client) = &self.client else {
            return Status::Error("there is no API to allocate claims through".to_owned());
        };
        for (claim, allocation) in decided.claims.iter().zip(&decided.allocations) {
            if allocation.is_none() && reserved_for(claim, pod) {
                continue;
            }
            if let Err(error) = write::reserve(client, claim, allocation.as_ref(), pod).await {
                return Status::Error(format!("reserving resourceclaim: {error}"));
            }
        }
        Status::Success
    }

    async fn post_bind(&self, pod: &PodInfo, _node: &str) {
        self.decided.lock().remove(&pod.uid);
    }

    fn helps(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::Object { kind, namespace, name } => match kind {
                // One of the pod's own, or one that may have given devices back.
                ObjectKind::ResourceClaim => {
                    let claim = self.cluster.resource_claim(namespace, name);
                    claim.is_none_or(|c| !is_allocated(&c)) || *namespace == pod.key.namespace
                }
                ObjectKind::ResourceSlice | ObjectKind::DeviceClass => true,
                _ => false,
            },
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::NodeUpdated { changed, .. } => changed.labels,
            _ => false,
        }
    }

    fn advice(&self, _pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        Some(format!("its claims need free devices that {} can use; see the ResourceSlices", node.name))
    }
}

#[cfg(test)]
mod tests;
