//! What is wrong between a Service and the IPAddress of one of its cluster IPs, decided from both.

use coracle_api::well_known;
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

const FAMILY: &str = well_known::IP_ADDRESS_FAMILY;
const MANAGED_BY: &str = well_known::IP_ADDRESS_MANAGED_BY;
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How long an address may be there before its Service is seen; upstream's, from its timeout of requests.
const GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// The cluster IPs that a Service holds.
pub fn ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let all = service.spec.as_ref().and_then(|spec| spec.cluster_ips.as_ref());
    all.into_iter().flatten().filter_map(|ip| ip.parse().ok())
}

pub fn holds(service: &Service, ip: &str) -> bool {
    ips(service).any(|own| own.to_string() == ip)
}

/// Whether the address is of one of the range's networks.
pub fn has(range: &ServiceCIDR, ip: &str) -> bool {
    let Ok(ip) = ip.parse::<IpAddr>() else { return false };
    let networks = range.spec.as_ref().and_then(|spec| spec.cidrs.as_ref());
    networks.into_iter().flatten().filter_map(|text| text.parse::<IpNet>().ok()).any(|net| net.contains(&ip))
}

/// The Service that the address says it is of: namespace and name; `None` where it is somebody else's.
pub fn parent(address: &IPAddress) -> Option<(&str, &str)> {
    let parent = &address.spec.parent_ref;
    let is_service = parent.group.as_deref().unwrap_or_default().is_empty() && parent.resource == "services";
    is_service.then(|| (parent.namespace.as_deref().unwrap_or_default(), parent.name.as_str()))
}

pub fn family(ip: &str) -> &'static str {
    if ip.contains(':') { "IPv6" } else { "IPv4" }
}

/// What a Service's address lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    Nothing,
    /// There is no such object.
    Object,
    /// It names somebody else, who has no right to it.
    Reference,
    /// It names another Service with the same cluster IP.
    Sole,
    Labels,
}

/// `address`: the one that is named like the IP. `find` gives the Service of a namespace and a name.
pub fn lack(
    service: &Service,
    ip: &str,
    address: Option<&IPAddress>,
    find: impl Fn(&str, &str) -> Option<bool>,
) -> Lack {
    let Some(address) = address else { return Lack::Object };
    let own = (service.namespace().unwrap_or_default(), service.name_any());
    match parent(address) {
        Some(parent) if parent == (own.0.as_str(), own.1.as_str()) => {}
        // Both have it: whoever is named keeps it.
        Some((namespace, name)) if find(namespace, name) == Some(true) => return Lack::Sole,
        _ => return Lack::Reference,
    }
    let label = |key: &str| address.labels().get(key).map(String::as_str);
    if label(FAMILY) == Some(family(ip)) && label(MANAGED_BY) == Some(ALLOCATOR) {
        Lack::Nothing
    } else {
        Lack::Labels
    }
}

/// The address as it should be.
pub fn reservation(service: &Service, ip: &str) -> Value {
    let labels = json!({ FAMILY: family(ip), MANAGED_BY: ALLOCATOR });
    let parent = json!({
        "resource": "services", "namespace": service.namespace(), "name": service.name_any(),
    });
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": { "name": ip, "labels": labels }, "spec": { "parentRef": parent },
    })
}

/// What becomes of an address of the allocator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// Its Service may come yet; look again then.
    Waits(Duration),
    /// It names nobody who could hold it.
    Stray,
    /// Its Service does not exist.
    Leaked,
    /// Its Service has other addresses.
    Wrong,
}

/// `holds`: whether the Service that it names has it; `None` where there is none.
pub fn fate(address: &IPAddress, holds: impl Fn(&str, &str) -> Option<bool>, now: Timestamp) -> Fate {
    if address.labels().get(MANAGED_BY).is_none_or(|by| by != ALLOCATOR) {
        return Fate::Stays;
    }
    let Some((namespace, name)) = parent(address) else { return Fate::Stray };
    match holds(namespace, name) {
        Some(true) => Fate::Stays,
        Some(false) => Fate::Wrong,
        None => {
            let made = address.creation_timestamp().map_or(now, |made| made.0);
            let left = GRACE_PERIOD - now.duration_since(made);
            if left.is_positive() { Fate::Waits(left.try_into().unwrap_or_default()) } else { Fate::Leaked }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, ip: &str) -> Service {
        let spec = json!({ "clusterIP": ip, "clusterIPs": [ip] });
        serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "d" }, "spec": spec }))
            .unwrap()
    }

    fn address(ip: &str, change: impl FnOnce(&mut Value)) -> IPAddress {
        let mut value = reservation(&service("a", ip), ip);
        value["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_an_address_lacks_is_found() {
        let own = service("a", "10.0.0.1");
        let lacks = |change: &dyn Fn(&mut Value), other: Option<bool>| {
            lack(&own, "10.0.0.1", Some(&address("10.0.0.1", change)), |_, _| other)
        };
        assert_eq!(lack(&own, "10.0.0.1", None, |_, _| None), Lack::Object);
        assert_eq!(lacks(&|_| (), None), Lack::Nothing);
        let other = |a: &mut Value| a["spec"]["parentRef"]["name"] = json!("b");
        assert_eq!(lacks(&other, None), Lack::Reference);
        assert_eq!(lacks(&other, Some(false)), Lack::Reference);
        assert_eq!(lacks(&other, Some(true)), Lack::Sole);
        assert_eq!(lacks(&|a| a["spec"]["parentRef"]["group"] = json!("x.org"), None), Lack::Reference);
        assert_eq!(lacks(&|a| a["metadata"]["labels"] = json!({}), None), Lack::Labels);
        assert!(ips(&service("h", "None")).next().is_none() && !holds(&own, "10.0.0.2"));
    }

    #[test]
    fn addresses_without_a_service_go_after_a_minute() {
        let at = |seconds: i64| Timestamp::from_second(1_767_225_600 + seconds).unwrap();
        let own = address("10.0.0.1", |_| ());
        assert_eq!(fate(&own, |_, _| Some(true), at(90)), Fate::Stays);
        assert_eq!(fate(&own, |_, _| Some(false), at(1)), Fate::Wrong);
        assert_eq!(fate(&own, |_, _| None, at(20)), Fate::Waits(Duration::from_secs(40)));
        assert_eq!(fate(&own, |_, _| None, at(60)), Fate::Leaked);
        let stray = address("10.0.0.1", |a| a["spec"]["parentRef"]["resource"] = json!("gateways"));
        assert_eq!(fate(&stray, |_, _| None, at(1)), Fate::Stray);
        let foreign = address("10.0.0.1", |a| a["metadata"]["labels"] = json!({}));
        assert_eq!(fate(&foreign, |_, _| None, at(99)), Fate::Stays);
    }
}
