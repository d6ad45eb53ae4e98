//! Which addresses a kubelet may say that its pods have: Services lead their traffic there.

use super::Verdict;
use crate::{Request, items};
use coracle_api::Object;
use ipnet::IpNet;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A pod in the host's network is at the node's own addresses, and the host of every pod is the node. Other pods' addresses
/// are the pod network's to give; of Services they never are.
pub(super) fn check(request: &Request, node: &str, new: &Object, old: &Object) -> Verdict {
    let hosts = |pod: &Object| listed(pod, "hostIP", "hostIPs");
    let pods = |pod: &Object| listed(pod, "podIP", "podIPs");
    let host_network = new["spec"]["hostNetwork"] == true;
    let (known_hosts, known_pods) = (hosts(old), pods(old));
    let mut own: Vec<String> = hosts(new).difference(&known_hosts).cloned().collect();
    let fresh: Vec<String> = pods(new).difference(&known_pods).cloned().collect();
    let refuse = |address: &str, why: &str| {
        Err(format!("node \"{node}\" is not allowed to give a pod the address {address}: {why}"))
    };
    if host_network {
        own.extend(fresh);
    } else if let Some(address) =
        fresh.iter().find(|address| of_services(request).any(|n| holds(&n, address)))
    {
        return refuse(address, "it is of Services");
    }
    if own.is_empty() {
        return Ok(());
    }
    let known = request.read.get("nodes.", "", node);
    let known: BTreeSet<IpAddr> =
        known.iter().flat_map(|node| claimed(node)).filter_map(|(_, address)| plain(address)).collect();
    match own.iter().find(|address| !plain(address).is_some_and(|ip| known.contains(&ip))) {
        Some(address) => refuse(address, "it is not the node's"),
        None => Ok(()),
    }
}

/// Of both fields in which a status names them.
fn listed(pod: &Object, one: &str, all: &str) -> BTreeSet<String> {
    let status = &pod["status"];
    let several = items(&status[all]).iter().filter_map(|entry| entry["ip"].as_str());
    status[one].as_str().into_iter().chain(several).filter(|ip| !ip.is_empty()).map(str::to_owned).collect()
}

fn plain(address: &str) -> Option<IpAddr> {
    address.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn holds(network: &IpNet, address: &str) -> bool {
    plain(address).is_some_and(|ip| network.contains(&ip))
}

/// Types and addresses. Loopback is the address of a node without any network, and whoever would connect to it refuses
/// it; a host's own names lead nobody anywhere.
pub(super) fn claimed(node: &Object) -> impl Iterator<Item = (&str, &str)> {
    let all = items(&node["status"]["addresses"]).iter();
    let all = all.filter_map(|claim| Some((claim["type"].as_str()?, claim["address"].as_str()?)));
    all.filter(|(kind, _)| !matches!(*kind, "Hostname" | "InternalDNS"))
}

/// The ranges of Services.
pub(super) fn of_services(request: &Request) -> impl Iterator<Item = IpNet> + use<> {
    let ranges = request.read.list("servicecidrs.networking.k8s.io", "");
    ranges.into_iter().flat_map(|range| nets(&range["spec"]["cidrs"]))
}

pub(super) fn nets(value: &Value) -> Vec<IpNet> {
    items(value).iter().filter_map(|range| range.as_str()?.parse().ok()).collect()
}
