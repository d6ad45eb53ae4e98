//! Admission plugins that a file configures: limits of events, policies of images.

use super::authorization::write_kubeconfig;
use super::support::{Fixture, governed_by, in_memory};
use super::webhooks_support::{Reaction, hook, namespace};
use coracle_apiserver::admission;
use coracle_apiserver::authz::{Chain, Gate};
use coracle_apiserver::server::{self, EdgeOptions, ServerConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

fn admission_with(dir: &TempDir, plugins: &str, enabled: &[&str]) -> admission::Config {
    let path = dir.path().join("admission.yaml");
    let text =
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n{plugins}");
    std::fs::write(&path, text).unwrap();
    let configuration = admission::configuration::load(&path).unwrap();
    let mut config = admission::Config { configuration, ..admission::Config::default() };
    config.disabled.push("ServiceAccount".to_owned());
    config.enabled = enabled.iter().map(|name| (*name).to_owned()).collect();
    config
}

async fn admitting(config: &admission::Config) -> Fixture {
    let (store, resources) = in_memory().await;
    let cache = resources.cache.clone();
    let gate = Gate::new(Chain::new(cache.clone(), server::rbac_generation(cache.clone())));
    let chain = admission::Chain::new(cache.clone(), config)
        .unwrap()
        .counted_in(cache.metrics().clone())
        .guard_escalation(gate.clone());
    let parts = ServerConfig { admission: Arc::new(chain), ..governed_by(gate) };
    let fixture = Fixture::of(parts, EdgeOptions::default(), store, resources);
    namespace(&fixture, "default", json!({})).await;
    fixture
}

#[tokio::test]
async fn events_beyond_the_limit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let limits = "- name: EventRateLimit\n  configuration:\n    apiVersion: eventratelimit.admission.k8s.io/v1alpha1\n    \
                  kind: Configuration\n    limits: [{ type: Namespace, qps: 1, burst: 20, cacheSize: 10 }]\n";
    let server = admitting(&admission_with(&dir, limits, &["EventRateLimit"])).await;
    let event = |n: usize| {
        json!({ "kind": "Event", "apiVersion": "v1", "metadata": { "name": format!("e{n}"), "namespace": "default" },
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": "p" }, "reason": "r", "type": "Normal" })
    };
    let mut refused = None;
    for n in 0..200 {
        let answer = server.post("/api/v1/namespaces/default/events", &event(n)).await;
        if answer.status != 201 {
            refused = Some((n, answer));
            break;
        }
    }
    let (n, answer) = refused.expect("a limit");
    assert!(n >= 20, "after {n}");
    let status = answer.expect(429);
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["message"], "Too many requests: limit reached on type Namespace for key default");
}

fn pod(name: &str, image: &str) -> Value {
    json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": name, "annotations": {
            "my.image-policy.k8s.io/ticket": "7", "unrelated": "x" } },
        "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn image_review(status: Value) -> Reaction {
    let review =
        json!({ "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "status": status });
    Reaction::Raw(200, review.to_string())
}

#[tokio::test]
async fn images_are_let_in_by_their_policy() {
    let dir = tempfile::tempdir().unwrap();
    let policy = hook(|review| match review["spec"]["containers"][0]["image"].as_str() {
        Some("good") => image_review(json!({ "allowed": true })),
        Some("lies") => image_review(json!({ "allowed": "true" })),
        _ => image_review(json!({ "allowed": false, "reason": "not on the list" })),
    })
    .await;
    write_kubeconfig(&dir.path().join("k"), policy.port, &policy.bundle);
    let plugin = |default_allow: bool| {
        format!(
            "- name: ImagePolicyWebhook\n  configuration: {{ imagePolicy: {{ kubeConfigFile: k, allowTTL: 50, denyTTL: 50, \
             retryBackoff: 10, defaultAllow: {default_allow} }} }}\n"
        )
    };
    let pods = "/api/v1/namespaces/default/pods";
    let on = ["ImagePolicyWebhook"];
    let server = admitting(&admission_with(&dir, &plugin(false), &on)).await;
    server.post(pods, &pod("a", "good")).await.expect(201);
    server.post(pods, &pod("b", "good")).await.expect(201);
    assert_eq!(policy.seen().len(), 1, "the answer was not kept");
    let spec = &policy.seen()[0]["spec"];
    assert_eq!(
        *spec,
        json!({ "containers": [{ "image": "good" }], "annotations": { "my.image-policy.k8s.io/ticket": "7" },
            "namespace": "default" })
    );
    let refused = server.post(pods, &pod("c", "bad")).await.expect(403);
    let why = "image policy webhook backend denied one or more images: not on the list";
    assert!(refused["message"].as_str().unwrap().ends_with(why), "{refused}");
    let container = json!({ "spec": { "ephemeralContainers": [{ "name": "e", "image": "bad" }] } });
    let path = format!("{pods}/a/ephemeralcontainers");
    server.patch(&path, "strategic-merge-patch", &container).await.expect(403);
    server.post(pods, &pod("d", "lies")).await.expect(403);
    let open = admitting(&admission_with(&dir, &plugin(true), &on)).await;
    open.post(pods, &pod("d", "lies")).await.expect(201);
    open.post(pods, &pod("c", "bad")).await.expect(403);
    let off = admitting(&admission_with(&dir, &plugin(false), &[])).await;
    off.post(pods, &pod("c", "bad")).await.expect(201);
}
