//! What upstream answers to documents of built-in kinds with mistakes, one line for each in `validation.table`.
//!
//! A line has the kind, how the document differs from the good one of its kind (a merge patch), the code of the answer, and
//! what is said, in order: the causes of a refusal, or the warnings of a document that is accepted.

use crate::support::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

struct Case {
    line: usize,
    kind: String,
    patch: Value,
    code: u16,
    says: Vec<String>,
}

fn cases() -> Vec<Case> {
    let lines = include_str!("validation.table").lines().enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(i, line)| case(i + 1, line))
        .collect()
}

fn case(line: usize, text: &str) -> Case {
    let parts: Vec<&str> = text.split('\t').collect();
    let [kind, patch, code, says @ ..] = parts.as_slice() else {
        panic!("line {line} has no kind, patch and code")
    };
    Case {
        line,
        kind: (*kind).to_owned(),
        patch: serde_json::from_str(patch).unwrap_or_else(|e| panic!("line {line}: {e}")),
        code: code.parse().unwrap(),
        says: says.iter().map(|said| (*said).to_owned()).collect(),
    }
}

/// Where documents of a kind are made, and the good one.
fn good(kind: &str) -> (&'static str, Value) {
    let (path, version, spec) = match kind {
        "Pod" => ("/api/v1/namespaces/default/pods", "v1", json!({ "spec": pod_spec() })),
        "StatefulSet" => ("/apis/apps/v1/namespaces/default/statefulsets", "apps/v1", workload()),
        "Deployment" => ("/apis/apps/v1/namespaces/default/deployments", "apps/v1", workload()),
        "DaemonSet" => ("/apis/apps/v1/namespaces/default/daemonsets", "apps/v1", workload()),
        "ReplicaSet" => ("/apis/apps/v1/namespaces/default/replicasets", "apps/v1", workload()),
        "Job" => {
            let mut template = json!({ "spec": pod_spec() });
            template["spec"]["restartPolicy"] = "Never".into();
            (
                "/apis/batch/v1/namespaces/default/jobs",
                "batch/v1",
                json!({ "spec": { "template": template } }),
            )
        }
        "Service" => {
            ("/api/v1/namespaces/default/services", "v1", json!({ "spec": { "ports": [{ "port": 80 }] } }))
        }
        "Ingress" => {
            let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
            let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
            (path, "networking.k8s.io/v1", json!({ "spec": { "defaultBackend": backend } }))
        }
        "IngressClass" => {
            let path = "/apis/networking.k8s.io/v1/ingressclasses";
            (path, "networking.k8s.io/v1", json!({ "spec": { "controller": "a.b/c" } }))
        }
        "Endpoints" => {
            let subsets = json!([{ "addresses": [{ "ip": "10.1.2.3" }] }]);
            ("/api/v1/namespaces/default/endpoints", "v1", json!({ "subsets": subsets }))
        }
        "LimitRange" => {
            let limits = json!([{ "type": "Container", "min": { "cpu": "100m" } }]);
            ("/api/v1/namespaces/default/limitranges", "v1", json!({ "spec": { "limits": limits } }))
        }
        "HorizontalPodAutoscaler" => {
            let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" });
            let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
            (path, "autoscaling/v2", json!({ "spec": { "scaleTargetRef": target, "maxReplicas": 2 } }))
        }
        "PodDisruptionBudget" => {
            let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
            let selector = json!({ "matchLabels": { "a": "b" } });
            (path, "policy/v1", json!({ "spec": { "minAvailable": 1, "selector": selector } }))
        }
        other => good_of_storage(other),
    };
    (path, whole(kind, version, spec))
}

fn good_of_storage(kind: &str) -> (&'static str, &'static str, Value) {
    match kind {
        "PersistentVolume" => {
            let spec = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "hostPath": { "path": "/x" } });
            ("/api/v1/persistentvolumes", "v1", json!({ "spec": spec }))
        }
        "PersistentVolumeClaim" => {
            let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
            ("/api/v1/namespaces/default/persistentvolumeclaims", "v1", json!({ "spec": spec }))
        }
        "CSIDriver" => ("/apis/storage.k8s.io/v1/csidrivers", "storage.k8s.io/v1", json!({ "spec": {} })),
        "PriorityClass" => {
            ("/apis/scheduling.k8s.io/v1/priorityclasses", "scheduling.k8s.io/v1", json!({ "value": 1 }))
        }
        "Secret" => ("/api/v1/namespaces/default/secrets", "v1", json!({})),
        other => good_of_the_api(other),
    }
}

fn good_of_the_api(kind: &str) -> (&'static str, &'static str, Value) {
    match kind {
        "CertificateSigningRequest" => {
            let spec = json!({ "signerName": "a.b/c", "usages": ["digital signature"] });
            (
                "/apis/certificates.k8s.io/v1/certificatesigningrequests",
                "certificates.k8s.io/v1",
                json!({ "spec": spec }),
            )
        }
        "APIService" => {
            let spec = json!({ "group": "x.y", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
                "service": { "namespace": "n", "name": "s" }, "insecureSkipTLSVerify": true });
            let object = json!({ "metadata": { "name": "v1.x.y" }, "spec": spec });
            ("/apis/apiregistration.k8s.io/v1/apiservices", "apiregistration.k8s.io/v1", object)
        }
        "CustomResourceDefinition" => {
            let schema = json!({ "openAPIV3Schema": { "type": "object" } });
            let versions = json!([{ "name": "v1", "served": true, "storage": true, "schema": schema }]);
            let names = json!({ "plural": "as", "kind": "A" });
            let spec = json!({ "group": "b.c", "scope": "Cluster", "names": names, "versions": versions });
            let object = json!({ "metadata": { "name": "as.b.c" }, "spec": spec });
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1", object)
        }
        "ValidatingWebhookConfiguration" => {
            let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
            (path, "admissionregistration.k8s.io/v1", json!({}))
        }
        "ClusterRole" => {
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1", json!({}))
        }
        other => good_of_the_cluster(other),
    }
}

fn good_of_the_cluster(kind: &str) -> (&'static str, &'static str, Value) {
    match kind {
        "ConfigMap" => ("/api/v1/namespaces/default/configmaps", "v1", json!({})),
        "ServiceAccount" => ("/api/v1/namespaces/default/serviceaccounts", "v1", json!({})),
        "Node" => ("/api/v1/nodes", "v1", json!({})),
        "ResourceQuota" => ("/api/v1/namespaces/default/resourcequotas", "v1", json!({})),
        "Event" => {
            let event = json!({ "reportingController": "a.b/c", "reportingInstance": "i", "action": "a",
                "reason": "r", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z" });
            ("/apis/events.k8s.io/v1/namespaces/default/events", "events.k8s.io/v1", event)
        }
        "StorageClass" => {
            let path = "/apis/storage.k8s.io/v1/storageclasses";
            (path, "storage.k8s.io/v1", json!({ "provisioner": "a.b/c" }))
        }
        "RuntimeClass" => {
            ("/apis/node.k8s.io/v1/runtimeclasses", "node.k8s.io/v1", json!({ "handler": "h" }))
        }
        "NetworkPolicy" => {
            let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
            (path, "networking.k8s.io/v1", json!({ "spec": { "podSelector": {} } }))
        }
        "EndpointSlice" => {
            let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
            let slice = json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.1.2.3"] }] });
            (path, "discovery.k8s.io/v1", slice)
        }
        other => good_of_admission(other),
    }
}

fn good_of_admission(kind: &str) -> (&'static str, &'static str, Value) {
    const GROUP: &str = "admissionregistration.k8s.io/v1";
    const ROLES: &str = "rbac.authorization.k8s.io/v1";
    let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }]);
    let constraints = json!({ "resourceRules": rules });
    let role = json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" } });
    match kind {
        "ReplicationController" => {
            let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod_spec() });
            let spec = json!({ "selector": { "a": "b" }, "template": template });
            ("/api/v1/namespaces/default/replicationcontrollers", "v1", json!({ "spec": spec }))
        }
        "Namespace" => ("/api/v1/namespaces", "v1", json!({})),
        "MutatingWebhookConfiguration" => {
            ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", GROUP, json!({}))
        }
        "ValidatingAdmissionPolicy" => {
            let spec = json!({ "matchConstraints": constraints, "validations": [{ "expression": "true" }] });
            (
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
                GROUP,
                json!({ "spec": spec }),
            )
        }
        "MutatingAdmissionPolicy" => {
            let mutations = json!([{ "patchType": "JSONPatch", "jsonPatch": { "expression": "[JSONPatch{op: 'remove', path: '/a'}]" } }]);
            let spec = json!({ "matchConstraints": constraints, "mutations": mutations, "reinvocationPolicy": "Never" });
            (
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
                GROUP,
                json!({ "spec": spec }),
            )
        }
        "ValidatingAdmissionPolicyBinding" => {
            let spec = json!({ "policyName": "p", "validationActions": ["Deny"] });
            (
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
                GROUP,
                json!({ "spec": spec }),
            )
        }
        "MutatingAdmissionPolicyBinding" => {
            let spec = json!({ "policyName": "p" });
            (
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
                GROUP,
                json!({ "spec": spec }),
            )
        }
        "ClusterRoleBinding" => ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ROLES, role),
        "RoleBinding" => ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", ROLES, role),
        "VolumeAttributesClass" => {
            let path = "/apis/storage.k8s.io/v1/volumeattributesclasses";
            (path, "storage.k8s.io/v1", json!({ "driverName": "a.b" }))
        }
        other => panic!("no good document of the kind {other}"),
    }
}

fn whole(kind: &str, version: &str, rest: Value) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "a" } });
    json_patch::merge(&mut object, &rest);
    object
}

fn pod_spec() -> Value {
    json!({ "containers": [{ "name": "c", "image": "i:1" }] })
}

fn workload() -> Value {
    json!({ "spec": { "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod_spec() } } })
}

fn said(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let cause = |cause: &Value| {
        format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
    };
    match body["details"]["causes"].as_array() {
        Some(causes) if answer.status.as_u16() == 422 => causes.iter().map(cause).collect(),
        _ if answer.status.as_u16() == 201 => {
            let warnings = answer.headers.get_all("warning").iter();
            warnings.map(|w| w.to_str().unwrap().replace("\\\"", "\"")).collect()
        }
        _ => vec![body["message"].as_str().unwrap_or_default().to_owned()],
    }
}

#[tokio::test]
async fn documents_are_answered_as_upstream_answers_them() {
    let api = Fixture::new().await.bootstrapped(None).await;
    let (mut wrong, mut counts) = (Vec::new(), BTreeMap::<String, usize>::new());
    for case in cases() {
        let (path, mut document) = good(&case.kind);
        json_patch::merge(&mut document, &case.patch);
        let answer = api.post(&format!("{path}?dryRun=All"), &document).await;
        let expected: Vec<String> = match case.code {
            201 => case.says.iter().map(|text| format!("299 - \"{text}\"")).collect(),
            _ => case.says,
        };
        if (answer.status.as_u16(), said(&answer)) != (case.code, expected.clone()) {
            let found = said(&answer).join("\n    ");
            let line = case.line;
            wrong.push(format!(
                "line {line}: {}\n    {found}\n  instead of {}\n    {}",
                answer.status,
                case.code,
                expected.join("\n    ")
            ));
        }
        *counts.entry(case.kind).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let few: Vec<_> = counts.iter().filter(|(_, count)| **count < 4).collect();
    assert!(few.is_empty(), "too few documents of {few:?}");
}
