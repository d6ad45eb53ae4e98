//! A node without a kernel: mounts are remembered, objects are in a table, and a kubelet can die at any step.

use crate::driver::{self, Driver};
use coracle_storage::csi::messages::NodeRpcType;
use coracle_storage::csi::{Driver as Registered, Drivers, attachment_name};
use coracle_storage::volumes::{
    MountTable, Mounter, NfsMount, ObjectError, Objects, SetUp, Tmpfs, Token, TokenRequest, VolumeError,
    Volumes, VolumesConfig,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub const DRIVER: &str = "csi.example";
pub const NODE: &str = "n1";
/// What the tests give a driver that hangs.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// Remembers mounts, and can be told that one cannot be had or got rid of.
#[derive(Default)]
pub struct FakeMounter {
    pub mounts: Mutex<Vec<PathBuf>>,
    pub nfs: Mutex<Vec<NfsMount>>,
    pub fails: Mutex<bool>,
}

impl FakeMounter {
    fn add(&self, path: &Path) -> Result<(), VolumeError> {
        if *self.fails.lock().unwrap() {
            return Err(VolumeError::MountCommand("told to fail".to_owned()));
        }
        self.mounts.lock().unwrap().push(path.to_owned());
        Ok(())
    }
}

impl Mounter for FakeMounter {
    fn mounts(&self) -> Result<MountTable, VolumeError> {
        Ok(MountTable(self.mounts.lock().unwrap().clone()))
    }
    fn mount_tmpfs(&self, path: &Path, _: &Tmpfs) -> Result<(), VolumeError> {
        self.add(path)
    }
    fn bind(&self, _: &Path, target: &Path) -> Result<(), VolumeError> {
        self.add(target)
    }
    fn mount_nfs(&self, mount: &NfsMount, target: &Path) -> Result<(), VolumeError> {
        self.add(target)?;
        self.nfs.lock().unwrap().push(mount.clone());
        Ok(())
    }
    fn unmount(&self, path: &Path) -> Result<(), VolumeError> {
        self.mounts.lock().unwrap().retain(|p| p != path);
        Ok(())
    }
}

/// Objects by kind and name.
#[derive(Default)]
pub struct Table {
    objects: Mutex<BTreeMap<(&'static str, String), Value>>,
    /// Claims that were told their new size.
    pub expanded: Mutex<Vec<String>>,
    /// Claims that were told that they cannot grow.
    pub refused: Mutex<Vec<String>>,
    /// Told when an attachment was looked at.
    pub looked: tokio::sync::Notify,
}

impl Table {
    pub fn put(&self, kind: &'static str, name: &str, value: Value) {
        self.objects.lock().unwrap().insert((kind, name.to_owned()), value);
    }

    pub fn find<K: serde::de::DeserializeOwned>(&self, kind: &'static str, name: &str) -> Option<K> {
        let found = self.objects.lock().unwrap().get(&(kind, name.to_owned())).cloned();
        found.map(|value| serde_json::from_value(value).unwrap())
    }

    fn get<K: serde::de::DeserializeOwned>(
        &self,
        kind: &'static str,
        name: &str,
    ) -> Result<Arc<K>, ObjectError> {
        self.find(kind, name)
            .map(Arc::new)
            .ok_or_else(|| ObjectError::NotFound { kind, name: name.to_owned() })
    }
}

#[async_trait::async_trait]
impl Objects for Table {
    async fn config_map(&self, _: &str, name: &str) -> Result<Arc<ConfigMap>, ObjectError> {
        self.get("configmap", name)
    }
    async fn secret(&self, _: &str, name: &str) -> Result<Arc<Secret>, ObjectError> {
        self.get("secret", name)
    }
    async fn claim(&self, _: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, ObjectError> {
        self.get("persistentvolumeclaim", name)
    }
    async fn volume(&self, name: &str) -> Result<Arc<PersistentVolume>, ObjectError> {
        self.get("persistentvolume", name)
    }
    async fn csi_driver(&self, name: &str) -> Result<Option<CSIDriver>, ObjectError> {
        Ok(self.find("csidriver", name))
    }
    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>, ObjectError> {
        let found = self.find("attachment", name);
        self.looked.notify_one();
        Ok(found)
    }
    async fn expanded(&self, claim: &PersistentVolumeClaim, _: &PersistentVolume) -> Result<(), ObjectError> {
        self.expanded.lock().unwrap().push(claim.metadata.name.clone().unwrap());
        Ok(())
    }
    async fn expansion_refused(&self, claim: &PersistentVolumeClaim, _: &str) -> Result<(), ObjectError> {
        self.refused.lock().unwrap().push(claim.metadata.name.clone().unwrap());
        Ok(())
    }
    async fn token(&self, request: &TokenRequest) -> Result<Token, ObjectError> {
        let token = format!("token for {}", request.audience);
        let at = |seconds: i64| Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        Ok(Token { token, refresh_at: at(2880), expires_at: at(3600) })
    }
}

pub struct Node {
    pub dir: TempDir,
    pub host: Arc<FakeMounter>,
    pub table: Arc<Table>,
    pub drivers: Drivers,
    pub driver: Arc<Driver>,
    pub volumes: Volumes,
}

impl Node {
    /// With a driver of these capabilities, which is registered.
    pub async fn start(capabilities: &[NodeRpcType]) -> Self {
        let dir = TempDir::new().unwrap();
        let driver = driver::driver(DRIVER, &dir.path().join("driver"), capabilities);
        let socket = driver.serve(dir.path().join("csi.sock"));
        let drivers = Drivers::default();
        drivers.insert(Registered::connect(DRIVER, &socket, PATIENCE, None).await.unwrap());
        let (host, table) = (Arc::<FakeMounter>::default(), Arc::<Table>::default());
        let volumes = volumes(&dir, &host, &table, &drivers);
        Self { dir, host, table, drivers, driver, volumes }
    }

    /// As by SIGKILL: nothing is left but what is on disk and in the kernel.
    pub fn kill_kubelet(&mut self) {
        self.volumes = volumes(&self.dir, &self.host, &self.table, &self.drivers);
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("kubelet")
    }

    pub async fn set_up(&self, pod: &Pod) -> SetUp {
        self.volumes.set_up(pod, &Default::default(), true, Timestamp::now()).await
    }

    /// Sets up a pod's only volume.
    pub async fn mount(&self, pod: &Pod) -> Result<PathBuf, String> {
        let done = self.set_up(pod).await;
        match done.failed.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(done.mounted["v"].path.clone()),
        }
    }

    /// Puts a bound claim `c` with a volume `pv` of this source.
    pub fn claim(&self, source: Value) {
        self.claim_named("c", "pv", source);
    }

    pub fn claim_named(&self, claim: &str, volume: &str, source: Value) {
        let mut spec = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "d", "name": claim, "uid": claim } });
        spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        self.table.put("persistentvolume", volume, json!({ "metadata": { "name": volume }, "spec": spec }));
        self.table.put(
            "persistentvolumeclaim",
            claim,
            json!({ "metadata": { "name": claim, "namespace": "d", "uid": claim },
                "spec": { "volumeName": volume }, "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }),
        );
    }

    /// The attachment of a volume of the driver, with what the driver's controller says of it.
    pub fn attach(&self, handle: &str, attached: bool) {
        let name = attachment_name(DRIVER, handle, NODE);
        let status = json!({ "attached": attached, "attachmentMetadata": { "device": "sdx" } });
        let spec =
            json!({ "attacher": DRIVER, "nodeName": NODE, "source": { "persistentVolumeName": "pv" } });
        self.table.put(
            "attachment",
            &name,
            json!({ "metadata": { "name": name }, "spec": spec, "status": status }),
        );
    }

    pub fn csi_driver(&self, spec: Value) {
        self.table.put("csidriver", DRIVER, json!({ "metadata": { "name": DRIVER }, "spec": spec }));
    }
}

fn volumes(dir: &TempDir, host: &Arc<FakeMounter>, table: &Arc<Table>, drivers: &Drivers) -> Volumes {
    let (root, machine) = (dir.path().join("kubelet"), dir.path().join("machine"));
    let local_path = dir.path().join("local-path");
    let config = VolumesConfig { root, node_name: NODE.to_owned(), local_path, machine };
    Volumes::new(config, host.clone(), table.clone(), drivers.clone())
}

/// A pod with one volume, `v`.
pub fn pod(uid: &str, source: &Value) -> Pod {
    let mut volume = json!({ "name": "v" });
    volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    serde_json::from_value(
        json!({ "metadata": { "name": format!("pod-{uid}"), "namespace": "d", "uid": uid },
        "spec": { "serviceAccountName": "sa", "containers": [{ "name": "c" }], "volumes": [volume] } }),
    )
    .unwrap()
}

pub fn of_claim() -> Value {
    json!({ "persistentVolumeClaim": { "claimName": "c" } })
}

pub fn of_driver() -> Value {
    json!({ "csi": { "driver": DRIVER, "volumeHandle": "vol-1", "fsType": "ext4",
        "volumeAttributes": { "size": "small" } } })
}
