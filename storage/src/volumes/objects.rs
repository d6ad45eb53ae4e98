//! The API objects that volumes show, as a port: the kubelet brings a cache that watches what its pods reference.

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use std::sync::Arc;

#[derive(Clone, Debug, thiserror::Error)]
pub enum ObjectError {
    /// Worded as the API server words it: `configmap "x" not found`.
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error("failed to get {kind} {name:?}: {message}")]
    Failed { kind: &'static str, name: String, message: String },
}

/// A bound service-account token that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    pub namespace: String,
    pub service_account: String,
    /// Empty means the API server's own audience.
    pub audience: String,
    pub expiration_seconds: i64,
    pub pod_name: String,
    pub pod_uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub token: String,
    /// When to ask for the next one: after 80 % of its life or 24 hours, whichever is earlier.
    pub refresh_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Reads objects for volumes. Answers may come from a cache that is never older than the pod's own arrival.
#[async_trait]
pub trait Objects: Send + Sync {
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, ObjectError>;
    async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, ObjectError>;
    async fn claim(&self, namespace: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, ObjectError>;
    async fn volume(&self, name: &str) -> Result<Arc<PersistentVolume>, ObjectError>;
    /// `None` where nobody has said anything about the driver.
    async fn csi_driver(&self, name: &str) -> Result<Option<CSIDriver>, ObjectError>;
    /// `None` while there is none of this name that the node may read.
    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>, ObjectError>;
    /// Tells the claim that its volume has the size that it is said to have: writes its `status.capacity` and takes away
    /// what said that it waits for the node.
    async fn expanded(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), ObjectError>;
    /// Tells the claim that the node's part of its growing has failed for good: the driver refuses the size.
    async fn expansion_refused(
        &self,
        claim: &PersistentVolumeClaim,
        message: &str,
    ) -> Result<(), ObjectError>;
    async fn token(&self, request: &TokenRequest) -> Result<Token, ObjectError>;
}
