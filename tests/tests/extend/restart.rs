//! kill -9 while custom resources, webhooks and policies are in use: everything is there again at once, and what was
//! under way goes on.

use coracle_tests::hook::review;
use coracle_tests::{Cluster, Hook};
use serde_json::json;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: notes.restart.example.com}
spec:
  group: restart.example.com
  scope: Namespaced
  names: {plural: notes, singular: note, kind: Note, shortNames: [nt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string, default: blue}
              size: {type: integer}
            x-kubernetes-validations:
            - {rule: "!has(self.size) || self.size < 10", message: too large}
"#;

const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-red}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [restart.example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [notes]}]
  validations: [{expression: "object.spec.color != 'red'", message: red is taken}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-red}
spec: {policyName: no-red, validationActions: [Deny]}
"#;

fn note(name: &str, color: &str) -> String {
    json!({ "apiVersion": "restart.example.com/v1", "kind": "Note", "metadata": { "name": name },
        "spec": { "color": color } })
    .to_string()
}

/// Denies objects whose names begin with `no`.
fn hook() -> Hook {
    Hook::start(|call| {
        let name = call.body["request"]["name"].as_str().unwrap_or_default();
        if name.starts_with("no") { review::denied(call, "not this one") } else { review::allowed(call) }
    })
}

fn webhook(hook: &Hook) -> String {
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "names" }, "webhooks": [{
            "name": "names.restart.example.com", "clientConfig": hook.client_config("/names"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [{ "apiGroups": ["restart.example.com"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["*"] }] }] })
    .to_string()
}

const NOTES: &str = "/apis/restart.example.com/v1/namespaces/default/notes";

/// The first requests after the start, which nobody waits for anything before.
fn serves(cluster: &Cluster) {
    let refused = cluster.raw("POST", NOTES, &note("one", "red")).json();
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(
            "ValidatingAdmissionPolicy 'no-red' with binding 'no-red' denied request: red is taken"
        ),
        "{refused}"
    );
    let refused = cluster.raw("POST", NOTES, &note("none", "green")).json();
    let message = refused["message"].as_str().unwrap_or_default();
    assert_eq!(message, "admission webhook \"names.restart.example.com\" denied the request: not this one");
    let list = cluster.raw("GET", &format!("{NOTES}?fieldSelector=spec.color%3Dblue"), "").json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    cluster.shows("kubectl get nt kept", &["NAME   COLOR", "kept   blue"]);
    cluster.refuses(
        "kubectl patch note kept --type=merge -p '{\"spec\":{\"size\":10}}'",
        "The Note \"kept\" is invalid: spec: Invalid value: too large\n",
    );
    cluster.shows("kubectl explain note.spec.color", &["FIELD: color <string>"]);
    cluster.shows("kubectl get --raw /openapi/v2", &["com.example.restart.v1.Note"]);
}

#[test]
fn everything_serves_again_after_kill_9() {
    let mut cluster = Cluster::start(&[]);
    let hook = hook();
    cluster.apply(DEFINITION);
    cluster.ok("kubectl wait crd/notes.restart.example.com --for=condition=Established --timeout=100s");
    cluster.apply(&note("kept", "blue"));
    cluster.apply(POLICY);
    cluster.apply(&webhook(&hook));
    serves(&cluster);
    for _ in 0..2 {
        cluster.kill();
        cluster.restart();
        serves(&cluster);
    }
    cluster.terminate();
    cluster.restart();
    serves(&cluster);
}

#[test]
fn the_deletion_of_a_definition_goes_on_after_kill_9() {
    let mut cluster = Cluster::start(&[]);
    cluster.apply(DEFINITION);
    cluster.ok("kubectl wait crd/notes.restart.example.com --for=condition=Established --timeout=100s");
    for n in 0..20 {
        cluster.apply(&note(&format!("n-{n}"), "blue"));
    }
    // One that stays until somebody lets it go.
    cluster.ok(
        "kubectl patch note n-7 --type=merge -p '{\"metadata\":{\"finalizers\":[\"example.com/held\"]}}'",
    );
    cluster.ok("kubectl delete crd notes.restart.example.com --wait=false");
    let condition = "kubectl get crd notes.restart.example.com -o jsonpath='{.status.conditions[?(@.type==\"Terminating\")].reason}'";
    cluster.until(condition, "InstanceDeletionInProgress");
    cluster.kill();
    cluster.restart();
    cluster.says(condition, "InstanceDeletionInProgress");
    cluster.until("kubectl get notes -o name", "note.restart.example.com/n-7");
    let refused = cluster.raw("POST", NOTES, &note("late", "blue"));
    assert_eq!(refused.code, 405, "{}", refused.text);
    cluster.ok("kubectl patch note n-7 --type=merge -p '{\"metadata\":{\"finalizers\":null}}'");
    cluster.until("kubectl get crd -o name", "");
    assert_eq!(cluster.raw("GET", NOTES, "").code, 404);
    // The same name comes back empty.
    cluster.apply(DEFINITION);
    cluster.ok("kubectl wait crd/notes.restart.example.com --for=condition=Established --timeout=100s");
    cluster.until("kubectl get notes -o name", "");
}
