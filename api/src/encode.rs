//! The stored form of objects: JSON that begins with kind, apiVersion and metadata, without a resourceVersion.
//!
//! The resourceVersion is the revision of the store and known only after the commit; it is put into the bytes
//! right behind `"metadata":{`, so a watch event or list needs no decoding.

use crate::Object;
use serde_json::{Map, Value};

const METADATA: &[u8] = b"\"metadata\":{";

/// `{"kind":K,"apiVersion":V,"metadata":{...},...}` without `metadata.resourceVersion`; the other fields follow in
/// the order of their names. `kind` and `api_version` stand for what the object says itself.
pub fn to_storage_bytes(object: &Object, api_version: &str, kind: &str) -> Vec<u8> {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"kind\":");
    write(&mut out, &kind.into());
    out.extend_from_slice(b",\"apiVersion\":");
    write(&mut out, &api_version.into());
    out.push(b',');
    out.extend_from_slice(METADATA);
    write_fields(&mut out, metadata, true, &["resourceVersion"]);
    out.push(b'}');
    write_fields(&mut out, fields, false, &["kind", "apiVersion", "metadata"]);
    out.push(b'}');
    out
}

fn write_fields(out: &mut Vec<u8>, fields: &Map<String, Value>, mut first: bool, but: &[&str]) {
    for (key, value) in fields.iter().filter(|(key, _)| !but.contains(&key.as_str())) {
        if !first {
            out.push(b',');
        }
        first = false;
        write(out, &key.as_str().into());
        out.push(b':');
        write(out, value);
    }
}

fn write(out: &mut Vec<u8>, value: &Value) {
    // Writing a Value to memory cannot fail: its keys are strings and its numbers finite.
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok());
}

/// Stored bytes with the resourceVersion in its place; bytes of another form are returned unchanged.
pub fn with_resource_version(stored: &[u8], revision: u64) -> Vec<u8> {
    let Some(at) = stored.windows(METADATA.len()).position(|w| w == METADATA) else { return stored.to_vec() };
    let (head, tail) = stored.split_at(at + METADATA.len());
    let comma = if tail.starts_with(b"}") { "" } else { "," };
    let mut out = Vec::with_capacity(stored.len() + 48);
    out.extend_from_slice(head);
    out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"{comma}").as_bytes());
    out.extend_from_slice(tail);
    out
}

/// Decodes stored bytes and sets the resourceVersion.
pub fn from_storage_bytes(stored: &[u8], revision: u64) -> Result<Object, serde_json::Error> {
    let mut object: Object = serde_json::from_slice(stored)?;
    crate::meta::set(&mut object, "resourceVersion", revision.to_string());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn order_and_splicing() {
        let object = json!({ "apiVersion": "x", "kind": "y", "status": {}, "data": { "metadata": {} },
            "metadata": { "name": "a", "resourceVersion": "7" } });
        let stored = to_storage_bytes(&object, "v1", "ConfigMap");
        let text = String::from_utf8(stored.clone()).unwrap();
        let expected = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"metadata":{}},"status":{}}"#;
        assert_eq!(text, expected);
        let spliced = String::from_utf8(with_resource_version(&stored, 12)).unwrap();
        assert_eq!(spliced, expected.replace(r#"{"name""#, r#"{"resourceVersion":"12","name""#));
        let bare = to_storage_bytes(&json!({}), "v1", "A");
        assert_eq!(
            with_resource_version(&bare, 1),
            br#"{"kind":"A","apiVersion":"v1","metadata":{"resourceVersion":"1"}}"#
        );
    }

    proptest! {
        #[test]
        fn splicing_equals_decoding(name in ".*", key in ".*", revision: u64) {
            let object = json!({ "metadata": { "name": name, "labels": { key.clone(): "v" } }, key: 1 });
            let stored = to_storage_bytes(&object, "v1", "Kind");
            let spliced: Value = serde_json::from_slice(&with_resource_version(&stored, revision)).unwrap();
            prop_assert_eq!(spliced, from_storage_bytes(&stored, revision).unwrap());
        }
    }
}
