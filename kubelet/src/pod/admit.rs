//! Whether a pod that was put on this node may run here. The scheduler asks the same before it binds; whoever names a node
//! himself goes past it.

use k8s_openapi::api::core::v1::{Container, Pod};
use std::sync::Arc;

/// Why a pod is refused: the reason of its status, and of an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    pub message: &'static str,
}

/// Whether no kubelet has begun with the pod: what runs already is not judged again.
pub fn is_new(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    pod.metadata.deletion_timestamp.is_none()
        && !is_over(pod)
        && status.is_none_or(|status| status.start_time.is_none())
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Judges a new pod by the others of this node; those that are over count no more.
pub fn refusal(pod: &Pod, others: impl IntoIterator<Item = Arc<Pod>>) -> Option<Refusal> {
    let wanted = host_ports(pod);
    let taken = |other: Arc<Pod>| {
        other.metadata.uid != pod.metadata.uid
            && !is_over(&other)
            && host_ports(&other).iter().any(|theirs| wanted.iter().any(|ours| ours.meets(theirs)))
    };
    let conflict = !wanted.is_empty() && others.into_iter().any(taken);
    conflict.then_some(Refusal {
        reason: "NodePorts",
        message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    })
}

/// A port of the node that a container asks for.
struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

impl HostPort<'_> {
    fn meets(&self, other: &Self) -> bool {
        let any = |port: &Self| matches!(port.ip, "" | "0.0.0.0");
        self.port == other.port
            && self.protocol == other.protocol
            && (any(self) || any(other) || self.ip == other.ip)
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort<'_>> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars = spec.init_containers.iter().flatten().filter(|c| super::plan::is_sidecar(c));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c: &Container| c.ports.iter().flatten());
    let asked = ports.filter_map(|port| {
        Some(HostPort {
            ip: port.host_ip.as_deref().unwrap_or_default(),
            protocol: port.protocol.as_deref().unwrap_or("TCP"),
            port: port.host_port.filter(|number| *number > 0)?,
        })
    });
    asked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, port: Value, status: Value) -> Arc<Pod> {
        let container = json!({ "name": "c", "ports": [port] });
        let pod = json!({ "metadata": { "name": name, "uid": name }, "spec": { "containers": [container] },
            "status": status });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_port_of_the_node_is_for_one_pod() {
        let port = |number: i32, more: Value| {
            let mut port = json!({ "containerPort": 80, "hostPort": number });
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            port
        };
        let runs = || json!({ "phase": "Running" });
        let refused = |ours: Value, theirs: Value, status: Value| {
            refusal(&pod("ours", ours, json!({})), [pod("theirs", theirs, status)]).is_some()
        };
        let ip = |ip: &str| port(8080, json!({ "hostIP": ip }));
        assert!(refused(port(8080, json!({})), port(8080, json!({})), runs()));
        assert!(!refused(port(8080, json!({})), port(8081, json!({})), runs()));
        assert!(!refused(port(8080, json!({ "protocol": "UDP" })), port(8080, json!({})), runs()));
        assert!(!refused(port(8080, json!({})), port(8080, json!({})), json!({ "phase": "Failed" })));
        assert!(!refused(ip("192.0.2.1"), ip("192.0.2.2"), runs()));
        assert!(refused(ip("192.0.2.1"), ip("192.0.2.1"), runs()));
        assert!(refused(ip("192.0.2.1"), ip("0.0.0.0"), runs()));
        assert!(!refused(json!({ "containerPort": 80 }), json!({ "containerPort": 80 }), runs()));
        let me = pod("me", port(8080, json!({})), runs());
        assert_eq!(refusal(&me, [me.clone()]), None);
    }

    #[test]
    fn only_what_nobody_has_begun_with_is_judged() {
        let none = || json!({ "containerPort": 80 });
        let new = |status: Value| is_new(&pod("p", none(), status));
        assert!(new(json!({ "phase": "Pending" })));
        assert!(!new(json!({ "phase": "Pending", "startTime": "2026-01-01T00:00:00Z" })));
        assert!(!new(json!({ "phase": "Failed" })));
    }
}
