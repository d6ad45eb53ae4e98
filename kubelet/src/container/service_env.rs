//! Variables that name the Services of the pod's namespace, as Docker links once did.

use k8s_openapi::api::core::v1::Service;
use std::sync::Arc;

/// `default/kubernetes` for everybody; the Services of `namespace` when the pod wants service links.
pub fn variables(services: &[Arc<Service>], namespace: &str, links: bool) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for service in services {
        let meta = &service.metadata;
        let (ns, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let master = ns == "default" && name == "kubernetes";
        // A Service of the pod's own namespace hides the master's if it has the same name.
        let hidden = master
            && links
            && namespace != "default"
            && services.iter().any(|s| {
                s.metadata.name.as_deref() == Some("kubernetes")
                    && s.metadata.namespace.as_deref() == Some(namespace)
            });
        if (master && !hidden) || (links && ns == namespace && !master) {
            of_service(service, name, &mut all);
        }
    }
    all
}

fn of_service(service: &Service, name: &str, out: &mut Vec<(String, String)>) {
    let Some(spec) = &service.spec else { return };
    let ip = spec.cluster_ip.as_deref().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let (false, Some(first)) = (ip.is_empty() || ip == "None", ports.first()) else { return };
    let prefix = name.to_uppercase().replace('-', "_");
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let mut set = |suffix: String, value: String| out.push((format!("{prefix}_{suffix}"), value));
    set("SERVICE_HOST".to_owned(), ip.to_owned());
    set("SERVICE_PORT".to_owned(), first.port.to_string());
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            set(format!("SERVICE_PORT_{}", name.to_uppercase().replace('-', "_")), port.port.to_string());
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            set("PORT".to_owned(), url.clone());
        }
        let stem = format!("PORT_{}_{}", port.port, protocol.to_uppercase());
        set(stem.clone(), url);
        set(format!("{stem}_PROTO"), protocol.to_lowercase());
        set(format!("{stem}_PORT"), port.port.to_string());
        set(format!("{stem}_ADDR"), ip.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(value: Value) -> Arc<Service> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn the_master_is_for_all_and_links_for_those_who_want_them() {
        let services = [
            service(json!({ "metadata": { "name": "kubernetes", "namespace": "default" },
                "spec": { "clusterIP": "10.43.0.1", "ports": [{ "name": "https", "port": 443 }] } })),
            service(json!({ "metadata": { "name": "my-db", "namespace": "n" },
                "spec": { "clusterIP": "10.43.0.9", "ports": [{ "port": 53, "protocol": "UDP" }] } })),
            service(json!({ "metadata": { "name": "headless", "namespace": "n" },
                "spec": { "clusterIP": "None", "ports": [{ "port": 1 }] } })),
        ];
        let with = variables(&services, "n", true);
        let get = |name: &str| with.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(get("KUBERNETES_SERVICE_HOST"), Some("10.43.0.1"));
        assert_eq!(get("KUBERNETES_SERVICE_PORT_HTTPS"), Some("443"));
        assert_eq!(get("MY_DB_PORT"), Some("udp://10.43.0.9:53"));
        assert_eq!(get("MY_DB_PORT_53_UDP_ADDR"), Some("10.43.0.9"));
        assert!(with.iter().all(|(n, _)| !n.starts_with("HEADLESS")));
        assert!(variables(&services, "n", false).iter().all(|(n, _)| n.starts_with("KUBERNETES_")));
    }
}
