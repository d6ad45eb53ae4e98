//! What the fuzz targets do with their bytes, and the seeds they begin with. Also run, with a fixed number of mutated
//! inputs, by an ordinary test of `coracle-api`, which includes this file.

pub mod apply;
mod structural;

use coracle_api::decode::{self, decode_body};
use coracle_api::patch::{self, PatchType};
use coracle_api::protobuf;
use coracle_api::quantity::Quantity;
use coracle_api::schema;
use coracle_api::selector::{FieldSelector, LabelSelector};
use coracle_api::yaml::{self, Document};
use serde_json::{Value, json};

/// A target: its name and what it does with any bytes. It panics where something is wrong.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("json_decode", json_decode),
    ("yaml_decode", yaml_decode),
    ("protobuf_decode", protobuf_decode),
    ("protobuf_round_trip", protobuf_round_trip),
    ("patch_json", |bytes| patched(PatchType::Json, bytes)),
    ("patch_merge", |bytes| patched(PatchType::Merge, bytes)),
    ("patch_strategic", |bytes| patched(PatchType::StrategicMerge, bytes)),
    ("apply", apply::apply),
    ("selectors", selectors),
    ("quantity", quantity),
    ("structural", structural::structural),
];

const KINDS: &[(&str, &str, &str)] = &[
    ("", "v1", "Pod"),
    ("", "v1", "ConfigMap"),
    ("apps", "v1", "Deployment"),
    ("", "v1", "Service"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("coordination.k8s.io", "v1", "Lease"),
];

/// Deepest nesting that any decoder lets in, with room for what patches add to it. Recursion over values of this
/// depth must fit in a stack of 2 MiB.
const DEEPEST: usize = 2_000;

fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(list) => open.extend(list.iter().map(|v| (v, depth + 1))),
            Value::Object(map) => open.extend(map.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// Whatever is read is what its schema says, and reading it again changes nothing.
fn json_decode(bytes: &[u8]) {
    for (group, version, kind) in KINDS {
        let Some(ty) = schema::root(group, version, kind) else { continue };
        let Ok((object, _)) = decode_body(bytes, ty, group, version, kind) else { continue };
        assert!(depth(&object) < DEEPEST);
        let mut again = object.clone();
        let problems = decode::conform(&mut again, ty).expect("conforms");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(again, object);
        // What can be stored can be sent to clients that want protobuf.
        let message = protobuf::encode(&object).expect("has a message");
        protobuf::decode(&message, None).expect("is a message");
    }
}

fn yaml_decode(bytes: &[u8]) {
    let Ok(Document { value, .. }) = yaml::document(bytes) else { return };
    assert!(depth(&value) < DEEPEST);
    if let Ok(json) = serde_json::to_vec(&value) {
        json_decode(&json);
    }
}

fn protobuf_decode(bytes: &[u8]) {
    settled(bytes);
    let whole = |api_version: &str, kind: &str| {
        let mut body = protobuf::envelope_head(api_version, kind, bytes.len());
        body.extend_from_slice(bytes);
        body
    };
    for (group, version, kind) in KINDS {
        let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
        settled(&whole(&api_version, kind));
    }
}

/// What was read can be written, which adds what upstream holds by value (`metadata: {}`), and from then on it stays
/// the same.
fn settled(body: &[u8]) {
    let Ok(object) = protobuf::decode(body, Some(("v1", "Pod"))) else { return };
    assert!(depth(&object) < DEEPEST);
    let written = protobuf::encode(&object).expect("what was read can be written");
    let again = protobuf::decode(&written, None).expect("what was written can be read");
    assert_eq!(protobuf::encode(&again), Ok(written));
}

/// Any JSON: the encoder refuses it, or writes what stays the same from then on.
fn protobuf_round_trip(bytes: &[u8]) {
    for (group, version, kind) in KINDS {
        let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
        let Ok(body) = protobuf::Encoder::default().body(&api_version, kind, bytes, Some(7)) else {
            continue;
        };
        let Ok(object) = protobuf::decode(&body, None) else { continue };
        let again = protobuf::encode(&object).expect("what was read can be written");
        assert_eq!(protobuf::decode(&again, None), Ok(object));
    }
}

fn patched(kind: PatchType, bytes: &[u8]) {
    for object in [pod(), deployment()] {
        let (group, version) =
            object["apiVersion"].as_str().and_then(|v| v.split_once('/')).unwrap_or(("", "v1"));
        let name = object["kind"].as_str().unwrap_or_default();
        let Some(ty) = schema::root(group, version, name) else { continue };
        let Ok((mut patched, _)) = patch::apply(kind, &object, bytes, ty) else { continue };
        assert!(depth(&patched) < DEEPEST);
        if decode::conform(&mut patched, ty).is_ok() {
            let once = patched.clone();
            decode::conform(&mut patched, ty).expect("conforms");
            assert_eq!(patched, once);
        }
    }
}

fn selectors(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let labels = json!({"app": "web", "tier": "", "n": "5"});
    if let Ok(selector) = LabelSelector::parse(&text) {
        let again = LabelSelector::parse(&selector.to_string()).expect("its own words");
        assert_eq!(again.matches(&labels), selector.matches(&labels), "{text:?}");
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        let field = |name: &str| (name == "metadata.name").then_some("web");
        let again = FieldSelector::parse(&selector.to_string()).expect("its own words");
        assert_eq!(again.matches(field), selector.matches(field), "{text:?}");
    }
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let _ = LabelSelector::from_object(&value).map(|s| s.matches(&labels));
    }
}

fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let canonical = quantity.to_string();
    let again: Quantity = canonical.parse().expect("its own words");
    assert_eq!((again.to_string(), again.nanos()), (canonical, quantity.nanos()));
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "finalizers": ["a/b"],
            "creationTimestamp": "2024-02-03T04:05:06Z", "resourceVersion": "5",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}],
            "managedFields": [{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}}}}}}]},
        "spec": {"containers": [{"name": "c", "image": "i:1", "args": ["-x", "\u{e9}\n"],
            "env": [{"name": "E", "value": "1"}, {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 3}}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1.5Gi"}}, {"name": "w", "configMap": {"name": "cm",
                "optional": false, "defaultMode": 420}}],
            "tolerations": [{"operator": "Exists", "tolerationSeconds": 0}], "terminationGracePeriodSeconds": 0},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn deployment() -> Value {
    let pod = pod();
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod["spec"]}}})
}

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b.c"},
        "spec": {"group": "b.c", "scope": "Namespaced", "names": {"plural": "a", "kind": "A"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"x": {"type": "array", "items": {"type": "string"}, "default": [1, null]},
                "y": {"additionalProperties": false, "maximum": 1.5, "x-kubernetes-int-or-string": true}}}}}]}})
}

/// Inputs that a target begins with.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let objects = [pod(), deployment(), definition()];
    let texts = |list: &[&str]| list.iter().map(|s| s.as_bytes().to_vec()).collect();
    match target {
        "json_decode" | "protobuf_round_trip" => objects.iter().map(|o| o.to_string().into_bytes()).collect(),
        "yaml_decode" => {
            let mut all: Vec<Vec<u8>> = texts(&[
                "kind: Pod\nspec:\n  containers:\n  - name: c\n    image: &a i\n",
                "apiVersion: v1\ndata: {a: \"1\", b: |\n  x\n}\n",
                "a: &x [1]\nb: *x\n",
            ]);
            all.extend(objects.iter().map(|o| o.to_string().into_bytes()));
            all
        }
        "protobuf_decode" => objects
            .iter()
            .flat_map(|o| protobuf::encode(o).ok())
            .flat_map(|body| {
                // Whole, and the message alone.
                let message = body
                    .windows(2)
                    .position(|w| w == [0x0a, 0x02])
                    .map_or(Vec::new(), |at| body[at..].to_vec());
                [body, message]
            })
            .collect(),
        "patch_json" => texts(&[
            r#"[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"remove","path":"/spec/volumes/0"}]"#,
            r#"[{"op":"copy","from":"/spec","path":"/spec/x"},{"op":"move","from":"/status","path":"/metadata/y"}]"#,
            r#"[{"op":"test","path":"/spec/containers/0/name","value":"c"},{"op":"replace","path":"","value":{}}]"#,
        ]),
        "patch_merge" => texts(&[r#"{"metadata":{"labels":{"app":null,"x":"y"}},"spec":{"replicas":3}}"#]),
        "patch_strategic" => texts(&[
            r#"{"spec":{"containers":[{"name":"c","image":"j"},{"$patch":"delete","name":"d"}]}}"#,
            r#"{"spec":{"template":{"spec":{"volumes":[{"$patch":"replace"},{"name":"z","emptyDir":{}}]}}}}"#,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"],"$setElementOrder/finalizers":["c"]}}"#,
            r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
        ]),
        "apply" => apply::seeds().iter().map(|seed| seed.to_string().into_bytes()).collect(),
        "structural" => structural::seeds(),
        "selectors" => texts(&[
            "app=web,tier!=db",
            "app in (web, api),!x",
            "n gt 3,n lt 9",
            "metadata.name=web,a!=b\\,c",
            r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"n","operator":"In","values":["5"]}]}"#,
        ]),
        _ => texts(&[
            "1",
            "100m",
            "1.5Gi",
            "-3e6",
            "0.000000001",
            "9223372036854775807Ei",
            "1E-9",
            "12345678901234567890123",
        ]),
    }
}

/// Runs the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(n, _)| *n == name).expect("a target of this name");
    target.1(bytes);
}
