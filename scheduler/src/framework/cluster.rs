//! The port through which plugins read objects beside nodes and pods.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// A complete, current copy of what plugins look up. Every method answers from memory and does not block; what is
/// not there is absent, which is also what every method answers by default, so that a fake implements what its test
/// needs.
///
/// Objects that only the scheduler reads come as JSON, in the form in which the API serves them.
pub trait Cluster: Send + Sync + 'static {
    /// Tells of every change of a claim (for volumes or for devices), so that a binding cycle can wait without polling.
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn claim(&self, _namespace: &str, _name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        None
    }

    fn volume(&self, _name: &str) -> Option<Arc<PersistentVolume>> {
        None
    }

    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        Vec::new()
    }

    fn storage_class(&self, _name: &str) -> Option<Arc<StorageClass>> {
        None
    }

    fn csi_node(&self, _node: &str) -> Option<Arc<Value>> {
        None
    }

    fn csi_driver(&self, _name: &str) -> Option<Arc<Value>> {
        None
    }

    fn csi_storage_capacities(&self) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn namespace_labels(&self, _name: &str) -> Option<Arc<BTreeMap<String, String>>> {
        None
    }

    /// Every namespace with its labels.
    fn namespaces(&self) -> Vec<(String, Arc<BTreeMap<String, String>>)> {
        Vec::new()
    }

    /// Services, ReplicationControllers, ReplicaSets and StatefulSets of a namespace: kind, name and `spec.selector`.
    fn selectors(&self, _namespace: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    /// In all namespaces.
    fn disruption_budgets(&self) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn resource_claim(&self, _namespace: &str, _name: &str) -> Option<Arc<Value>> {
        None
    }

    fn resource_claims(&self) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn resource_slices(&self) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn device_class(&self, _name: &str) -> Option<Arc<Value>> {
        None
    }

    fn device_classes(&self) -> Vec<Arc<Value>> {
        Vec::new()
    }
}

/// A cluster of nodes and pods alone.
pub struct NoCluster;

impl Cluster for NoCluster {}
