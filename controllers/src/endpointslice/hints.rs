//! Hints that keep traffic near: which zones and nodes shall use an endpoint before all others.
//!
//! <https://kubernetes.io/docs/concepts/services-networking/service/#traffic-distribution>,
//! <https://kubernetes.io/docs/concepts/services-networking/topology-aware-routing/>

use super::plan::Group;
use coracle_api::Quantity;
use coracle_api::well_known;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForNode, ForZone};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

const TOPOLOGY_MODE: &str = well_known::TOPOLOGY_MODE;
/// Its name before 1.27.
const TOPOLOGY_HINTS: &str = well_known::TOPOLOGY_AWARE_HINTS;
/// Nodes with these labels bring no clients along.
const CONTROL_PLANE: [&str; 2] = [well_known::CONTROL_PLANE, "node-role.kubernetes.io/master"];
pub const ZONE: &str = well_known::ZONE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No hints.
    Anywhere,
    SameZone,
    SameNode,
    /// To every zone its share of the endpoints, by its share of the CPUs.
    Proportional,
}

/// The annotation goes before the field.
pub fn mode(service: &Service) -> Mode {
    let annotations = service.annotations();
    let asked = annotations.get(TOPOLOGY_MODE).or_else(|| annotations.get(TOPOLOGY_HINTS));
    if asked.is_some_and(|mode| mode == "Auto" || mode == "auto") {
        return Mode::Proportional;
    }
    match service.spec.as_ref().and_then(|s| s.traffic_distribution.as_deref()) {
        Some("PreferClose" | "PreferSameZone") => Mode::SameZone,
        Some("PreferSameNode") => Mode::SameNode,
        _ => Mode::Anywhere,
    }
}

/// What upstream's metrics call a trafficDistribution that is none of its own.
pub const OTHER: &str = "ImplementationSpecific";

/// A Service's trafficDistribution, as metrics name it.
pub fn distribution(service: &Service) -> Option<&'static str> {
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let given = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    Some(known.into_iter().find(|name| *name == given).unwrap_or(OTHER))
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|c| c.ready) == Some(true)
}

fn set(endpoint: &mut Endpoint, zone: Option<String>, node: Option<String>) {
    let for_zones = zone.map(|name| vec![ForZone { name }]);
    let for_nodes = node.map(|name| vec![ForNode { name }]);
    let some = for_zones.is_some() || for_nodes.is_some();
    endpoint.hints = some.then_some(EndpointHints { for_nodes, for_zones });
}

/// Hints at the endpoint's own zone, and node.
pub fn near(groups: &mut [Group], mode: Mode) {
    let endpoints = groups.iter_mut().flat_map(|g| &mut g.endpoints);
    for endpoint in endpoints.filter(|e| is_ready(e)) {
        let node = endpoint.node_name.clone().filter(|_| mode == Mode::SameNode);
        set(endpoint, endpoint.zone.clone(), node);
    }
}

/// Thousandths of CPUs that a node adds to its zone: `None` for one that does not count, and an error for one that lacks
/// zone or CPUs.
pub fn weight(node: &Node) -> Option<Result<(String, i64), ()>> {
    let status = node.status.as_ref();
    let ready = status
        .is_some_and(|s| s.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"));
    if !ready || CONTROL_PLANE.iter().any(|label| node.labels().contains_key(*label)) {
        return None;
    }
    let zone = node.labels().get(ZONE).filter(|z| !z.is_empty());
    let cpu = status.and_then(|s| s.allocatable.as_ref()?.get("cpu")?.0.parse::<Quantity>().ok());
    let cpu = cpu.map_or(0, Quantity::milli);
    Some(zone.filter(|_| cpu > 0).map(|zone| (zone.clone(), cpu)).ok_or(()))
}

/// CPUs by zone; `None` when there are too few zones, or a node does not say.
fn capacity(nodes: &[Arc<Node>]) -> Option<BTreeMap<String, i64>> {
    let mut zones: BTreeMap<String, i64> = BTreeMap::new();
    for weight in nodes.iter().filter_map(|n| weight(n)) {
        let (zone, cpu) = weight.ok()?;
        *zones.entry(zone).or_default() += cpu;
    }
    (zones.len() > 1).then_some(zones)
}

/// The fewest endpoints that each zone must have, so that none is asked a fifth more than its share.
fn floors(zones: &BTreeMap<String, i64>, endpoints: usize) -> BTreeMap<&str, usize> {
    let total: i128 = zones.values().map(|cpu| i128::from(*cpu)).sum();
    let count = i128::try_from(endpoints).unwrap_or(i128::MAX);
    let floor = |cpu: &i64| (i128::from(*cpu) * count * 10 + total * 12 - 1) / (total * 12);
    zones.iter().map(|(zone, cpu)| (zone.as_str(), usize::try_from(floor(cpu)).unwrap_or(0))).collect()
}

/// The endpoints that each zone should have: as many of them as it has of the CPUs, but its floor at the least.
#[expect(clippy::cast_precision_loss, reason = "neither CPUs nor endpoints come near to 52 bits")]
fn shares<'a>(
    zones: &'a BTreeMap<String, i64>,
    floors: &BTreeMap<&str, usize>,
    endpoints: usize,
) -> BTreeMap<&'a str, f64> {
    let total = zones.values().sum::<i64>() as f64;
    let share = |zone: &str, cpu: i64| {
        let floor = floors.get(zone).copied().unwrap_or(0) as f64;
        (cpu as f64 / total * endpoints as f64).max(floor)
    };
    zones.iter().map(|(zone, cpu)| (zone.as_str(), share(zone, *cpu))).collect()
}

/// Gives every zone endpoints, its own first. In words, why that cannot be done; then there are no hints.
pub fn proportional(groups: &mut [Group], nodes: &[Arc<Node>]) -> Result<(), String> {
    let mut ready: Vec<&mut Endpoint> =
        groups.iter_mut().flat_map(|g| &mut g.endpoints).filter(|e| is_ready(e)).collect();
    let zones = capacity(nodes)
        .ok_or("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")?;
    let numbers = format!("({} endpoints, {} zones)", ready.len(), zones.len());
    if zones.len() > ready.len() {
        return Err(format!("Insufficient number of endpoints {numbers}"));
    }
    let floors = floors(&zones, ready.len());
    if floors.values().sum::<usize>() > ready.len() {
        let why =
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
        return Err(format!("{why} {numbers}"));
    }
    if ready.iter().any(|e| e.zone.as_ref().is_none_or(String::is_empty)) {
        return Err("One or more endpoints do not have a zone specified".to_owned());
    }
    ready.sort_by(|a, b| a.addresses.cmp(&b.addresses));
    let homes: Vec<&str> = ready.iter().map(|e| e.zone.as_deref().unwrap_or_default()).collect();
    let wanted = shares(&zones, &floors, ready.len());
    let given: Vec<String> = share_out(&homes, &wanted).into_iter().map(str::to_owned).collect();
    for (endpoint, zone) in ready.into_iter().zip(given) {
        set(endpoint, Some(zone), None);
    }
    Ok(())
}

/// The zone of each endpoint: its own, but zones that have more than they need give to those with less, one by one from the
/// richest to the poorest. Who has but half of an endpoint too many keeps it.
fn share_out<'a>(homes: &[&'a str], wanted: &BTreeMap<&'a str, f64>) -> Vec<&'a str> {
    let mut surplus: BTreeMap<&'a str, f64> = wanted.iter().map(|(zone, wanted)| (*zone, -wanted)).collect();
    for home in homes {
        *surplus.entry(*home).or_default() += 1.0;
    }
    let mut zones: Vec<&str> = homes.to_vec();
    let known = |surplus: &BTreeMap<&'a str, f64>| -> Vec<(&'a str, f64)> {
        surplus
            .iter()
            .map(|(zone, amount)| (*zone, *amount))
            .filter(|(zone, _)| wanted.contains_key(zone))
            .collect()
    };
    loop {
        let all = known(&surplus);
        let richest = all.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let poorest = all.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let (Some((from, rich)), Some((to, poor))) = (richest, poorest) else { break };
        // Endpoints in zones without nodes serve nobody there.
        let stranger = zones.iter().rposition(|zone| !wanted.contains_key(zone));
        let poor = -poor;
        let little = (*rich < 1.0 && poor < 1.0) || *rich < 0.5 || poor < 0.5;
        let given = stranger.or_else(|| zones.iter().rposition(|zone| zone == from && !little));
        let Some(given) = given else { break };
        *surplus.entry(zones[given]).or_default() -= 1.0;
        *surplus.entry(*to).or_default() += 1.0;
        zones[given] = *to;
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(zone: &str, cpu: &str) -> Arc<Node> {
        let metadata = json!({ "name": zone, "labels": { ZONE: zone } });
        let status =
            json!({ "allocatable": { "cpu": cpu }, "conditions": [{ "type": "Ready", "status": "True" }] });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap())
    }

    fn group(homes: &str) -> Group {
        let endpoint = |(i, zone): (usize, char)| {
            let value = json!({ "addresses": [format!("10.0.0.{}", 100 + i)], "zone": zone.to_string(), "nodeName": "n",
                "conditions": { "ready": zone.is_lowercase() } });
            serde_json::from_value(value).unwrap()
        };
        Group { ports: Vec::new(), endpoints: homes.chars().enumerate().map(endpoint).collect() }
    }

    fn show(groups: &[Group]) -> String {
        let zone = |e: &Endpoint| {
            let zones = e.hints.as_ref().and_then(|h| h.for_zones.clone()).unwrap_or_default();
            zones.first().map_or("-".to_owned(), |z| z.name.clone())
        };
        groups[0].endpoints.iter().map(zone).collect()
    }

    #[test]
    fn near_is_the_own_zone_or_node_of_what_is_ready() {
        let mut groups = [group("abB")];
        near(&mut groups, Mode::SameZone);
        assert_eq!(show(&groups), "ab-");
        assert!(groups[0].endpoints[0].hints.as_ref().unwrap().for_nodes.is_none());
        near(&mut groups, Mode::SameNode);
        let nodes = groups[0].endpoints[0].hints.as_ref().unwrap().for_nodes.as_ref().unwrap();
        assert_eq!(nodes[0].name, "n");
    }

    #[test]
    fn zones_have_their_share_and_their_own_first() {
        for (nodes, homes, expected) in [
            (vec![node("a", "1"), node("b", "1")], "aabb", "aabb"),
            (vec![node("a", "1"), node("b", "1")], "aaaa", "aabb"),
            (vec![node("a", "1"), node("b", "1")], "aaab", "aabb"),
            (vec![node("a", "3"), node("b", "1")], "aaaaab", "aaaabb"),
            (vec![node("a", "1"), node("b", "1")], "aabx", "aabb"),
            (vec![node("a", "1"), node("b", "1")], "xxxx", "baba"),
            (vec![node("a", "35"), node("b", "35"), node("c", "30")], "abccaaabca", "abccaaabcb"),
            // Upstream's share, not merely what keeps the other zone from overload.
            (vec![node("a", "1"), node("b", "1")], "aaaaaaaaaaaaabbbbbbb", "aaaaaaaaaabbbbbbbbbb"),
        ] {
            let mut groups = [group(homes)];
            proportional(&mut groups, &nodes).unwrap();
            assert_eq!(show(&groups), expected, "{homes}");
        }
    }

    #[test]
    fn why_there_are_no_hints() {
        let two = || vec![node("a", "1"), node("b", "1")];
        for (nodes, homes, expected) in [
            (
                vec![node("a", "1")],
                "aa",
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
            ),
            (
                vec![node("a", "1"), node("", "1")],
                "aa",
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
            ),
            (two(), "a", "Insufficient number of endpoints (1 endpoints, 2 zones)"),
            (
                two(),
                "aab",
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (3 endpoints, 2 zones)",
            ),
        ] {
            let mut groups = [group(homes)];
            assert_eq!(proportional(&mut groups, &nodes).unwrap_err(), expected);
            assert!(groups[0].endpoints.iter().all(|e| e.hints.is_none()));
        }
    }
}
