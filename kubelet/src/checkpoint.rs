//! Small files that outlive the process, whole or as they were before.

use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("{} cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
}

/// The whole file is there or the one before; durable when this returns.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// FNV-1a of 32 bits, as upstream's files have; theirs is one of Go's memory, which nobody else can compute.
fn sum(value: &Map<String, Value>) -> u32 {
    // Maps of JSON values are sorted by their keys and cannot fail to be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// An object as text, with its checksum in the field of this name.
pub fn sealed(mut value: Map<String, Value>, field: &str) -> String {
    let sum = sum(&value);
    value.insert(field.to_owned(), sum.into());
    Value::Object(value).to_string()
}

/// The object in a file that [`sealed`] made; `None` if there is no file.
///
/// # Errors
/// If it cannot be read, or is not as it was written.
pub fn open(path: &Path, field: &str) -> Result<Option<Map<String, Value>>, CheckpointError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(CheckpointError::Read { path: path.to_owned(), source }),
    };
    let damaged = |why: String| CheckpointError::Damaged { path: path.to_owned(), why };
    let mut value: Map<String, Value> = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
    let said = value.remove(field).and_then(|sum| sum.as_u64());
    if said != Some(u64::from(sum(&value))) {
        return Err(damaged("its checksum is another one".to_owned()));
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_changed_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert!(open(&path, "checksum").unwrap().is_none());
        let value = json!({ "b": 1, "a": { "y": [2], "x": "\u{e9}" } }).as_object().unwrap().clone();
        write(&path, sealed(value.clone(), "checksum").as_bytes()).unwrap();
        assert_eq!(open(&path, "checksum").unwrap(), Some(value));
        let text = fs::read_to_string(&path).unwrap().replace("[2]", "[3]");
        write(&path, text.as_bytes()).unwrap();
        assert!(matches!(open(&path, "checksum"), Err(CheckpointError::Damaged { .. })));
        write(&path, b"{").unwrap();
        assert!(matches!(open(&path, "checksum"), Err(CheckpointError::Damaged { .. })));
    }
}
