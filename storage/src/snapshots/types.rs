//! VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass (v1), as far as a controller reads and writes them.

use crate::snapshot_api::{GROUP, VERSION};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

macro_rules! resource {
    ($kind:ident, $plural:literal, $scope:ty, $(#[$more:meta] $field:ident: $type:ty,)*) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $kind {
            #[serde(default)]
            pub api_version: String,
            #[serde(default)]
            pub kind: String,
            pub metadata: ObjectMeta,
            $(#[$more] pub $field: $type,)*
        }

        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;
            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                GROUP.into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                VERSION.into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(VolumeSnapshotClass, "volumesnapshotclasses", ClusterResourceScope,
    #[serde(default)] driver: String,
    #[serde(default)] deletion_policy: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")] parameters: BTreeMap<String, String>,
);

resource!(VolumeSnapshot, "volumesnapshots", NamespaceResourceScope,
    #[serde(default)] spec: SnapshotSpec,
    #[serde(default)] status: Value,
);

resource!(VolumeSnapshotContent, "volumesnapshotcontents", ClusterResourceScope,
    #[serde(default)] spec: ContentSpec,
    #[serde(default)] status: Value,
);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSpec {
    pub source: SnapshotSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSpec {
    pub driver: String,
    pub deletion_policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    pub source: ContentSource,
    /// `Filesystem` or `Block`, of the volume that the snapshot is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    pub volume_snapshot_ref: SnapshotRef,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotRef {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Text at a field of a status.
pub fn text<'a>(status: &'a Value, field: &str) -> Option<&'a str> {
    status[field].as_str().filter(|text| !text.is_empty())
}
