use super::*;
use crate::schema::root;
use proptest::prelude::*;
use serde_json::{Value, json};

fn deployment(body: &Value) -> Result<(Object, Problems), ApiError> {
    decode_body(
        body.to_string().as_bytes(),
        root("apps", "v1", "Deployment").unwrap(),
        "apps",
        "v1",
        "Deployment",
    )
}

fn pod_spec(spec: Value) -> Result<Value, String> {
    let ty = root("", "v1", "Pod").unwrap();
    let body = json!({ "spec": spec }).to_string();
    let (mut pod, _) = decode_body(body.as_bytes(), ty, "", "v1", "Pod").map_err(|e| e.message)?;
    Ok(pod["spec"].take())
}

#[test]
fn identity_is_filled_in_or_checked() {
    let (object, problems) = deployment(&json!({ "metadata": { "name": "a" } })).unwrap();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("Deployment"), &json!("apps/v1")));
    assert!(problems.is_empty());
    let error = deployment(&json!({ "apiVersion": "v1" })).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (400, "the API version in the data (v1) does not match the expected API version (apps/v1)")
    );
    assert_eq!(deployment(&json!({ "kind": "Pod" })).unwrap_err().code, 400);
    let eviction = |version: &str| {
        let body = json!({ "kind": "Eviction", "apiVersion": version }).to_string();
        let ty = root("policy", "v1", "Eviction").unwrap();
        decode_body(body.as_bytes(), ty, "policy", "v1", "Eviction")
    };
    assert_eq!(eviction("policy/v1beta1").unwrap().0["apiVersion"], "policy/v1", "outlived its version");
    assert_eq!(eviction("policy/v1alpha1").unwrap_err().code, 400);
}

#[test]
fn malformed_json() {
    let ty = root("", "v1", "Pod").unwrap();
    for (body, words) in [
        ("", "unexpected end of JSON input (<empty>)"),
        ("{", "unexpected end of JSON input ({)"),
        ("{a", "invalid character 'a' looking for beginning of object key string ({a)"),
        ("{\"a\":x}", "invalid character 'x' looking for beginning of value ({\"a\":x})"),
        ("xyz", "invalid character 'x' looking for beginning of value (78797a)"),
        ("{} {}", "invalid character '{' after top-level value ({} {})"),
    ] {
        let error = decode_body(body.as_bytes(), ty, "", "v1", "Pod").unwrap_err();
        let start = "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: ";
        assert_eq!((error.code, error.message), (400, format!("{start}{words}")));
    }
    let deep = "[".repeat(100_000);
    let error = decode_body(deep.as_bytes(), ty, "", "v1", "Pod").unwrap_err();
    assert!(error.code == 400 && error.message.contains("json parse error: exceeded max depth"), "{error}");
    let (pod, _) = decode_body(b"{\"metadata\":{\"name\":\"a\xffb\"}}", ty, "", "v1", "Pod").unwrap();
    assert_eq!(pod["metadata"]["name"], "a\u{fffd}b");
    assert_eq!(decode_body(b"[]", ty, "", "v1", "Pod").unwrap_err().code, 400);
}

#[test]
fn wrong_types_in_gos_words() {
    let error = deployment(&json!({ "spec": { "replicas": "3" } })).unwrap_err();
    assert_eq!(
        error.message,
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct \
         field DeploymentSpec.spec.replicas of type int32"
    );
    for (spec, words) in [
        (
            json!({ "containers": {} }),
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            json!({ "containers": [1] }),
            "number into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (json!({ "priority": 1.5 }), "number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        (
            json!({ "priority": 1u64 << 40 }),
            "number 1099511627776 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            json!({ "hostNetwork": "yes" }),
            "string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            json!({ "nodeSelector": { "a": 1 } }),
            "number into Go struct field PodSpec.spec.nodeSelector of type string",
        ),
    ] {
        let error = pod_spec(spec).unwrap_err();
        assert!(error.ends_with(words), "{error}");
    }
}

/// A kind, a path in its object, the value there, and what upstream says of it.
const WRONG_TYPES: &str = include_str!("wrong_types.txt");

#[test]
fn wrong_types_are_named_as_go_names_them() {
    let mut cases = 0;
    for line in WRONG_TYPES.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.splitn(5, '\t');
        let mut cell = || cells.next().unwrap();
        let (version, kind, path, value, words) = (cell(), cell(), cell(), cell(), cell());
        let (group, version) = crate::catalogue::split_api_version(version).unwrap();
        let value: Value = serde_json::from_str(value).unwrap();
        // A number stands for an item of a list, whatever it is.
        let wrap = |inner, name: &str| match name {
            "0" => json!([inner]),
            name => json!({ name.replace('|', "."): inner }),
        };
        let mut object = path.rsplit('.').fold(value, wrap);
        let error = conform(&mut object, root(group, version, kind).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), words, "{kind} {path}");
        cases += 1;
    }
    assert!(cases >= 20, "{cases}");
}

#[test]
fn a_value_that_reads_itself_fails_before_one_of_a_wrong_type() {
    let body = json!({ "metadata": 1, "spec": { "capacity": { "storage": true } } });
    let error = conform(&mut body.clone(), root("", "v1", "PersistentVolume").unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("quantities must match"), "{error}");
}

#[test]
fn of_several_values_of_wrong_types_the_first_is_named() {
    let ty = root("", "v1", "Pod").unwrap();
    for (body, field) in [
        (r#"{"spec":{"nodeName":1,"hostname":2},"metadata":{"name":3}}"#, "PodSpec.spec.nodeName"),
        (r#"{"metadata":{"name":3},"spec":{"hostname":2}}"#, "ObjectMeta.metadata.name"),
        (
            r#"{"spec":{"containers":[{"name":"a"},{"name":1,"image":2}],"affinity":1}}"#,
            "Container.spec.containers.name",
        ),
    ] {
        let error = decode_body(body.as_bytes(), ty, "", "v1", "Pod").unwrap_err();
        assert!(error.message.contains(&format!("Go struct field {field} of type")), "{}", error.message);
    }
}

#[test]
fn unknown_and_duplicate_fields() {
    let ty = root("", "v1", "Pod").unwrap();
    let body = br#"{"spec":{"containers":[{"name":"a","foo":1,"name":"b"}],"bar":{}},"x":1}"#;
    let (object, problems) = decode_body(body, ty, "", "v1", "Pod").unwrap();
    assert_eq!(
        problems,
        [
            "unknown field \"spec.containers[0].foo\"",
            "duplicate field \"spec.containers[0].name\"",
            "unknown field \"spec.bar\"",
            "unknown field \"x\"",
        ]
    );
    assert_eq!(object["spec"], json!({ "containers": [{ "name": "b" }] }));
    assert_eq!(FieldValidation::Warn.judge(problems.clone(), "v1", "Pod").unwrap().len(), 4);
    assert!(FieldValidation::Ignore.judge(problems.clone(), "v1", "Pod").unwrap().is_empty());
    let refusal = FieldValidation::Strict.judge(problems[3..].to_vec(), "v1", "Pod").unwrap_err();
    assert_eq!(
        refusal.message,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"x\""
    );
    assert!(FieldValidation::Strict.judge(vec![], "v1", "Pod").is_ok());
    assert_eq!(FieldValidation::parse("strict"), None);
}

#[test]
fn canonical_values() {
    let spec = json!({ "containers": [{ "name": "a", "ports": [], "env": null,
        "resources": { "limits": { "cpu": 0.5, "memory": "1024Mi" }, "requests": {} } }],
        "volumes": [{ "name": "v", "emptyDir": {} }], "nodeSelector": { "a": null } });
    assert_eq!(
        pod_spec(spec).unwrap(),
        json!({ "containers": [{ "name": "a", "resources": { "limits": { "cpu": "500m", "memory": "1Gi" } } }],
            "volumes": [{ "name": "v", "emptyDir": {} }], "nodeSelector": { "a": "" } })
    );
    assert_eq!(pod_spec(json!({ "containers": [] })).unwrap(), json!({ "containers": [] }), "required");
    let error = pod_spec(json!({ "overhead": { "cpu": "x" } })).unwrap_err();
    assert!(error.contains("quantities must match the regular expression"), "{error}");
}

#[test]
fn bytes_and_times() {
    let ty = root("", "v1", "Secret").unwrap();
    let read = |body: Value| decode_body(body.to_string().as_bytes(), ty, "", "v1", "Secret");
    let (secret, _) = read(json!({ "data": { "a": "YQ\n==" } })).unwrap();
    assert_eq!(secret["data"]["a"], "YQ==");
    let error = read(json!({ "data": { "a": "Y?==" } })).unwrap_err();
    assert!(error.message.ends_with("illegal base64 data at input byte 1"), "{}", error.message);
    let time = |text: &str| read(json!({ "metadata": { "creationTimestamp": text } }));
    let (secret, _) = time("2024-01-01T02:00:00+02:00").unwrap();
    assert_eq!(secret["metadata"]["creationTimestamp"], "2024-01-01T00:00:00Z");
    assert!(time("yesterday").unwrap_err().message.contains("parsing time \"yesterday\""));
}

/// A value with every field of the type set, in canonical form; recursive types end after ten levels.
fn sample(ty: crate::schema::TypeRef<'_>, depth: usize) -> Value {
    use crate::schema::Kind;
    match ty.kind() {
        // A schema may stand here.
        Kind::Any if ty.any_name().contains("JSONSchemaPropsOr") => json!({ "title": "text" }),
        Kind::Any => json!({ "anything": [null, 1] }),
        Kind::String => json!("text"),
        Kind::Int32 => json!(i32::MAX),
        Kind::Int64 => json!(i64::MIN),
        Kind::Bool => json!(true),
        Kind::Double => json!(0.5),
        Kind::Quantity => json!("1500m"),
        Kind::IntOrString => json!("25%"),
        Kind::Time => json!("2024-02-29T10:00:00Z"),
        Kind::MicroTime => json!("2024-02-29T10:00:00.000001Z"),
        Kind::Bytes => json!("AAEC"),
        Kind::List => json!([sample(ty.element().unwrap(), depth + 1)]),
        Kind::Map => json!({ "key/with.dots": sample(ty.element().unwrap(), depth + 1) }),
        Kind::Struct if depth > 10 => json!({}),
        Kind::Struct => {
            Value::Object(ty.fields().map(|f| (f.name().to_owned(), sample(f.ty(), depth + 1))).collect())
        }
    }
}

#[test]
fn every_kind_round_trips_with_every_field() {
    let mut kinds = 0;
    for (group, version, kind, ty) in crate::schema::roots() {
        if ty.field("kind").is_none() {
            continue; // WatchEvent
        }
        let mut object = sample(ty, 0);
        object["kind"] = kind.into();
        object["apiVersion"] = api_version(group, version).into();
        let body = object.to_string();
        let (decoded, problems) = decode_body(body.as_bytes(), ty, group, version, kind).unwrap();
        assert_eq!(problems, Problems::new(), "{group}/{version} {kind}");
        assert_eq!(decoded, object, "{group}/{version} {kind}");
        let stored = crate::encode::to_storage_bytes(&object, &api_version(group, version), kind);
        assert!(serde_json::from_slice::<Value>(&stored).is_ok());
        kinds += 1;
    }
    assert!(kinds > 150);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9]{0,6}".prop_map(Value::from),
    ];
    let keys = prop_oneof![
        "metadata",
        "spec",
        "containers",
        "name",
        "labels",
        "template",
        "resources",
        "[a-z]{1,3}"
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn quantities_become_canonical(text in "[0-9]{1,4}(|m|k|M|G|Ki|Mi|Gi|Ti|e3)") {
        let quantity: crate::Quantity = text.parse().unwrap();
        let spec = pod_spec(json!({ "containers": [], "overhead": { "cpu": text } })).unwrap();
        prop_assert_eq!(&spec["overhead"]["cpu"], &json!(quantity.to_string()));
    }

    #[test]
    fn what_conforms_conforms_again(mut value in any_json()) {
        let ty = root("apps", "v1", "Deployment").unwrap();
        if conform(&mut value, ty).is_ok() {
            let once = value.clone();
            prop_assert_eq!(conform(&mut value, ty), Ok(vec![]));
            prop_assert_eq!(value, once);
        }
    }

    #[test]
    fn parsing_reads_what_serde_reads(value in any_json(), junk in ".*") {
        prop_assert_eq!(parse(value.to_string().as_bytes()).unwrap().0, value);
        prop_assert_eq!(parse(junk.as_bytes()).is_ok(), serde_json::from_str::<Value>(&junk).is_ok());
    }
}

#[test]
fn problems_stand_in_the_order_of_the_document() {
    let ty = root("apps", "v1", "Deployment").unwrap();
    let body = br#"{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"unknownField": {"a": 1, "a": 2}, "replicas": 2,
        "replicas": 3, "template": {"spec": {"containers": [{"name": "c", "zzz": 1, "aaa": 2, "zzz": 3}]}}},
        "metadata": {"labels": {"x": "1", "x": "2"}, "unknownMeta": "y"}}"#;
    let (object, problems) = decode_body(body, ty, "apps", "v1", "Deployment").unwrap();
    assert_eq!(object["spec"]["replicas"], 3);
    assert_eq!(
        problems,
        [
            "unknown field \"spec.unknownField\"",
            "duplicate field \"spec.replicas\"",
            "unknown field \"spec.template.spec.containers[0].zzz\"",
            "unknown field \"spec.template.spec.containers[0].aaa\"",
            "duplicate field \"metadata.labels.x\"",
            "unknown field \"metadata.unknownMeta\"",
        ]
    );
    let strict = FieldValidation::Strict.judge(problems, "v1", "Deployment").unwrap_err();
    assert!(strict.message.contains(
        "strict decoding error: unknown field \"spec.unknownField\", duplicate field \"spec.replicas\""
    ));
}

#[test]
fn schemas_are_looked_into_wherever_they_stand() {
    let ty = crate::schema::root("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let definition = |schema: Value| {
        json!({ "spec": { "group": "a.b", "names": { "plural": "x", "kind": "X" }, "scope": "Cluster",
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } })
    };
    let mut wrong = definition(json!({ "type": "object", "additionalProperties": "x" }));
    let error = super::conform::conform(&mut wrong, ty).unwrap_err();
    assert!(format!("{error:?}").contains("boolean or JSON schema expected"), "{error:?}");
    let mut odd = definition(json!({ "type": "object", "properties": {
        "list": { "type": "array", "items": { "type": "string", "maxLenght": 1 } },
        "map": { "type": "object", "additionalProperties": { "oops": 1 } }, "any": { "additionalProperties": true } } }));
    let problems = super::conform::conform(&mut odd, ty).unwrap();
    let at = "spec.versions[0].schema.openAPIV3Schema.properties";
    assert_eq!(
        problems,
        [
            format!("unknown field \"{at}.list.items.maxLenght\""),
            format!("unknown field \"{at}.map.additionalProperties.oops\"")
        ]
    );
}
