//! A cluster of two nodes, one of which has the driver.

use crate::driver::{Driver, State, driver};
use crate::support::{World, until, until_object};
use coracle_client::{Context, Informers};
use coracle_storage::csi::controller_messages::ControllerRpcType;
use coracle_storage::csi::messages::NodeRpcType;
use coracle_storage::csi::{Driver as Registered, Drivers};
use coracle_storage::{Config, CsiConfig, run_controllers, run_csi};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

pub const DRIVER: &str = "disks.example";
/// After it a call has hung.
pub const PATIENCE: Duration = Duration::from_millis(300);

pub struct Cluster {
    pub world: World,
    pub driver: Arc<Driver>,
    pub drivers: Drivers,
    pub claims: Api<PersistentVolumeClaim>,
    pub volumes: Api<PersistentVolume>,
    pub attachments: Api<VolumeAttachment>,
    dir: TempDir,
    built_in: Option<Runtime>,
}

impl Cluster {
    /// The driver can all of this; `csi_driver` is the spec of its CSIDriver.
    pub async fn start(capabilities: &[ControllerRpcType], csi_driver: Value) -> Self {
        let world = World::start().await;
        tokio::spawn(run_controllers(
            world.context(),
            Config { client_for: Some(world.client_for()), ..Config::default() },
        ));
        let dir = TempDir::new().unwrap();
        let driver = driver(DRIVER, dir.path(), &[NodeRpcType::ExpandVolume]);
        driver.state.lock().unwrap().controller.capabilities = capabilities.iter().copied().collect();
        let (claims, volumes) = (world.in_namespace("default"), Api::all(world.admin()));
        let attachments = Api::all(world.admin());
        let drivers = Drivers::default();
        let mut cluster = Self { world, driver, drivers, claims, volumes, attachments, dir, built_in: None };
        cluster.objects(csi_driver).await;
        cluster.serve().await;
        cluster.restart();
        cluster
    }

    async fn objects(&self, csi_driver: Value) {
        let (world, nodes) = (&self.world, Api::<Node>::all(self.world.admin()));
        let (csi_nodes, objects): (Api<CSINode>, Api<CSIDriver>) =
            (Api::all(world.admin()), Api::all(world.admin()));
        for (node, zone) in [("n1", "a"), ("n2", "b")] {
            world.create(&nodes, json!({ "metadata": { "name": node, "labels": { "zone": zone } } })).await;
            let drivers =
                json!([{ "name": DRIVER, "nodeID": format!("id-{node}"), "topologyKeys": ["zone"] }]);
            world
                .create(&csi_nodes, json!({ "metadata": { "name": node }, "spec": { "drivers": drivers } }))
                .await;
        }
        let metadata = json!({ "name": DRIVER, "annotations": { "coracle.io/controller": "built-in" } });
        world.create(&objects, json!({ "metadata": metadata, "spec": csi_driver })).await;
        let accounts = world.in_namespace::<ServiceAccount>("default");
        world.create(&accounts, json!({ "metadata": { "name": "default" } })).await;
    }

    /// The driver is there, and registered.
    pub async fn serve(&self) {
        let socket = self.driver.serve(self.dir.path().join("csi.sock"));
        self.drivers.insert(Registered::connect(DRIVER, &socket, PATIENCE, None).await.unwrap());
    }

    /// The driver does as it should again, and is there.
    pub async fn heal(&self) {
        self.driver.heal();
        if self.driver.is_dead() {
            self.serve().await;
        }
    }

    /// Kills the built-in controllers wherever they are, and starts others, which know nothing of what those did.
    pub fn restart(&mut self) {
        self.kill();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, stop) = (self.world.admin(), CancellationToken::new());
        let config = CsiConfig { call_timeout: PATIENCE, ..CsiConfig::new(self.drivers.clone()) };
        runtime.spawn(async move {
            let informers = Informers::new(client.clone(), stop.clone());
            run_csi(Context { client, informers, stop }, config).await
        });
        self.built_in = Some(runtime);
    }

    /// As by SIGKILL: all tasks end wherever they wait.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.built_in.take() {
            runtime.shutdown_background();
        }
    }

    pub async fn class(&self, name: &str, more: Value) {
        let mut class = json!({ "metadata": { "name": name }, "provisioner": DRIVER,
            "volumeBindingMode": "Immediate", "allowVolumeExpansion": true });
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.world.create(&Api::<StorageClass>::all(self.world.admin()), class).await;
    }

    pub async fn claim(&self, name: &str, more: Value) {
        let mut spec = json!({ "storageClassName": "disk", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.world.create(&self.claims, json!({ "metadata": { "name": name }, "spec": spec })).await;
    }

    /// The claim's volume, once it is bound.
    pub async fn bound(&self, claim: &str) -> PersistentVolume {
        let is_bound = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
        };
        let bound = until_object("bound", &self.claims, claim, is_bound).await;
        self.volumes.get(&bound.spec.unwrap().volume_name.unwrap()).await.unwrap()
    }

    pub async fn patch(&self, claim: &str, patch: Value) {
        self.claims.patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The message of the first event with the reason.
    pub async fn event(&self, reason: &str) -> String {
        let events: Api<Event> = self.world.in_namespace("default");
        let find = || async {
            let all = events.list(&Default::default()).await.unwrap().items;
            all.into_iter()
                .find(|event| event.reason.as_deref() == Some(reason))
                .and_then(|event| event.message)
        };
        let shown = || async {
            let all = events.list(&Default::default()).await.unwrap().items;
            format!("{:?}", all.into_iter().map(|e| (e.reason, e.message)).collect::<Vec<_>>())
        };
        until(&format!("an event {reason}"), find, shown).await
    }

    /// Nothing is left with the driver, and it was asked for nothing that is forbidden.
    pub fn is_clean(&self) -> Result<(), String> {
        let state = self.driver.state.lock().unwrap();
        let State { controller, .. } = &*state;
        let kept = !controller.made.is_empty()
            || !controller.attached.is_empty()
            || !controller.snapshots.is_empty();
        if kept || !controller.violations.is_empty() {
            let (made, attached, shots) = (&controller.made, &controller.attached, &controller.snapshots);
            return Err(format!(
                "made {made:?}, attached {attached:?}, snapshots {shots:?}, forbidden {:?}",
                controller.violations
            ));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}
