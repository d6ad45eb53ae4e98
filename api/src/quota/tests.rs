use super::*;
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn used(group: &str, resource: &str, object: Value) -> String {
    listed(&usage(group, resource, &object, now()))
}

#[test]
fn pods_count_their_peak() {
    let ask = |cpu: &str| json!({ "requests": { "cpu": cpu }, "limits": { "cpu": "2" } });
    let pod = json!({ "spec": {
        "containers": [{ "name": "a", "resources": ask("100m") }, { "name": "b", "resources": ask("200m") }],
        "initContainers": [
            { "name": "s", "restartPolicy": "Always", "resources": ask("50m") },
            { "name": "i", "resources": ask("1") },
        ],
        "overhead": { "cpu": "10m", "memory": "1Mi" },
    } });
    assert_eq!(
        used("", "pods", pod.clone()),
        "count/pods=1,cpu=1060m,limits.cpu=6010m,memory=1Mi,pods=1,requests.cpu=1060m,requests.memory=1Mi"
    );
}

#[test]
fn resized_containers_count_what_they_may_have() {
    let pod = json!({
        "spec": { "containers": [{ "name": "a", "resources": { "requests": { "cpu": "1", "example.com/x": "2" } } }] },
        "status": { "containerStatuses": [{ "name": "a", "resources": { "requests": { "cpu": "2", "memory": "1Gi" } } }] },
    });
    assert_eq!(
        used("", "pods", pod.clone()),
        "count/pods=1,cpu=2,memory=1Gi,pods=1,requests.cpu=2,requests.example.com/x=2,requests.memory=1Gi"
    );
    let mut refused = pod;
    refused["status"]["conditions"] =
        json!([{ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }]);
    refused["status"]["containerStatuses"][0]["resources"]["requests"] = json!({ "cpu": "500m" });
    assert_eq!(used("", "pods", refused), "count/pods=1,cpu=500m,pods=1,requests.cpu=500m", "what it has");
}

#[test]
fn ended_pods_are_objects_only() {
    let done = json!({ "status": { "phase": "Failed" } });
    assert_eq!(used("", "pods", done), "count/pods=1");
    let deleted = |seconds: i64| json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": seconds } });
    assert_eq!(used("", "pods", deleted(30)), "count/pods=1");
    assert_eq!(used("", "pods", deleted(90)), "count/pods=1,pods=1");
}

#[test]
fn services_claims_and_counts() {
    let service = |kind: &str| json!({ "spec": { "type": kind, "ports": [{ "nodePort": 30000 }, {}] } });
    assert_eq!(
        used("", "services", service("NodePort")),
        "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2"
    );
    let mut balanced = service("LoadBalancer");
    balanced["spec"]["allocateLoadBalancerNodePorts"] = false.into();
    assert!(used("", "services", balanced).ends_with("services.loadbalancers=1,services.nodeports=1"));
    let claim = json!({ "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "allocatedResources": { "storage": "2Gi" } } });
    assert_eq!(
        used("", "persistentvolumeclaims", claim),
        "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
         gold.storageclass.storage.k8s.io/requests.storage=2Gi,persistentvolumeclaims=1,requests.storage=2Gi"
    );
    assert_eq!(used("apps", "deployments", json!({})), "count/deployments.apps=1");
    assert_eq!(used("", "configmaps", json!({})), "configmaps=1,count/configmaps=1");
    let claim = json!({ "spec": { "devices": { "requests": [
        { "exactly": { "deviceClassName": "gpu", "count": 2 } },
        { "firstAvailable": [{ "deviceClassName": "gpu" }, { "deviceClassName": "nic", "allocationMode": "All" }] },
    ] } } });
    assert_eq!(
        used("resource.k8s.io", "resourceclaims", claim),
        "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=3,\
         nic.deviceclass.resource.k8s.io/devices=32"
    );
}

#[test]
fn names_tell_what_they_measure() {
    for (name, group, plural) in [
        ("count/jobs.batch", "batch", "jobs"),
        ("count/pods", "", "pods"),
        ("services.nodeports", "", "services"),
        ("requests.storage", "", "persistentvolumeclaims"),
        ("gold.storageclass.storage.k8s.io/requests.storage", "", "persistentvolumeclaims"),
        ("limits.cpu", "", "pods"),
        ("requests.example.com/gpu", "", "pods"),
        ("gpu.deviceclass.resource.k8s.io/devices", "resource.k8s.io", "resourceclaims"),
        ("secrets", "", "secrets"),
    ] {
        assert_eq!(measured(name), (group.to_owned(), plural.to_owned()), "{name}");
    }
}

#[test]
fn scopes() {
    let pod = json!({ "spec": { "activeDeadlineSeconds": 5, "priorityClassName": "high",
        "containers": [{ "resources": { "requests": { "cpu": "1" } } }] } });
    let quota = |scope: &str| json!({ "spec": { "scopes": [scope] } });
    for (scope, wanted) in [
        ("Terminating", true),
        ("NotTerminating", false),
        ("BestEffort", false),
        ("NotBestEffort", true),
        ("PriorityClass", true),
        ("CrossNamespacePodAffinity", false),
        ("Unheard", false),
    ] {
        assert_eq!(matches_scopes(&quota(scope), "", "pods", &pod), wanted, "{scope}");
        assert!(!matches_scopes(&quota(scope), "", "services", &json!({})));
    }
    let selecting = |scope: &str, operator: &str, values: Value| {
        json!({ "spec": { "scopeSelector": { "matchExpressions": [
            { "scopeName": scope, "operator": operator, "values": values }] } } })
    };
    let class =
        |operator, values| matches_scopes(&selecting("PriorityClass", operator, values), "", "pods", &pod);
    assert!(class("In", json!(["high"])) && !class("In", json!(["low"])));
    assert!(
        !class("NotIn", json!(["high"])) && class("Exists", json!([])) && !class("DoesNotExist", json!([]))
    );
    let claim = json!({ "spec": { "volumeAttributesClassName": "fast" } });
    let fast = selecting("VolumeAttributesClass", "In", json!(["fast"]));
    assert!(matches_scopes(&fast, "", "persistentvolumeclaims", &claim));
    assert!(!matches_scopes(&fast, "", "persistentvolumeclaims", &json!({})));
    assert!(matches_scopes(&json!({}), "apps", "deployments", &json!({})));
}
