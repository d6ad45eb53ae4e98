//! The messages of CSI v1 that a driver's controller service and its caller exchange.
//!
//! Written by hand by the field numbers of the specification, as those of the node service.
//! <https://github.com/container-storage-interface/spec/blob/master/spec.md>

use super::messages::{CapacityRange, Topology, VolumeCapability};
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;

pub const PROBE: &str = "/csi.v1.Identity/Probe";
pub const GET_PLUGIN_CAPABILITIES: &str = "/csi.v1.Identity/GetPluginCapabilities";
pub const CREATE_VOLUME: &str = "/csi.v1.Controller/CreateVolume";
pub const DELETE_VOLUME: &str = "/csi.v1.Controller/DeleteVolume";
pub const CONTROLLER_PUBLISH_VOLUME: &str = "/csi.v1.Controller/ControllerPublishVolume";
pub const CONTROLLER_UNPUBLISH_VOLUME: &str = "/csi.v1.Controller/ControllerUnpublishVolume";
pub const CREATE_SNAPSHOT: &str = "/csi.v1.Controller/CreateSnapshot";
pub const DELETE_SNAPSHOT: &str = "/csi.v1.Controller/DeleteSnapshot";
pub const LIST_SNAPSHOTS: &str = "/csi.v1.Controller/ListSnapshots";
pub const GET_CAPACITY: &str = "/csi.v1.Controller/GetCapacity";
pub const CONTROLLER_GET_CAPABILITIES: &str = "/csi.v1.Controller/ControllerGetCapabilities";
pub const CONTROLLER_EXPAND_VOLUME: &str = "/csi.v1.Controller/ControllerExpandVolume";
pub const CONTROLLER_MODIFY_VOLUME: &str = "/csi.v1.Controller/ControllerModifyVolume";

#[derive(Clone, PartialEq, prost::Message)]
pub struct ProbeResponse {
    /// A driver that does not say is ready.
    #[prost(message, optional, tag = "1")]
    pub ready: Option<BoolValue>,
}

/// A truth that may be absent; protobuf's wrapper.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BoolValue {
    #[prost(bool, tag = "1")]
    pub value: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetPluginCapabilitiesResponse {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<PluginCapability>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginCapability {
    /// The other kind, whether volumes grow while they are used, is the driver's to refuse.
    #[prost(message, optional, tag = "1")]
    pub service: Option<PluginService>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginService {
    #[prost(enumeration = "PluginServiceType", tag = "1")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum PluginServiceType {
    Unknown = 0,
    ControllerService = 1,
    VolumeAccessibilityConstraints = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerGetCapabilitiesResponse {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<ControllerServiceCapability>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerServiceCapability {
    #[prost(message, optional, tag = "1")]
    pub rpc: Option<ControllerRpc>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerRpc {
    #[prost(enumeration = "ControllerRpcType", tag = "1")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ControllerRpcType {
    Unknown = 0,
    CreateDeleteVolume = 1,
    PublishUnpublishVolume = 2,
    ListVolumes = 3,
    GetCapacity = 4,
    CreateDeleteSnapshot = 5,
    ListSnapshots = 6,
    CloneVolume = 7,
    PublishReadonly = 8,
    ExpandVolume = 9,
    ListVolumesPublishedNodes = 10,
    VolumeCondition = 11,
    GetVolume = 12,
    SingleNodeMultiWriter = 13,
    ModifyVolume = 14,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateVolumeRequest {
    /// By which a driver knows that it is asked again for the same volume.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: Map,
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: Map,
    #[prost(message, optional, tag = "6")]
    pub volume_content_source: Option<VolumeContentSource>,
    #[prost(message, optional, tag = "7")]
    pub accessibility_requirements: Option<TopologyRequirement>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub mutable_parameters: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct VolumeContentSource {
    #[prost(oneof = "ContentSource", tags = "1, 2")]
    pub r#type: Option<ContentSource>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ContentSource {
    #[prost(message, tag = "1")]
    Snapshot(SourceId),
    #[prost(message, tag = "2")]
    Volume(SourceId),
}

/// A snapshot or a volume, by the name that its driver gave it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SourceId {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TopologyRequirement {
    #[prost(message, repeated, tag = "1")]
    pub requisite: Vec<Topology>,
    /// The best first.
    #[prost(message, repeated, tag = "2")]
    pub preferred: Vec<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateVolumeResponse {
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Volume {
    /// 0: the driver does not say.
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    #[prost(string, tag = "2")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub volume_context: Map,
    #[prost(message, optional, tag = "4")]
    pub content_source: Option<VolumeContentSource>,
    #[prost(message, repeated, tag = "5")]
    pub accessible_topology: Vec<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub secrets: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerPublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub node_id: String,
    #[prost(message, optional, tag = "3")]
    pub volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "4")]
    pub readonly: bool,
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: Map,
    #[prost(btree_map = "string, string", tag = "6")]
    pub volume_context: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerPublishVolumeResponse {
    #[prost(btree_map = "string, string", tag = "1")]
    pub publish_context: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerUnpublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub node_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub secrets: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetCapacityRequest {
    #[prost(message, repeated, tag = "1")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub parameters: Map,
    #[prost(message, optional, tag = "3")]
    pub accessible_topology: Option<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetCapacityResponse {
    #[prost(int64, tag = "1")]
    pub available_capacity: i64,
    #[prost(message, optional, tag = "2")]
    pub maximum_volume_size: Option<Int64Value>,
}

/// A number that may be absent; protobuf's wrapper.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Int64Value {
    #[prost(int64, tag = "1")]
    pub value: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerExpandVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub secrets: Map,
    #[prost(message, optional, tag = "4")]
    pub volume_capability: Option<VolumeCapability>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerExpandVolumeResponse {
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    #[prost(bool, tag = "2")]
    pub node_expansion_required: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ControllerModifyVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub secrets: Map,
    #[prost(btree_map = "string, string", tag = "3")]
    pub mutable_parameters: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSnapshotRequest {
    #[prost(string, tag = "1")]
    pub source_volume_id: String,
    /// By which a driver knows that it is asked again for the same snapshot.
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub secrets: Map,
    #[prost(btree_map = "string, string", tag = "4")]
    pub parameters: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSnapshotResponse {
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<Snapshot>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Snapshot {
    /// Of the smallest volume that can be made of it; 0: the driver does not say.
    #[prost(int64, tag = "1")]
    pub size_bytes: i64,
    #[prost(string, tag = "2")]
    pub snapshot_id: String,
    #[prost(string, tag = "3")]
    pub source_volume_id: String,
    #[prost(message, optional, tag = "4")]
    pub creation_time: Option<Time>,
    #[prost(bool, tag = "5")]
    pub ready_to_use: bool,
}

/// Protobuf's Timestamp.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteSnapshotRequest {
    #[prost(string, tag = "1")]
    pub snapshot_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub secrets: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListSnapshotsRequest {
    /// 0: as many as the driver likes.
    #[prost(int32, tag = "1")]
    pub max_entries: i32,
    #[prost(string, tag = "2")]
    pub starting_token: String,
    #[prost(string, tag = "3")]
    pub source_volume_id: String,
    #[prost(string, tag = "4")]
    pub snapshot_id: String,
    #[prost(btree_map = "string, string", tag = "5")]
    pub secrets: Map,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListSnapshotsResponse {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<SnapshotEntry>,
    #[prost(string, tag = "2")]
    pub next_token: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotEntry {
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<Snapshot>,
}
