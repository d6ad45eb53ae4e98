use super::*;
use crate::Quantity;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

const SPEC: Counted<'_> = Counted { overhead: true, status: false, missing: &[] };
const IN_FORCE: Counted<'_> = Counted { status: true, ..SPEC };

fn container(name: &str, cpu: &str) -> Value {
    json!({ "name": name, "image": "i", "resources": { "requests": { "cpu": cpu }, "limits": { "cpu": cpu } } })
}

fn sidecar(cpu: &str) -> Value {
    let mut container = container("s", cpu);
    container["restartPolicy"] = json!("Always");
    container
}

/// The same of the pod as JSON and as a typed one.
fn both<T: PartialEq + std::fmt::Debug>(
    pod: &Value,
    untyped: impl Fn(&Value) -> T,
    typed: impl Fn(&Pod) -> T,
) -> T {
    let decoded: Pod = serde_json::from_value(pod.clone()).unwrap();
    let answer = untyped(pod);
    assert_eq!(answer, typed(&decoded), "{pod}");
    answer
}

fn cpu(list: &ResourceList<'_>) -> Option<i64> {
    list.get("cpu").map(Quantity::milli)
}

fn cpu_requests(pod: &Value, counted: Counted<'_>) -> Option<i64> {
    both(pod, |p| cpu(&requests(p, counted)), |p| cpu(&requests(p, counted)))
}

fn cpu_limits(pod: &Value, counted: Counted<'_>) -> Option<i64> {
    both(pod, |p| cpu(&limits(p, counted)), |p| cpu(&limits(p, counted)))
}

#[test]
fn a_pod_requests_the_most_that_runs_at_once() {
    let (one, two) = (container("a", "1"), container("b", "2"));
    for (spec, expected) in [
        (json!({ "containers": [] }), None),
        (json!({ "containers": [one, two] }), Some(3000)),
        (json!({ "containers": [one], "initContainers": [two] }), Some(2000)),
        (json!({ "containers": [one, two], "initContainers": [two, two] }), Some(3000)),
        (json!({ "containers": [one], "initContainers": [sidecar("500m")] }), Some(1500)),
        (json!({ "containers": [one], "initContainers": [sidecar("500m"), two] }), Some(2500)),
        (json!({ "containers": [one], "initContainers": [two, sidecar("500m")] }), Some(2000)),
        (json!({ "containers": [one], "overhead": { "cpu": "250m" } }), Some(1250)),
        (json!({ "containers": [one, two], "resources": { "requests": { "cpu": "5" } } }), Some(5000)),
        (json!({ "containers": [one, two], "resources": { "requests": { "cpu": "0" } } }), Some(0)),
        (json!({ "containers": [one], "resources": { "requests": { "memory": "1Gi" } } }), Some(1000)),
        (json!({ "containers": [one], "resources": { "requests": { "example.com/x": "3" } } }), Some(1000)),
    ] {
        assert_eq!(cpu_requests(&json!({ "spec": spec }), SPEC), expected, "{spec}");
    }
    let halves = json!({ "containers": [container("a", "500u"), container("b", "500u")] });
    assert_eq!(
        cpu_requests(&json!({ "spec": halves }), SPEC),
        Some(1),
        "rounded once, not for each container"
    );
    let device = json!({ "containers": [one], "resources": { "requests": { "example.com/x": "3" } } });
    let device = json!({ "spec": device });
    assert_eq!(requests(&device, SPEC).get("example.com/x"), None, "a pod cannot have this as a whole");
}

#[test]
fn a_pod_is_limited_by_what_limits_its_containers() {
    let (one, free) = (container("a", "1"), json!({ "name": "f", "image": "i" }));
    let overhead = json!({ "cpu": "250m", "memory": "1Gi" });
    for (spec, expected) in [
        (json!({ "containers": [free], "overhead": overhead }), None),
        (json!({ "containers": [one, free], "overhead": overhead }), Some(1250)),
        (json!({ "containers": [one], "initContainers": [sidecar("1"), container("i", "2")] }), Some(3000)),
        (json!({ "containers": [one], "resources": { "limits": { "cpu": "4" } } }), Some(4000)),
    ] {
        assert_eq!(cpu_limits(&json!({ "spec": spec }), SPEC), expected, "{spec}");
    }
    let pod = json!({ "spec": { "containers": [one], "overhead": overhead } });
    assert_eq!(limits(&pod, SPEC).get("memory"), None, "nothing limits the memory");
    assert_eq!(cpu_limits(&pod, Counted::default()), Some(1000));
}

fn status(has: &str, given: &str, reason: &str) -> Value {
    let resources = json!({ "requests": { "cpu": has }, "limits": { "cpu": has } });
    json!({
        "containerStatuses": [{ "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "resources": resources, "allocatedResources": { "cpu": given } }],
        "conditions": [{ "type": "PodResizePending", "status": "True", "reason": reason }],
    })
}

#[test]
fn a_resize_counts_for_the_most_that_the_pod_may_have() {
    for (has, given, reason, requested, limit) in [
        ("2", "2", "", 2000, 2000),
        ("3", "2", "Deferred", 3000, 3000),
        ("1", "1", "Deferred", 2000, 2000),
        ("1", "4", "Deferred", 4000, 2000),
        ("1", "1", "Infeasible", 1000, 1000),
        ("1", "1500m", "Infeasible", 1500, 1000),
    ] {
        let pod =
            json!({ "spec": { "containers": [container("a", "2")] }, "status": status(has, given, reason) });
        assert_eq!(cpu_requests(&pod, IN_FORCE), Some(requested), "{has} {given} {reason}");
        assert_eq!(cpu_limits(&pod, IN_FORCE), Some(limit), "{has} {given} {reason}");
        assert_eq!(cpu_requests(&pod, SPEC), Some(2000), "what the spec says");
    }
    let ended = json!({ "spec": { "containers": [], "initContainers": [container("a", "1")] }, "status": {
        "initContainerStatuses": [{ "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "resources": { "requests": { "cpu": "3" } } }] } });
    assert_eq!(cpu_requests(&ended, IN_FORCE), Some(1000), "who cannot be resized has what the spec says");
}

#[test]
fn a_resize_of_the_whole_pod_counts_for_the_most_that_it_may_have() {
    let whole = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "2" } });
    for (has, given, reason, requested, limit) in [
        ("2", "2", "", 2000, 2000),
        ("3", "2", "", 3000, 3000),
        ("1", "1", "Deferred", 2000, 2000),
        ("1", "4", "Deferred", 4000, 2000),
        ("1", "1", "Infeasible", 1000, 1000),
    ] {
        let pod = json!({ "spec": { "containers": [container("a", "1")], "resources": whole },
            "status": { "resources": { "requests": { "cpu": has }, "limits": { "cpu": has } },
                "allocatedResources": { "cpu": given },
                "conditions": [{ "type": "PodResizePending", "status": "True", "reason": reason }] } });
        assert_eq!(cpu_requests(&pod, IN_FORCE), Some(requested), "{has} {given} {reason}");
        assert_eq!(cpu_limits(&pod, IN_FORCE), Some(limit), "{has} {given} {reason}");
    }
}

#[test]
fn what_a_container_does_not_name_can_be_assumed() {
    let assumed = [("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_bytes(1 << 20))];
    let pod = json!({ "spec": { "containers": [container("a", "1"), { "name": "b", "image": "i" }] } });
    let sum = requests(&pod, Counted { missing: &assumed, ..SPEC });
    assert_eq!(cpu(&sum), Some(1100));
    assert_eq!(sum.get("memory").map(Quantity::units), Some(2 << 20));
}

#[test]
fn classes_of_quality_of_service() {
    let class = |pod: &Value| both(pod, qos_class, qos_class).as_str();
    let of = |resources: &Value| json!({ "name": "c", "image": "i", "resources": resources });
    let full = json!({ "cpu": "1", "memory": "1Gi" });
    let guaranteed = json!({ "limits": full, "requests": { "cpu": "1000m", "memory": "1024Mi" } });
    for (resources, expected) in [
        (json!({}), "BestEffort"),
        (json!({ "requests": { "cpu": "0" } }), "BestEffort"),
        (json!({ "requests": { "nvidia.com/gpu": "1" } }), "BestEffort"),
        (json!({ "requests": { "cpu": "1" } }), "Burstable"),
        (json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1" } }), "Burstable"),
        (guaranteed.clone(), "Guaranteed"),
        (json!({ "limits": full }), "Guaranteed"),
        (json!({ "limits": full, "requests": { "cpu": "0", "memory": "1Gi" } }), "Burstable"),
        (json!({ "limits": full, "requests": { "cpu": "1", "memory": "1Mi" } }), "Burstable"),
    ] {
        let spec = json!({ "containers": [of(&resources)] });
        assert_eq!(class(&json!({ "spec": spec })), expected, "{resources}");
    }
    let (nothing, some) = (of(&json!({})), of(&json!({ "requests": { "cpu": "1" } })));
    for (spec, expected) in [
        (json!({ "containers": [] }), "BestEffort"),
        (json!({ "containers": [of(&guaranteed), nothing] }), "Burstable"),
        (json!({ "containers": [of(&guaranteed)], "initContainers": [nothing] }), "Burstable"),
        (json!({ "containers": [nothing], "resources": guaranteed }), "Guaranteed"),
        (json!({ "containers": [nothing], "resources": { "requests": { "cpu": "1" } } }), "Burstable"),
        (
            json!({ "containers": [of(&guaranteed)], "resources": { "requests": { "cpu": "1" } } }),
            "Burstable",
        ),
        (json!({ "containers": [some], "resources": {} }), "BestEffort"),
    ] {
        assert_eq!(class(&json!({ "spec": spec })), expected, "{spec}");
    }
}

#[test]
fn phases_and_networks_read_alike() {
    for (phase, over) in
        [("", false), ("Pending", false), ("Running", false), ("Succeeded", true), ("Failed", true)]
    {
        let pod = json!({ "spec": { "containers": [], "hostNetwork": true }, "status": { "phase": phase } });
        assert_eq!(both(&pod, is_terminal, is_terminal), over, "{phase}");
        assert!(both(&pod, PodView::host_network, PodView::host_network));
    }
}
