//! What objects count for in resource quotas (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! Shared by the admission that refuses what is too much and by the controller that recounts.

mod pods;
mod scopes;

pub use scopes::matches_scopes;

use crate::pod::QuantityMap;
use crate::storage::class_named_by;
use crate::{Object, Quantity};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Quantities by the name of what they measure.
pub type Amounts = BTreeMap<String, Quantity>;

/// Core resources that a quota may name without `count/`.
const COUNTED: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// Whether a quota's name without `count/` is of a number of objects.
pub fn counts_objects(name: &str) -> bool {
    COUNTED.contains(&name) || matches!(name, "services.loadbalancers" | "services.nodeports")
}

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";

/// Reads a map of quantities; entries that are none are left out.
pub fn amounts(value: &Value) -> Amounts {
    QuantityMap::from(value).iter().map(|(name, quantity)| (name.to_owned(), quantity)).collect()
}

/// As a map of an object, in canonical form.
pub fn to_value(amounts: &Amounts) -> Value {
    Value::Object(amounts.iter().map(|(name, q)| (name.clone(), q.to_string().into())).collect())
}

/// `a=1,b=2`, as upstream's refusals list amounts.
pub fn listed(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, q)| format!("{name}={q}")).collect::<Vec<_>>().join(",")
}

/// The name of the object count of a resource: `count/pods`, `count/deployments.apps`.
pub fn count_name(group: &str, resource: &str) -> String {
    if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") }
}

/// Which resource, as (group, plural), a name in `hard` measures.
pub fn measured(name: &str) -> (String, String) {
    let own = |group: &str, plural: &str| (group.to_owned(), plural.to_owned());
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return own(group, plural);
    }
    if name == "requests.storage" || name.contains(STORAGE_CLASS) {
        return own("", "persistentvolumeclaims");
    }
    if name.ends_with(DEVICE_CLASS) {
        return own("resource.k8s.io", "resourceclaims");
    }
    if name.starts_with("services.") {
        return own("", "services");
    }
    if COUNTED.contains(&name) { own("", name) } else { own("", "pods") }
}

/// Whether a name in `hard` measures this resource.
pub fn is_of(name: &str, group: &str, resource: &str) -> bool {
    let (of_group, plural) = measured(name);
    of_group == group && plural == resource
}

/// Whether a quota, by its names in `hard` and its scopes, speaks of this object at all.
pub fn concerns(quota: &Object, hard: &Amounts, group: &str, resource: &str, object: &Object) -> bool {
    hard.keys().any(|name| is_of(name, group, resource)) && matches_scopes(quota, group, resource, object)
}

/// What one object counts for. A pod that has ended, or should have, counts as an object only.
pub fn usage(group: &str, resource: &str, object: &Object, now: Timestamp) -> Amounts {
    let mut usage = Amounts::from([(count_name(group, resource), Quantity::from_units(1))]);
    match (group, resource) {
        ("", "pods") if !pods::is_alive(object, now) => return usage,
        ("", "pods") => pods::usage(object, &mut usage),
        ("", "services") => services(object, &mut usage),
        ("", "persistentvolumeclaims") => claims(object, &mut usage),
        ("resource.k8s.io", "resourceclaims") => devices(object, &mut usage),
        _ => {}
    }
    if group.is_empty() && COUNTED.contains(&resource) {
        usage.insert(resource.to_owned(), Quantity::from_units(1));
    }
    usage
}

fn count(number: usize) -> Quantity {
    Quantity::from_units(i64::try_from(number).unwrap_or(i64::MAX))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn services(service: &Object, usage: &mut Amounts) {
    let spec = &service["spec"];
    let ports = list(&spec["ports"]);
    let allocated = || ports.iter().filter(|p| p["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (nodeports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (allocated(), 1),
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    usage.insert("services.nodeports".to_owned(), count(nodeports));
    usage.insert("services.loadbalancers".to_owned(), count(balancers));
}

fn claims(claim: &Object, usage: &mut Amounts) {
    let class = class_named_by(claim).unwrap_or_default();
    let asked = amounts(&claim["spec"]["resources"]["requests"]).remove("storage");
    // While a claim shrinks back from a failed expansion, what was allocated still counts.
    let allocated = amounts(&claim["status"]["allocatedResources"]).remove("storage");
    let storage = asked.max(allocated);
    if !class.is_empty() {
        usage.insert(format!("{class}{STORAGE_CLASS}persistentvolumeclaims"), Quantity::from_units(1));
    }
    let Some(storage) = storage else { return };
    usage.insert("requests.storage".to_owned(), storage);
    if !class.is_empty() {
        usage.insert(format!("{class}{STORAGE_CLASS}requests.storage"), storage);
    }
}

/// Most devices that a claim may get, by their class.
fn devices(claim: &Object, usage: &mut Amounts) {
    /// Upstream's limit of devices in one allocation, which `All` counts as.
    const ALL: i64 = 32;
    for request in list(&claim["spec"]["devices"]["requests"]) {
        let mut wanted: BTreeMap<&str, i64> = BTreeMap::new();
        let exact = std::iter::once(&request["exactly"]).chain(list(&request["firstAvailable"]));
        for choice in exact.filter(|c| c.is_object()) {
            let many = match choice["allocationMode"].as_str() {
                Some("All") => ALL,
                _ => choice["count"].as_i64().unwrap_or(1),
            };
            let class = choice["deviceClassName"].as_str().unwrap_or_default();
            let most = wanted.entry(class).or_default();
            *most = many.max(*most);
        }
        for (class, many) in wanted {
            let sum = usage.entry(format!("{class}{DEVICE_CLASS}")).or_default();
            *sum += Quantity::from_units(many);
        }
    }
}

/// The resources that the names of `hard` measure.
pub fn all_measured(hard: &Amounts) -> BTreeSet<(String, String)> {
    hard.keys().map(|name| measured(name)).collect()
}

#[cfg(test)]
mod tests;
