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

/// Whether a parameter, or all whose names begin with what stands before a `*` at the end, may be allowed at all: those of
/// namespaces.
pub fn can_be_allowed(pattern: &str) -> bool {
    let name = dotted(pattern);
    namespace(name.strip_suffix('*').unwrap_or(&name)).is_some()
}

/// Those that the kernel keeps apart (upstream's list).
fn namespace(name: &str) -> Option<Namespace> {
    const IPC: [&str; 4] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
    if IPC.iter().any(|start| name.starts_with(start)) {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

fn is_allowed(name: &str, allowed: &[String]) -> bool {
    allowed.iter().map(|pattern| dotted(pattern)).any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    })
}

/// Why one of the pod's parameters is refused. `allowed` are names, or beginnings with a `*`, beside the safe ones.
pub fn forbidden(spec: &PodSpec, allowed: &[String]) -> Option<String> {
    let asked = spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
    asked.map(|sysctl| dotted(&sysctl.name)).find_map(|name| {
        let safe = SAFE.iter().find(|(safe, _)| *safe == name).map(|(_, namespace)| *namespace);
        let why = match safe.or_else(|| namespace(&name).filter(|_| is_allowed(&name, allowed))) {
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
        forbidden(&serde_json::from_value(spec).unwrap(), &[])
    }

    #[test]
    fn unsafe_ones_go_where_the_node_allows_them() {
        let spec = |name: &str, more: Value| -> PodSpec {
            let mut spec = json!({ "containers": [], "securityContext": { "sysctls": [{ "name": name, "value": "1" }] } });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(spec).unwrap()
        };
        let allowed = ["kernel.msg*".to_owned(), "net/ipv4/route/min_pmtu".to_owned()];
        let check = |name: &str, more: Value| forbidden(&spec(name, more), &allowed);
        assert_eq!(check("kernel.msgmax", json!({})), None);
        assert_eq!(check("net.ipv4.route.min_pmtu", json!({})), None);
        assert!(check("kernel.sem", json!({})).unwrap().contains("not allowlisted"));
        assert!(check("kernel.msgmax", json!({ "hostIPC": true })).unwrap().contains("host IPC"));
        assert!(can_be_allowed("net.*") && can_be_allowed("fs.mqueue.msg_max"));
        assert!(!can_be_allowed("vm.swappiness") && !can_be_allowed("*") && !can_be_allowed("kernel.*"));
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
