//! What a driver is asked for when a claim wants a volume, and the PersistentVolume that comes of its answer.
//!
//! Names, annotations and finalizers are those of upstream's external-provisioner, so that either can go on with what the
//! other has made. <https://kubernetes-csi.github.io/docs/external-provisioner.html>

use super::parameters::{ParameterError, Parameters, Purpose};
use super::topology;
use crate::csi::ControllerService;
use crate::csi::controller_messages::{
    ControllerRpcType, CreateVolumeRequest, TopologyRequirement, Volume, VolumeContentSource,
};
use crate::csi::messages::{AccessMode, AccessType, CapacityRange, Empty, MountVolume, VolumeCapability};
use crate::csi::source::access_mode;
use crate::facts::{self, PROVISIONED_BY};
use crate::provision::{FINALIZER, volume_name};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, SecretReference,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;

/// Of a volume: the secret by which its driver deletes it.
pub const DELETION_SECRET: (&str, &str) = (
    "volume.kubernetes.io/provisioner-deletion-secret-name",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace",
);
/// By which a driver may know whose volume it is; upstream's attribute.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// A claim and its class, read.
pub struct Wanted<'a> {
    pub claim: &'a PersistentVolumeClaim,
    pub class: &'a StorageClass,
    pub parameters: Parameters,
    /// Of the claim's VolumeAttributesClass.
    pub mutable_parameters: BTreeMap<String, String>,
    pub source: Option<VolumeContentSource>,
}

impl Wanted<'_> {
    fn is_block(&self) -> bool {
        self.claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
    }

    fn access_modes(&self) -> Vec<String> {
        self.claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()).unwrap_or_default()
    }

    pub fn requested_bytes(&self) -> i64 {
        facts::requested(self.claim).units()
    }

    /// One for each of the claim's access modes.
    fn capabilities(&self, service: &ControllerService) -> Vec<VolumeCapability> {
        let single = service.can(ControllerRpcType::SingleNodeMultiWriter);
        let flags = self.class.mount_options.clone().unwrap_or_default();
        let modes = self.access_modes().into_iter();
        modes
            .map(|mode| capability(self.is_block(), &self.parameters.fs_type, &flags, &[mode], single))
            .collect()
    }

    pub fn secret(&self, purpose: Purpose) -> Result<Option<SecretReference>, ParameterError> {
        self.parameters.secret(purpose, &volume_name(self.claim), self.claim)
    }

    pub fn request(
        &self,
        service: &ControllerService,
        secrets: BTreeMap<String, String>,
        accessibility_requirements: Option<TopologyRequirement>,
        names: bool,
    ) -> CreateVolumeRequest {
        let name = volume_name(self.claim);
        let mut parameters = self.parameters.for_driver.clone();
        if names {
            let meta = &self.claim.metadata;
            let told = [
                ("pvc/name", meta.name.clone().unwrap_or_default()),
                ("pvc/namespace", meta.namespace.clone().unwrap_or_default()),
                ("pv/name", name.clone()),
            ];
            parameters.extend(told.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)));
        }
        CreateVolumeRequest {
            name,
            capacity_range: Some(CapacityRange { required_bytes: self.requested_bytes(), limit_bytes: 0 }),
            volume_capabilities: self.capabilities(service),
            parameters,
            secrets,
            volume_content_source: self.source.clone(),
            accessibility_requirements,
            mutable_parameters: self.mutable_parameters.clone(),
        }
    }

    pub fn volume(&self, driver: &str, made: &Volume) -> Result<PersistentVolume, ParameterError> {
        let secret = |purpose| self.secret(purpose);
        let modes = self.access_modes();
        let mut attributes = made.volume_context.clone();
        attributes.insert(IDENTITY.to_owned(), format!("coracle-{driver}"));
        let source = CSIPersistentVolumeSource {
            driver: driver.to_owned(),
            volume_handle: made.volume_id.clone(),
            fs_type: Some(self.parameters.fs_type.clone()).filter(|fs| !fs.is_empty() && !self.is_block()),
            // Who only reads what was there before needs no right to write.
            read_only: (self.source.is_some() && modes == ["ReadOnlyMany"]).then_some(true),
            volume_attributes: Some(attributes),
            controller_publish_secret_ref: secret(Purpose::ControllerPublish)?,
            controller_expand_secret_ref: secret(Purpose::ControllerExpand)?,
            node_stage_secret_ref: secret(Purpose::NodeStage)?,
            node_publish_secret_ref: secret(Purpose::NodePublish)?,
            node_expand_secret_ref: secret(Purpose::NodeExpand)?,
        };
        let spec = self.claim.spec.clone().unwrap_or_default();
        let bytes = if made.capacity_bytes > 0 { made.capacity_bytes } else { self.requested_bytes() };
        let policy = self.class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
        Ok(PersistentVolume {
            metadata: ObjectMeta {
                name: Some(volume_name(self.claim)),
                annotations: Some(annotations(driver, secret(Purpose::Provision)?)),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeSpec {
                access_modes: Some(modes),
                capacity: Some([("storage".to_owned(), facts::written(bytes))].into()),
                claim_ref: Some(facts::reference_to(self.claim)),
                csi: Some(source),
                mount_options: self.class.mount_options.clone().filter(|options| !options.is_empty()),
                node_affinity: topology::affinity(&made.accessible_topology),
                persistent_volume_reclaim_policy: Some(policy),
                storage_class_name: self.class.metadata.name.clone(),
                volume_attributes_class_name: spec
                    .volume_attributes_class_name
                    .filter(|name| !name.is_empty()),
                volume_mode: Some(spec.volume_mode.unwrap_or_else(|| "Filesystem".to_owned())),
                ..PersistentVolumeSpec::default()
            }),
            status: None,
        })
    }
}

fn annotations(driver: &str, secret: Option<SecretReference>) -> BTreeMap<String, String> {
    let secret = secret.unwrap_or_default();
    let (name, namespace) = DELETION_SECRET;
    [
        (PROVISIONED_BY.to_owned(), driver.to_owned()),
        (name.to_owned(), secret.name.unwrap_or_default()),
        (namespace.to_owned(), secret.namespace.unwrap_or_default()),
    ]
    .into()
}

/// How a volume of these modes is used, as a driver is told it. `single`: the driver knows the modes of one node.
pub fn capability(
    block: bool,
    fs_type: &str,
    mount_flags: &[String],
    modes: &[String],
    single: bool,
) -> VolumeCapability {
    let mount = || MountVolume {
        fs_type: fs_type.to_owned(),
        mount_flags: mount_flags.to_vec(),
        volume_mount_group: String::new(),
    };
    let access = if block { AccessType::Block(Empty {}) } else { AccessType::Mount(mount()) };
    let mode = access_mode(modes, single) as i32;
    VolumeCapability { access_type: Some(access), access_mode: Some(AccessMode { mode }) }
}

/// The same for a volume that is there.
pub fn capability_of(volume: &PersistentVolume, single: bool) -> VolumeCapability {
    let spec = volume.spec.clone().unwrap_or_default();
    let fs_type = spec.csi.and_then(|csi| csi.fs_type).unwrap_or_default();
    let block = spec.volume_mode.as_deref() == Some("Block");
    let (flags, modes) = (spec.mount_options.unwrap_or_default(), spec.access_modes.unwrap_or_default());
    capability(block, &fs_type, &flags, &modes, single)
}

/// What is wrong with a driver's answer: a volume that is not what was asked for is nobody's.
pub fn mistake(wanted: &Wanted<'_>, made: &Volume) -> Option<String> {
    let requested = wanted.requested_bytes();
    if made.capacity_bytes > 0 && made.capacity_bytes < requested {
        let has = made.capacity_bytes;
        return Some(format!("created volume capacity {has} less than requested capacity {requested}"));
    }
    let missing = wanted.source.is_some() && made.content_source.is_none();
    missing.then(|| "volume content source missing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::controller_messages::{ContentSource, SourceId};
    use serde_json::json;

    #[test]
    fn a_volume_tells_what_its_driver_said() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": { "name": "c",
            "namespace": "n", "uid": "u" }, "spec": { "accessModes": ["ReadOnlyMany"],
            "volumeAttributesClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } } }))
        .unwrap();
        let class: StorageClass =
            serde_json::from_value(json!({ "metadata": { "name": "fast" }, "provisioner": "d",
                "mountOptions": ["noatime"] }))
            .unwrap();
        let parameters: BTreeMap<String, String> = serde_json::from_value(json!({ "fstype": "xfs",
            "csi.storage.k8s.io/provisioner-secret-name": "key",
            "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}" }))
        .unwrap();
        let id = SourceId { id: "snap".to_owned() };
        let source = VolumeContentSource { r#type: Some(ContentSource::Snapshot(id)) };
        let wanted = Wanted {
            claim: &claim,
            class: &class,
            parameters: Parameters::of(&parameters).unwrap(),
            mutable_parameters: BTreeMap::new(),
            source: Some(source.clone()),
        };
        let made = Volume { volume_id: "v1".to_owned(), content_source: Some(source), ..Volume::default() };
        assert_eq!(mistake(&wanted, &made), None);
        let small = Volume { capacity_bytes: 5, ..made.clone() };
        let why = "created volume capacity 5 less than requested capacity 1073741824";
        assert_eq!(mistake(&wanted, &small).as_deref(), Some(why));
        let volume = wanted.volume("d", &made).unwrap();
        assert_eq!(volume.metadata.name.as_deref(), Some("pvc-u"));
        assert_eq!(volume.metadata.annotations.unwrap()[DELETION_SECRET.1], "n");
        let spec = volume.spec.unwrap();
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi");
        assert_eq!(spec.volume_attributes_class_name.as_deref(), Some("gold"));
        let csi = spec.csi.unwrap();
        assert_eq!((csi.fs_type.as_deref(), csi.read_only), (Some("xfs"), Some(true)));
    }
}
