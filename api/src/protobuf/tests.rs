use super::*;
use crate::catalogue::{api_version, catalogue};
use crate::schema::{self, TypeRef};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

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
fn a_config_map_as_upstream_sends_it() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2", "a": "\u{e9}\n"},
        "metadata": {"name": "a", "creationTimestamp": "2008-01-01T01:01:01Z", "resourceVersion": "1"}});
    let created = [8, 0xcd, 0xa1, 0xe6, 0xbb, 4, 16, 0];
    let mut metadata = message(&[(1, b"a"), (2, b""), (3, b""), (4, b""), (5, b""), (6, b"12")]);
    metadata.extend([56, 0]);
    metadata.extend(message(&[(8, &created)]));
    let entry = |key: &[u8], value: &[u8]| message(&[(1, key), (2, value)]);
    let raw = message(&[(1, &metadata), (2, &entry(b"a", "\u{e9}\n".as_bytes())), (2, &entry(b"b", b"2"))]);
    let want = [body("v1", "ConfigMap", &raw), vec![26, 0, 34, 0]].concat();
    let json = object.to_string();
    assert_eq!(Encoder::default().body("v1", "ConfigMap", json.as_bytes(), Some(12)), Ok(want));
}

#[test]
fn what_is_held_by_value_is_written_always() {
    let bytes = |object: &Value| encode(object).expect("an object");
    let plain = |spec: Value| bytes(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}));
    // A zero of a pointer is not the same as its absence; of a value it is.
    assert_ne!(plain(json!({"replicas": 0})), plain(json!({})));
    assert_eq!(plain(json!({"minReadySeconds": 0, "paused": false})), plain(json!({})));
    let port = |port: Value| {
        bytes(
            &json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 1, "targetPort": port}]}}),
        )
    };
    assert_eq!(port(json!(0)), port(Value::Null));
    assert_ne!(port(json!("http")), port(json!(0)));
}

#[test]
fn lengths_of_any_size() {
    for length in [0, 127, 128, 16_383, 16_384, 2_097_152] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "x".repeat(length)}});
        let bytes = encode(&object).expect("an object");
        let back = decode(&bytes, None).expect("valid");
        assert_eq!(back["data"]["k"].as_str().map(str::len), Some(length));
        assert_eq!(put::varint_len(length as u64), {
            let mut out = Vec::new();
            put::varint(&mut out, length as u64);
            out.len()
        });
    }
}

#[test]
fn what_is_no_object_of_the_kind_is_refused() {
    let body = |json: &str| Encoder::default().body("v1", "Pod", json.as_bytes(), None);
    for json in ["", "{", "[]", "{\"a\" 1}", "{\"a\":1,}", "{} {}", "[1}", "{\"a\":tru}", "{1:2}", "{,}"] {
        assert_eq!(body(json), Err(ProtobufError::Json), "{json}");
    }
    assert_eq!(body("{\"spec\":{\"containers\":{}}}"), Err(ProtobufError::Field("containers")));
    assert_eq!(body(&format!("{{\"x\":{}", "[".repeat(100_000))), Err(ProtobufError::TooDeep));
    assert!(body(" { \"x\" : [ ] , \"y\" : { } } ").is_ok());
}

#[test]
fn metadata_alone() {
    let metadata = json!({"name": "a", "labels": {"k": "v"}});
    for version in ["meta.k8s.io/v1", "meta.k8s.io/v1beta1"] {
        let object = json!({"apiVersion": version, "kind": "PartialObjectMetadata", "metadata": metadata});
        assert_eq!(decode(&encode(&object).expect("an object"), None), Ok(object.clone()));
        let list = json!({"apiVersion": version, "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "7"}, "items": [{"metadata": metadata}]});
        assert_eq!(decode(&encode(&list).expect("a list"), None), Ok(list.clone()));
    }
}

/// A value with every field of the type, none of them zero. Types inside themselves (schemas of custom resources) are
/// left out the second time.
fn full<'a>(ty: TypeRef<'a>, outer: &mut Vec<&'a str>) -> Option<Value> {
    use crate::schema::Kind as K;
    Some(match ty.kind() {
        // Is an object, a schema, or raw JSON.
        K::Any => json!({"description": "d"}),
        K::String => "s".into(),
        K::Int32 | K::Int64 => 7.into(),
        K::Bool => true.into(),
        K::Double => 1.5.into(),
        K::Quantity => "3Gi".into(),
        K::IntOrString => "http".into(),
        K::Time => "2008-01-01T01:01:01Z".into(),
        K::MicroTime => "2008-01-01T01:01:01.000002Z".into(),
        K::Bytes => "AQI=".into(),
        K::List => json!([full(ty.element()?, outer)?]),
        K::Map => json!({"k": full(ty.element()?, outer)?}),
        K::Struct => {
            if outer.contains(&ty.name()) {
                return None;
            }
            // Objects inside of others do not say again what they are.
            let is_object = ty.field("kind").is_some() && ty.field("metadata").is_some()
                || ty.short_name() == "DeleteOptions"
                || ty.short_name() == "APIGroup";
            outer.push(ty.name());
            let fields = ty
                .fields()
                .filter(|f| !(is_object && matches!(f.name(), "apiVersion" | "kind")))
                .filter_map(|f| Some((f.name().to_owned(), full(f.ty(), outer)?)));
            let fields: Map<_, _> = fields.collect();
            outer.pop();
            Value::Object(fields)
        }
    })
}

/// Where the two differ first.
fn difference(path: &str, want: &Value, have: &Value) -> Option<String> {
    match (want, have) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            let at = format!("{path}.{key}");
            difference(&at, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).find_map(|(a, b)| difference(&format!("{path}[]"), a, b))
        }
        (a, b) => (a != b).then(|| format!("{path}: want {a}, have {b}")),
    }
}

#[test]
fn every_field_of_every_kind_survives() {
    let mut lost = Vec::new();
    for (group, version, kind, ty) in schema::roots() {
        let api_version = api_version(group, version);
        if Type::find(&api_version, kind).is_none() || kind == "WatchEvent" {
            continue;
        }
        let mut object = full(ty, &mut Vec::new()).expect("a struct");
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        let bytes = encode(&object).unwrap_or_else(|e| panic!("{kind}: {e}"));
        let back = decode(&bytes, None).unwrap_or_else(|e| panic!("{kind}: {e}"));
        lost.extend(difference(kind, &object, &back));
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

#[test]
fn every_served_kind_has_a_message() {
    for resource in catalogue() {
        let version = resource.api_version();
        assert!(Type::find(&version, &resource.kind).is_some(), "{}", resource.qualified());
        if resource.supports("list") {
            assert!(Type::find(&version, &resource.list_kind).is_some(), "{}", resource.qualified());
        }
        for sub in &resource.subresources {
            let found = Type::find(&api_version(&sub.group, &sub.version), &sub.kind);
            // Streams have options, which are never in a body.
            assert!(found.is_some() || sub.kind.ends_with("Options"), "{} {}", sub.name, sub.kind);
        }
    }
}

#[test]
fn tables_are_sorted() {
    assert!(ROOTS.windows(2).all(|w| (w[0].0, w[0].1, w[0].2) < (w[1].0, w[1].1, w[1].2)));
    assert!(MESSAGES.iter().all(|m| m.fields.windows(2).all(|w| w[0].tag < w[1].tag)));
    // One bit a field.
    assert!(MESSAGES.iter().all(|m| m.fields.len() <= 64));
}

proptest! {
    #[test]
    fn times_are_the_calendars(seconds in -62_135_596_800i64..253_402_300_799) {
        let text = crate::meta::time::format_seconds(jiff::Timestamp::from_second(seconds).expect("in range"));
        let found = write::seconds_of(text.as_bytes());
        prop_assert!(found == Some(seconds) || text.contains("-02-29T"), "{text}: {found:?}");
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&[MAGIC, &bytes].concat(), None);
        let _ = decode(&body("v1", "Pod", &bytes[..bytes.len().min(120)]), None);
    }
}

/// The object of a kind after a way over the wire, and the message that it is written as again.
fn over_the_wire(object: &Value, ty: TypeRef<'_>) -> (Vec<u8>, Value, Vec<u8>) {
    let message = encode(object).expect("has a message");
    let mut back = decode(&message, None).expect("is a message");
    let again = encode(&back).expect("has a message");
    crate::decode::settle(&mut back, ty);
    (message, back, again)
}

#[test]
fn every_field_at_its_zero_goes_both_ways() {
    let mut kinds = 0;
    for (group, version, kind, ty) in schema::roots() {
        if Type::find(&api_version(group, version), kind).is_none() {
            continue;
        }
        kinds += 1;
        let objects = (0..=schema::zeros::DEEPEST).map(|levels| schema::zeros::full(ty, levels).0);
        for mut object in objects.chain([json!({})]) {
            crate::decode::conform(&mut object, ty).expect("conforms");
            crate::decode::settle(&mut object, ty);
            object["apiVersion"] = api_version(group, version).into();
            object["kind"] = kind.into();
            let (message, back, again) = over_the_wire(&object, ty);
            assert_eq!(schema::zeros::difference(kind, &back, &object), None, "{group}/{version}");
            assert_eq!(again, message, "{group}/{version} {kind}");
        }
    }
    assert!(kinds > 100, "{kinds}");
}

#[test]
fn pointers_that_are_nil_are_not_on_the_wire() {
    let schema = json!({ "type": "object" });
    let version =
        json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    let object = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": { "versions": [version] } });
    let message = encode(&object).expect("an object");
    let ty = message.windows(8).position(|bytes| bytes == b"\x2a\x06object").expect("its type (5)");
    // Before it id (1), $schema (2) and description (4) are empty; $ref (3), which is a pointer, is not there.
    assert_eq!(message[ty - 6..ty], [10, 0, 18, 0, 34, 0]);
    let back = decode(&message, None).expect("a message");
    assert_eq!(back["spec"]["versions"][0]["schema"]["openAPIV3Schema"], json!({ "type": "object" }));
    // What is a pointer to an empty text is there on both sides.
    let referring = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": { "versions": [{ "schema": { "openAPIV3Schema": { "$ref": "" } } }] } });
    let back = decode(&encode(&referring).expect("an object"), None).expect("a message");
    assert_eq!(back["spec"]["versions"][0]["schema"]["openAPIV3Schema"], json!({ "$ref": "" }));
}
