//! Who has which devices, over restarts: `kubelet_internal_checkpoint` with the fields that tools read.

use super::book::{Allocated, Book, Resource};
use super::messages::ContainerAllocateResponse;
use crate::blocking;
use crate::checkpoint::{self as file, CheckpointError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokio::time::Instant;

const FILE: &str = "kubelet_internal_checkpoint";
const CHECKSUM: &str = "Checksum";
/// The node of devices that are near to none.
const NO_NODE: i64 = -1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    /// By NUMA node; one that is near to several stands at each.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<i64, Vec<String>>,
    /// The plugin's answer, protobuf in base64.
    alloc_resp: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: Option<BTreeMap<String, Vec<String>>>,
}

fn entry((pod, container, resource): (&str, &str, &str), own: &Allocated) -> Entry {
    let mut device_ids: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for id in &own.devices {
        let nodes = own.nodes.get(id).filter(|nodes| !nodes.is_empty());
        let nodes = nodes.map_or(vec![NO_NODE], |nodes| nodes.iter().map(|node| i64::from(*node)).collect());
        nodes.into_iter().for_each(|node| device_ids.entry(node).or_default().push(id.clone()));
    }
    Entry {
        pod_uid: pod.to_owned(),
        container_name: container.to_owned(),
        resource_name: resource.to_owned(),
        device_ids,
        alloc_resp: STANDARD.encode(own.answer.encode_to_vec()),
    }
}

fn allocated(entry: &Entry) -> Option<Allocated> {
    let mut own = Allocated::default();
    for (node, ids) in &entry.device_ids {
        for id in ids {
            own.devices.insert(id.clone());
            let nodes: &mut BTreeSet<u32> = own.nodes.entry(id.clone()).or_default();
            nodes.extend(u32::try_from(*node).ok());
        }
    }
    let answer = STANDARD.decode(&entry.alloc_resp).ok()?;
    own.answer = ContainerAllocateResponse::decode(answer.as_slice()).ok()?;
    Some(own)
}

/// What the file says of the book.
pub fn text(book: &Book) -> String {
    let mut entries = Vec::new();
    for (pod, containers) in &book.given {
        for (container, resources) in containers {
            entries.extend(resources.iter().map(|(name, own)| entry((pod, container, name), own)));
        }
    }
    let healthy = |resource: &Resource| -> Vec<String> {
        resource.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id.clone()).collect()
    };
    let registered =
        book.resources.iter().map(|(name, resource)| (name.clone(), healthy(resource))).collect();
    let data = Data { pod_device_entries: Some(entries), registered_devices: Some(registered) };
    file::sealed(Map::from_iter([("Data".to_owned(), json!(data))]), CHECKSUM)
}

pub async fn write(dir: &Path, text: String) {
    let path = dir.join(FILE);
    let written = blocking::reading("checkpoint of devices", move || {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        file::write(&path, text.as_bytes())
    });
    if let Some(Err(error)) = written.await {
        tracing::error!(dir = %dir.display(), %error, "who has which devices is not written down");
    }
}

/// A book without plugins: they register again.
pub fn load(dir: &Path) -> Result<Book, CheckpointError> {
    let path = dir.join(FILE);
    let Some(mut found) = file::open(&path, CHECKSUM)? else { return Ok(Book::default()) };
    let damaged = |why: String| CheckpointError::Damaged { path: path.clone(), why };
    let data: Data = serde_json::from_value(found.remove("Data").unwrap_or(Value::Null))
        .map_err(|error| damaged(error.to_string()))?;
    let mut book = Book::default();
    for entry in data.pod_device_entries.unwrap_or_default() {
        let own =
            allocated(&entry).ok_or_else(|| damaged("an answer of a plugin cannot be read".to_owned()))?;
        let containers = book.given.entry(entry.pod_uid).or_default();
        containers.entry(entry.container_name).or_default().insert(entry.resource_name, own);
    }
    for name in data.registered_devices.unwrap_or_default().into_keys() {
        book.resources.insert(name, Resource { away_since: Some(Instant::now()), ..Resource::default() });
    }
    Ok(book)
}

#[cfg(test)]
mod tests {
    use super::super::book::Device;
    use super::*;
    use crate::placement::Want;

    #[tokio::test]
    async fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(dir.path()).unwrap().given.is_empty());
        let mut book = Book::default();
        let mut resource = Resource::default();
        for (id, nodes) in [("a", vec![0, 1]), ("b", vec![])] {
            resource
                .devices
                .insert(id.to_owned(), Device { healthy: true, nodes: nodes.into_iter().collect() });
        }
        book.resources.insert("example.com/r".to_owned(), resource);
        let want = Want { pod: "u".to_owned(), container: "c".to_owned(), ..Want::default() };
        let answer = ContainerAllocateResponse {
            envs: [("A".to_owned(), "1".to_owned())].into(),
            ..ContainerAllocateResponse::default()
        };
        book.give(&want, "example.com/r", ["a".to_owned(), "b".to_owned()].into(), answer);
        write(dir.path(), text(&book)).await;
        let shown: Value = serde_json::from_slice(&std::fs::read(dir.path().join(FILE)).unwrap()).unwrap();
        let entry = &shown["Data"]["PodDeviceEntries"][0];
        assert_eq!((&entry["PodUID"], &entry["ResourceName"]), (&json!("u"), &json!("example.com/r")));
        assert_eq!(entry["DeviceIDs"], json!({ "-1": ["b"], "0": ["a"], "1": ["a"] }));
        assert_eq!(shown["Data"]["RegisteredDevices"], json!({ "example.com/r": ["a", "b"] }));
        let read = load(dir.path()).unwrap();
        assert_eq!(read.given, book.given);
        assert_eq!(read.amounts()["example.com/r"], (0, 0), "its plugin is not there yet");
    }
}
