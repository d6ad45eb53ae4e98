//! Admission plugins that hardening guides ask for, each seen at work.

use super::authorization::kubeconfig;
use super::fails;
use coracle_tests::hook::Told;
use coracle_tests::{Cluster, Hook};
use serde_json::json;

/// Answers only for images of one registry.
fn policy() -> Hook {
    Hook::start(|call| {
        let images = call.body["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let ours = |image: &serde_json::Value| {
            image["image"].as_str().is_some_and(|image| image.starts_with("registry.example/"))
        };
        let status = match images.iter().all(ours) {
            true => json!({"allowed": true}),
            false => json!({"allowed": false, "reason": "only registry.example"}),
        };
        let review =
            json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status});
        Told::json(200, &review)
    })
}

#[test]
fn events_images_and_addresses_are_held_back() {
    let hook = policy();
    let dir = tempfile::tempdir().expect("a directory");
    kubeconfig(&dir.path().join("images.kubeconfig"), &hook);
    let file = dir.path().join("admission.yaml");
    let text = r"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: User, qps: 1, burst: 5, cacheSize: 100}]
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {kubeConfigFile: images.kubeconfig, allowTTL: 50, denyTTL: 50, retryBackoff: 500}}
";
    std::fs::write(&file, text).expect("a file");
    let cluster = Cluster::start(&[
        "--enable-admission-plugins",
        "EventRateLimit,ImagePolicyWebhook,AlwaysPullImages,DenyServiceExternalIPs",
        "--admission-control-config-file",
        &file.display().to_string(),
    ]);
    cluster.until("kubectl get serviceaccount default -o name", "serviceaccount/default");
    fails(&cluster, "kubectl run foreign --image=docker.io/evil:1", "only registry.example");
    cluster.ok("kubectl run ours --image=registry.example/app:1 --image-pull-policy=Never");
    cluster.says("kubectl get pod ours -o jsonpath={.spec.containers[0].imagePullPolicy}", "Always");
    fails(
        &cluster,
        "kubectl debug ours --image=docker.io/evil:1 --image-pull-policy=Never",
        "only registry.example",
    );
    let service = "kind: Service\napiVersion: v1\nmetadata: {name: s}\nspec: {ports: [{port: 80}], externalIPs: [192.0.2.1]}\n";
    let said = cluster.run_with("kubectl create -f -", service).stderr;
    assert!(said.contains("Use of external IPs is denied by admission control"), "{said}");

    let event = |n: usize| {
        json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": format!("e{n}"), "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "ours"}, "reason": "r", "type": "Normal"})
        .to_string()
    };
    let codes: Vec<u16> =
        (0..100).map(|n| cluster.raw("POST", "/api/v1/namespaces/default/events", &event(n)).code).collect();
    assert_eq!(&codes[..5], [201; 5], "{codes:?}");
    assert!(codes.contains(&429), "{codes:?}");
    cluster.assert_alive();

    // The webhook away, nothing new runs.
    drop(hook);
    fails(&cluster, "kubectl run late --image=registry.example/late:1", "forbidden");
    cluster.ok("kubectl run again --image=registry.example/app:1");
}
