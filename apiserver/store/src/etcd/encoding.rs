//! Values as upstream keeps them: protobuf of built-in objects, JSON of custom ones and of definitions.
//!
//! What is no object's JSON, such as an encrypted value, stays as it is in both directions.

use super::layout::AS_CUSTOM;
use coracle_api::catalogue::by_storage_key;
use coracle_api::encode::to_storage_bytes;
use coracle_api::protobuf::{self, Encoder};
use serde_json::Value;

const PROTOBUF: &[u8] = b"k8s\0";

/// What etcd keeps of an object's JSON.
pub(crate) fn to_etcd(key: &str, json: &[u8]) -> Vec<u8> {
    let resource = key.split('/').next().unwrap_or_default();
    let known = by_storage_key(resource).filter(|known| !AS_CUSTOM.contains(&&*known.storage.group));
    let Some(known) = known.filter(|_| json.starts_with(b"{")) else { return json.to_vec() };
    let made = Encoder::default().body(&known.storage_api_version(), &known.storage.kind, json, None);
    made.unwrap_or_else(|_| json.to_vec())
}

/// JSON of an object as etcd keeps it, in the form of the other backends.
pub(crate) fn from_etcd(stored: &[u8]) -> Vec<u8> {
    let object = if stored.starts_with(PROTOBUF) {
        protobuf::decode(stored, None).ok()
    } else if stored.starts_with(b"{") {
        serde_json::from_slice::<Value>(stored).ok()
    } else {
        None
    };
    let Some(object) = object else { return stored.to_vec() };
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some(api_version), Some(kind)) => to_storage_bytes(&object, api_version, kind),
        _ => stored.to_vec(),
    }
}
