//! Writing of CSIStorageCapacity: how much room there is for new volumes of a class, and where.
//!
//! <https://kubernetes.io/docs/concepts/storage/storage-capacity/>

use crate::facts::written;
use crate::volumes::digest;
use coracle_client::{Informer, ReconcileError};
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the objects are.
const NAMESPACE: &str = "kube-system";
pub const MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
pub const DRIVER_NAME: &str = "csi.storage.k8s.io/drivername";

/// Room at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub class: String,
    /// Labels of the nodes that reach it.
    pub place: BTreeMap<String, String>,
    pub bytes: i64,
    /// The largest single volume, where that is less.
    pub largest: Option<i64>,
}

impl Room {
    /// The same place of a class has the same object always. `labels` tell whose it is.
    fn object(&self, labels: &BTreeMap<String, String>) -> CSIStorageCapacity {
        let whose = format!("{labels:?} {} {:?}", self.class, self.place);
        let short: String = digest(&whose).chars().take(16).collect();
        CSIStorageCapacity {
            metadata: ObjectMeta {
                name: Some(format!("csisc-{short}")),
                namespace: Some(NAMESPACE.to_owned()),
                labels: Some(labels.clone()),
                ..ObjectMeta::default()
            },
            storage_class_name: self.class.clone(),
            node_topology: Some(LabelSelector {
                match_labels: Some(self.place.clone()),
                match_expressions: None,
            }),
            capacity: Some(written(self.bytes)),
            maximum_volume_size: self.largest.map(written),
        }
    }
}

/// Makes the objects with these labels say just this; those that are not wanted go.
pub async fn publish(
    client: &kube::Client,
    known: &Informer<CSIStorageCapacity>,
    labels: &BTreeMap<String, String>,
    rooms: &[Room],
) -> Result<(), ReconcileError> {
    let api: Api<CSIStorageCapacity> = Api::namespaced(client.clone(), NAMESPACE);
    let ours = |object: &Arc<CSIStorageCapacity>| object.metadata.labels.as_ref() == Some(labels);
    let mut left: BTreeMap<String, Arc<CSIStorageCapacity>> =
        known.iter_in(NAMESPACE).filter(ours).map(|object| (object.name_any(), object)).collect();
    for wanted in rooms.iter().map(|room| room.object(labels)) {
        let name = wanted.name_any();
        let written = match left.remove(&name) {
            Some(there) if same(&there, &wanted) => continue,
            Some(there) => {
                let mut changed = CSIStorageCapacity::clone(&there);
                (changed.capacity, changed.maximum_volume_size) =
                    (wanted.capacity, wanted.maximum_volume_size);
                api.replace(&name, &PostParams::default(), &changed).await
            }
            None => api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            // The informer is a moment behind; the next look sets it right.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            written => drop(written?),
        }
    }
    for name in left.keys() {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

fn same(there: &CSIStorageCapacity, wanted: &CSIStorageCapacity) -> bool {
    (&there.capacity, &there.maximum_volume_size) == (&wanted.capacity, &wanted.maximum_volume_size)
}
