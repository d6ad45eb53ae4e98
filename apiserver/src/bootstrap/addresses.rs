//! Addresses of Services that no IPAddress object reserves: without one, a second Service could get the same.
//!
//! The object is written in one transaction with its Service, so only a deletion by hand can take it away (upstream's
//! repair controller for KEP-1880 watches for the same).

use super::Planned;
use coracle_api::Object;
use coracle_requests::ObjectReader;
use serde_json::json;
use std::net::IpAddr;

const IP_ADDRESSES: &str = "ipaddresses.networking.k8s.io";

/// The reservations to make again.
pub(super) fn missing(read: &dyn ObjectReader) -> Vec<Planned> {
    let mut lost = Vec::new();
    for service in read.list("services.", "") {
        let ips = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
        let ips = ips.filter_map(|ip| ip.as_str()?.parse::<IpAddr>().ok());
        let absent = ips.filter(|ip| read.get(IP_ADDRESSES, "", &ip.to_string()).is_none());
        lost.extend(absent.map(|ip| reservation(ip, &service)));
    }
    lost
}

fn reservation(ip: IpAddr, service: &Object) -> Planned {
    let labels = json!({
        "ipaddress.kubernetes.io/ip-family": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    });
    let metadata = &service["metadata"];
    let parent =
        json!({ "resource": "services", "namespace": metadata["namespace"], "name": metadata["name"] });
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": { "name": ip.to_string(), "labels": labels }, "spec": { "parentRef": parent },
    });
    Planned { resource: IP_ADDRESSES, object, replaces: None }
}
