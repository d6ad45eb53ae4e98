//! Defaults of pods and of pod templates (upstream's `SetDefaults_Pod*`).

use super::super::value::*;
use super::image_name::tag_and_digest;
use super::volume_defaults;
use coracle_api::Object;
use serde_json::{Value, json};

/// Defaults of a pod: those of its spec, and what only pods have and templates do not.
pub fn pod(object: &mut Object) {
    spec(object, "spec");
    let Some(spec) = at_mut(object, "spec") else { return };
    default(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        each_mut(spec, list).for_each(requests_from_limits);
    }
    if let Some(resources) = at_mut(spec, "resources") {
        pod_requests_from_limits(resources);
    }
    if bool_at(spec, "hostNetwork") {
        for list in ["containers", "initContainers"] {
            each_mut(spec, list).for_each(host_ports);
        }
    }
}

/// Defaults of the pod spec at `path` of any object, such as `spec.template.spec`.
pub fn spec(object: &mut Object, path: &str) {
    let Some(spec) = object_at(object, path) else { return };
    default_str(spec, "dnsPolicy", "ClusterFirst");
    default_str(spec, "restartPolicy", "Always");
    default_str(spec, "schedulerName", "default-scheduler");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30);
    service_account(spec);
    each_mut(spec, "volumes").for_each(volume_defaults::volume);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each_mut(spec, list).for_each(container);
    }
}

/// The deprecated name of the field is served beside the present one and always equal to it.
fn service_account(spec: &mut Value) {
    let name = match (str_at(spec, "serviceAccountName"), str_at(spec, "serviceAccount")) {
        ("", "") => return,
        ("", old) => old.to_owned(),
        (name, _) => name.to_owned(),
    };
    set(spec, "serviceAccountName", name.as_str());
    set(spec, "serviceAccount", name);
}

fn container(container: &mut Value) {
    let policy = pull_policy(str_at(container, "image"));
    default_str(container, "imagePullPolicy", policy);
    default_str(container, "terminationMessagePath", "/dev/termination-log");
    default_str(container, "terminationMessagePolicy", "File");
    default(container, "resources", json!({}));
    for port in each_mut(container, "ports") {
        default_str(port, "protocol", "TCP");
    }
    for env in each_mut(container, "env") {
        if let Some(field) = at_mut(env, "valueFrom.fieldRef") {
            default_str(field, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = at_mut(container, name) {
            probe(found);
        }
    }
    for hook in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        if let Some(action) = at_mut(container, hook) {
            http_get(action);
        }
    }
}

fn probe(probe: &mut Value) {
    default_number(probe, "timeoutSeconds", 1);
    default_number(probe, "periodSeconds", 10);
    default_number(probe, "successThreshold", 1);
    default_number(probe, "failureThreshold", 3);
    if let Some(action) = at_mut(probe, "httpGet") {
        http_get(action);
    }
    if let Some(action) = at_mut(probe, "grpc") {
        default(action, "service", "");
    }
}

fn http_get(action: &mut Value) {
    default_str(action, "path", "/");
    default_str(action, "scheme", "HTTP");
}

/// `Always` for the tag `latest`, which is also what an image without tag and digest has; not for a name that nobody can
/// read.
pub fn pull_policy(image: &str) -> &'static str {
    match tag_and_digest(image) {
        Some(("latest", _)) => "Always",
        _ => "IfNotPresent",
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = at(container, "resources.limits").as_object().cloned() else { return };
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = object_at(container, "resources.requests") {
        for (name, quantity) in limits {
            default(requests, &name, quantity);
        }
    }
}

/// Pod-level requests are defaulted where the pod-level limit is the only word on the resource.
fn pod_requests_from_limits(resources: &mut Value) {
    let Some(limits) = at(resources, "limits").as_object().cloned() else { return };
    if limits.is_empty() || has(resources, "requests") {
        return;
    }
    set(resources, "requests", limits);
}

fn host_ports(container: &mut Value) {
    for port in each_mut(container, "ports") {
        if let Some(number) = i64_at(port, "containerPort") {
            default_number(port, "hostPort", number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:00", "IfNotPresent"),
            ("ko://github.com/a/b", "IfNotPresent"),
            ("", "IfNotPresent"),
            ("nginx:1.2", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn a_small_pod_becomes_upstreams() {
        let mut object = json!({ "spec": { "containers": [{
            "name": "c", "image": "nginx",
            "ports": [{ "containerPort": 80 }],
            "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } },
            "livenessProbe": { "httpGet": { "port": 80 } },
        }], "serviceAccountName": "s", "hostNetwork": true, "volumes": [{ "name": "v" }] } });
        pod(&mut object);
        let expected = json!({ "spec": { "containers": [{
            "name": "c", "image": "nginx", "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "ports": [{ "containerPort": 80, "protocol": "TCP", "hostPort": 80 }],
            "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m", "memory": "1Gi" } },
            "livenessProbe": { "httpGet": { "port": 80, "path": "/", "scheme": "HTTP" }, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 },
        }], "serviceAccountName": "s", "serviceAccount": "s", "hostNetwork": true,
            "volumes": [{ "name": "v", "emptyDir": {} }], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": true } });
        assert_eq!(object, expected);
        let once = object.clone();
        pod(&mut object);
        assert_eq!(object, once, "defaulting twice changes nothing");
    }
}
