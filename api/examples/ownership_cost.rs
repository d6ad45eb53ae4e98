//! What following the owners of fields costs, beside decoding and encoding the same object.
//!
//! `cargo run --release -p coracle-api --example ownership_cost`

use coracle_api::decode::decode_body;
use coracle_api::encode::to_storage_bytes;
use coracle_api::managed::{Request, Set, SingleVersion, apply, update};
use coracle_api::schema::{self, TypeRef};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20_000;

fn time(mut work: impl FnMut()) -> Duration {
    let begun = Instant::now();
    (0..ROUNDS).for_each(|_| work());
    begun.elapsed() / ROUNDS
}

fn pod() -> Value {
    let env: Vec<Value> =
        (0..6).map(|i| json!({"name": format!("VAR_{i}"), "value": format!("value {i}")})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "default", "labels": {"app": "web",
        "tier": "front"}}, "spec": {"containers": [{"name": "web", "image": "registry.example/web:1.2.3", "env": env,
        "imagePullPolicy": "IfNotPresent", "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}], "volumes": [{"name": "data", "emptyDir": {}}],
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}})
}

fn request<'r>(ty: TypeRef<'r>, reset: &'r Set<'r>, manager: &'r str) -> Request<'r> {
    Request {
        manager,
        subresource: "",
        api_version: "v1",
        ty,
        versions: &SingleVersion,
        reset,
        now: "2026-01-01T00:00:00Z",
    }
}

fn main() {
    let Some(ty) = schema::root("", "v1", "Pod") else { return };
    let reset = Set::of_fields(&[&["status"]]);
    let body = pod().to_string();
    let plain = || decode_body(body.as_bytes(), ty, "", "v1", "Pod").map(|(o, _)| o).unwrap_or_default();
    let bare = plain();
    let mut owned = bare.clone();
    let list = update(&request(ty, &reset, "kubectl"), None, &bare).unwrap_or_default();
    owned["metadata"]["managedFields"] = list;
    let mut changed = owned.clone();
    changed["metadata"]["labels"]["app"] = "other".into();
    let (size, grown) =
        (to_storage_bytes(&bare, "v1", "Pod").len(), to_storage_bytes(&owned, "v1", "Pod").len());
    println!("stored bytes without and with managedFields: {size} {grown}");
    let print = |what: &str, took: Duration| println!("{what:40} {:6.1} us", took.as_secs_f64() * 1e6);
    print("decode a body", time(|| drop(black_box(plain()))));
    print("encode to storage, no owners", time(|| drop(black_box(to_storage_bytes(&bare, "v1", "Pod")))));
    print("encode to storage, owners", time(|| drop(black_box(to_storage_bytes(&owned, "v1", "Pod")))));
    let stored = to_storage_bytes(&owned, "v1", "Pod");
    let read = || drop(black_box(serde_json::from_slice::<Value>(&stored)));
    print("decode from storage, owners", time(read));
    let create = request(ty, &reset, "kubectl");
    print("owners of a create", time(|| drop(black_box(update(&create, None, &bare)))));
    let other = request(ty, &reset, "other");
    print("owners of an update by another", time(|| drop(black_box(update(&other, Some(&owned), &changed)))));
    print("owners of an update of nothing", time(|| drop(black_box(update(&other, Some(&owned), &owned)))));
    print("apply again", time(|| drop(black_box(apply(&other, Some(&owned), &bare, true)))));
}
