//! Values to sets, and what is wrong with values.

use super::*;

#[test]
fn sets_of_configurations() {
    let table = [
        (json!({"spec": {"replicas": 1}}), json!({"f:spec": {"f:replicas": {}}})),
        (
            json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]}}),
            json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}}}),
        ),
        // Atomic structs and maps as a whole; empty structs are members.
        (
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "strategy": {}}}),
            json!({"f:spec": {"f:selector": {}, "f:strategy": {}}}),
        ),
        (
            json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}, "containers": []}}}}),
            json!({"f:spec": {"f:template": {"f:spec": {"f:nodeSelector": {}}}}}),
        ),
        // Keys are completed with their defaults.
        (
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "c", "ports": [{"containerPort": 80, "name": "web"}], "command": ["a"]}]}}}}),
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:name": {}, "f:command": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:containerPort": {}, "f:name": {}}}}}}}}}),
        ),
    ];
    for (value, wanted) in table {
        assert_eq!(fields(&to_set(&value, deployment_type())), wanted, "{value}");
    }
}

#[test]
fn duplicates_are_owned_as_a_whole() {
    let value = pod(
        json!({"containers": [{"name": "c", "env": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}]}),
    );
    let set = to_set(&value, pod_type());
    let env = &fields(&set)["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:env"];
    assert_eq!(*env, json!({"k:{\"name\":\"a\"}": {}}));
}

#[test]
fn mistakes_are_named_as_upstream_does() {
    let container = |rest: Value| {
        let mut c = json!({"name": "c"});
        c.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        pod(json!({"containers": [c]}))
    };
    let table = [
        (pod(json!({"foo": 1})), ".spec.foo: field not declared in schema"),
        (
            container(json!({"image": 1})),
            ".spec.containers[name=\"c\"].image: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            container(json!({"ports": [{"containerPort": "80"}]})),
            ".spec.containers[name=\"c\"].ports[containerPort=\"80\",protocol=\"TCP\"].containerPort: expected numeric \
             (int or float), got string",
        ),
        (container(json!({"tty": "x"})), ".spec.containers[name=\"c\"].tty: expected boolean, got &{x}"),
        (
            container(json!({"args": {"a": 1}})),
            ".spec.containers[name=\"c\"].args: expected list, got &{map[a:1]}",
        ),
        (pod(json!({"securityContext": []})), ".spec.securityContext: expected map, got &{[]}"),
        (
            pod(json!({"containers": [{"name": "a"}, {"name": "a"}]})),
            ".spec.containers: duplicate entries for key [name=\"a\"]",
        ),
        (
            pod(json!({"containers": [{"image": "a"}]})),
            ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\" (and \
             doesn't have default value)",
        ),
        (
            container(json!({"resources": {"limits": {"cpu": []}}})),
            ".spec.containers[name=\"c\"].resources.limits.cpu: expected any scalar, got &{[]}",
        ),
        (pod(json!({"tolerations": [{"foo": 1}]})), ".spec.tolerations[0].foo: field not declared in schema"),
    ];
    for (value, wanted) in table {
        assert_eq!(validate(&value, pod_type()).as_deref(), Some(wanted), "{value}");
    }
    let two = pod(json!({"containers": [{"name": "a", "x": 1}], "volumes": [{"name": "v", "y": 1}]}));
    let text = validate(&two, pod_type()).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let fine = container(
        json!({"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "livenessProbe": {"httpGet": {"port": "web"}}}),
    );
    assert_eq!(validate(&fine, pod_type()), None);
    let int_port = container(json!({"livenessProbe": {"httpGet": {"port": 80}, "exec": null}}));
    assert_eq!(validate(&int_port, pod_type()), None);
}

#[test]
fn schemas_of_run_time_serve_alike() {
    use crate::schema::{Dynamic, DynamicField, Kind, ListType};
    let leaf = Dynamic::of;
    let field = |name: &str, ty: Dynamic, list_type, keys: &[&str]| DynamicField {
        name: name.to_owned(),
        ty,
        required: false,
        default: (name == "protocol").then(|| json!("TCP")),
        list_type,
        map_keys: keys.iter().map(|k| (*k).to_owned()).collect(),
    };
    let port = Dynamic {
        fields: vec![
            field("port", leaf(Kind::Int64), None, &[]),
            field("protocol", leaf(Kind::String), None, &[]),
        ],
        ..leaf(Kind::Struct)
    };
    let ports = Dynamic { element: Some(Box::new(port)), ..leaf(Kind::List) };
    let spec = Dynamic {
        fields: vec![
            field("any", leaf(Kind::Any), None, &[]),
            field("ports", ports, Some(ListType::Map), &["port", "protocol"]),
        ],
        ..leaf(Kind::Struct)
    };
    let root = Dynamic {
        fields: vec![field("spec", spec, None, &[])],
        preserve_unknown_fields: true,
        ..leaf(Kind::Struct)
    };
    let ty = TypeRef::dynamic(&root);
    let value = json!({"spec": {"any": {"a": {"b": [1]}}, "ports": [{"port": 1}]}, "more": {"x": 1}});
    let wanted = json!({"f:more": {".": {}, "f:x": {}}, "f:spec": {
        "f:any": {"f:a": {".": {}, "f:b": {}}},
        "f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
    assert_eq!(fields(&to_set(&value, ty)), wanted);
    let bad = json!({"spec": {"unknown": 1}});
    assert_eq!(validate(&bad, ty).unwrap(), ".spec.unknown: field not declared in schema");
    // What a custom resource does not hold by value is itself added.
    assert_eq!(fields(&compare(&json!({}), &value, ty).added)["f:spec"]["."], json!({}),);
}

#[test]
fn elements_print_as_upstream() {
    for (text, shown) in [
        ("f:spec", ".spec"),
        ("k:{\"protocol\":\"TCP\",\"port\":80}", "[port=80,protocol=\"TCP\"]"),
        ("v:\"a\"", "[=\"a\"]"),
        ("v:1", "[=1]"),
        ("i:3", "[3]"),
    ] {
        assert_eq!(Element::parse(text).unwrap().to_string(), shown);
    }
    for bad in ["", "spec", "x:a", "k:1", "v:{}", "i:a", "k:{"] {
        assert_eq!(Element::parse(bad), None, "{bad}");
    }
}
