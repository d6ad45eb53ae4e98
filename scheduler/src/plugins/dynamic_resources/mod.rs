//! Devices of ResourceClaims: a pod goes where its claims' devices are, or can be had. Mirrors
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>.
//!
//! Structured allocation with CEL selectors, constraints, prioritized alternatives, all-devices requests,
//! administrators' access, device taints, partitionable devices, consumable capacity, binding conditions, and extended
//! resources that devices back.

mod allocate;
mod binding;
mod capacity;
mod decided;
mod devices;
pub mod extended;
mod inventory;
mod requests;
mod results;
mod selector;
mod taken;
mod write;

use super::normalize::by_highest;
use super::{ArgumentErrors, Arguments, Handle};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{
    Attempt, Cluster, ClusterEvent, CycleState, NodeScore, ObjectKind, Plugin, Point, PostFilter, Status,
};
use allocate::AvailableDevices;
use coracle_api::duration;
use decided::{Decided, Extended, InBinding};
use devices::Place;
use inventory::Inventory;
use k8s_openapi::api::core::v1::PodResourceClaim;
use parking_lot::Mutex;
use selector::CompiledSelectors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use taken::Taken;
use tokio::time::Instant;

const NAME: &str = "DynamicResources";
pub const POINTS: &[Point] = &[
    Point::PreEnqueue,
    Point::PreFilter,
    Point::Filter,
    Point::PostFilter,
    Point::PreScore,
    Point::Score,
    Point::Reserve,
    Point::PreBind,
    Point::PostBind,
];
/// Upstream's limit of pods that share a claim.
const MOST_CONSUMERS: usize = 256;
/// Upstream's default of `bindingTimeout`.
const BINDING_TIMEOUT: Duration = Duration::from_secs(600);
/// Upstream's default of `filterTimeout`.
const FILTER_TIMEOUT: Duration = Duration::from_secs(10);

pub struct DynamicResources {
    cluster: Arc<dyn Cluster>,
    client: Option<kube::Client>,
    /// How long devices may take to become ready for a node.
    binding_timeout: Duration,
    /// How long devices may be looked for on one node; zero for as long as it takes.
    filter_timeout: Duration,
    selectors: Mutex<CompiledSelectors>,
    in_binding: InBinding,
}

/// The pod's claims in a cycle.
struct Claims {
    all: Vec<Arc<Value>>,
    /// Where the devices of those are that have some.
    places: Vec<Place>,
    /// Extended resources that classes back, with the class.
    extended: BTreeMap<String, String>,
    taken: Taken,
    inventory: Inventory,
}

/// Namespace and name.
fn key(claim: &Value) -> String {
    let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn is_allocated(claim: &Value) -> bool {
    claim["status"]["allocation"].is_object()
}

fn reserved_for(claim: &Value, pod: &PodInfo) -> bool {
    let consumers = claim["status"]["reservedFor"].as_array();
    consumers.into_iter().flatten().any(|c| c["uid"] == pod.uid.as_str())
}

fn consumers(claim: &Value) -> usize {
    claim["status"]["reservedFor"].as_array().map_or(0, Vec::len)
}

/// Where the claim's devices are; `None` for everywhere, or while it has none.
fn place(claim: &Value) -> Option<Place> {
    let selector = &claim["status"]["allocation"]["nodeSelector"];
    (!selector.is_null()).then(|| Place::selected(selector))
}

/// The name of the claim behind an entry of `spec.resourceClaims`; `Ok(None)` when it was found not to be needed.
fn claim_name(pod: &PodInfo, entry: &PodResourceClaim) -> Result<Option<String>, String> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(name.clone()));
    }
    let statuses = pod.status().and_then(|s| s.resource_claim_statuses.as_ref());
    let status = statuses.into_iter().flatten().find(|s| s.name == entry.name);
    match status {
        Some(status) => Ok(status.resource_claim_name.clone()),
        None => Err(format!("pod \"{}\": ResourceClaim not created yet", pod.key)),
    }
}

impl DynamicResources {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let mut time = |name: &str| {
            let text: String = arguments.read(name)?;
            let read = duration::parse(&text);
            if read.is_none() {
                arguments.mistake(name, &text.into(), "must be a duration such as 10s");
            }
            read
        };
        let filter_timeout = time("filterTimeout").unwrap_or(FILTER_TIMEOUT);
        let binding_timeout = time("bindingTimeout").unwrap_or(BINDING_TIMEOUT);
        if binding_timeout < Duration::from_secs(1) {
            let value = duration::written(binding_timeout).into();
            arguments.mistake("bindingTimeout", &value, "must be at least 1 second");
        }
        arguments.finish().map(|()| Self {
            cluster: handle.cluster.clone(),
            client: handle.client.clone(),
            binding_timeout,
            filter_timeout,
            selectors: Mutex::default(),
            in_binding: InBinding::default(),
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
    fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        let claims = self.cluster.resource_claims();
        claims.iter().for_each(|claim| taken.add(&claim["status"]["allocation"]));
        self.in_binding.count(self.cluster.as_ref(), &mut taken);
        taken
    }

    /// Why the pod's claims cannot be worked on now.
    fn unusable(&self, pod: &PodInfo, claims: &[Arc<Value>]) -> Option<String> {
        claims.iter().find_map(|claim| {
            if is_allocated(claim) {
                let full = !reserved_for(claim, pod) && consumers(claim) >= MOST_CONSUMERS;
                return full.then(|| "resourceclaim in use".to_owned());
            }
            let busy = self.in_binding.allocates(&claim["metadata"]["uid"], &pod.uid);
            busy.then(|| format!("resource claim {} is in the process of being allocated", key(claim)))
        })
    }

    /// The claims that still need devices, the one for extended resources last, with what that one is for.
    fn open(&self, pod: &PodInfo, claims: &Claims, node: &NodeInfo) -> (Vec<Arc<Value>>, Option<Vec<Value>>) {
        let mut open: Vec<Arc<Value>> = claims.all.iter().filter(|c| !is_allocated(c)).cloned().collect();
        let lacking = extended::lacking(node, &claims.extended);
        if lacking.is_empty() {
            return (open, None);
        }
        let mapped = extended::map(pod, &lacking);
        open.push(Arc::new(extended::claim(pod, mapped.requests)));
        (open, Some(mapped.mappings))
    }

    /// Devices for the open claims on the node: what is decided for the pod there, and how well it likes that.
    fn allocate(
        &self,
        pod: &PodInfo,
        claims: &Claims,
        node: &NodeInfo,
    ) -> Result<Option<(Decided, i64)>, String> {
        let (open, mappings) = self.open(pod, claims, node);
        let mut decided = Decided::of(&claims.all);
        if open.is_empty() {
            return Ok(Some((decided, 0)));
        }
        let devices = claims.inventory.on_node(node);
        let until =
            Some(self.filter_timeout).filter(|time| !time.is_zero()).map(|time| Instant::now() + time);
        let offer = AvailableDevices {
            devices: &devices,
            taken: &claims.taken,
            left: claims.inventory.left(),
            until,
        };
        let mut selectors = self.selectors.lock();
        let found = allocate::allocate(&open, offer, self.cluster.as_ref(), &mut selectors)?;
        let Some(found) = found else { return Ok(None) };
        let score = found.score(&open);
        let mut allocations = found.allocations(&open, &devices, &node.name).into_iter();
        for (claim, slot) in claims.all.iter().zip(&mut decided.allocations) {
            *slot = if is_allocated(claim) { None } else { allocations.next() };
        }
        decided.extended =
            mappings.zip(open.last()).zip(allocations.next()).map(|((mappings, claim), allocation)| {
                Extended { claim: claim.clone(), allocation, mappings, made: None }
            });
        Ok(Some((decided, score)))
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
        let asks = !pod.requests.scalar.is_empty();
        let extended = if asks { extended::backed(pod, self.cluster.as_ref()) } else { BTreeMap::new() };
        let claims = match self.claims(pod) {
            Ok(claims) if claims.is_empty() && extended.is_empty() => return Status::Skip,
            Ok(claims) => claims,
            Err(why) => return Status::unresolvable(why),
        };
        if let Some(why) = self.unusable(pod, &claims) {
            return Status::unresolvable(why);
        }
        let open: Vec<Arc<Value>> = claims.iter().filter(|c| !is_allocated(c)).cloned().collect();
        if let Err(why) = requests::alternatives(&open, self.cluster.as_ref()) {
            return Status::unresolvable(why);
        }
        if !extended.is_empty() && extended::made_before(pod, self.cluster.as_ref()).is_some() {
            // PostFilter deletes it, which lets the pod try again.
            return Status::unresolvable("cannot schedule extended resource claim");
        }
        let (taken, inventory) = if !extended.is_empty() || !open.is_empty() {
            let taken = self.taken();
            let inventory = Inventory::new(self.cluster.resource_slices(), &taken);
            (taken, inventory)
        } else {
            Default::default()
        };
        let places = claims.iter().filter_map(|claim| place(claim)).collect();
        state.put(NAME, Claims { all: claims, places, extended, taken, inventory });
        Status::Success
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        if claims.places.iter().any(|place| !place.has(node)) {
            return Status::unresolvable("resourceclaim not available on the node");
        }
        match self.allocate(pod, claims, node) {
            Ok(Some(_)) => Status::Success,
            Ok(None) => Status::unresolvable("cannot allocate all claims"),
            Err(late) if late == allocate::TIMED_OUT => Status::unresolvable(late),
            // A fault of the claim or its class ends the attempt: it is told, and tried again.
            Err(why) => Status::Error(why),
        }
    }

    /// Gives back the devices of a claim that only this pod uses and that keeps it from every node.
    fn post_filter(&self, attempt: &mut Attempt<'_>) -> PostFilter {
        let pod = attempt.pod;
        let claims = self.claims(pod).unwrap_or_default();
        let asks = !pod.requests.scalar.is_empty();
        let stale = if asks { extended::made_before(pod, self.cluster.as_ref()) } else { None };
        if claims.is_empty() && stale.is_none() {
            return PostFilter::nothing("no new claims to deallocate");
        }
        let Some(client) = &self.client else {
            return PostFilter::nothing("still not schedulable");
        };
        if let Some(claim) = stale {
            let client = client.clone();
            tokio::spawn(async move { write::delete(&client, &claim).await });
            return PostFilter::nothing("deletion of ResourceClaim completed");
        }
        let elsewhere = |claim: &Value| {
            place(claim).is_some_and(|place| attempt.snapshot.nodes().any(|node| !place.has(node)))
        };
        let own = |claim: &Value| consumers(claim) == usize::from(reserved_for(claim, pod));
        let idle = claims.into_iter().find(|c| is_allocated(c) && own(c) && elsewhere(c));
        let Some(claim) = idle else { return PostFilter::nothing("still not schedulable") };
        let client = client.clone();
        tokio::spawn(async move { write::deallocate(&client, &claim).await });
        PostFilter::nothing("deallocation of ResourceClaim completed")
    }

    fn pre_score(&self, state: &mut CycleState, _: &PodInfo, _: &Snapshot, _: &[usize]) -> Status {
        let choice = |claim: &Arc<Value>| {
            let requests = claim["spec"]["devices"]["requests"].as_array();
            !is_allocated(claim) && requests.into_iter().flatten().any(|r| r["firstAvailable"].is_array())
        };
        let any = state.get::<Claims>(NAME).is_some_and(|claims| claims.all.iter().any(choice));
        if any { Status::Success } else { Status::Skip }
    }

    /// Nodes where preferred alternatives can be had are better.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let claims = state.get::<Claims>(NAME);
        let found = claims.and_then(|claims| self.allocate(pod, claims, node).ok().flatten());
        found.map_or(0, |(_, score)| score)
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        by_highest(scores, false);
    }

    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        match self.allocate(pod, claims, node) {
            Ok(Some((decided, _))) => {
                self.in_binding.put(&pod.uid, decided);
                Status::Success
            }
            Ok(None) => Status::unschedulable("cannot allocate all claims"),
            Err(why) => Status::Error(why),
        }
    }

    fn unreserve(&self, pod: &PodInfo, _node: &str) {
        let Some(decided) = self.in_binding.take(&pod.uid) else { return };
        if let Some(client) = &self.client {
            let (client, uid) = (client.clone(), pod.uid.clone());
            tokio::spawn(async move { write::release(&client, &decided, &uid).await });
        }
    }

    fn pre_bind_pre_flight(&self, pod: &PodInfo, _node: &str) -> bool {
        self.in_binding.get(&pod.uid).is_some_and(|decided| {
            let reserved = decided.claims.iter().zip(&decided.allocations);
            let mut reserved = reserved.map(|(claim, new)| new.is_none() && reserved_for(claim, pod));
            decided.extended.is_some() || !reserved.all(|done| done) || !decided.awaited().is_empty()
        })
    }

    async fn pre_bind(&self, pod: &PodInfo, _node: &str) -> Status {
        let Some(decided) = self.in_binding.get(&pod.uid) else { return Status::Success };
        let Some(client) = &self.client else {
            return Status::Error("there is no API to allocate claims through".to_owned());
        };
        let seen = match self.write(client, &decided, pod).await {
            Ok(written) => self.seen(&written).await,
            Err(why) => Status::Error(why),
        };
        match self.in_binding.get(&pod.uid).filter(|_| seen.is_success()) {
            Some(decided) => self.ready(&decided).await,
            None => seen,
        }
    }

    async fn post_bind(&self, pod: &PodInfo, _node: &str) {
        self.in_binding.take(&pod.uid);
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
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
            ClusterEvent::NodeUpdated { changed, .. } => changed.labels || changed.allocatable,
            _ => false,
        }
    }

    fn advice(&self, _pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        Some(format!("its claims need free devices that {} can use; see the ResourceSlices", node.name))
    }
}

#[cfg(test)]
mod advanced_tests;
#[cfg(test)]
mod tests;
