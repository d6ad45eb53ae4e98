//! What an entry of `spec.volumes` comes to: itself, or the volume that its claim is bound to.

use super::{Objects, VolumeError};
use coracle_api::storage::{ephemeral_claim, is_moving};
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume,
};
use serde_json::Value;
use std::sync::Arc;

/// A volume with its source.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The PersistentVolume's name, or the pod's own for a volume without a claim: what the volume's directory is called.
    pub name: String,
    pub source: Source,
    /// Whether the pod asks for it read-only.
    pub read_only: bool,
}

#[derive(Clone, Debug)]
pub enum Source {
    Inline(Box<Volume>),
    Claimed { volume: Arc<PersistentVolume>, claim: Arc<PersistentVolumeClaim> },
}

impl Spec {
    pub fn inline(&self) -> Option<&Volume> {
        match &self.source {
            Source::Inline(volume) => Some(volume),
            Source::Claimed { .. } => None,
        }
    }

    pub fn persistent_volume(&self) -> Option<&PersistentVolume> {
        match &self.source {
            Source::Inline(_) => None,
            Source::Claimed { volume, .. } => Some(volume),
        }
    }

    pub fn persistent(&self) -> Option<&PersistentVolumeSpec> {
        self.persistent_volume()?.spec.as_ref()
    }

    pub fn claim(&self) -> Option<&Arc<PersistentVolumeClaim>> {
        match &self.source {
            Source::Inline(_) => None,
            Source::Claimed { claim, .. } => Some(claim),
        }
    }

    /// Whether one pod at a time may have it.
    pub fn is_of_one_pod(&self) -> bool {
        let modes = self.persistent().and_then(|volume| volume.access_modes.as_deref()).unwrap_or_default();
        modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }

    /// Whether it is a device without a file system.
    pub fn is_block(&self) -> bool {
        self.persistent().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
    }

    /// The field that says of which kind it is: `nfs`, `csi`.
    pub fn kind(&self) -> String {
        let fields = match &self.source {
            Source::Inline(volume) => serde_json::to_value(volume),
            Source::Claimed { volume, .. } => serde_json::to_value(&volume.spec),
        };
        const NO_KINDS: [&str; 4] = ["capacity", "claimRef", "nodeAffinity", "name"];
        let Ok(Value::Object(fields)) = fields else { return String::new() };
        let kind =
            fields.iter().find(|(name, value)| value.is_object() && !NO_KINDS.contains(&name.as_str()));
        kind.map(|(name, _)| name.clone()).unwrap_or_default()
    }
}

/// Reads the claim of a volume that has one, and its volume.
pub(super) async fn resolve(objects: &dyn Objects, pod: &Pod, volume: &Volume) -> Result<Spec, VolumeError> {
    let Some(name) = claim_name(pod, volume) else {
        let source = Source::Inline(Box::new(volume.clone()));
        return Ok(Spec { name: volume.name.clone(), source, read_only: false });
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let failed = |message: String| VolumeError::Claim {
        namespace: namespace.to_owned(),
        claim: name.clone(),
        message,
    };
    let claim = objects.claim(namespace, &name).await?;
    if volume.ephemeral.is_some() && !is_owned_by(&claim, pod) {
        return Err(failed("PVC was not created for the pod".to_owned()));
    }
    let bound = objects.volume(bound_volume(&claim).map_err(failed)?).await?;
    check_binding(&claim, &bound).map_err(failed)?;
    if is_moving(bound.metadata.annotations.as_ref()) {
        return Err(failed("its volume is being moved".to_owned()));
    }
    let read_only = volume.persistent_volume_claim.as_ref().and_then(|source| source.read_only);
    let spec = Spec {
        name: bound.metadata.name.clone().unwrap_or_default(),
        source: Source::Claimed { volume: bound, claim },
        read_only: read_only.unwrap_or(false),
    };
    check_mode(&spec, pod, &volume.name).map_err(failed)?;
    Ok(spec)
}

/// The claim that a volume names, or that is made for it.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => {
            Some(ephemeral_claim(pod.metadata.name.as_deref().unwrap_or_default(), &volume.name))
        }
        (None, None) => None,
    }
}

fn is_owned_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    claim.metadata.owner_references.iter().flatten().any(|o| o.controller == Some(true) && o.uid == uid)
}

fn bound_volume(claim: &PersistentVolumeClaim) -> Result<&str, String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("PVC is being deleted".to_owned());
    }
    let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let name = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).filter(|n| !n.is_empty());
    name.filter(|_| bound).ok_or_else(|| "PVC is not bound".to_owned())
}

fn check_binding(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), String> {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    if reference.is_some_and(|r| r.uid == claim.metadata.uid) {
        return Ok(());
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    Err(format!("PV {name:?} is not bound to the claim"))
}

/// A device is no directory: `volumeMounts` are for the one mode, `volumeDevices` for the other.
fn check_mode(spec: &Spec, pod: &Pod, volume: &str) -> Result<(), String> {
    let pod = pod.spec.as_ref();
    let containers = pod.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let (mut mounts, mut devices) = (false, false);
    for container in containers {
        mounts |= container.volume_mounts.iter().flatten().any(|mount| mount.name == volume);
        devices |= container.volume_devices.iter().flatten().any(|device| device.name == volume);
    }
    match spec.is_block() {
        true if mounts => {
            Err(format!("volume {volume} has volumeMode Block, but is specified in volumeMounts"))
        }
        false if devices => {
            Err(format!("volume {volume} has volumeMode Filesystem, but is specified in volumeDevices"))
        }
        _ => Ok(()),
    }
}
