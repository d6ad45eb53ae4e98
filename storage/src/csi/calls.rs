//! The calls that a volume's life on a node is made of.

use super::messages::{
    CapacityRange, Empty, NODE_EXPAND_VOLUME, NODE_GET_VOLUME_STATS, NODE_PUBLISH_VOLUME, NODE_STAGE_VOLUME,
    NODE_UNPUBLISH_VOLUME, NODE_UNSTAGE_VOLUME, NodeExpandVolumeRequest, NodeExpandVolumeResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, Unit, VolumeCapability,
};
use super::source::{CsiData, CsiSource};
use super::{CallError, Driver};
use crate::volumes::Usage;
use std::collections::BTreeMap;
use std::path::Path;

type Map = BTreeMap<String, String>;

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Driver {
    pub(super) async fn stage(
        &self,
        source: &CsiSource,
        data: &CsiData,
        volume_capability: VolumeCapability,
        secrets: Map,
    ) -> Result<(), CallError> {
        let request = NodeStageVolumeRequest {
            volume_id: data.handle.clone(),
            publish_context: data.publish_context.clone(),
            staging_target_path: text(&data.staging_path),
            volume_capability: Some(volume_capability),
            secrets,
            volume_context: source.attributes.clone(),
        };
        self.client.call::<_, Empty>(NODE_STAGE_VOLUME, request).await.map(drop)
    }

    pub(super) async fn publish(
        &self,
        source: &CsiSource,
        data: &CsiData,
        volume_capability: VolumeCapability,
        (secrets, volume_context): (Map, Map),
    ) -> Result<(), CallError> {
        let request = NodePublishVolumeRequest {
            volume_id: data.handle.clone(),
            publish_context: data.publish_context.clone(),
            staging_target_path: text(&data.staging_path),
            target_path: text(&data.target_path),
            volume_capability: Some(volume_capability),
            readonly: source.read_only,
            secrets,
            volume_context,
        };
        self.client.call::<_, Empty>(NODE_PUBLISH_VOLUME, request).await.map(drop)
    }

    pub(super) async fn unpublish(&self, data: &CsiData) -> Result<(), CallError> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: data.handle.clone(),
            target_path: text(&data.target_path),
        };
        self.client.call::<_, Empty>(NODE_UNPUBLISH_VOLUME, request).await.map(drop)
    }

    pub(super) async fn unstage(&self, data: &CsiData) -> Result<(), CallError> {
        let request = NodeUnstageVolumeRequest {
            volume_id: data.handle.clone(),
            staging_target_path: text(&data.staging_path),
        };
        self.client.call::<_, Empty>(NODE_UNSTAGE_VOLUME, request).await.map(drop)
    }

    /// The size that the volume has afterwards, in bytes.
    pub(super) async fn expand(
        &self,
        data: &CsiData,
        volume_capability: VolumeCapability,
        required_bytes: i64,
        secrets: Map,
    ) -> Result<i64, CallError> {
        let request = NodeExpandVolumeRequest {
            volume_id: data.handle.clone(),
            volume_path: text(&data.target_path),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            staging_target_path: text(&data.staging_path),
            volume_capability: Some(volume_capability),
            secrets,
        };
        let answer: NodeExpandVolumeResponse = self.client.call(NODE_EXPAND_VOLUME, request).await?;
        match answer.capacity_bytes {
            // A driver may leave it open.
            0 => Ok(required_bytes),
            has if has >= required_bytes => Ok(has),
            has => Err(CallError::Failed {
                method: "NodeExpandVolume",
                code: tonic::Code::Internal,
                message: format!(
                    "the driver says that the volume has {has} bytes, which is less than the {required_bytes} that it was asked for"
                ),
            }),
        }
    }

    pub(super) async fn stats(&self, data: &CsiData) -> Result<Usage, CallError> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: data.handle.clone(),
            volume_path: text(&data.target_path),
            staging_target_path: text(&data.staging_path),
        };
        let answer: NodeGetVolumeStatsResponse = self.client.call(NODE_GET_VOLUME_STATS, request).await?;
        Ok(usage(&answer))
    }
}

fn usage(answer: &NodeGetVolumeStatsResponse) -> Usage {
    let mut usage =
        Usage { abnormal: answer.volume_condition.as_ref().map(|c| c.abnormal), ..Usage::default() };
    for entry in &answer.usage {
        let amount = |value: i64| u64::try_from(value).ok();
        let (total, available, used) = (amount(entry.total), amount(entry.available), amount(entry.used));
        match Unit::try_from(entry.unit) {
            Ok(Unit::Bytes) => {
                (usage.capacity_bytes, usage.available_bytes, usage.used_bytes) = (total, available, used);
            }
            Ok(Unit::Inodes) => {
                (usage.inodes, usage.inodes_free, usage.inodes_used) = (total, available, used);
            }
            _ => {}
        }
    }
    usage
}
