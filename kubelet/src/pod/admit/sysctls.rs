//! Kernel parameters that a pod may set without harm to others
//! (<https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/>).

use k8s_openapi::api::core::v1::PodSpec;

/// The namespace that keeps a parameter apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// The safe set of Kubernetes 1.36. All kernels that Coracle runs on (5.4 and newer) have them.
const SAFE: [(&str, Namespace); 12] = [
    ("kernel.shm_rmid_forced", Namespace::Ipc),
    ("net.ipv4.ip_local_port_range", Namespace::Net),
    ("net.ipv4.tcp_syncookies", Namespace::Net),
    ("net.ipv4.ping_group_range", Namespace::Net),
    ("net.ipv4.ip_unprivileged_port_start", Namespace::Net),
    ("net.ipv4.ip_local_reserved_ports", Namespace::Net),
    ("net.ipv4.tcp_keepalive_time", Namespace::Net),
    ("net.ipv4.tcp_fin_timeout", Namespace::Net),
    ("net.ipv4.tcp_keepalive_intvl", Namespace::Net),
    ("net.ipv4.tcp_keepalive_probes", Namespace::Net),
    ("net.ipv4.tcp_rmem", Namespace::Net),
    ("net.ipv4.tcp_wmem", Namespace::Net),
];

/// A name with dots between its parts, whichever of the two ways it is written (sysctl.d(5)): what separates first is
/// the separator, and the other character stands for it inside a part.
pub fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// Why one of the pod's parameters is refused.
pub fn forbidden(spec: &PodSpec) -> Option<String> {
    let asked = spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
    asked.map(|sysctl| dotted(&sysctl.name)).find_map(|name| {
        let why = match SAFE.iter().find(|(safe, _)| *safe == name).map(|(_, namespace)| *namespace) {
            None => format!("{name:?} not allowlisted"),
            Some(Namespace::Net) if spec.host_network == Some(true) => {
                format!("{name:?} not allowed with host Net enabled")
            }
            Some(Namespace::Ipc) if spec.host_ipc == Some(true) => {
                format!("{name:?} not allowed with host IPC enabled")
            }
            Some(_) => return None,
        };
        Some(format!("forbidden sysctl: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(name: &str, more: Value) -> Option<String> {
        let mut spec =
            json!({ "containers": [], "securityContext": { "sysctls": [{ "name": name, "value": "1" }] } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        forbidden(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn only_safe_ones_of_namespaces_of_its_own() {
        assert_eq!(check("kernel.shm_rmid_forced", json!({})), None);
        assert_eq!(check("net/ipv4/tcp_syncookies", json!({})), None);
        assert_eq!(
            check("kernel.msgmax", json!({})).unwrap(),
            "forbidden sysctl: \"kernel.msgmax\" not allowlisted"
        );
        assert_eq!(
            check("kernel.shm_rmid_forced", json!({ "hostIPC": true })).unwrap(),
            "forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host IPC enabled"
        );
        assert!(check("net.ipv4.tcp_rmem", json!({ "hostNetwork": true })).unwrap().contains("host Net"));
        assert_eq!(check("net.ipv4.tcp_rmem", json!({ "hostIPC": true })), None);
        assert_eq!(dotted("net/ipv4/conf/eno2.100/rp_filter"), "net.ipv4.conf.eno2/100.rp_filter");
    }
}
