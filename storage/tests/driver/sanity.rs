//! What the specification asks of a driver's callers. Upstream's csi-sanity makes calls that lack something and wants them
//! refused; here each call that is made is judged, and what csi-sanity wants refused is the caller's fault.
//! <https://github.com/kubernetes-csi/csi-test/tree/master/pkg/sanity>

use super::State;
use coracle_storage::csi::controller_messages as messages;
use coracle_storage::csi::messages as csi;
use csi::{Mode, NodeRpcType};
use messages::{ContentSource, ControllerRpcType};
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of identities and names, by the specification.
const LONGEST: usize = 128;

/// Faults of one call.
struct Judge<'a> {
    state: &'a State,
    node_id: String,
    method: &'a str,
    faults: Vec<String>,
}

/// What is wrong with a call, as it is made. `driver` is the driver's name.
pub fn judge(state: &State, driver: &str, method: &str, message: &[u8]) -> Vec<String> {
    let mut judge = Judge { state, node_id: format!("{driver}-node"), method, faults: Vec::new() };
    if judge.call(message).is_none() {
        judge.fault("is no message of this call");
    }
    judge.faults
}

impl Judge<'_> {
    fn fault(&mut self, why: &str) {
        self.faults.push(format!("{}: {why}", self.method));
    }

    fn wants(&mut self, is_so: bool, why: &str) {
        if !is_so {
            self.fault(why);
        }
    }

    fn identity(&mut self, what: &str, value: &str) {
        self.wants(!value.is_empty(), &format!("no {what}"));
        self.wants(value.len() <= LONGEST, &format!("{what} is longer than {LONGEST} bytes"));
    }

    fn path(&mut self, what: &str, value: &str) {
        self.wants(Path::new(value).is_absolute(), &format!("{what} {value:?} is no absolute path"));
    }

    fn node_can(&mut self, what: NodeRpcType) {
        let offered = self.state.capabilities.contains(&what);
        self.wants(offered, &format!("{what:?} is not offered"));
    }

    fn controller_can(&mut self, what: ControllerRpcType) {
        let offered = self.state.controller.capabilities.contains(&what);
        self.wants(offered, &format!("{what:?} is not offered"));
    }

    /// `single`: whether the called service knows the modes of a single node.
    fn capability(&mut self, capability: Option<&csi::VolumeCapability>, single: bool) {
        let Some(capability) = capability else { return self.fault("no volume capability") };
        let mode = capability.access_mode.as_ref().and_then(|mode| Mode::try_from(mode.mode).ok());
        self.wants(mode.is_some_and(|mode| mode != Mode::Unknown), "no access mode");
        let of_single = matches!(mode, Some(Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter));
        self.wants(!of_single || single, "a mode that is not offered: SINGLE_NODE_MULTI_WRITER");
        // The older mode is ambiguous, and not for drivers that know the newer ones.
        self.wants(
            !single || mode != Some(Mode::SingleNodeWriter),
            "SINGLE_NODE_WRITER for a driver that knows better",
        );
        match &capability.access_type {
            None => self.fault("neither block nor mount"),
            Some(csi::AccessType::Mount(mount)) if !mount.volume_mount_group.is_empty() => {
                self.node_can(NodeRpcType::VolumeMountGroup);
            }
            Some(_) => {}
        }
    }

    fn range(&mut self, range: Option<&csi::CapacityRange>) {
        let Some(range) = range else { return self.fault("no capacity range") };
        self.wants(range.required_bytes > 0 || range.limit_bytes > 0, "a range without a bound");
        self.wants(range.required_bytes >= 0 && range.limit_bytes >= 0, "a negative size");
        let ordered = range.limit_bytes == 0 || range.limit_bytes >= range.required_bytes;
        self.wants(ordered, "more is required than is allowed");
    }

    fn stages(&self) -> bool {
        self.state.capabilities.contains(&NodeRpcType::StageUnstageVolume)
    }

    fn attaches(&self) -> bool {
        self.state.controller.capabilities.contains(&ControllerRpcType::PublishUnpublishVolume)
    }

    /// What the controller service said of the volume is handed on as it was said.
    fn contexts(
        &mut self,
        volume: &str,
        context: &BTreeMap<String, String>,
        published: &BTreeMap<String, String>,
    ) {
        if !self.state.controller.made.values().any(|made| made.id == volume) {
            return;
        }
        self.wants(
            context.get("made-by").is_some_and(|by| by == "driver"),
            "the volume's context is not handed on",
        );
        if self.attaches() {
            let device = published.get("device").is_some_and(|device| *device == format!("/dev/{volume}"));
            self.wants(device, "the publication's context is not handed on");
            let attached = (volume.to_owned(), self.node_id.clone());
            self.wants(
                self.state.controller.attached.contains(&attached),
                "the volume is not attached to this node",
            );
        }
    }

    fn call(&mut self, message: &[u8]) -> Option<()> {
        match self.method {
            "NodeStageVolume" | "NodePublishVolume" | "NodeUnpublishVolume" | "NodeUnstageVolume" => {
                self.mounting(message)
            }
            "NodeExpandVolume" | "NodeGetVolumeStats" => self.mounted(message),
            "CreateVolume" => self.create(message),
            "ControllerPublishVolume" | "ControllerUnpublishVolume" => self.attaching(message),
            _ => self.controlling(message),
        }
    }

    fn mounting(&mut self, message: &[u8]) -> Option<()> {
        let single = self.state.capabilities.contains(&NodeRpcType::SingleNodeMultiWriter);
        match self.method {
            "NodeStageVolume" => {
                let request = csi::NodeStageVolumeRequest::decode(message).ok()?;
                self.node_can(NodeRpcType::StageUnstageVolume);
                self.identity("volume_id", &request.volume_id);
                self.path("staging_target_path", &request.staging_target_path);
                self.capability(request.volume_capability.as_ref(), single);
                self.contexts(&request.volume_id, &request.volume_context, &request.publish_context);
            }
            "NodePublishVolume" => {
                let request = csi::NodePublishVolumeRequest::decode(message).ok()?;
                let ephemeral = request.volume_context.get("csi.storage.k8s.io/ephemeral");
                let staged = self.stages() && ephemeral.is_none_or(|ephemeral| ephemeral != "true");
                self.identity("volume_id", &request.volume_id);
                self.path("target_path", &request.target_path);
                self.wants(
                    staged != request.staging_target_path.is_empty(),
                    "staging_target_path without staging, or staging without",
                );
                self.capability(request.volume_capability.as_ref(), single);
                self.contexts(&request.volume_id, &request.volume_context, &request.publish_context);
            }
            "NodeUnpublishVolume" => {
                let request = csi::NodeUnpublishVolumeRequest::decode(message).ok()?;
                self.identity("volume_id", &request.volume_id);
                self.path("target_path", &request.target_path);
            }
            _ => {
                let request = csi::NodeUnstageVolumeRequest::decode(message).ok()?;
                self.node_can(NodeRpcType::StageUnstageVolume);
                self.identity("volume_id", &request.volume_id);
                self.path("staging_target_path", &request.staging_target_path);
            }
        }
        Some(())
    }

    /// Of volumes that are mounted: the path is one at which the volume is.
    fn mounted(&mut self, message: &[u8]) -> Option<()> {
        let (volume, path, staging) = if self.method == "NodeExpandVolume" {
            let request = csi::NodeExpandVolumeRequest::decode(message).ok()?;
            self.node_can(NodeRpcType::ExpandVolume);
            self.range(request.capacity_range.as_ref());
            if request.volume_capability.is_some() {
                let single = self.state.capabilities.contains(&NodeRpcType::SingleNodeMultiWriter);
                self.capability(request.volume_capability.as_ref(), single);
            }
            (request.volume_id, request.volume_path, request.staging_target_path)
        } else {
            let request = csi::NodeGetVolumeStatsRequest::decode(message).ok()?;
            self.node_can(NodeRpcType::GetVolumeStats);
            (request.volume_id, request.volume_path, request.staging_target_path)
        };
        self.identity("volume_id", &volume);
        self.path("volume_path", &path);
        self.wants(
            staging.is_empty() || Path::new(&staging).is_absolute(),
            "staging_target_path is no absolute path",
        );
        let at = (volume, path);
        let known = self.state.published.contains(&at) || self.state.staged.contains(&at);
        self.wants(known, "the volume is neither published nor staged at volume_path");
        Some(())
    }

    fn create(&mut self, message: &[u8]) -> Option<()> {
        let request = messages::CreateVolumeRequest::decode(message).ok()?;
        self.controller_can(ControllerRpcType::CreateDeleteVolume);
        self.identity("name", &request.name);
        self.range(request.capacity_range.as_ref());
        self.wants(!request.volume_capabilities.is_empty(), "no volume capabilities");
        let single = self.state.controller.capabilities.contains(&ControllerRpcType::SingleNodeMultiWriter);
        for capability in &request.volume_capabilities {
            self.capability(Some(capability), single);
        }
        if !request.mutable_parameters.is_empty() {
            self.controller_can(ControllerRpcType::ModifyVolume);
        }
        let topology = request.accessibility_requirements.is_none() || self.state.controller.has_topology;
        self.wants(topology, "places for a driver without any");
        match request.volume_content_source.and_then(|source| source.r#type) {
            Some(ContentSource::Snapshot(source)) => {
                self.controller_can(ControllerRpcType::CreateDeleteSnapshot);
                self.identity("snapshot_id", &source.id);
            }
            Some(ContentSource::Volume(source)) => {
                self.controller_can(ControllerRpcType::CloneVolume);
                self.identity("the source's volume_id", &source.id);
            }
            None => {}
        }
        Some(())
    }

    fn attaching(&mut self, message: &[u8]) -> Option<()> {
        self.controller_can(ControllerRpcType::PublishUnpublishVolume);
        if self.method == "ControllerUnpublishVolume" {
            let request = messages::ControllerUnpublishVolumeRequest::decode(message).ok()?;
            self.identity("volume_id", &request.volume_id);
            // Without a node it would be taken from all.
            self.identity("node_id", &request.node_id);
            return Some(());
        }
        let request = messages::ControllerPublishVolumeRequest::decode(message).ok()?;
        self.identity("volume_id", &request.volume_id);
        self.identity("node_id", &request.node_id);
        let single = self.state.controller.capabilities.contains(&ControllerRpcType::SingleNodeMultiWriter);
        self.capability(request.volume_capability.as_ref(), single);
        if request.readonly {
            self.controller_can(ControllerRpcType::PublishReadonly);
        }
        let mode = request.volume_capability.and_then(|capability| capability.access_mode);
        let mode = mode.and_then(|mode| Mode::try_from(mode.mode).ok());
        let many = matches!(
            mode,
            Some(Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
        );
        let mut attached = self.state.controller.attached.iter();
        let elsewhere =
            attached.any(|(volume, node)| *volume == request.volume_id && *node != request.node_id);
        self.wants(many || !elsewhere, "a volume of one node is attached to another");
        Some(())
    }

    fn controlling(&mut self, message: &[u8]) -> Option<()> {
        match self.method {
            "DeleteVolume" => {
                self.controller_can(ControllerRpcType::CreateDeleteVolume);
                let request = messages::DeleteVolumeRequest::decode(message).ok()?;
                self.identity("volume_id", &request.volume_id);
                let id = &request.volume_id;
                let mounted =
                    self.state.published.iter().chain(&self.state.staged).any(|(volume, _)| volume == id);
                self.wants(!mounted, "the volume is still mounted");
            }
            "ControllerExpandVolume" => {
                self.controller_can(ControllerRpcType::ExpandVolume);
                let request = messages::ControllerExpandVolumeRequest::decode(message).ok()?;
                self.identity("volume_id", &request.volume_id);
                self.range(request.capacity_range.as_ref());
            }
            "ControllerModifyVolume" => {
                self.controller_can(ControllerRpcType::ModifyVolume);
                let request = messages::ControllerModifyVolumeRequest::decode(message).ok()?;
                self.identity("volume_id", &request.volume_id);
                self.wants(!request.mutable_parameters.is_empty(), "no mutable_parameters");
            }
            "CreateSnapshot" => {
                self.controller_can(ControllerRpcType::CreateDeleteSnapshot);
                let request = messages::CreateSnapshotRequest::decode(message).ok()?;
                self.identity("source_volume_id", &request.source_volume_id);
                self.identity("name", &request.name);
            }
            "DeleteSnapshot" => {
                self.controller_can(ControllerRpcType::CreateDeleteSnapshot);
                let request = messages::DeleteSnapshotRequest::decode(message).ok()?;
                self.identity("snapshot_id", &request.snapshot_id);
            }
            "ListSnapshots" => {
                self.controller_can(ControllerRpcType::ListSnapshots);
                let request = messages::ListSnapshotsRequest::decode(message).ok()?;
                self.wants(request.max_entries >= 0, "fewer entries than none");
            }
            "GetCapacity" => self.controller_can(ControllerRpcType::GetCapacity),
            _ => {}
        }
        Some(())
    }
}
