//! Whether a volume can be moved, and what is moved then. Decided of a snapshot, by the server and by whoever asks alike.

use super::state::{Remains, Spot};
use crate::csi_control::DataSource;
use crate::facts::{self, SizeLimit};
use crate::local_path::transfer::Wanted;
use crate::local_path::work::Home;
use crate::local_path::{holder, plan, told_apart};
use crate::place::{directory_in, is_place_name};
use crate::provision::FINALIZER;
use crate::volumes::claim_name;
use coracle_api::pod::is_terminal;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, ResourceExt};
use std::path::PathBuf;

/// Finalizers that are ours to take away, or that go by themselves.
pub(super) const FINALIZERS: [&str; 2] = [FINALIZER, "kubernetes.io/pv-protection"];

/// What is so.
pub struct Snapshot {
    pub volume: PersistentVolume,
    pub claim: Option<PersistentVolumeClaim>,
    pub class: Option<StorageClass>,
    pub nodes: Vec<Node>,
    /// Of the claim's namespace.
    pub pods: Vec<Pod>,
    /// Likewise.
    pub claims: Vec<PersistentVolumeClaim>,
}

impl Snapshot {
    /// Asks the server, which knows more than any copy: pods last, after whatever holds new ones off was written.
    pub async fn of(client: &kube::Client, volume: PersistentVolume) -> Result<Self, kube::Error> {
        let reference = facts::claim_ref(&volume).cloned().unwrap_or_default();
        let namespace = reference.namespace.unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let all = ListParams::default();
        let claims = claims.list(&all).await?.items;
        let claim = claims.iter().find(|claim| facts::is_bound_to(&volume, claim)).cloned();
        let class = match facts::class_of_volume(&volume) {
            "" => None,
            class => Api::<StorageClass>::all(client.clone()).get_opt(class).await?,
        };
        Ok(Self {
            class,
            nodes: Api::<Node>::all(client.clone()).list(&all).await?.items,
            pods: pods.list(&all).await?.items,
            volume,
            claim,
            claims,
        })
    }
}

/// From where to where.
#[derive(Debug)]
pub struct Route {
    pub from: Remains,
    pub to: Home,
    pub wanted: Wanted,
    limit: Option<SizeLimit>,
}

impl Route {
    pub fn target(&self) -> Remains {
        Remains { node: self.to.node.clone(), directory: self.wanted.directory.clone() }
    }

    pub fn path(&self) -> PathBuf {
        self.to.root.join(&self.wanted.directory)
    }

    /// The volume as it is in its new place: the same in everything but that.
    pub fn arrived(&self, volume: &PersistentVolume) -> PersistentVolume {
        let old = &volume.metadata;
        let mut annotations = old.annotations.clone().unwrap_or_default();
        annotations.remove(facts::SIZE_LIMIT);
        annotations.extend(self.limit.map(|limit| (facts::SIZE_LIMIT.to_owned(), limit.as_str().to_owned())));
        let mut spec = volume.spec.clone().unwrap_or_default();
        spec.host_path = Some(plan::source(&self.path(), self.limit));
        spec.node_affinity = Some(plan::pinned(&self.to.hostname));
        PersistentVolume {
            metadata: ObjectMeta {
                name: old.name.clone(),
                labels: old.labels.clone(),
                annotations: Some(annotations),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                owner_references: old.owner_references.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        }
    }
}

/// The way, or why there is none. `home` is what a node says of itself.
pub fn route(snapshot: &Snapshot, to: &Spot, home: impl Fn(&Node) -> Option<Home>) -> Result<Route, String> {
    let Snapshot { volume, claim, class, nodes, .. } = snapshot;
    let name = volume.name_any();
    let Some(label) = plan::home(volume) else {
        return Err(format!("the volume {name} is not of local-path: only such volumes are moved"));
    };
    let Some(claim) = claim.as_ref().filter(|claim| facts::volume_name(claim) == Some(&name)) else {
        return Err(format!("the volume {name} has no claim any more"));
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("the claim is being deleted".to_owned());
    }
    if let Some(other) = volume.finalizers().iter().find(|held| !FINALIZERS.contains(&held.as_str())) {
        return Err(format!("the volume {name} is held by {other}"));
    }
    let keeper = |node: &Node| {
        home(node).ok_or_else(|| {
            format!("node {} keeps no local-path volumes: its kubelet does not say where", node.name_any())
        })
    };
    let source = holder(nodes.iter(), label);
    let source = keeper(source.ok_or_else(|| format!("the node {label} that the volume lies on is gone"))?)?;
    let target = nodes.iter().find(|node| node.name_any() == to.node);
    let target = keeper(target.ok_or_else(|| format!("there is no node {}", to.node))?)?;
    told_apart(nodes.iter(), &target)?;
    if !to.place.is_empty() && !is_place_name(&to.place) {
        return Err(format!("{:?} is no name of a place: letters, digits and - are", to.place));
    }
    let directory = plan::directory_of(volume, &source.root)
        .ok_or_else(|| format!("the volume {name} lies outside of what its node keeps volumes in"))?;
    let bare = directory.rsplit('/').next().unwrap_or(&directory);
    let wanted = directory_in(&to.place, bare);
    if source.node == target.node && wanted == directory {
        return Err(format!("the volume {name} lies there already"));
    }
    let limit = class.as_ref().map_or(Ok(plan::Limit::WherePossible), plan::limit)?;
    let limit = plan::holds(limit, target.has_quotas);
    if limit == Some(SizeLimit::Quota) && !target.has_quotas {
        return Err(format!(
            "the file system of node {} has no project quotas, which the class asks for",
            to.node
        ));
    }
    let size = facts::storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
    let size = u64::try_from(size.units()).ok();
    let by = |wanted| size.filter(|_| limit == Some(wanted));
    let (bytes, quota) = (by(SizeLimit::File), by(SizeLimit::Quota));
    let wanted = Wanted { directory: wanted, bytes, quota };
    Ok(Route { from: Remains { node: source.node, directory }, to: target, wanted, limit })
}

/// Who needs the volume where it is. Pods that have ended do not, nor those that have no node yet: they wait.
pub fn in_use(snapshot: &Snapshot) -> Result<(), String> {
    let Some(claim) = &snapshot.claim else { return Ok(()) };
    let name = claim.name_any();
    let uses = |pod: &&Pod| {
        let spec =
            pod.spec.as_ref().filter(|spec| spec.node_name.as_deref().is_some_and(|node| !node.is_empty()));
        let mut volumes = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
        !is_terminal(*pod) && volumes.any(|volume| claim_name(pod, volume).as_ref() == Some(&name))
    };
    let users: Vec<String> = snapshot.pods.iter().filter(uses).map(ResourceExt::name_any).collect();
    if !users.is_empty() {
        return Err(format!("the claim is used by the pods {}: stop them first", users.join(", ")));
    }
    let copied = |other: &&PersistentVolumeClaim| {
        facts::volume_name(other).is_none() && DataSource::of(other) == DataSource::Claim(name.clone())
    };
    match snapshot.claims.iter().find(copied) {
        Some(other) => Err(format!("the claim {} is about to be made of it", other.name_any())),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
