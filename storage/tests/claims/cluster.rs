//! An API server in memory with the controllers of storage, and what tests of claims make in it.

use crate::support::{World, until_gone, until_object};
use coracle_client::Context;
use coracle_storage::moving::Carrier;
use coracle_storage::volumes::{LinuxMounter, MountTable, Mounter, NfsMount, Tmpfs, VolumeError};
use coracle_storage::{Config, Here, LocalPathConfig, run_controllers, run_local_path, serve_local_path};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

pub struct Cluster {
    pub world: World,
    pub claims: Api<PersistentVolumeClaim>,
    pub volumes: Api<PersistentVolume>,
    pub root: TempDir,
}

pub async fn cluster() -> Cluster {
    cluster_with(|_| None).await
}

/// With this as the machine that the controllers run on; it is told where there is place.
pub async fn cluster_with(here: impl FnOnce(&std::path::Path) -> Option<Here>) -> Cluster {
    let cluster = cluster_without_provisioner(here).await;
    let context = Context { client: cluster.world.admin(), ..cluster.world.context() };
    tokio::spawn(run_local_path(context, local_path(&cluster, None)));
    cluster
}

/// The provisioner of the node n.
pub fn local_path(cluster: &Cluster, carrier: Option<std::sync::Arc<dyn Carrier>>) -> LocalPathConfig {
    let (root, mounter) = (cluster.root.path().join("volumes"), std::sync::Arc::new(LinuxMounter));
    LocalPathConfig { node_name: "n".into(), root, mounter, carrier }
}

pub async fn cluster_without_provisioner(here: impl FnOnce(&std::path::Path) -> Option<Here>) -> Cluster {
    let world = World::start().await;
    let root = TempDir::new().unwrap();
    let metrics = std::sync::Arc::<coracle_storage::metrics::Metrics>::default();
    let counting = metrics.clone();
    let _ = world.counted.set(Box::new(move || {
        let mut page = coracle_metrics::Text::default();
        counting.render(&mut page);
        page.finish().lines().map(str::to_owned).collect()
    }));
    let config = Config { client_for: Some(world.client_for()), here: here(root.path()), metrics };
    tokio::spawn(run_controllers(world.context(), config));
    let nodes: Api<Node> = Api::all(world.admin());
    world
        .create(&nodes, json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/hostname": "n" } } }))
        .await;
    let accounts = world.in_namespace::<ServiceAccount>("default");
    world.create(&accounts, json!({ "metadata": { "name": "default" } })).await;
    let claims = world.in_namespace("default");
    let volumes = Api::all(world.admin());
    Cluster { world, claims, volumes, root }
}

pub fn claim(class: &str, size: &str) -> Value {
    json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": class,
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } } })
}

pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
}

pub fn phase<'a>(phase: &'a str) -> impl Fn(&PersistentVolume) -> bool + 'a {
    move |volume| volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(phase)
}

pub fn volume(name: &str, spec: Value) -> Value {
    let mut whole = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/nowhere" } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({ "metadata": { "name": name }, "spec": whole })
}

pub fn is_pending(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending")
}

/// A released volume with a policy.
pub async fn released(cluster: &Cluster, name: &str, spec: Value) {
    let Cluster { world, claims, volumes, .. } = cluster;
    let mut whole = json!({ "storageClassName": "manual" });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    world.create(volumes, volume(name, whole)).await;
    until_object("available", volumes, name, phase("Available")).await;
    world.create(claims, claim("manual", "1Gi")).await;
    until_object("bound", claims, "data", is_bound).await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the claim", claims, "data").await;
}

pub async fn end(pods: &Api<Pod>, status: Value) {
    until_object("the recycler", pods, "recycler-for-used", |_| true).await;
    let status = Patch::Merge(json!({ "status": status }));
    pods.patch_status("recycler-for-used", &Default::default(), &status).await.unwrap();
}

/// Another node, with the part of its kubelet that serves volumes.
pub async fn far_node(world: &World, root: std::path::PathBuf) {
    let nodes: Api<Node> = Api::all(world.admin());
    let (sender, own) = tokio::sync::watch::channel(None);
    world.informers.of::<Node>().on_change(move |delta| {
        if let Some(node) = delta.new.as_ref().filter(|node| node.name_any() == "far") {
            sender.send_replace(Some(node.clone()));
        }
    });
    let host = std::sync::Arc::new(LinuxMounter);
    let client = world.user("system:node:far", &["system:nodes"]);
    tokio::spawn(serve_local_path(client, own, root, host));
    let labels = json!({ "kubernetes.io/hostname": "far.example" });
    world.create(&nodes, json!({ "metadata": { "name": "far", "labels": labels } })).await;
    until_object("says where", &nodes, "far", |node| {
        node.annotations().contains_key("coracle.io/local-path-root")
    })
    .await;
}

/// Nothing is asked of the node, or answered.
pub fn nothing_is_open(node: &Node) -> bool {
    node.annotations().keys().all(|key| key.starts_with("coracle.io/"))
}

pub fn selected(node: &str) -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": node } } }))
}

/// A share that is a directory of this machine.
#[derive(Default)]
pub struct Share(pub std::sync::Mutex<Vec<(std::path::PathBuf, NfsMount)>>);

impl Mounter for Share {
    fn mounts(&self) -> Result<MountTable, VolumeError> {
        Ok(MountTable(self.0.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()))
    }
    fn mount_tmpfs(&self, _: &std::path::Path, _: &Tmpfs) -> Result<(), VolumeError> {
        panic!("nothing of the provisioner's")
    }
    fn bind(&self, _: &std::path::Path, _: &std::path::Path) -> Result<(), VolumeError> {
        panic!("nothing of the provisioner's")
    }
    fn mount_nfs(&self, mount: &NfsMount, target: &std::path::Path) -> Result<(), VolumeError> {
        self.0.lock().unwrap().push((target.to_owned(), mount.clone()));
        Ok(())
    }
    fn unmount(&self, path: &std::path::Path) -> Result<(), VolumeError> {
        self.0.lock().unwrap().retain(|(mounted, _)| mounted != path);
        Ok(())
    }
}
