use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Bytes of a message, from field numbers and length-delimited values.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (tag, value) in fields {
        bytes.push(tag << 3 | 2);
        bytes.push(u8::try_from(value.len()).expect("a short value"));
        bytes.extend_from_slice(value);
    }
    bytes
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [MAGIC, &message(&[(1, &type_meta), (2, raw)])].concat()
}

#[test]
fn a_config_map_as_kubectl_sends_it() {
    let entry = message(&[(1, b"k"), (2, b"v")]);
    // Name, empty generateName and namespace, an empty creationTimestamp.
    let metadata = message(&[(1, b"a"), (2, b""), (3, b"default"), (8, b"")]);
    let raw = message(&[(1, &metadata), (2, &entry)]);
    let object = decode(&body("v1", "ConfigMap", &raw), None).expect("valid");
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
            "metadata": {"name": "a", "namespace": "default"}})
    );
}

#[test]
fn embedded_structs_quantities_and_times() {
    // A volume: name (1) and the embedded source (2) with emptyDir (2) and its sizeLimit (2).
    let limit = message(&[(1, b"1Gi")]);
    let source = message(&[(2, &message(&[(2, &limit)]))]);
    let spec = message(&[(1, &message(&[(1, b"v"), (2, &source)]))]);
    let created = [8, 0x80, 0x80, 0xe0, 0xc6, 6];
    let raw = message(&[(1, &message(&[(1, b"p"), (8, &created)])), (2, &spec)]);
    let object = decode(&body("v1", "Pod", &raw), None).expect("valid");
    assert_eq!(object["spec"]["volumes"], json!([{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]));
    assert!(object["metadata"]["creationTimestamp"].as_str().is_some_and(|t| t.ends_with('Z')));
}

#[test]
fn zeros_of_pointers_stay_and_plain_zeros_go() {
    // replicas (1) is a pointer, minReadySeconds (5) is not.
    let raw = [18, 4, 8, 0, 40, 0];
    let object = decode(&body("apps/v1", "Deployment", &raw), None).expect("valid");
    assert_eq!(object["spec"], json!({"replicas": 0}));
}

#[test]
fn options_are_known_under_every_group() {
    let raw = [8, 0, 26, 0];
    let object = decode(&body("apps/v1", "DeleteOptions", &raw), None).expect("valid");
    assert_eq!(object["gracePeriodSeconds"], 0);
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(decode(b"{}", None), Err(ProtobufError::Magic));
    assert_eq!(decode(b"k8s\0\x0a\x7f", None), Err(ProtobufError::Malformed));
    let unknown = decode(&body("v9", "Boat", b""), None);
    assert!(matches!(unknown, Err(ProtobufError::UnknownType { .. })));
}

#[test]
fn tables_are_sorted() {
    assert!(ROOTS.windows(2).all(|w| (w[0].0, w[0].1, w[0].2) < (w[1].0, w[1].1, w[1].2)));
    assert!(MESSAGES.iter().all(|m| m.fields.windows(2).all(|w| w[0].tag < w[1].tag)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&[MAGIC, &bytes].concat(), None);
        let _ = decode(&body("v1", "Pod", &bytes[..bytes.len().min(120)]), None);
    }
}
