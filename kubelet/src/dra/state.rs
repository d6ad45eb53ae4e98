//! What is prepared for whom, and the file that outlives the kubelet. Its form is upstream's, so that a kubelet of either kind
//! takes over what the other has prepared.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Why a file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("no checkpoint")]
    Form(#[from] serde_json::Error),
    #[error("checkpoint is corrupted: its checksum is {found}, and it says {said}")]
    Checksum { found: u32, said: u32 },
}

/// One device of a claim, as its driver described it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Device {
    pub pool_name: String,
    pub device_name: String,
    #[serde(rename = "ShareID", default)]
    pub share_id: Option<String>,
    /// None stands for all.
    #[serde(default, deserialize_with = "null_is_none")]
    pub request_names: Vec<String>,
    #[serde(rename = "CDIDeviceIDs", default, deserialize_with = "null_is_none")]
    pub cdi_device_ids: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DriverState {
    #[serde(default, deserialize_with = "null_is_none")]
    pub devices: Vec<Device>,
}

/// A claim that is, or may be, prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimState {
    #[serde(rename = "ClaimUID")]
    pub uid: String,
    #[serde(rename = "ClaimName")]
    pub name: String,
    #[serde(rename = "Namespace")]
    pub namespace: String,
    /// UIDs of the pods that have it.
    #[serde(rename = "PodUIDs", default, deserialize_with = "null_is_none")]
    pub pods: BTreeMap<String, Nothing>,
    /// All drivers that have a part in it.
    #[serde(rename = "DriverState", default, deserialize_with = "null_is_none")]
    pub drivers: BTreeMap<String, DriverState>,
    /// Since this process began: what a driver makes for the runtime may be gone after the machine was started.
    #[serde(skip)]
    pub prepared: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    data: String,
    /// CRC-32 of the data.
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "Entries", default, deserialize_with = "null_is_none")]
    entries: Vec<ClaimState>,
}

/// Go writes empty lists and maps as null.
fn null_is_none<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn checksum(data: &str) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data.as_bytes());
    crc.sum()
}

/// Nothing where there is no file.
pub fn load(path: &Path) -> Result<Vec<ClaimState>, CheckpointError> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let Checkpoint { data, checksum: said } = serde_json::from_slice(&text)?;
    let found = checksum(&data);
    if found != said {
        return Err(CheckpointError::Checksum { found, said });
    }
    Ok(serde_json::from_str::<Data>(&data)?.entries)
}

/// The whole file is there or the one before; durable when this returns.
pub fn store(path: &Path, entries: Vec<ClaimState>) -> io::Result<()> {
    let data = Data { kind: KIND.to_owned(), api_version: API_VERSION.to_owned(), entries };
    let data = serde_json::to_string(&data)?;
    let checkpoint = Checkpoint { checksum: checksum(&data), data };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(serde_json::to_string(&checkpoint)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> ClaimState {
        let device = Device {
            pool_name: "p".to_owned(),
            device_name: "d".to_owned(),
            cdi_device_ids: vec!["example.com/gpu=0".to_owned()],
            ..Device::default()
        };
        ClaimState {
            uid: "u".to_owned(),
            name: "c".to_owned(),
            namespace: "n".to_owned(),
            pods: [("pod".to_owned(), Nothing {})].into(),
            drivers: [("example.com".to_owned(), DriverState { devices: vec![device] })].into(),
            prepared: true,
        }
    }

    #[test]
    fn what_was_stored_is_loaded_but_not_taken_for_prepared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dra_manager_state");
        assert_eq!(load(&path).unwrap(), []);
        store(&path, vec![claim()]).unwrap();
        assert_eq!(load(&path).unwrap(), [ClaimState { prepared: false, ..claim() }]);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("gpu=0", "gpu=1")).unwrap();
        assert!(matches!(load(&path), Err(CheckpointError::Checksum { .. })));
        fs::write(&path, "{").unwrap();
        assert!(matches!(load(&path), Err(CheckpointError::Form(_))));
    }

    #[test]
    fn what_upstream_wrote_is_read() {
        let data = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","Entries":[{"ClaimUID":"u","ClaimName":"c","Namespace":"n","PodUIDs":{"pod":{}},"DriverState":{"example.com":{"Devices":[{"PoolName":"p","DeviceName":"d","ShareID":null,"RequestNames":null,"CDIDeviceIDs":["example.com/gpu=0"]}]}}}]}"#;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dra_manager_state");
        // CRC-32 as zlib computes it.
        let text = serde_json::json!({ "Data": data, "Checksum": CRC });
        fs::write(&path, text.to_string()).unwrap();
        assert_eq!(load(&path).unwrap(), [ClaimState { prepared: false, ..claim() }]);
    }

    const CRC: u32 = 3988134990;
}
