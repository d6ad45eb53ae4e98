//! What the cluster sees of this node's drivers: the CSINode, and for sidecars an annotation and labels of the Node.

use crate::kubelet::Kubelet;
use coracle_storage::csi::Driver;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// JSON of the drivers' names for this node, by their names.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// Former in-tree plugins whose volumes drivers look after; the scheduler asks before it counts them.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
/// Pause after the API server did not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Writers that come in between; each time the object is read anew.
const ATTEMPTS: usize = 5;

/// Makes the CSINode once the node is registered. The scheduler and provisioners read it, with drivers or without.
pub(super) async fn wait_until_there(kubelet: &Kubelet) {
    let mut own = kubelet.own.clone();
    loop {
        let known = own.wait_for(Option::is_some).await.ok().map(|node| node.clone());
        // Without one nobody will register it any more: the kubelet stops.
        let Some(node) = known.flatten() else { return std::future::pending().await };
        match get(kubelet, &node).await {
            Ok(_) => return,
            Err(error) => tracing::warn!(%error, "the CSINode is not there yet, trying again"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

fn api(kubelet: &Kubelet) -> Api<CSINode> {
    Api::all(kubelet.client.clone())
}

fn node_name(kubelet: &Kubelet) -> &str {
    &kubelet.config.node_name
}

/// The CSINode; one that is not there is made.
async fn get(kubelet: &Kubelet, node: &Node) -> Result<CSINode, kube::Error> {
    let api = api(kubelet);
    if let Some(found) = api.get_opt(node_name(kubelet)).await? {
        return Ok(found);
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let made = CSINode {
        metadata: ObjectMeta {
            name: Some(node_name(kubelet).to_owned()),
            annotations: Some([(MIGRATED.to_owned(), MIGRATED_PLUGINS.to_owned())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: Vec::new() },
    };
    match api.create(&PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(node_name(kubelet)).await,
        made => made,
    }
}

/// Shows the driver. First on the Node, whose labels provisioners look for once the CSINode names their keys.
pub(super) async fn add(kubelet: &Kubelet, driver: &Driver) -> Result<(), kube::Error> {
    let segments = driver.info.accessible_topology.clone().unwrap_or_default().segments;
    let nodes: Api<Node> = Api::all(kubelet.client.clone());
    let node = nodes.get(node_name(kubelet)).await?;
    let ids = node_ids(&node, |ids| {
        ids.insert(driver.name.clone(), driver.info.node_id.clone());
    });
    let patch = json!({ "metadata": { "annotations": { NODE_IDS: ids }, "labels": segments } });
    let node = nodes.patch(node_name(kubelet), &PatchParams::default(), &Patch::Merge(patch)).await?;
    let wanted = shown(driver, segments.into_keys().collect());
    let other = |drivers: &[CSINodeDriver]| drivers.iter().any(|d| d.name == wanted.name && *d != wanted);
    // What is shown of a driver cannot be changed but by its limit: it goes, and comes anew.
    if other(&get(kubelet, &node).await?.spec.drivers) {
        change(kubelet, &node, |drivers| drivers.retain(|d| d.name != wanted.name)).await?;
    }
    change(kubelet, &node, |drivers| {
        if drivers.iter().all(|d| d.name != wanted.name) {
            drivers.push(wanted.clone());
        }
    })
    .await
}

fn shown(driver: &Driver, keys: Vec<String>) -> CSINodeDriver {
    let count = i32::try_from(driver.info.max_volumes_per_node).unwrap_or(i32::MAX);
    CSINodeDriver {
        name: driver.name.clone(),
        node_id: driver.info.node_id.clone(),
        topology_keys: (!keys.is_empty()).then_some(keys),
        // 0 and what is below are no limits.
        allocatable: (count > 0).then_some(VolumeNodeResources { count: Some(count) }),
    }
}

/// Shows the driver no longer. Labels stay: other drivers may mean the same by them.
pub(super) async fn remove(kubelet: &Kubelet, name: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(kubelet.client.clone());
    let Some(node) = nodes.get_opt(node_name(kubelet)).await? else { return Ok(()) };
    change(kubelet, &node, |drivers| drivers.retain(|driver| driver.name != name)).await?;
    let ids = node_ids(&node, |ids| {
        ids.remove(name);
    });
    let patch = json!({ "metadata": { "annotations": { NODE_IDS: ids } } });
    nodes.patch(node_name(kubelet), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// The annotation after a change; null when it says nothing any more.
fn node_ids(node: &Node, change: impl Fn(&mut BTreeMap<String, String>)) -> Value {
    let text = node.annotations().get(NODE_IDS);
    let mut ids: BTreeMap<String, String> =
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    change(&mut ids);
    if ids.is_empty() { Value::Null } else { json!(ids).to_string().into() }
}

async fn change(
    kubelet: &Kubelet,
    node: &Node,
    change: impl Fn(&mut Vec<CSINodeDriver>),
) -> Result<(), kube::Error> {
    let api = api(kubelet);
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        let found = get(kubelet, node).await?;
        let mut changed = found.clone();
        change(&mut changed.spec.drivers);
        if changed == found {
            return Ok(());
        }
        last = api.replace(node_name(kubelet), &PostParams::default(), &changed).await.map(drop);
        match &last {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            _ => return last,
        }
    }
    last
}
