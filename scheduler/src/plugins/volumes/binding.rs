//! Claims decide where a pod can run, and pods decide where `WaitForFirstConsumer` claims are made.
//!
//! A claim that waits gets a volume made beforehand, the smallest that suits and can be reached, or its class makes
//! one. Reserve remembers the choice, PreBind writes it (the volume's claimRef, or the claim's
//! `volume.kubernetes.io/selected-node`) and waits until the volume controllers have bound it. Mirrors
//! <https://kubernetes.io/docs/concepts/storage/storage-classes/#volume-binding-mode>.

use super::lookup::{Claims, NO_PROVISIONER, is_bound, is_ours, look_up};
use super::{capacity, matching};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{Cluster, ClusterEvent, CycleState, ObjectKind, Plugin, Point, Status};
use crate::plugins::{ArgumentErrors, Arguments, Handle};
use coracle_api::storage::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use coracle_client::ObjectKey;
use coracle_client::placement::reaches;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "VolumeBinding";
pub const POINTS: &[Point] =
    &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score, Point::Reserve, Point::PreBind];
const CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const NOTHING_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const NO_ROOM: &str = "node(s) did not have enough free storage";

/// What was decided for one claim.
#[derive(Clone)]
enum Decision {
    Take(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>),
    Make(Arc<PersistentVolumeClaim>),
}

pub struct VolumeBinding {
    cluster: Arc<dyn Cluster>,
    client: Option<kube::Client>,
    /// How long a pod waits for its volumes before it is scheduled anew.
    timeout: Duration,
    /// Of pods between Reserve and the end of their binding, by UID.
    decided: Mutex<HashMap<String, Vec<Decision>>>,
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(SELECTED_NODE).map(String::as_str)
}

/// Whether the class makes volumes where the node is.
fn allows(class: &StorageClass, node: &NodeInfo) -> bool {
    let Some(terms) = class.allowed_topologies.as_ref().filter(|t| !t.is_empty()) else { return true };
    terms.iter().any(|term| {
        let mut expressions = term.match_label_expressions.iter().flatten();
        expressions.all(|e| node.label(&e.key).is_some_and(|v| e.values.iter().any(|wanted| wanted == v)))
    })
}

impl VolumeBinding {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let given = arguments.read::<i64>("bindTimeoutSeconds");
        if let Some(negative) = given.filter(|seconds| *seconds < 0) {
            let why = "invalid BindTimeoutSeconds, should not be a negative value";
            arguments.mistake("bindTimeoutSeconds", &negative.into(), why);
        }
        let seconds = given.unwrap_or(600);
        if let Some(shape) = arguments.take("shape") {
            let why =
                "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
            arguments.mistake("shape", &shape, why);
        }
        arguments.finish().map(|()| Self {
            cluster: handle.cluster.clone(),
            client: handle.client.clone(),
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or(600)),
            decided: Mutex::default(),
        })
    }

    /// Volumes that other pods in their binding cycle have taken.
    fn taken(&self, by_others_than: &str) -> Vec<String> {
        let decided = self.decided.lock();
        let others = decided.iter().filter(|(uid, _)| *uid != by_others_than).flat_map(|(_, d)| d);
        others
            .filter_map(|d| match d {
                Decision::Take(volume, _) => volume.metadata.name.clone(),
                Decision::Make(_) => None,
            })
            .collect()
    }

    /// How the waiting claims can be had on the node, or upstream's words for why not.
    fn decide(&self, pod: &PodInfo, claims: &Claims, node: &NodeInfo) -> Result<Vec<Decision>, &'static str> {
        let mut decisions = Vec::new();
        let mut taken = self.taken(&pod.uid);
        let volumes = if claims.waiting.is_empty() { Vec::new() } else { self.cluster.volumes() };
        let mut waiting: Vec<_> = claims.waiting.iter().collect();
        waiting.sort_by_key(|(claim, _)| matching::requested(claim));
        for (claim, class) in waiting {
            match selected_node(claim) {
                Some(chosen) if chosen != node.name => return Err(NOTHING_TO_BIND),
                Some(_) => {
                    decisions.push(Decision::Make(claim.clone()));
                    continue;
                }
                None => {}
            }
            let name = |v: &PersistentVolume| v.metadata.name.clone().unwrap_or_default();
            let fitting = volumes
                .iter()
                .filter(|v| !taken.contains(&name(v)) && matching::suits(v, claim) && reaches(v, node));
            let best = fitting.min_by_key(|v| (!matching::is_reserved_for(v, claim), matching::capacity(v)));
            if let Some(volume) = best {
                taken.push(name(volume));
                decisions.push(Decision::Take(volume.clone(), claim.clone()));
                continue;
            }
            if class.provisioner == NO_PROVISIONER || !allows(class, node) {
                return Err(NOTHING_TO_BIND);
            }
            if !capacity::has_room(self.cluster.as_ref(), claim, class, node) {
                return Err(NO_ROOM);
            }
            decisions.push(Decision::Make(claim.clone()));
        }
        Ok(decisions)
    }

    async fn write(&self, client: &kube::Client, decision: &Decision, node: &str) -> Result<(), kube::Error> {
        match decision {
            Decision::Take(volume, claim) => {
                let mut metadata = json!({ "resourceVersion": volume.metadata.resource_version });
                if !matching::is_reserved_for(volume, claim) {
                    metadata["annotations"] = json!({ BOUND_BY_CONTROLLER: "yes" });
                }
                let patch = json!({ "metadata": metadata, "spec": { "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "name": claim.metadata.name, "namespace": claim.metadata.namespace,
                    "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version,
                }}});
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                let api: Api<PersistentVolume> = Api::all(client.clone());
                api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
            }
            Decision::Make(claim) if selected_node(claim) == Some(node) => Ok(()),
            Decision::Make(claim) => {
                let key = ObjectKey::of(claim.as_ref());
                let api: Api<PersistentVolumeClaim> = coracle_client::informer::api_for(client, &key);
                let patch = json!({ "metadata": {
                    "resourceVersion": claim.metadata.resource_version,
                    "annotations": { SELECTED_NODE: node },
                }});
                api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
            }
        }
    }

    /// Waits until every claim is bound; a claim that its provisioner gave back (no selected node any more) fails at
    /// once.
    async fn all_bound(&self, decisions: &[Decision], node: &str) -> Result<(), String> {
        let mut seen_selected = vec![false; decisions.len()];
        let mut changes = self.cluster.changes();
        loop {
            changes.borrow_and_update();
            let mut bound = true;
            for (decision, selected) in decisions.iter().zip(&mut seen_selected) {
                let (Decision::Take(_, claim) | Decision::Make(claim)) = decision;
                let key = ObjectKey::of(claim.as_ref());
                let claim = self.cluster.claim(&key.namespace, &key.name);
                let claim =
                    claim.ok_or_else(|| format!("persistentvolumeclaim \"{}\" not found", key.name))?;
                if is_bound(&claim) {
                    continue;
                }
                bound = false;
                let still = selected_node(&claim) == Some(node);
                if *selected && !still && matches!(decision, Decision::Make(_)) {
                    return Err(format!("provisioning failed for PVC \"{}\"", key.name));
                }
                *selected |= still;
            }
            if bound {
                return Ok(());
            }
            changes.changed().await.map_err(|_| "claims are no longer watched".to_owned())?;
        }
    }
}

#[async_trait::async_trait]
impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        state.remove(NAME);
        if pod.claim_names().next().is_none() {
            return Status::Skip;
        }
        match look_up(self.cluster.as_ref(), pod) {
            Ok(claims) => {
                state.put(NAME, claims);
                Status::Success
            }
            Err(status) => status,
        }
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        if !claims.bound.iter().all(|v| reaches(v, node)) {
            return Status::unresolvable(CONFLICT);
        }
        match self.decide(pod, claims, node) {
            Ok(_) => Status::Success,
            Err(why) => Status::unresolvable(why),
        }
    }

    /// Scores by capacity are an alpha feature upstream, off by default; configurations name the point all the same.
    fn pre_score(
        &self,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _snapshot: &Snapshot,
        _nodes: &[usize],
    ) -> Status {
        Status::Skip
    }

    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        match self.decide(pod, claims, node) {
            Ok(decisions) if decisions.is_empty() => Status::Success,
            Ok(decisions) => {
                self.decided.lock().insert(pod.uid.clone(), decisions);
                Status::Success
            }
            Err(why) => Status::unschedulable(why),
        }
    }

    fn unreserve(&self, pod: &PodInfo, _node: &str) {
        self.decided.lock().remove(&pod.uid);
    }

    fn pre_bind_pre_flight(&self, pod: &PodInfo, _node: &str) -> bool {
        self.decided.lock().contains_key(&pod.uid)
    }

    async fn pre_bind(&self, pod: &PodInfo, node: &str) -> Status {
        let Some(decisions) = self.decided.lock().get(&pod.uid).cloned() else { return Status::Success };
        let Some(client) = &self.client else {
            return Status::Error("there is no API to bind volumes through".to_owned());
        };
        for decision in &decisions {
            if let Err(error) = self.write(client, decision, node).await {
                return Status::Error(format!("binding volumes: {error}"));
            }
        }
        match tokio::time::timeout(self.timeout, self.all_bound(&decisions, node)).await {
            Ok(Ok(())) => {
                self.decided.lock().remove(&pod.uid);
                Status::Success
            }
            Ok(Err(why)) => Status::unschedulable(format!("binding volumes: {why}")),
            Err(_) => {
                Status::unschedulable("binding volumes: timed out waiting for the condition".to_owned())
            }
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::NodeUpdated { changed, .. } => changed.labels,
            ClusterEvent::Object { kind: ObjectKind::PersistentVolumeClaim, namespace, name } => {
                is_ours(pod, namespace, name)
            }
            ClusterEvent::Object { kind, .. } => matches!(
                kind,
                ObjectKind::PersistentVolume
                    | ObjectKind::StorageClass
                    | ObjectKind::CsiDriver
                    | ObjectKind::CsiStorageCapacity
            ),
            _ => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let claims = look_up(self.cluster.as_ref(), pod).ok()?;
        let far = claims.bound.iter().find(|v| !reaches(v, node));
        Some(match far {
            Some(volume) => {
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                format!("volume {name} cannot be reached from {}; only its own nodes will do", node.name)
            }
            None => "add a suitable PersistentVolume, or a StorageClass that provisions one".to_owned(),
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
