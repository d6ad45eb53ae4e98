//! What two pods must share for the scheduler to treat them alike.

use super::{PodInfo, Resources};
use k8s_openapi::api::core::v1::{
    Affinity, PodResourceClaim, PodSpec, Toleration, TopologySpreadConstraint, Volume,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

type Labels = BTreeMap<String, String>;

/// Everything that in-tree plugins read of a pod. Left out are names, and what differs between the replicas of one
/// workload without meaning anything for scheduling (the volume of the service account's token has a random name).
#[derive(Serialize)]
struct Facts<'a> {
    namespace: &'a str,
    scheduler: Option<&'a str>,
    priority: i32,
    preemption: Option<&'a str>,
    labels: Option<&'a Labels>,
    selector: Option<&'a Labels>,
    affinity: Option<&'a Affinity>,
    tolerations: Option<&'a Vec<Toleration>>,
    spread: Option<&'a Vec<TopologySpreadConstraint>>,
    requests: &'a Resources,
    counted: &'a Resources,
    ports: Vec<(&'a str, &'a str, i32)>,
    images: Vec<&'a str>,
    owner: Option<&'a str>,
    volumes: Vec<&'a Volume>,
    claims: Option<&'a Vec<PodResourceClaim>>,
    /// Set where a claim's name derives from the pod's.
    name: Option<&'a str>,
    gated: bool,
    /// What only some kubelets can do.
    host_network: bool,
    host_users: Option<bool>,
    restarts: Vec<&'a str>,
}

/// Volumes that decide where a pod can run.
pub fn matters(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.csi.is_some()
        || rare_kind(volume).is_some()
}

/// The kind of a volume that not every kubelet can mount.
pub fn rare_kind(volume: &Volume) -> Option<&'static str> {
    let kinds = [
        (volume.aws_elastic_block_store.is_some(), "awsElasticBlockStore"),
        (volume.azure_disk.is_some(), "azureDisk"),
        (volume.azure_file.is_some(), "azureFile"),
        (volume.cephfs.is_some(), "cephfs"),
        (volume.cinder.is_some(), "cinder"),
        (volume.fc.is_some(), "fc"),
        (volume.flex_volume.is_some(), "flexVolume"),
        (volume.flocker.is_some(), "flocker"),
        (volume.gce_persistent_disk.is_some(), "gcePersistentDisk"),
        (volume.git_repo.is_some(), "gitRepo"),
        (volume.glusterfs.is_some(), "glusterfs"),
        (volume.iscsi.is_some(), "iscsi"),
        (volume.photon_persistent_disk.is_some(), "photonPersistentDisk"),
        (volume.portworx_volume.is_some(), "portworxVolume"),
        (volume.quobyte.is_some(), "quobyte"),
        (volume.rbd.is_some(), "rbd"),
        (volume.scale_io.is_some(), "scaleIO"),
        (volume.storageos.is_some(), "storageos"),
        (volume.vsphere_volume.is_some(), "vsphereVolume"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
}

/// What containers' rules of restarting do, each once.
fn restarts(spec: &PodSpec) -> Vec<&str> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let rules = containers.flat_map(|c| c.restart_policy_rules.iter().flatten());
    let mut actions: Vec<&str> = rules.map(|rule| rule.action.as_str()).collect();
    actions.sort_unstable();
    actions.dedup();
    actions
}

/// The pod's class: equal bytes mean that every in-tree plugin answers alike for both pods.
pub fn key(pod: &PodInfo) -> Arc<[u8]> {
    let Some(spec) = pod.spec() else { return Arc::from(pod.uid.as_bytes()) };
    let volumes: Vec<&Volume> = spec.volumes.iter().flatten().filter(|v| matters(v)).collect();
    let claims = spec.resource_claims.as_ref().filter(|c| !c.is_empty());
    let named = claims.is_some() || volumes.iter().any(|v| v.ephemeral.is_some());
    let facts = Facts {
        namespace: &pod.key.namespace,
        scheduler: spec.scheduler_name.as_deref(),
        priority: pod.priority,
        preemption: spec.preemption_policy.as_deref(),
        labels: pod.labels(),
        selector: spec.node_selector.as_ref(),
        affinity: spec.affinity.as_ref(),
        tolerations: spec.tolerations.as_ref(),
        spread: spec.topology_spread_constraints.as_ref(),
        requests: &pod.requests,
        counted: &pod.counted,
        ports: pod.host_ports.iter().map(|p| (p.protocol.as_str(), p.ip.as_str(), p.port)).collect(),
        images: pod.images(),
        owner: pod.controller().map(|o| o.uid.as_str()),
        volumes,
        claims,
        name: named.then_some(pod.key.name.as_str()),
        host_network: spec.host_network == Some(true),
        host_users: spec.host_users,
        restarts: restarts(spec),
        gated: spec.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()),
    };
    // Maps with text keys and plain structs always have a JSON form.
    serde_json::to_vec(&facts).map_or_else(|_| Arc::from(pod.uid.as_bytes()), Arc::from)
}
