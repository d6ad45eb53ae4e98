use super::*;
use crate::decode::conform;
use crate::schema::{root, roots, zeros};
use serde_json::json;

fn settled(group: &str, version: &str, kind: &str, object: Value) -> Value {
    let ty = root(group, version, kind).unwrap();
    let mut object = object;
    conform(&mut object, ty).unwrap();
    settle(&mut object, ty);
    object
}

/// A value with every field of the type at its zero, pointers and all lists and maps absent: by what it is in JSON, not
/// by whether it is written.
fn values_at_zero(ty: TypeRef<'_>) -> Value {
    let sent = |field: &FieldRef<'_>| !field.is_pointer() && field.name() != MANAGED_FIELDS;
    let fields = ty.fields().filter(sent).filter_map(|field| {
        let zero = match field.ty().kind() {
            Kind::String => json!(""),
            Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => json!(0),
            Kind::Bool => json!(false),
            Kind::Quantity => json!("0"),
            Kind::Struct => values_at_zero(field.ty()),
            Kind::List => json!([]),
            Kind::Map => json!({}),
            Kind::Any | Kind::Bytes | Kind::Time | Kind::MicroTime => return None,
        };
        Some((field.name().to_owned(), zero))
    });
    Value::Object(fields.collect())
}

/// Whether two objects are the same but for empty lists and maps, which are absent or null in the other.
fn same(left: &Value, right: &Value) -> bool {
    let hollow = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        other => other.is_null(),
    };
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (a, b) => a == b || hollow(a) && hollow(b),
    }
}

#[test]
fn only_an_object_itself_can_be_told_to_forget_its_owners() {
    let none = json!({ "name": "a", "managedFields": [] });
    let pod = json!({ "metadata": none, "spec": { "containers": [] } });
    let job = settled("batch", "v1", "Job", json!({ "metadata": none, "spec": { "template": pod } }));
    assert_eq!(job["metadata"]["managedFields"], json!([]));
    assert_eq!(job["spec"]["template"]["metadata"], json!({ "name": "a" }));
}

/// What upstream's types write of an empty value, kind by kind, as one line of JSON each.
const EMPTY: &str = include_str!("empty.txt");

#[test]
fn an_object_of_zeros_is_what_an_empty_struct_is() {
    let mut kinds = 0;
    for line in EMPTY.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.splitn(4, ' ');
        let mut cell = || cells.next().unwrap();
        let (group, version, kind, expected) = (cell(), cell(), cell(), cell());
        let group = if group == "core" { "" } else { group };
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(settled(group, version, kind, json!({})), expected, "{kind}");
        let ty = root(group, version, kind).unwrap();
        let from_zeros = settled(group, version, kind, values_at_zero(ty));
        assert!(same(&from_zeros, &expected), "{kind}: {from_zeros}");
        kinds += 1;
    }
    assert!(kinds >= 30, "{kinds}");
}

#[test]
fn every_field_at_its_zero_is_written_as_its_type_writes_it() {
    let mut wrong = Vec::new();
    for (group, version, kind, ty) in roots() {
        wrong.extend(zeros::difference(kind, &settled(group, version, kind, json!({})), &zeros::empty(ty)));
        for levels in 0..=zeros::DEEPEST {
            let (sent, expected) = zeros::full(ty, levels);
            let given = settled(group, version, kind, sent);
            let place = format!("{group}/{version} {kind}, {levels} levels");
            wrong.extend(zeros::difference(&place, &given, &expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn settling_twice_changes_nothing() {
    for (group, version, kind, ty) in roots() {
        for object in [json!({}), values_at_zero(ty)] {
            let once = settled(group, version, kind, object);
            let mut twice = once.clone();
            settle(&mut twice, ty);
            assert_eq!(twice, once, "{group}/{version} {kind}");
        }
    }
}

fn pod(spec: Value) -> Value {
    settled("", "v1", "Pod", json!({ "spec": spec }))["spec"].take()
}

#[test]
fn zeros_go_and_structs_come() {
    let sent = json!({ "hostNetwork": false, "serviceAccountName": "", "priority": 0, "containers": [{ "name": "c",
        "env": [{ "name": "A", "value": "" }], "volumeMounts": [{ "name": "v", "mountPath": "/", "readOnly": false, "subPath": "" }],
        "ports": [{ "containerPort": 80, "hostPort": 0 }], "livenessProbe": { "initialDelaySeconds": 0 },
        "securityContext": { "privileged": false } }],
        "volumes": [{ "name": "v", "ephemeral": { "volumeClaimTemplate": { "spec": { "dataSource": { "kind": "a", "name": "b" } } } } }] });
    assert_eq!(
        pod(sent),
        json!({ "priority": 0, "containers": [{ "name": "c", "env": [{ "name": "A" }], "resources": {},
            "volumeMounts": [{ "name": "v", "mountPath": "/" }], "ports": [{ "containerPort": 80 }], "livenessProbe": {},
            "securityContext": { "privileged": false } }],
            "volumes": [{ "name": "v", "ephemeral": { "volumeClaimTemplate": { "metadata": {}, "spec": { "resources": {},
                "dataSource": { "apiGroup": null, "kind": "a", "name": "b" } } } } }] })
    );
    assert_eq!(pod(json!({})), json!({ "containers": null }));
    let security = json!({ "securityContext": { "sysctls": [{ "name": "a" }] }, "containers": [] });
    assert_eq!(
        pod(security),
        json!({ "securityContext": { "sysctls": [{ "name": "a", "value": "" }] }, "containers": [] })
    );
}

#[test]
fn schemas_of_definitions_are_settled_wherever_they_stand() {
    let schema = json!({ "type": "object", "nullable": false, "items": { "title": "" }, "not": { "required": [] },
        "additionalProperties": { "uniqueItems": false, "default": false } });
    let definition = json!({ "spec": { "preserveUnknownFields": false, "versions": [{ "schema": { "openAPIV3Schema": schema } }] } });
    let settled = settled("apiextensions.k8s.io", "v1", "CustomResourceDefinition", definition);
    assert_eq!(settled["spec"].get("preserveUnknownFields"), None);
    assert_eq!(
        settled["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        json!({ "type": "object", "items": {}, "not": {}, "additionalProperties": { "default": false } })
    );
    assert_eq!(
        settled["status"],
        json!({ "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": null })
    );
}
