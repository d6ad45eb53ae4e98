//! Webhooks and policies are asked about streams and proxies before anything else happens, and what they say reaches
//! whoever sits at kubectl.

use coracle_tests::hook::review;
use coracle_tests::{Cluster, Hook};
use serde_json::json;

const POD: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: main, image: nginx}, {name: side, image: busybox}]
";

fn webhook(hook: &Hook) -> String {
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "streams" }, "webhooks": [{
            "name": "streams.example.com", "clientConfig": hook.client_config("/streams"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"],
                "operations": ["CONNECT"], "resources": ["pods/*", "services/proxy", "nodes/proxy"] }] }] })
    .to_string()
}

/// Every way in, with kubectl's words before the refusal's.
const WAYS: [(&str, &str); 5] = [
    ("kubectl exec web -c side -- ls", "exec"),
    ("kubectl attach web -c main -i", "attach"),
    ("kubectl port-forward pod/web 0:80", "portforward"),
    ("kubectl get --raw /api/v1/namespaces/default/pods/web:80/proxy/a", "proxy"),
    ("kubectl get --raw /api/v1/namespaces/default/services/nothing/proxy/", "proxy"),
];

fn refused(cluster: &Cluster, line: &str, words: &str) {
    let output = cluster.run(&format!("timeout 20 {line}"));
    assert_ne!(output.code, 0, "{line} was let through");
    assert!(output.stderr.contains(words), "{line}\n{output}");
}

#[test]
fn a_webhook_that_denies_streams_is_asked_first() {
    let cluster = Cluster::simulated();
    cluster.provide("kubectl-1.37", &coracle_tests::clients::newer_kubectl());
    cluster.apply(POD);
    cluster.ok("kubectl wait pod/web --for=condition=Ready --timeout=100s");
    let hook = Hook::start(|call| {
        let sub = call.body["request"]["subResource"].as_str().unwrap_or_default().to_owned();
        review::denied(call, &format!("no {sub} here"))
    });
    cluster.apply(&webhook(&hook));
    for (line, sub) in WAYS {
        let words = format!("admission webhook \"streams.example.com\" denied the request: no {sub} here");
        refused(&cluster, line, &words);
        refused(&cluster, &line.replacen("kubectl", "kubectl-1.37", 1), &words);
    }
    let node = cluster.ok("kubectl get pod web -o jsonpath='{.spec.nodeName}'");
    refused(&cluster, &format!("kubectl get --raw /api/v1/nodes/{node}/proxy/metrics"), "no proxy here");
    // A pod that nobody knows and a request that is no upgrade are looked at afterwards.
    for path in ["web/attach?stdin=true", "web/exec?command=ls", "nobody/exec?command=ls&stdout=true"] {
        let answer = cluster.raw("POST", &format!("/api/v1/namespaces/default/pods/{path}"), "");
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with("admission webhook"), "{path}: {message}");
    }
    let call = hook.calls().into_iter().find(|call| call.body["request"]["subResource"] == "exec");
    let request = call.expect("the webhook was asked").body["request"].take();
    let options = json!({ "kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "stderr": true,
        "container": "side", "command": ["ls"] });
    assert_eq!((&request["operation"], &request["object"]), (&json!("CONNECT"), &options));
    assert_eq!(request["kind"], json!({ "group": "", "version": "v1", "kind": "PodExecOptions" }));
    assert_eq!(request["resource"], json!({ "group": "", "version": "v1", "resource": "pods" }));
    // Logs are read, and nobody is asked about reading.
    let asked = hook.calls().len();
    cluster.run("kubectl logs web -c main");
    assert_eq!(hook.calls().len(), asked);
}

#[test]
fn a_policy_that_denies_streams_is_asked_first() {
    let cluster = Cluster::simulated();
    cluster.apply(POD);
    cluster.ok("kubectl wait pod/web --for=condition=Ready --timeout=100s");
    cluster.apply(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: main-only}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec, pods/attach]}]
  validations:
  - expression: "object.container == 'main'"
    messageExpression: "'no ' + request.subResource + ' into ' + object.container"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: main-only}
spec: {policyName: main-only, validationActions: [Deny]}
"#,
    );
    for verb in ["exec", "attach"] {
        let line = if verb == "exec" { "exec web -c side -- ls" } else { "attach web -c side -i" };
        let words = format!(
            "ValidatingAdmissionPolicy 'main-only' with binding 'main-only' denied request: no {verb} into side"
        );
        refused(&cluster, &format!("kubectl {line}"), &words);
        // What is let through gets as far as the simulated node, which runs no kubelet.
        let through = cluster.run(&format!("timeout 20 kubectl {}", line.replace("side", "main")));
        assert!(through.code != 0 && !through.stderr.contains("ValidatingAdmissionPolicy"), "{through}");
    }
}
