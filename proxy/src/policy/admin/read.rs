//! Both generations of the API in one form. What a rule asks for that is not known here fails closed, as upstream wants
//! it: an Allow rule is about nothing then, and any other denies everything.

use crate::policy::model::{Action, AdminKind, AdminPolicy, AdminRule, Chosen, Peer, Peers, PortMatch, Tier};
use coracle_client::ObjectKey;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

/// Where policies count that have no priority, so the one BaselineAdminNetworkPolicy: behind all that have one.
const NO_PRIORITY: i32 = i32::MAX;

#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Spec {
    tier: Option<String>,
    priority: Option<i32>,
    subject: Subject,
    #[serde(default)]
    ingress: Vec<Rule>,
    #[serde(default)]
    egress: Vec<Rule>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Value>,
}

#[derive(Deserialize)]
struct Subject {
    namespaces: Option<LabelSelector>,
    pods: Option<NamespacedPod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamespacedPod {
    #[serde(default)]
    namespace_selector: LabelSelector,
    #[serde(default)]
    pod_selector: LabelSelector,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    name: String,
    action: String,
    #[serde(default, alias = "to")]
    from: Vec<PeerFields>,
    /// Of v1alpha1.
    ports: Option<Vec<PortFields>>,
    /// Of ClusterNetworkPolicy.
    protocols: Option<Vec<ProtocolFields>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PeerFields {
    namespaces: Option<LabelSelector>,
    pods: Option<NamespacedPod>,
    nodes: Option<LabelSelector>,
    networks: Option<Vec<String>>,
    domain_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortFields {
    port_number: Option<PortNumber>,
    port_range: Option<PortRange>,
    named_port: Option<String>,
}

#[derive(Deserialize)]
struct PortNumber {
    #[serde(default = "tcp")]
    protocol: String,
    port: u16,
}

#[derive(Deserialize)]
struct PortRange {
    #[serde(default = "tcp")]
    protocol: String,
    start: u16,
    end: u16,
}

fn tcp() -> String {
    "TCP".to_owned()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProtocolFields {
    tcp: Option<Destination>,
    udp: Option<Destination>,
    sctp: Option<Destination>,
    destination_named_port: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destination {
    destination_port: Option<DestinationPort>,
}

#[derive(Deserialize)]
struct DestinationPort {
    number: Option<u16>,
    range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    start: u16,
    end: u16,
}

/// Of a kind's object as its version has it.
///
/// # Errors
/// What of it has not the form that the definition gives it.
pub fn read(kind: AdminKind, api_version: &str, object: &Value) -> Result<AdminPolicy, String> {
    let object = Object::deserialize(object).map_err(|error| error.to_string())?;
    let Object { metadata, spec, status } = object;
    let mut unsupported = Vec::new();
    let tier = match (kind, spec.tier.as_deref()) {
        (AdminKind::Admin, _) | (_, Some("Admin")) => Tier::Admin,
        (AdminKind::Baseline, _) | (_, Some("Baseline")) => Tier::Baseline,
        (_, other) => return Err(format!("spec.tier: {other:?} is not known")),
    };
    let subject = subject(spec.subject, &mut unsupported);
    let mut rules = |rules: Vec<Rule>, direction: &str| -> Vec<AdminRule> {
        let read = |(at, rule)| read_rule(rule, &format!("spec.{direction}[{at}]"), &mut unsupported);
        rules.into_iter().enumerate().filter_map(read).collect()
    };
    let (ingress, egress) = (rules(spec.ingress, "ingress"), rules(spec.egress, "egress"));
    let conditions = status.conditions.into_iter().filter_map(|c| Condition::deserialize(c).ok());
    Ok(AdminPolicy {
        kind,
        api_version: api_version.to_owned(),
        key: ObjectKey::new("", metadata.name.unwrap_or_default()),
        uid: metadata.uid.unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        tier,
        priority: spec.priority.unwrap_or(NO_PRIORITY),
        subject,
        ingress,
        egress,
        unsupported,
        accepted: conditions.into_iter().find(|c| c.type_ == super::conditions::ACCEPTED),
    })
}

/// A subject of another kind fails closed, too: nobody knows whom it spares.
fn subject(subject: Subject, unsupported: &mut Vec<String>) -> Chosen {
    match subject {
        Subject { pods: Some(chosen), .. } => {
            Chosen { namespaces: chosen.namespace_selector, pods: Some(chosen.pod_selector) }
        }
        Subject { namespaces: Some(namespaces), .. } => Chosen { namespaces, pods: None },
        Subject { .. } => {
            unsupported.push("spec.subject: of no known kind, all pods are taken".to_owned());
            Chosen { namespaces: LabelSelector::default(), pods: None }
        }
    }
}

/// `None`: a rule that is about nothing.
fn read_rule(rule: Rule, path: &str, unsupported: &mut Vec<String>) -> Option<AdminRule> {
    let at = if rule.name.is_empty() { path.to_owned() } else { format!("{path} ({})", rule.name) };
    let known = match rule.action.as_str() {
        "Allow" | "Accept" => Some(Action::Allow),
        "Deny" => Some(Action::Deny),
        "Pass" => Some(Action::Pass),
        _ => None,
    };
    let action = known.unwrap_or(Action::Deny);
    let peers: Result<Vec<_>, _> = rule.from.into_iter().map(|peer| read_peer(peer, action)).collect();
    let ports = match (rule.ports, rule.protocols) {
        (None, None) => Ok(Vec::new()),
        (ports, protocols) => {
            let ports = ports.into_iter().flatten().map(read_port);
            ports.chain(protocols.into_iter().flatten().map(read_protocol)).collect()
        }
    };
    let why = match (known, peers, ports) {
        (Some(action), Ok(peers), Ok(ports)) => {
            if peers.iter().any(Option::is_none) {
                unsupported.push(format!("{at}: domainNames are not supported and match nothing"));
            }
            let peers = Peers::These(peers.into_iter().flatten().collect());
            return Some(AdminRule { action, peers, ports });
        }
        (None, ..) => "an action",
        (_, Err(why), _) | (_, _, Err(why)) => why,
    };
    let denies = action != Action::Allow;
    let effect = if denies { "it denies everything" } else { "it is about nothing" };
    unsupported.push(format!("{at}: {why} that is not known, so that {effect}"));
    denies.then_some(AdminRule { action: Action::Deny, peers: Peers::Everybody, ports: Vec::new() })
}

/// `None`: names of domains, which are nobody here. An error says what is not known.
fn read_peer(peer: PeerFields, action: Action) -> Result<Option<Peer>, &'static str> {
    let pods = |namespaces, pods| Ok(Some(Peer::Pods { scope: None, namespaces: Some(namespaces), pods }));
    match peer {
        PeerFields { namespaces: Some(namespaces), .. } => pods(namespaces, None),
        PeerFields { pods: Some(chosen), .. } => pods(chosen.namespace_selector, Some(chosen.pod_selector)),
        PeerFields { nodes: Some(nodes), .. } => Ok(Some(Peer::Nodes(nodes))),
        PeerFields { networks: Some(networks), .. } => {
            let nets: Result<Vec<IpNet>, _> = networks.iter().map(|net| net.parse::<IpNet>()).collect();
            let nets = nets.map_err(|_| "a network")?.iter().map(IpNet::trunc).collect();
            Ok(Some(Peer::Networks { nets, except: Vec::new() }))
        }
        PeerFields { domain_names: Some(_), .. } if action == Action::Allow => Ok(None),
        _ => Err("a peer"),
    }
}

fn read_port(port: PortFields) -> Result<PortMatch, &'static str> {
    match port {
        PortFields { port_number: Some(PortNumber { protocol, port }), .. } => {
            Ok(PortMatch::Range(word(&protocol)?, port, port))
        }
        PortFields { port_range: Some(PortRange { protocol, start, end }), .. } => {
            Ok(PortMatch::Range(word(&protocol)?, start, end))
        }
        PortFields { named_port: Some(name), .. } => Ok(PortMatch::Named(name, None)),
        _ => Err("a port"),
    }
}

fn word(protocol: &str) -> Result<String, &'static str> {
    let word = protocol.to_ascii_lowercase();
    if matches!(word.as_str(), "tcp" | "udp" | "sctp") { Ok(word) } else { Err("a protocol") }
}

fn read_protocol(protocol: ProtocolFields) -> Result<PortMatch, &'static str> {
    let ProtocolFields { tcp, udp, sctp, destination_named_port } = protocol;
    let of = |word: &str, to: Destination| match to.destination_port {
        None => Ok(PortMatch::Protocol(word.to_owned())),
        Some(DestinationPort { number: Some(number), .. }) => {
            Ok(PortMatch::Range(word.to_owned(), number, number))
        }
        Some(DestinationPort { range: Some(Range { start, end }), .. }) => {
            Ok(PortMatch::Range(word.to_owned(), start, end))
        }
        Some(_) => Err("a port"),
    };
    match (tcp, udp, sctp, destination_named_port) {
        (Some(to), ..) => of("tcp", to),
        (_, Some(to), ..) => of("udp", to),
        (_, _, Some(to), _) => of("sctp", to),
        (.., Some(name)) => Ok(PortMatch::Named(name, None)),
        _ => Err("a protocol"),
    }
}
