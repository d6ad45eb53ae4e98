//! Cluster IPs and node ports.
//!
//! Each is a key of the store that must be absent when it is taken, in the transaction that writes the Service: two
//! Services can never hold the same one, whatever happens at the same time. Cluster IPs are IPAddress objects, as
//! upstream's (KEP-1880); node ports are keys that no client sees.

use super::ranges::Ranges;
use super::*;
use bytes::Bytes;
use coracle_store::{Op, Precondition};
use rand::Rng;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// `--service-node-port-range`, upstream's default.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
/// Random tries before a scan of all ports.
const TRIES: usize = 16;
const IP_ADDRESSES: &str = "ipaddresses.networking.k8s.io";

/// What a Service holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Holding {
    ips: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

pub fn transaction_ops(
    write: WriteKind,
    object: &mut Object,
    old: Option<&Object>,
    env: &Env,
) -> Result<TransactionOps, ApiError> {
    let before = match write {
        WriteKind::Create => Holding::default(),
        WriteKind::Update => old.map(holding).unwrap_or_default(),
        WriteKind::Delete => holding(old.unwrap_or(object)),
    };
    let after = match write {
        WriteKind::Delete => Holding::default(),
        WriteKind::Create | WriteKind::Update => {
            let mut errors = Vec::new();
            fill(object, &before, env, &mut Errors(&mut errors))?;
            if !errors.is_empty() {
                return Err(ApiError::invalid("", "Service", name(object), &errors));
            }
            holding(object)
        }
    };
    Ok(difference(object, &before, &after, env))
}

/// What a new Service asks for and cannot have.
pub fn refusals(service: &Object, env: &Env) -> Vec<FieldError> {
    let (mut service, mut found) = (service.clone(), Vec::new());
    // That nothing is left to give is for the allocation itself to say.
    let _ = fill(&mut service, &Holding::default(), env, &mut Errors(&mut found));
    found
}

fn holding(service: &Object) -> Holding {
    let mut held = Holding::default();
    if needs_cluster_ip(service) {
        held.ips = strings_at(service, "spec.clusterIPs").filter_map(|ip| ip.parse().ok()).collect();
    }
    let health = i64_at(service, "spec.healthCheckNodePort");
    let ports = list_at(service, "spec.ports").iter().map(|p| i64_at(p, "nodePort")).chain([health]);
    held.ports = ports.flatten().filter(|port| *port != 0).collect();
    held
}

/// Takes what `after` has and `before` has not, releases the rest.
fn difference(service: &Object, before: &Holding, after: &Holding, env: &Env) -> TransactionOps {
    let mut result = TransactionOps::default();
    let mut take = |key: String, value: Bytes| {
        let key: std::sync::Arc<str> = key.into();
        result.guards.push(Precondition { key: key.clone(), expect: None });
        result.ops.push(Op::Put { key, value });
    };
    for ip in after.ips.difference(&before.ips) {
        take(ip_key(*ip), ip_address(*ip, service, env));
    }
    for port in after.ports.difference(&before.ports) {
        take(port_key(*port), Bytes::from_static(b"{}"));
    }
    for ip in before.ips.difference(&after.ips).filter(|ip| owns(service, **ip, env)) {
        result.ops.push(Op::Delete { key: ip_key(*ip).into() });
    }
    for port in before.ports.difference(&after.ports) {
        result.ops.push(Op::Delete { key: port_key(*port).into() });
    }
    result
}

fn ip_key(ip: IpAddr) -> String {
    format!("{IP_ADDRESSES}//{ip}")
}

fn port_key(port: i64) -> String {
    format!("nodeports.coracle.internal//{port}")
}

fn owns(service: &Object, ip: IpAddr, env: &Env) -> bool {
    env.read.get(IP_ADDRESSES, "", &ip.to_string()).is_some_and(|address| {
        let parent = &address["spec"]["parentRef"];
        (str_at(parent, "namespace"), str_at(parent, "name")) == (namespace(service), name(service))
    })
}

/// The stored form, whose key order the store's readers rely on.
fn ip_address(ip: IpAddr, service: &Object, env: &Env) -> Bytes {
    let metadata = json!({
        "name": ip.to_string(), "uid": uuid::Uuid::new_v4().to_string(),
        "creationTimestamp": env.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "labels": { "ipaddress.kubernetes.io/ip-family": families::of(&ip.to_string()),
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io" },
    });
    let parent = json!({ "resource": "services", "namespace": namespace(service), "name": name(service) });
    format!(
        r#"{{"kind":"IPAddress","apiVersion":"networking.k8s.io/v1","metadata":{metadata},"spec":{{"parentRef":{parent}}}}}"#
    )
    .into()
}

/// Gives the Service every address and port that it needs and lacks.
fn fill(service: &mut Object, before: &Holding, env: &Env, errors: &mut Errors) -> Result<(), ApiError> {
    if needs_cluster_ip(service) && !is_headless(service) {
        cluster_ip(service, before, env, errors)?;
    }
    if needs_node_ports(service) || needs_health_check_port(service) || !holding(service).ports.is_empty() {
        node_ports(service, before, env, errors);
    }
    Ok(())
}

/// One address of each of the Service's families: what it names, and else any that is free.
fn cluster_ip(
    service: &mut Object,
    before: &Holding,
    env: &Env,
    errors: &mut Errors,
) -> Result<(), ApiError> {
    let mut ips: Vec<String> = strings_at(service, "spec.clusterIPs").map(str::to_owned).collect();
    let families: Vec<String> = strings_at(service, "spec.ipFamilies").map(str::to_owned).collect();
    for (i, family) in families.iter().enumerate() {
        let ranges = Ranges::of(env.read, family);
        match ips.get(i) {
            Some(text) => {
                if let Err(why) = chosen(text, service, before, &ranges, env) {
                    let path = Path::root("spec").field("clusterIPs");
                    errors.invalid(&path, ips.clone(), &format!("failed to allocate IP {text}: {why}"));
                    return Ok(());
                }
            }
            None => {
                let ip = ranges.free(|ip| is_reserved(ip, service, env));
                let full = || ApiError::internal("failed to allocate a serviceIP: range is full");
                ips.push(ip.ok_or_else(full)?.to_string());
            }
        }
    }
    if let (Some(spec), Some(first)) = (at_mut(service, "spec"), ips.first()) {
        set(spec, "clusterIP", first.clone());
        set(spec, "clusterIPs", ips);
    }
    Ok(())
}

/// Whether the Service may have an address that it names.
fn chosen(text: &str, service: &Object, before: &Holding, ranges: &Ranges, env: &Env) -> Result<(), String> {
    match text.parse::<IpAddr>() {
        Ok(ip) if before.ips.contains(&ip) => Ok(()),
        Ok(ip) if ranges.hold(ip) => {
            // Second addresses stand in no index.
            let taken = is_reserved(ip, service, env)
                || env.read.list("services.", "").iter().any(|other| {
                    !is_same(other, service) && needs_cluster_ip(other) && holding(other).ips.contains(&ip)
                });
            if taken { Err("provided IP is already allocated".to_owned()) } else { Ok(()) }
        }
        _ => Err(format!(
            "the provided IP ({text}) is not in the valid range. The range of valid IPs is {}",
            ranges.first()
        )),
    }
}

fn is_same(a: &Object, b: &Object) -> bool {
    (namespace(a), name(a)) == (namespace(b), name(b))
}

/// By its IPAddress. Somebody may have deleted that: until it is made again, only the Service itself tells.
fn is_reserved(ip: IpAddr, service: &Object, env: &Env) -> bool {
    let ip = ip.to_string();
    env.read.get(IP_ADDRESSES, "", &ip).is_some()
        || env.read.list_where("services.", "", "spec.clusterIP", &ip).iter().any(|s| !is_same(s, service))
}

fn node_ports(service: &mut Object, before: &Holding, env: &Env, errors: &mut Errors) {
    let own = (namespace(service).to_owned(), name(service).to_owned());
    let others = env.read.list("services.", "");
    let mut used: BTreeSet<i64> = others
        .iter()
        .filter(|s| (namespace(s), name(s)) != (own.0.as_str(), own.1.as_str()))
        .flat_map(|s| holding(s).ports)
        .collect();
    let (ports_wanted, health_wanted) = (needs_node_ports(service), needs_health_check_port(service));
    // Of others they are a mistake whatever their number, which validation names.
    let has_node_ports = matches!(kind(service), "NodePort" | "LoadBalancer");
    let path = Path::root("spec");
    let Some(spec) = at_mut(service, "spec") else { return };
    let mut mine: BTreeSet<i64> = before.ports.clone();
    let slots = list_at(spec, "ports").len();
    // What was asked for first, so that nothing chosen here takes it.
    for (i, port) in each_mut(spec, "ports").enumerate() {
        if let Some(number) = i64_at(port, "nodePort").filter(|n| *n != 0 && has_node_ports) {
            check_port(number, &mine, &used, &path.field("ports").index(i).field("nodePort"), errors);
            mine.insert(number);
        }
    }
    if let Some(number) = i64_at(spec, "healthCheckNodePort").filter(|n| *n != 0 && health_wanted) {
        check_port(number, &mine, &used, &path.field("healthCheckNodePort"), errors);
        mine.insert(number);
    }
    used.extend(&mine);
    for i in 0..slots {
        let Some(port) = at_mut(spec, "ports").and_then(|p| p.get_mut(i)).filter(|_| ports_wanted) else {
            break;
        };
        assign(port, "nodePort", &mut used, &path.field("ports").index(i).field("nodePort"), errors);
    }
    if health_wanted {
        assign(spec, "healthCheckNodePort", &mut used, &path.field("healthCheckNodePort"), errors);
    }
}

fn check_port(number: i64, mine: &BTreeSet<i64>, used: &BTreeSet<i64>, path: &Path, errors: &mut Errors) {
    if mine.contains(&number) {
        return;
    }
    if !NODE_PORTS.contains(&number) {
        let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
        let detail =
            format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
        errors.invalid(path, number, &detail);
    } else if used.contains(&number) {
        errors.invalid(path, number, "provided port is already allocated");
    }
}

/// Puts a free port into a field that has none.
fn assign(holder: &mut Value, field: &str, used: &mut BTreeSet<i64>, path: &Path, errors: &mut Errors) {
    if i64_at(holder, field).is_some_and(|n| n != 0) {
        return;
    }
    let mut random = rand::rng();
    let tries = (0..TRIES).map(|_| random.random_range(NODE_PORTS));
    match tries.chain(NODE_PORTS).find(|port| !used.contains(port)) {
        Some(port) => {
            used.insert(port);
            set(holder, field, port);
        }
        None => errors.invalid(path, 0, "failed to allocate a nodePort: range is full"),
    }
}
