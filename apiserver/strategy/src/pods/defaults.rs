//! Defaults of pods and of pod templates (upstream's `SetDefaults_Pod*`).

use super::super::value::*;
use super::image_name::tag_and_digest;
use super::volume_defaults;
use coracle_api::Object;
use coracle_api::pod::{self, Counted};
use serde_json::{Value, json};

/// What a pod can ask for as a whole and get less of than its limit.
const OVERCOMMITTED: [&str; 2] = ["cpu", "memory"];
/// What the names of huge pages begin with.
const HUGE_PAGES: &str = "hugepages-";

/// Defaults of a pod: those of its spec, and what only pods have and templates do not.
pub fn pod(object: &mut Object) {
    spec(object, "spec");
    let Some(spec) = at_mut(object, "spec") else { return };
    default(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        each_mut(spec, list).for_each(requests_from_limits);
    }
    pod_huge_page_limits(spec);
    pod_requests(spec);
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
        if let Some(file) = at_mut(env, "valueFrom.fileKeyRef") {
            default(file, "optional", false);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = at_mut(container, name) {
            probe(found);
        }
    }
    drop_stop_signal(container);
    for hook in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        if let Some(action) = at_mut(container, hook) {
            http_get(action);
        }
    }
}

/// Upstream's gate ContainerStopSignals is off, and no runtime could be told of it: the field is dropped, and with it a
/// lifecycle that says nothing else (KEP-4960).
fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = at_mut(container, "lifecycle") else { return };
    let dropped = remove(lifecycle, "stopSignal").is_some();
    if dropped && lifecycle.as_object().is_some_and(serde_json::Map::is_empty) {
        remove(container, "lifecycle");
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

/// A pod that says anything of itself as a whole may have the huge pages that its containers may have together: they
/// cannot be overcommitted. What a pod says itself stands (KEP-2837).
fn pod_huge_page_limits(spec: &mut Value) {
    let said = |list: &str| at(spec, list).as_object().is_some_and(|amounts| !amounts.is_empty());
    if !said("resources.requests") && !said("resources.limits") {
        return;
    }
    let mut containers = spec.clone();
    remove(&mut containers, "resources");
    let containers = json!({ "spec": containers });
    let limits = pod::limits(&containers, Counted::default()).to_map();
    let pages: Vec<_> = limits.into_iter().filter(|(name, _)| name.starts_with(HUGE_PAGES)).collect();
    if pages.is_empty() {
        return;
    }
    if let Some(limits) = object_at(spec, "resources.limits") {
        pages.into_iter().for_each(|(name, amount)| default(limits, &name, amount.to_string()));
    }
}

/// A pod that limits itself as a whole asks for what its containers ask for together, and where they ask for nothing, for
/// its limit. What a pod says itself stands (KEP-2837).
fn pod_requests(spec: &mut Value) {
    let Some(limits) = at(spec, "resources.limits").as_object().filter(|limits| !limits.is_empty()).cloned()
    else {
        return;
    };
    let mut containers = spec.clone();
    remove(&mut containers, "resources");
    let containers = json!({ "spec": containers });
    let asked = pod::requests(&containers, Counted::default()).to_map();
    let asked = asked.into_iter().filter(|(name, _)| OVERCOMMITTED.contains(&name.as_str()));
    let limits = limits
        .into_iter()
        .filter(|(name, _)| OVERCOMMITTED.contains(&name.as_str()) || name.starts_with(HUGE_PAGES));
    let wanted: Vec<(String, Value)> =
        asked.map(|(name, quantity)| (name, quantity.to_string().into())).chain(limits).collect();
    if let Some(requests) = object_at(spec, "resources.requests") {
        wanted.into_iter().for_each(|(name, quantity)| default(requests, &name, quantity));
    }
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
    fn a_pod_that_limits_itself_asks_for_what_its_containers_do_or_for_its_limit() {
        let container =
            json!([{ "name": "c", "resources": { "requests": { "cpu": "100m", "example.com/a": "1" } } }]);
        for (resources, requests) in [
            (
                json!({ "limits": { "cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi" } }),
                json!({ "cpu": "100m", "memory": "1Gi", "hugepages-2Mi": "2Mi" }),
            ),
            (
                json!({ "limits": { "memory": "1Gi" }, "requests": { "cpu": "500m" } }),
                json!({ "cpu": "500m", "memory": "1Gi" }),
            ),
            (json!({ "limits": { "memory": "1Gi" } }), json!({ "cpu": "100m", "memory": "1Gi" })),
            (json!({ "requests": { "memory": "1Gi" } }), json!({ "memory": "1Gi" })),
            (json!({}), Value::Null),
        ] {
            let mut object = json!({ "spec": { "containers": container, "resources": resources } });
            pod(&mut object);
            assert_eq!(*at(&object, "spec.resources.requests"), requests, "{resources}");
        }
    }

    #[test]
    fn a_pod_that_says_anything_of_itself_may_have_the_huge_pages_of_its_containers() {
        let with =
            |amount: &str| json!({ "resources": { "limits": { "hugepages-2Mi": amount, "memory": "1Gi" } } });
        let of = |resources: Value| {
            let mut object =
                json!({ "spec": { "containers": [with("4Mi"), with("2Mi")], "resources": resources } });
            pod(&mut object);
            at(&object, "spec.resources").clone()
        };
        assert_eq!(
            of(json!({ "requests": { "cpu": "1" } })),
            json!({
                "limits": { "hugepages-2Mi": "6Mi" },
                "requests": { "cpu": "1", "hugepages-2Mi": "6Mi", "memory": "2Gi" },
            })
        );
        assert_eq!(
            of(json!({ "limits": { "cpu": "1" } })),
            json!({
                "limits": { "cpu": "1", "hugepages-2Mi": "6Mi" },
                "requests": { "cpu": "1", "hugepages-2Mi": "6Mi", "memory": "2Gi" },
            })
        );
        let own = of(json!({ "limits": { "hugepages-2Mi": "8Mi" } }));
        assert_eq!(own["limits"], json!({ "hugepages-2Mi": "8Mi" }));
        assert_eq!(of(json!({})), json!({}));
        assert_eq!(of(Value::Null), Value::Null);
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
