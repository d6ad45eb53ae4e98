//! What a kubelet may say of its own Node. What others rely on is assigned by the cluster, or looked at here.

use super::Verdict;
use super::addresses::{claimed, nets, of_services};
use crate::{Request, items};
use coracle_api::node_addresses::{CHECKED_ADDRESSES, checked_of};
use coracle_api::validation::is_machine_address;
use coracle_api::well_known;
use coracle_api::{Object, meta};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) fn check(request: &Request, node: &str, object: Option<&Object>, old: Option<&Object>) -> Verdict {
    if request.name != node {
        return Err(format!("node \"{node}\" is not allowed to modify node \"{}\"", request.name));
    }
    let Some(new) = object else { return Ok(()) };
    config_source(node, new, old)?;
    if old.is_some_and(|old| items(&old["spec"]["taints"]) != items(&new["spec"]["taints"])) {
        return Err(format!("node \"{node}\" is not allowed to modify taints"));
    }
    owners(node, new, old)?;
    pod_ranges(node, new, old)?;
    checked(node, new, old)?;
    labels(node, new, old)?;
    addresses(request, node, new, old)
}

fn config_source(node: &str, new: &Object, old: Option<&Object>) -> Verdict {
    let source = &new["spec"]["configSource"];
    if source.is_object() && old.is_none_or(|old| old["spec"]["configSource"] != *source) {
        let what = if old.is_some() { "update configSource to a new" } else { "create pods with a" };
        return Err(format!("node \"{node}\" is not allowed to {what} non-nil configSource"));
    }
    Ok(())
}

/// By an owner that never was a node could have the garbage collector remove it, and come back without its taints
/// (CVE-2025-5187).
fn owners(node: &str, new: &Object, old: Option<&Object>) -> Verdict {
    let of = |object: &Object| items(&object["metadata"]["ownerReferences"]).to_vec();
    if of(new) == old.map(of).unwrap_or_default() {
        return Ok(());
    }
    let what = if old.is_some() { "modify" } else { "set" };
    Err(format!("node \"{node}\" is not allowed to {what} ownerReferences"))
}

/// All other nodes route a range to the node that has it: the controller alone gives ranges away.
fn pod_ranges(node: &str, new: &Object, old: Option<&Object>) -> Verdict {
    let of = |object: &Object| {
        let one = object["spec"]["podCIDR"].as_str().filter(|range| !range.is_empty()).map(str::to_owned);
        (one, items(&object["spec"]["podCIDRs"]).to_vec())
    };
    if of(new) == old.map(of).unwrap_or_default() {
        return Ok(());
    }
    let what = if old.is_some() { "modify" } else { "set" };
    Err(format!("node \"{node}\" is not allowed to {what} podCIDR or podCIDRs"))
}

/// The API server says where it met a node, and nobody else.
fn checked(node: &str, new: &Object, old: Option<&Object>) -> Verdict {
    let of = |object: &Object| object["metadata"]["annotations"].get(CHECKED_ADDRESSES).cloned();
    if of(new) == old.and_then(of) {
        return Ok(());
    }
    let what = if old.is_some() { "modify" } else { "set" };
    Err(format!("node \"{node}\" is not allowed to {what} the annotation {CHECKED_ADDRESSES}"))
}

fn labels(node: &str, new: &Object, old: Option<&Object>) -> Verdict {
    let changed = changed_labels(new, old).join(", ");
    match (changed.is_empty(), old) {
        (true, _) => Ok(()),
        (false, Some(_)) => Err(format!("is not allowed to modify labels: {changed}")),
        (false, None) => {
            Err(format!("node \"{node}\" is not allowed to set the following labels: {changed}"))
        }
    }
}

/// Addresses that a node says it has now, and had not before, must be able to be a machine's: others connect to them,
/// route pods by way of them, and publish Services at them. What it is called outside, a cloud's controller says.
fn addresses(request: &Request, node: &str, new: &Object, old: Option<&Object>) -> Verdict {
    let before: BTreeSet<_> = old.into_iter().flat_map(claimed).collect();
    let fresh: Vec<(&str, &str)> = claimed(new).filter(|claim| !before.contains(claim)).collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let nodes = request.read.list("nodes.", "");
    let pods = nodes.iter().flat_map(|node| nets(&node["spec"]["podCIDRs"])).map(|range| (range, "of pods"));
    let taken: Vec<_> = of_services(request).map(|range| (range, "of Services")).chain(pods).collect();
    for (kind, address) in fresh {
        let refuse =
            |why: &str| Err(format!("node \"{node}\" is not allowed to have the {kind} {address}: {why}"));
        if kind != "InternalIP" {
            return refuse("nodes may set InternalIP and Hostname");
        }
        let Ok(ip) = address.parse::<IpAddr>().map(|ip| ip.to_canonical()) else {
            return refuse("it is no IP address");
        };
        if !ip.is_loopback() && !is_machine_address(ip) {
            return refuse("no machine is reached there");
        }
        if let Some((range, whose)) = taken.iter().find(|(range, _)| range.contains(&ip)) {
            return refuse(&format!("{range} is {whose}"));
        }
        if let Some(other) = nodes.iter().find(|other| is_at(other, ip) && meta::name(other) != node) {
            return refuse(&format!("node \"{}\" was met there", meta::name(other)));
        }
    }
    Ok(())
}

/// Whether a node that lives was met at this address. One that is gone leaves its address to others.
fn is_at(node: &Object, ip: IpAddr) -> bool {
    let mut conditions = items(&node["status"]["conditions"]).iter();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
        && checked_of(node).contains(&ip)
        && claimed(node).any(|(_, address)| address.parse::<IpAddr>().is_ok_and(|a| a.to_canonical() == ip))
}

/// Labels that isolate nodes, which an owned node must not move itself by; and unknown ones of Kubernetes' own.
fn changed_labels(new: &Object, old: Option<&Object>) -> Vec<String> {
    let labels = |o: &Object| o["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (new, old) = (labels(new), old.map(labels).unwrap_or_default());
    let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    let changed = keys.into_iter().filter(|key| new.get(*key) != old.get(*key));
    changed.filter(|key| is_restricted(key)).cloned().collect()
}

fn is_restricted(label: &str) -> bool {
    /// Kubernetes' own labels that a kubelet may set on itself.
    const ALLOWED: [&str; 11] = [
        well_known::ARCH,
        well_known::HOSTNAME,
        well_known::OS,
        "node.kubernetes.io/instance-type",
        well_known::REGION,
        well_known::ZONE,
        well_known::BETA_REGION,
        well_known::BETA_ZONE,
        well_known::BETA_ARCH,
        well_known::BETA_OS,
        "beta.kubernetes.io/instance-type",
    ];
    let Some((domain, _)) = label.split_once('/') else { return false };
    let within = |d: &str| domain == d || domain.ends_with(&format!(".{d}"));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let free = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    (within("kubernetes.io") || within("k8s.io")) && !free && !ALLOWED.contains(&label)
}
