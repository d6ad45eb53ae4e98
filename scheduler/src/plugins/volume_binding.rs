//! Claims decide where a pod can run, and pods decide where `WaitForFirstConsumer` claims are made.
//!
//! PreBind writes the chosen node into the claim (`volume.kubernetes.io/selected-node`) and waits until the volume
//! controllers have bound it. Mirrors <https://kubernetes.io/docs/concepts/storage/storage-classes/#volume-binding-mode>.

use super::affinity;
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{ClusterEvent, CycleState, Plugin, Point, Status};
use coracle_client::{Context, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{Patch, PatchParams};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const NAME: &str = "VolumeBinding";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Upstream's bind timeout: how long a pod waits for its volumes before it is scheduled anew.
const BIND_TIMEOUT: Duration = Duration::from_secs(600);

pub struct VolumeBinding {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    /// Counts changes of claims, so that PreBind waits without polling.
    changes: watch::Receiver<u64>,
}

/// The claims of one pod, looked up once a cycle.
struct Claims {
    /// Volumes of bound claims.
    bound: Vec<Arc<PersistentVolume>>,
    /// Claims that wait for this pod's node.
    waiting: Vec<Arc<PersistentVolumeClaim>>,
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    phase == Some("Bound") && claim.spec.as_ref().is_some_and(|s| s.volume_name.is_some())
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(SELECTED_NODE).map(String::as_str)
}

/// Names of the claims of a pod, those of ephemeral volumes included.
fn claim_names(pod: &PodInfo) -> Vec<String> {
    let volumes = pod.spec().into_iter().flat_map(|s| s.volumes.iter().flatten());
    volumes
        .filter_map(|v| match (&v.persistent_volume_claim, &v.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", pod.key.name, v.name)),
            (None, None) => None,
        })
        .collect()
}

fn reaches(volume: &PersistentVolume, node: &NodeInfo) -> bool {
    let required = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref()?.required.as_ref());
    required.is_none_or(|r| affinity::any_term_matches(&r.node_selector_terms, node))
}

impl VolumeBinding {
    pub fn new(context: &Context) -> Self {
        let claims = context.informers.of::<PersistentVolumeClaim>();
        let (sender, changes) = watch::channel(0u64);
        claims.on_change(move |_| sender.send_modify(|n| *n = n.wrapping_add(1)));
        Self {
            client: context.client.clone(),
            claims,
            volumes: context.informers.of(),
            classes: context.informers.of(),
            changes,
        }
    }

    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim.spec.as_ref().and_then(|s| s.storage_class_name.as_deref()).unwrap_or_default();
        let class = self.classes.get("", class);
        class.is_some_and(|c| c.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    fn look_up(&self, pod: &PodInfo) -> Result<Claims, Status> {
        let mut found = Claims { bound: Vec::new(), waiting: Vec::new() };
        for name in claim_names(pod) {
            let claim = self
                .claims
                .get(&pod.key.namespace, &name)
                .ok_or_else(|| Status::unresolvable(format!("persistentvolumeclaim \"{name}\" not found")))?;
            if claim.metadata.deletion_timestamp.is_some() {
                let text = format!("persistentvolumeclaim \"{name}\" is being deleted");
                return Err(Status::unresolvable(text));
            }
            if is_bound(&claim) {
                let volume = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).unwrap_or_default();
                let volume = self.volumes.get("", &volume).ok_or_else(|| {
                    Status::unresolvable(
                        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                    )
                })?;
                found.bound.push(volume);
            } else if self.waits_for_consumer(&claim) {
                found.waiting.push(claim);
            } else {
                return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
            }
        }
        Ok(found)
    }

    /// Whether a claim that waits can be had on this node: from a volume made beforehand, or from its provisioner.
    fn can_be_made(&self, claim: &PersistentVolumeClaim, node: &NodeInfo) -> bool {
        if let Some(chosen) = selected_node(claim) {
            return chosen == node.name;
        }
        let class_name =
            claim.spec.as_ref().and_then(|s| s.storage_class_name.as_deref()).unwrap_or_default();
        let dynamic = self
            .classes
            .get("", class_name)
            .is_some_and(|c| c.provisioner != "kubernetes.io/no-provisioner" && allows(&c, node));
        dynamic || self.volumes.list().iter().any(|v| is_candidate(v, claim, class_name) && reaches(v, node))
    }

    async fn select(&self, claim: &PersistentVolumeClaim, node: &str) -> Result<(), kube::Error> {
        if selected_node(claim) == Some(node) {
            return Ok(());
        }
        let key = ObjectKey::of(claim);
        let api: Api<PersistentVolumeClaim> = coracle_client::informer::api_for(&self.client, &key);
        let patch = serde_json::json!({ "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": { SELECTED_NODE: node },
        }});
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
    }

    /// Waits until every claim is bound; a claim that was given back by its provisioner (no selected node any more)
    /// fails at once.
    async fn all_bound(&self, keys: &[ObjectKey]) -> Result<(), String> {
        let mut changes = self.changes.clone();
        loop {
            changes.borrow_and_update();
            let mut bound = true;
            for key in keys {
                let claim = self.claims.get_key(key).ok_or_else(|| format!("claim {key} was deleted"))?;
                bound &= is_bound(&claim);
            }
            if bound {
                return Ok(());
            }
            changes.changed().await.map_err(|_| "claims are no longer watched".to_owned())?;
        }
    }
}

fn allows(class: &StorageClass, node: &NodeInfo) -> bool {
    let Some(terms) = class.allowed_topologies.as_ref().filter(|t| !t.is_empty()) else { return true };
    let label = |key: &str| node.labels().and_then(|l| l.get(key));
    terms.iter().any(|term| {
        let expressions = term.match_label_expressions.iter().flatten();
        expressions.into_iter().all(|e| label(&e.key).is_some_and(|v| e.values.contains(v)))
    })
}

fn is_candidate(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &str) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let reserved_for = spec.claim_ref.as_ref();
    let ours = reserved_for
        .is_some_and(|r| r.name == claim.metadata.name && r.namespace == claim.metadata.namespace);
    let available = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available");
    let size = |list: Option<&std::collections::BTreeMap<String, _>>| {
        crate::cache::Resources::of(list).scalar.get("storage").copied().unwrap_or(0)
    };
    let wanted = claim.spec.as_ref().and_then(|s| s.resources.as_ref()?.requests.as_ref());
    spec.storage_class_name.as_deref().unwrap_or_default() == class
        && (ours || (available && reserved_for.is_none()))
        && size(spec.capacity.as_ref()) >= size(wanted)
}

#[async_trait::async_trait]
impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreBind]
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        match self.look_up(pod) {
            Ok(claims) if claims.bound.is_empty() && claims.waiting.is_empty() => Status::Skip,
            Ok(claims) => {
                state.put(NAME, claims);
                Status::Success
            }
            Err(status) => status,
        }
    }

    fn filter(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(claims) = state.get::<Claims>(NAME) else { return Status::Success };
        if !claims.bound.iter().all(|v| reaches(v, node)) {
            return Status::unresolvable("node(s) didn't match PersistentVolume's node affinity");
        }
        if !claims.waiting.iter().all(|c| self.can_be_made(c, node)) {
            return Status::unresolvable("node(s) didn't find available persistent volumes to bind");
        }
        Status::Success
    }

    async fn pre_bind(&self, pod: &PodInfo, node: &str) -> Status {
        let claims = match self.look_up(pod) {
            Ok(claims) => claims,
            Err(status) => return status,
        };
        let keys: Vec<ObjectKey> = claims.waiting.iter().map(|c| ObjectKey::of(c.as_ref())).collect();
        for claim in &claims.waiting {
            if let Err(error) = self.select(claim, node).await {
                return Status::Error(format!("selecting a node for claim: {error}"));
            }
        }
        match tokio::time::timeout(BIND_TIMEOUT, self.all_bound(&keys)).await {
            Ok(Ok(())) => Status::Success,
            Ok(Err(why)) => Status::Error(format!("binding volumes: {why}")),
            Err(_) => Status::Error("binding volumes: timed out waiting for the condition".to_owned()),
        }
    }

    fn helps(&self, _pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        matches!(
            event,
            ClusterEvent::StorageChanged
                | ClusterEvent::NodeAdded(_)
                | ClusterEvent::NodeUpdated { .. }
                | ClusterEvent::Timeout
        )
    }
}
