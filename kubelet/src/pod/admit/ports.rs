//! Ports of the node: one pod each.

use k8s_openapi::api::core::v1::{Container, Pod};

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
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c| crate::pod_facts::containers::is_sidecar(c));
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

/// Whether one of the others has a port that the pod asks for.
pub fn taken<'p>(pod: &Pod, mut others: impl Iterator<Item = &'p Pod>) -> bool {
    let wanted = host_ports(pod);
    !wanted.is_empty()
        && others.any(|other| host_ports(other).iter().any(|theirs| wanted.iter().any(|w| w.meets(theirs))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(port: &Value) -> Pod {
        let container = json!({ "name": "c", "ports": [port] });
        serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [container] } })).unwrap()
    }

    #[test]
    fn a_port_of_the_node_is_for_one_pod() {
        let port = |number: i32, more: Value| {
            let mut port = json!({ "containerPort": 80, "hostPort": number });
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            port
        };
        let refused = |ours: Value, theirs: Value| taken(&pod(&ours), [&pod(&theirs)].into_iter());
        let ip = |ip: &str| port(8080, json!({ "hostIP": ip }));
        assert!(refused(port(8080, json!({})), port(8080, json!({}))));
        assert!(!refused(port(8080, json!({})), port(8081, json!({}))));
        assert!(!refused(port(8080, json!({ "protocol": "UDP" })), port(8080, json!({}))));
        assert!(!refused(ip("192.0.2.1"), ip("192.0.2.2")));
        assert!(refused(ip("192.0.2.1"), ip("192.0.2.1")));
        assert!(refused(ip("192.0.2.1"), ip("0.0.0.0")));
        assert!(!refused(json!({ "containerPort": 80 }), json!({ "containerPort": 80 })));
    }
}
