//! The driver's controller service: it makes, attaches and grows directories, and refuses what the specification forbids.

use super::{Answer, Call, State, capability};
use coracle_storage::csi::controller_messages as messages;
use messages::{ContentSource, ControllerRpcType};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

const NOT_FOUND: i32 = 5;
const ALREADY_EXISTS: i32 = 6;
const FAILED_PRECONDITION: i32 = 9;
const INVALID_ARGUMENT: i32 = 3;
const UNIMPLEMENTED: i32 = 12;

#[derive(Default)]
pub struct Controller {
    /// Without any there is no controller service.
    pub capabilities: BTreeSet<ControllerRpcType>,
    pub has_topology: bool,
    /// By the names that they were asked for.
    pub made: BTreeMap<String, Made>,
    /// Volumes and nodes.
    pub attached: BTreeSet<(String, String)>,
    /// Bytes that are left, as it says.
    pub room: i64,
    /// What it says of the size of every volume that grew, whatever it did.
    pub claimed_bytes: Option<i64>,
    /// Whether the node has its part in every expansion.
    pub needs_node: bool,
    /// By the names that they were asked for.
    pub snapshots: BTreeMap<String, Shot>,
    /// How often a snapshot is asked for before it can be restored from.
    pub ready_after: u32,
    /// What it says when it is probed, and how often it was.
    pub not_ready: bool,
    pub probed: u32,
    /// What the specification forbids its callers.
    pub violations: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub id: String,
    pub bytes: i64,
    pub parameters: BTreeMap<String, String>,
    pub mutable: BTreeMap<String, String>,
    pub source: Option<ContentSource>,
    /// Places in the order of preference.
    pub preferred: Vec<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shot {
    pub id: String,
    pub source: String,
    pub bytes: i64,
    pub parameters: BTreeMap<String, String>,
    pub asked: u32,
}

impl Shot {
    fn told(&self, ready_after: u32) -> messages::Snapshot {
        messages::Snapshot {
            size_bytes: self.bytes,
            snapshot_id: self.id.clone(),
            source_volume_id: self.source.clone(),
            creation_time: Some(messages::Time { seconds: 1_700_000_000, nanos: 0 }),
            ready_to_use: self.asked > ready_after,
        }
    }
}

/// What a driver must have said that it can, before it is called.
fn needed(method: &str) -> Option<ControllerRpcType> {
    Some(match method {
        "CreateVolume" | "DeleteVolume" => ControllerRpcType::CreateDeleteVolume,
        "ControllerPublishVolume" | "ControllerUnpublishVolume" => ControllerRpcType::PublishUnpublishVolume,
        "ControllerExpandVolume" => ControllerRpcType::ExpandVolume,
        "ControllerModifyVolume" => ControllerRpcType::ModifyVolume,
        "CreateSnapshot" | "DeleteSnapshot" => ControllerRpcType::CreateDeleteSnapshot,
        "ListSnapshots" => ControllerRpcType::ListSnapshots,
        _ => return None,
    })
}

impl Controller {
    fn volume(&mut self, id: &str) -> Option<&mut Made> {
        self.made.values_mut().find(|made| made.id == id)
    }

    fn refuse(&mut self, code: i32, why: &str) -> Answer {
        self.violations.push(why.to_owned());
        Err((code, why.to_owned()))
    }
}

/// What a request of the controller service was about; false for those of no volume.
pub fn fill(call: &mut Call, method: &str, message: &[u8]) -> bool {
    let mut read = || {
        match method {
            "CreateVolume" => {
                let request = messages::CreateVolumeRequest::decode(message).ok()?;
                (call.volume, call.secrets, call.context) =
                    (request.name, request.secrets, request.parameters);
                call.bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
                capability(call, request.volume_capabilities.into_iter().next());
            }
            "DeleteVolume" => {
                let request = messages::DeleteVolumeRequest::decode(message).ok()?;
                (call.volume, call.secrets) = (request.volume_id, request.secrets);
            }
            "ControllerPublishVolume" => {
                let request = messages::ControllerPublishVolumeRequest::decode(message).ok()?;
                (call.volume, call.path, call.secrets) =
                    (request.volume_id, request.node_id, request.secrets);
                (call.context, call.read_only) = (request.volume_context, request.readonly);
                capability(call, request.volume_capability);
            }
            "ControllerUnpublishVolume" => {
                let request = messages::ControllerUnpublishVolumeRequest::decode(message).ok()?;
                (call.volume, call.path, call.secrets) =
                    (request.volume_id, request.node_id, request.secrets);
            }
            "ControllerExpandVolume" => {
                let request = messages::ControllerExpandVolumeRequest::decode(message).ok()?;
                (call.volume, call.secrets) = (request.volume_id, request.secrets);
                call.bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
                capability(call, request.volume_capability);
            }
            "ControllerModifyVolume" => {
                let request = messages::ControllerModifyVolumeRequest::decode(message).ok()?;
                (call.volume, call.secrets) = (request.volume_id, request.secrets);
                call.context = request.mutable_parameters;
            }
            "CreateSnapshot" => {
                let request = messages::CreateSnapshotRequest::decode(message).ok()?;
                (call.volume, call.path) = (request.source_volume_id, request.name);
                (call.secrets, call.context) = (request.secrets, request.parameters);
            }
            "DeleteSnapshot" => {
                let request = messages::DeleteSnapshotRequest::decode(message).ok()?;
                (call.volume, call.secrets) = (request.snapshot_id, request.secrets);
            }
            "ListSnapshots" => {
                let request = messages::ListSnapshotsRequest::decode(message).ok()?;
                (call.volume, call.secrets) = (request.snapshot_id, request.secrets);
            }
            _ => return None,
        }
        Some(())
    };
    read().is_some()
}

/// Answers the calls that are of no volume; `None` for others.
pub fn identity(state: &mut State, method: &str) -> Option<Answer> {
    let controller = &mut state.controller;
    match method {
        "Probe" => {
            controller.probed += 1;
            let ready = Some(messages::BoolValue { value: !controller.not_ready });
            Some(Ok(messages::ProbeResponse { ready }.encode_to_vec()))
        }
        "GetPluginCapabilities" => {
            let service = |what: messages::PluginServiceType, has: bool| {
                let service = messages::PluginService { r#type: what as i32 };
                has.then_some(messages::PluginCapability { service: Some(service) })
            };
            let capabilities = [
                service(messages::PluginServiceType::ControllerService, !controller.capabilities.is_empty()),
                service(messages::PluginServiceType::VolumeAccessibilityConstraints, controller.has_topology),
            ];
            let capabilities = capabilities.into_iter().flatten().collect();
            Some(Ok(messages::GetPluginCapabilitiesResponse { capabilities }.encode_to_vec()))
        }
        "ControllerGetCapabilities" => {
            let capability = |what: &ControllerRpcType| messages::ControllerServiceCapability {
                rpc: Some(messages::ControllerRpc { r#type: *what as i32 }),
            };
            let capabilities = controller.capabilities.iter().map(capability).collect();
            Some(Ok(messages::ControllerGetCapabilitiesResponse { capabilities }.encode_to_vec()))
        }
        "GetCapacity" if !controller.capabilities.contains(&ControllerRpcType::GetCapacity) => {
            Some(controller.refuse(UNIMPLEMENTED, "GetCapacity is not offered"))
        }
        "GetCapacity" => Some(Ok(messages::GetCapacityResponse {
            available_capacity: controller.room,
            maximum_volume_size: None,
        }
        .encode_to_vec())),
        _ => None,
    }
}

/// Does what the call says; `None` where it is none of the controller service.
pub fn work(controller: &mut Controller, call: &Call, message: &[u8]) -> Option<Answer> {
    let id = call.volume.as_str();
    if needed(&call.method).is_some_and(|needed| !controller.capabilities.contains(&needed)) {
        return Some(controller.refuse(UNIMPLEMENTED, &format!("{} is not offered", call.method)));
    }
    if id.is_empty() {
        return Some(controller.refuse(INVALID_ARGUMENT, &format!("{} without a volume", call.method)));
    }
    Some(match call.method.as_str() {
        "CreateVolume" => create(controller, message),
        "DeleteVolume" => {
            if controller.attached.iter().any(|(volume, _)| volume == id) {
                return Some(controller.refuse(FAILED_PRECONDITION, &format!("{id} is attached")));
            }
            controller.made.retain(|_, made| made.id != id);
            Ok(Vec::new())
        }
        "ControllerPublishVolume" => {
            if call.path.is_empty() || call.mode == 0 {
                return Some(controller.refuse(INVALID_ARGUMENT, "publication without a node or a mode"));
            }
            if controller.volume(id).is_none() {
                return Some(Err((NOT_FOUND, format!("{id} is not there"))));
            }
            controller.attached.insert((id.to_owned(), call.path.clone()));
            let publish_context = [("device".to_owned(), format!("/dev/{id}"))].into();
            Ok(messages::ControllerPublishVolumeResponse { publish_context }.encode_to_vec())
        }
        "ControllerUnpublishVolume" => {
            controller.attached.remove(&(id.to_owned(), call.path.clone()));
            Ok(Vec::new())
        }
        "ControllerExpandVolume" => {
            let node_expansion_required = controller.needs_node;
            let Some(made) = controller.volume(id) else {
                return Some(Err((NOT_FOUND, format!("{id} is not there"))));
            };
            made.bytes = made.bytes.max(call.bytes);
            let bytes = made.bytes;
            let capacity_bytes = controller.claimed_bytes.unwrap_or(bytes);
            Ok(messages::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required }
                .encode_to_vec())
        }
        "ControllerModifyVolume" => {
            let Some(made) = controller.volume(id) else {
                return Some(Err((NOT_FOUND, format!("{id} is not there"))));
            };
            made.mutable.clone_from(&call.context);
            Ok(Vec::new())
        }
        "CreateSnapshot" => shoot(controller, call),
        "DeleteSnapshot" => {
            controller.snapshots.retain(|_, shot| shot.id != id);
            Ok(Vec::new())
        }
        "ListSnapshots" => {
            let ready_after = controller.ready_after;
            let found = controller.snapshots.values_mut().filter(|shot| shot.id == id);
            let entry = |shot: &mut Shot| {
                shot.asked += 1;
                messages::SnapshotEntry { snapshot: Some(shot.told(ready_after)) }
            };
            let entries = found.map(entry).collect();
            Ok(messages::ListSnapshotsResponse { entries, next_token: String::new() }.encode_to_vec())
        }
        _ => return None,
    })
}

fn shoot(controller: &mut Controller, call: &Call) -> Answer {
    if call.path.is_empty() {
        return controller.refuse(INVALID_ARGUMENT, "a snapshot without a name");
    }
    let Some(bytes) = controller.volume(&call.volume).map(|made| made.bytes) else {
        return Err((NOT_FOUND, format!("{} is not there", call.volume)));
    };
    let made = Shot {
        id: format!("shot-{}", call.path),
        source: call.volume.clone(),
        bytes,
        parameters: call.context.clone(),
        asked: 0,
    };
    let ready_after = controller.ready_after;
    let shot = controller.snapshots.entry(call.path.clone()).or_insert(made);
    shot.asked += 1;
    if shot.source != call.volume {
        return controller.refuse(ALREADY_EXISTS, "the same name of another volume");
    }
    let snapshot = Some(shot.told(ready_after));
    Ok(messages::CreateSnapshotResponse { snapshot }.encode_to_vec())
}

fn create(controller: &mut Controller, message: &[u8]) -> Answer {
    let request = messages::CreateVolumeRequest::decode(message).unwrap();
    if request.volume_capabilities.iter().any(|c| c.access_mode.is_none() || c.access_type.is_none())
        || request.volume_capabilities.is_empty()
    {
        return controller.refuse(INVALID_ARGUMENT, "a volume without capabilities");
    }
    let bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
    let places = request.accessibility_requirements.unwrap_or_default();
    if !places.preferred.iter().all(|place| places.requisite.contains(place)) {
        return controller.refuse(INVALID_ARGUMENT, "a preferred place that is not requisite");
    }
    let made = Made {
        id: format!("vol-{}", request.name),
        bytes,
        parameters: request.parameters,
        mutable: request.mutable_parameters,
        source: request.volume_content_source.as_ref().and_then(|source| source.r#type.clone()),
        preferred: places.preferred.iter().map(|place| place.segments.clone()).collect(),
    };
    let there = controller.made.entry(request.name).or_insert(made.clone()).clone();
    if there.bytes != bytes || there.parameters != made.parameters {
        return controller.refuse(ALREADY_EXISTS, "the same name with something else");
    }
    let volume = messages::Volume {
        capacity_bytes: bytes,
        volume_id: there.id,
        volume_context: [("made-by".to_owned(), "driver".to_owned())].into(),
        content_source: request.volume_content_source,
        accessible_topology: places.preferred.into_iter().take(1).collect(),
    };
    Ok(messages::CreateVolumeResponse { volume: Some(volume) }.encode_to_vec())
}
