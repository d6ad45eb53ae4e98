//! What a pod and its volume say, as a driver is told it.

use super::messages::{AccessMode, AccessType, Empty, Mode, MountVolume, NodeRpcType, VolumeCapability};
use super::{Driver, attachment_name, unique_name};
use crate::volumes::{Request, Spec, VolumeError, digest};
use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A volume of a driver, wherever it is written.
#[derive(Clone, Debug, Default)]
pub struct CsiSource {
    pub driver: String,
    pub handle: String,
    pub attributes: BTreeMap<String, String>,
    pub fs_type: String,
    pub read_only: bool,
    /// Written in the pod itself: it lives and dies with it.
    pub ephemeral: bool,
    pub access_modes: Vec<String>,
    pub mount_options: Vec<String>,
    pub publish_secret: Option<SecretReference>,
    pub stage_secret: Option<SecretReference>,
    pub expand_secret: Option<SecretReference>,
}

/// What [`super::Csi`] keeps in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiData {
    pub driver: String,
    pub handle: String,
    /// Empty where the driver stages nothing.
    pub staging_path: PathBuf,
    pub target_path: PathBuf,
    pub block: bool,
    pub requires_republish: bool,
    /// What the driver's controller said of the attachment.
    pub publish_context: BTreeMap<String, String>,
}

impl CsiSource {
    /// `None` where the volume is no CSI volume. `uid` is the pod's.
    pub fn of(spec: &Spec, uid: &str, namespace: &str) -> Option<Self> {
        if let Some(volume) = spec.inline() {
            let source = volume.csi.as_ref()?;
            let secret =
                |name: String| SecretReference { name: Some(name), namespace: Some(namespace.to_owned()) };
            return Some(Self {
                driver: source.driver.clone(),
                // As upstream: nobody else has a volume of this name.
                handle: format!("csi-{}", digest(&format!("{uid}{}", volume.name))),
                attributes: source.volume_attributes.clone().unwrap_or_default(),
                fs_type: source.fs_type.clone().unwrap_or_default(),
                read_only: source.read_only.unwrap_or(false),
                ephemeral: true,
                access_modes: vec!["ReadWriteOnce".to_owned()],
                publish_secret: source.node_publish_secret_ref.as_ref().map(|s| secret(s.name.clone())),
                ..Self::default()
            });
        }
        let volume = spec.persistent()?;
        let source = volume.csi.clone()?;
        Some(Self {
            driver: source.driver,
            handle: source.volume_handle,
            attributes: source.volume_attributes.unwrap_or_default(),
            fs_type: source.fs_type.unwrap_or_default(),
            read_only: source.read_only.unwrap_or(false) || spec.read_only,
            ephemeral: false,
            access_modes: volume.access_modes.clone().unwrap_or_default(),
            mount_options: volume.mount_options.clone().unwrap_or_default(),
            publish_secret: source.node_publish_secret_ref,
            stage_secret: source.node_stage_secret_ref,
            expand_secret: source.node_expand_secret_ref,
        })
    }

    pub fn unique_name(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    pub fn attachment_name(&self, node: &str) -> String {
        attachment_name(&self.driver, &self.handle, node)
    }

    /// How the volume is used. `group` is for drivers that give it to the pod's group themselves.
    pub fn capability(&self, block: bool, driver: &Driver, group: Option<i64>) -> VolumeCapability {
        let access = if block {
            AccessType::Block(Empty {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_options.clone(),
                volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
            })
        };
        let single = driver.can(NodeRpcType::SingleNodeMultiWriter);
        let mode = access_mode(&self.access_modes, single);
        VolumeCapability { access_type: Some(access), access_mode: Some(AccessMode { mode: mode as i32 }) }
    }

    /// Whether the pod's group is the driver's or ours to apply, by the driver's `fsGroupPolicy`.
    pub fn takes_group(&self, driver: Option<&CSIDriverSpec>) -> bool {
        let policy = driver.and_then(|d| d.fs_group_policy.as_deref()).unwrap_or("ReadWriteOnceWithFSType");
        let once = self
            .access_modes
            .iter()
            .any(|mode| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod"));
        match policy {
            "None" => false,
            "File" => true,
            _ => once && !self.fs_type.is_empty() && !self.read_only,
        }
    }
}

/// By the first of the volume's modes, as upstream.
pub(crate) fn access_mode(modes: &[String], single_node_modes: bool) -> Mode {
    match (modes.first().map(String::as_str), single_node_modes) {
        (Some("ReadWriteMany"), _) => Mode::MultiNodeMultiWriter,
        (Some("ReadOnlyMany"), _) => Mode::MultiNodeReaderOnly,
        (Some("ReadWriteOncePod"), true) => Mode::SingleNodeSingleWriter,
        (Some("ReadWriteOnce"), true) => Mode::SingleNodeMultiWriter,
        _ => Mode::SingleNodeWriter,
    }
}

/// Refuses a volume of a lifecycle that the driver does not say it has.
pub fn check_lifecycle(source: &CsiSource, driver: Option<&CSIDriver>) -> Result<(), VolumeError> {
    let mode = if source.ephemeral { "Ephemeral" } else { "Persistent" };
    let said = driver.and_then(|driver| driver.spec.volume_lifecycle_modes.clone());
    let supported = said.unwrap_or_else(|| vec!["Persistent".to_owned()]);
    if supported.iter().any(|known| known == mode) {
        return Ok(());
    }
    Err(VolumeError::LifecycleMode { mode, driver: source.driver.clone(), supported })
}

/// What `podInfoOnMount` tells the driver.
pub fn pod_info(request: &Request<'_>, ephemeral: bool) -> BTreeMap<String, String> {
    let account = request.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let told = [
        ("csi.storage.k8s.io/pod.name", request.pod.metadata.name.clone().unwrap_or_default()),
        ("csi.storage.k8s.io/pod.namespace", request.namespace().to_owned()),
        ("csi.storage.k8s.io/pod.uid", request.uid().to_owned()),
        ("csi.storage.k8s.io/serviceAccount.name", account.unwrap_or_default()),
        ("csi.storage.k8s.io/ephemeral", ephemeral.to_string()),
    ];
    told.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_asked_for_in_its_first_mode() {
        for (modes, single, expected) in [
            (&["ReadWriteOnce"][..], false, Mode::SingleNodeWriter),
            (&["ReadWriteOnce"], true, Mode::SingleNodeMultiWriter),
            (&["ReadWriteOncePod"], true, Mode::SingleNodeSingleWriter),
            (&["ReadWriteOncePod"], false, Mode::SingleNodeWriter),
            (&["ReadOnlyMany"], true, Mode::MultiNodeReaderOnly),
            (&["ReadOnlyMany", "ReadWriteMany"], true, Mode::MultiNodeReaderOnly),
            (&["ReadWriteMany"], false, Mode::MultiNodeMultiWriter),
        ] {
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            assert_eq!(access_mode(&modes, single), expected, "{modes:?}");
        }
    }

    #[test]
    fn the_group_is_applied_by_the_drivers_policy() {
        let policy = |policy: &str| CSIDriverSpec {
            fs_group_policy: Some(policy.to_owned()),
            ..CSIDriverSpec::default()
        };
        let once = CsiSource {
            fs_type: "ext4".to_owned(),
            access_modes: vec!["ReadWriteOnce".to_owned()],
            ..CsiSource::default()
        };
        let shared = CsiSource { access_modes: vec!["ReadWriteMany".to_owned()], ..once.clone() };
        let untyped = CsiSource { fs_type: String::new(), ..once.clone() };
        assert!(once.takes_group(None) && !shared.takes_group(None) && !untyped.takes_group(None));
        assert!(shared.takes_group(Some(&policy("File"))) && untyped.takes_group(Some(&policy("File"))));
        assert!(!once.takes_group(Some(&policy("None"))));
    }
}
