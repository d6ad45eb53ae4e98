//! The Endpoints that a Service's pods amount to.

use crate::common::pods;
use crate::common::services::{self, Family, HEADLESS};
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServicePort,
};
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses in one Endpoints object; upstream's limit, beyond which EndpointSlices are the only whole truth.
const CAPACITY: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");

pub fn is_managed(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    labels.and_then(|l| l.get(MANAGED_BY.0)).is_some_and(|by| by == MANAGED_BY.1)
}

#[derive(Default)]
struct Addresses {
    ready: Vec<EndpointAddress>,
    not_ready: Vec<EndpointAddress>,
}

/// `pods` are those that the Service selects. `old` keeps what others wrote on it.
pub fn endpoints(service: &Service, pods: &[Arc<Pod>], old: Option<&Endpoints>) -> Endpoints {
    let mut groups: Vec<(Vec<EndpointPort>, Addresses)> = Vec::new();
    for pod in pods {
        let Some((address, ports)) = endpoint(service, pod) else { continue };
        let found = groups.iter().position(|(existing, _)| *existing == ports);
        let at = found.unwrap_or_else(|| {
            groups.push((ports, Addresses::default()));
            groups.len() - 1
        });
        let addresses = &mut groups[at].1;
        let ready = services::publishes_unready(service) || pods::is_ready(pod);
        if ready { addresses.ready.push(address) } else { addresses.not_ready.push(address) }
    }
    let truncated = truncate(&mut groups);
    let subsets: Vec<EndpointSubset> = groups.into_iter().map(subset).collect();
    Endpoints {
        metadata: metadata(service, old, truncated),
        subsets: (!subsets.is_empty()).then_some(subsets),
    }
}

fn endpoint(service: &Service, pod: &Pod) -> Option<(EndpointAddress, Vec<EndpointPort>)> {
    if !services::counts(pod, services::publishes_unready(service)) {
        return None;
    }
    let family = services::families(service).first().copied().unwrap_or(Family::V4);
    let address = EndpointAddress {
        ip: services::address(pod, family)?.to_owned(),
        hostname: services::hostname(pod, service),
        node_name: pods::node_name(pod).map(str::to_owned),
        target_ref: Some(services::target_reference(pod)),
    };
    let declared = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let ports: Vec<EndpointPort> = declared.iter().filter_map(|port| endpoint_port(pod, port)).collect();
    // Without ports only a headless Service has anything to say.
    let says_something = !ports.is_empty() || (declared.is_empty() && services::is_headless(service));
    says_something.then_some((address, ports))
}

fn endpoint_port(pod: &Pod, port: &ServicePort) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: port.name.clone().filter(|n| !n.is_empty()),
        port: services::target_port(pod, port)?,
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    })
}

/// Drops addresses beyond the capacity, unready ones first.
fn truncate(groups: &mut [(Vec<EndpointPort>, Addresses)]) -> bool {
    let mut room = CAPACITY;
    let mut truncated = false;
    let mut fit = |addresses: &mut Vec<EndpointAddress>| {
        truncated |= addresses.len() > room;
        addresses.truncate(room);
        room -= addresses.len();
    };
    groups.iter_mut().for_each(|(_, addresses)| fit(&mut addresses.ready));
    groups.iter_mut().for_each(|(_, addresses)| fit(&mut addresses.not_ready));
    truncated
}

fn subset((ports, addresses): (Vec<EndpointPort>, Addresses)) -> EndpointSubset {
    let sorted = |mut all: Vec<EndpointAddress>| {
        all.sort_by_key(|a| a.ip.parse::<IpAddr>().ok());
        (!all.is_empty()).then_some(all)
    };
    EndpointSubset {
        addresses: sorted(addresses.ready),
        not_ready_addresses: sorted(addresses.not_ready),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

fn metadata(service: &Service, old: Option<&Endpoints>, truncated: bool) -> ObjectMeta {
    let mut metadata = old.map(|o| o.metadata.clone()).unwrap_or_else(|| ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.metadata.namespace.clone(),
        ..ObjectMeta::default()
    });
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    labels.remove(HEADLESS);
    if services::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    metadata.labels = Some(labels);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.remove(OVER_CAPACITY);
    if truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    metadata.annotations = metadata.annotations.take().filter(|a: &BTreeMap<_, _>| !a.is_empty());
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "x" }, "spec": spec }))
            .unwrap()
    }

    fn pod(name: &str, ip: &str, ready: bool, port: i32) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "x", "uid": name },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": port }] }] },
            "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }],
                "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] } }))
            .unwrap(),
        )
    }

    /// `ready addresses|not ready addresses:ports` of each subset.
    fn show(endpoints: &Endpoints) -> Vec<String> {
        let list = |all: &Option<Vec<EndpointAddress>>| {
            all.iter().flatten().map(|a| a.ip.clone()).collect::<Vec<_>>().join(",")
        };
        let ports = |s: &EndpointSubset| s.ports.iter().flatten().map(|p| p.port).collect::<Vec<_>>();
        let subsets = endpoints.subsets.iter().flatten();
        subsets
            .map(|s| format!("{}|{}:{:?}", list(&s.addresses), list(&s.not_ready_addresses), ports(s)))
            .collect()
    }

    #[test]
    fn pods_are_grouped_by_their_ports_and_readiness() {
        let named = json!({ "ports": [{ "port": 80, "targetPort": "http" }] });
        let pods = [
            pod("b", "10.0.0.10", true, 8080),
            pod("a", "10.0.0.9", true, 8080),
            pod("c", "10.0.0.3", false, 8080),
            pod("d", "10.0.0.4", true, 9090),
            pod("e", "", true, 1),
        ];
        let cases = [
            (named.clone(), vec!["10.0.0.9,10.0.0.10|10.0.0.3:[8080]", "10.0.0.4|:[9090]"]),
            (json!({ "ports": [{ "port": 80, "targetPort": "none" }] }), vec![]),
            (json!({ "clusterIP": "None" }), vec!["10.0.0.4,10.0.0.9,10.0.0.10|10.0.0.3:[]"]),
            (json!({ "clusterIP": "10.43.0.1" }), vec![]),
            (
                json!({ "publishNotReadyAddresses": true, "ports": [{ "port": 80 }] }),
                vec!["10.0.0.3,10.0.0.4,10.0.0.9,10.0.0.10|:[80]"],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(show(&endpoints(&service(spec.clone()), &pods, None)), expected, "{spec}");
        }
    }

    #[test]
    fn more_than_a_thousand_addresses_are_cut_and_say_so() {
        let service = service(json!({ "ports": [{ "port": 80 }] }));
        let pods: Vec<_> =
            (0..1001).map(|i| pod("p", &format!("10.0.{}.{}", i / 250, i % 250), true, 1)).collect();
        let cut = endpoints(&service, &pods, None);
        assert_eq!(cut.subsets.as_ref().unwrap()[0].addresses.as_ref().unwrap().len(), 1000);
        assert_eq!(cut.metadata.annotations.as_ref().unwrap()[OVER_CAPACITY], "truncated");
        let fits = endpoints(&service, &pods[..10], Some(&cut));
        assert_eq!(fits.metadata.annotations, None);
    }
}
