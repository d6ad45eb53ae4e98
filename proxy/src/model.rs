//! What shall be reachable: every port of every Service with the endpoints behind it, as plain data.

use crate::family::Family;
use coracle_api::validation::is_machine_address;
use coracle_api::well_known;
use coracle_client::ObjectKey;
use k8s_openapi::api::core::v1::{Service, ServicePort as ApiPort};
use k8s_openapi::api::discovery::v1::{Endpoint as ApiEndpoint, EndpointSlice};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Names a port of a Service; the order of rules follows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName {
    pub namespace: String,
    pub service: String,
    /// Empty for a Service with one unnamed port.
    pub port: String,
    /// `tcp`, `udp` or `sctp`
    pub protocol: String,
}

impl PortName {
    /// As upstream's comments name it: `namespace/service` or `namespace/service:port`.
    pub fn label(&self) -> String {
        let colon = if self.port.is_empty() { "" } else { ":" };
        format!("{}/{}{colon}{}", self.namespace, self.service, self.port)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub ip: IpAddr,
    pub port: u16,
    /// Takes traffic that must stay on this node.
    pub local: bool,
    /// Takes traffic that may go to any node: all that are ready do, unless the hints of `trafficDistribution` say
    /// otherwise.
    pub near: bool,
}

/// Where the rules are for.
#[derive(Clone, Copy, Debug)]
pub struct NodeTopology<'a> {
    pub node: &'a str,
    /// The node's `topology.kubernetes.io/zone`; empty where it has none.
    pub zone: &'a str,
}

/// One port of a Service, of one IP family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    pub name: PortName,
    pub cluster_ip: IpAddr,
    pub port: u16,
    /// 0: none.
    pub node_port: u16,
    /// External IPs and the addresses of the load balancer.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of a load balancer that only `sources` may reach.
    pub guarded_ips: Vec<IpAddr>,
    /// Networks (`loadBalancerSourceRanges`) of this IP family.
    pub sources: Vec<String>,
    /// Seconds that a client keeps its endpoint; 0: no affinity.
    pub affinity_seconds: u32,
    pub internal_local: bool,
    pub external_local: bool,
    /// Those that traffic goes to, sorted: ready ones, or serving ones on their way out when none is ready.
    pub endpoints: Vec<Endpoint>,
}

impl ServicePort {
    /// Where traffic goes that may leave this node.
    pub fn cluster_endpoints(&self) -> Vec<&Endpoint> {
        self.endpoints.iter().filter(|e| e.near).collect()
    }

    /// Where traffic goes that must stay on this node.
    pub fn local_endpoints(&self) -> Vec<&Endpoint> {
        self.endpoints.iter().filter(|e| e.local).collect()
    }

    /// Whether it has entrances beside its cluster IP.
    pub fn has_external(&self) -> bool {
        self.node_port != 0 || !self.external_ips.is_empty() || !self.guarded_ips.is_empty()
    }
}

/// Those of a Service's slices whose endpoints count.
pub(crate) fn counted(slices: &[Arc<EndpointSlice>]) -> Vec<&EndpointSlice> {
    slices.iter().map(Arc::as_ref).filter(|slice| !is_left_out(slice.metadata.labels.as_ref())).collect()
}

/// The Service of a slice.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice.metadata.labels.as_ref()?.get(well_known::SERVICE_NAME)?;
    Some(ObjectKey::new(slice.metadata.namespace.clone().unwrap_or_default(), name))
}

/// The ports of one Service over one family, ordered by name; `slices` are the Service's own.
pub(crate) fn ports_of(
    service: &Service,
    slices: &[&EndpointSlice],
    here: NodeTopology<'_>,
    family: Family,
) -> Vec<ServicePort> {
    let Some(spec) = &service.spec else { return Vec::new() };
    if spec.type_.as_deref() == Some("ExternalName") || is_for_other_proxy(service) {
        return Vec::new();
    }
    // Whoever may write a Service's status or its addresses must not take what machines send to themselves.
    let usable = |ip: &IpAddr| Family::of(*ip) == family && is_machine_address(*ip);
    let parse = |text: &String| text.parse::<IpAddr>().ok().filter(usable);
    let all_ips = spec.cluster_ips.iter().flatten().chain(spec.cluster_ip.iter());
    let Some(cluster_ip) = all_ips.into_iter().find_map(parse) else { return Vec::new() };
    let balancer = service.status.as_ref().and_then(|s| s.load_balancer.as_ref()?.ingress.as_ref());
    let balancer = balancer.into_iter().flatten().filter(|i| i.ip_mode.as_deref() != Some("Proxy"));
    let balancer: BTreeSet<IpAddr> = balancer.filter_map(|i| i.ip.as_ref()).filter_map(parse).collect();
    let external: BTreeSet<IpAddr> = spec.external_ips.iter().flatten().filter_map(parse).collect();
    let sources = sources_of(service, family);
    let (external, guarded) = match &sources {
        None => (&external | &balancer, BTreeSet::new()),
        Some(_) => (external.clone(), &balancer - &external),
    };
    let affinity = spec.session_affinity.as_deref() == Some("ClientIP");
    let seconds = spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref()?.timeout_seconds);
    let affinity_seconds =
        if affinity { u32::try_from(seconds.unwrap_or(10_800)).unwrap_or(10_800) } else { 0 };
    let make = |port: &ApiPort| ServicePort {
        name: PortName {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            service: service.metadata.name.clone().unwrap_or_default(),
            port: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.as_deref().unwrap_or("TCP").to_lowercase(),
        },
        cluster_ip,
        port: number(port.port),
        node_port: number(port.node_port.unwrap_or(0)),
        external_ips: external.iter().copied().collect(),
        guarded_ips: guarded.iter().copied().collect(),
        sources: sources.clone().unwrap_or_default(),
        affinity_seconds,
        internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        endpoints: endpoints_of(port, slices, here, family),
    };
    let mut ports: Vec<ServicePort> = spec.ports.iter().flatten().map(make).collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    ports
}

/// The older form of `loadBalancerSourceRanges`.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Who may reach the addresses of the Service's load balancer, of one IP family; `None`: anybody.
fn sources_of(service: &Service, family: Family) -> Option<Vec<String>> {
    let field = service.spec.as_ref().and_then(|s| s.load_balancer_source_ranges.clone()).unwrap_or_default();
    let annotations = service.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|a| a.get(SOURCE_RANGES)).map_or("", String::as_str);
    let old = if field.is_empty() { annotation } else { "" };
    let all = field.iter().map(String::as_str).chain(old.split(',')).map(str::trim);
    let all: Vec<&str> = all.filter(|range| !range.is_empty()).collect();
    let own = all.iter().filter(|range| Family::of_network(range) == family);
    let own: Vec<String> = own.map(|range| (*range).to_owned()).collect();
    let anybody = all.is_empty() || own.iter().any(|range| range.ends_with("/0"));
    (!anybody).then_some(own)
}

/// Whoever has the first label is another proxy's, and who has the second one nobody's, with whatever value
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#servicekubernetesioservice-proxy-name>).
const LEFT_OUT: [&str; 2] = ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"];

/// Whether labels keep a Service, or a slice of one, out of the rules.
fn is_left_out(labels: Option<&BTreeMap<String, String>>) -> bool {
    labels.is_some_and(|labels| LEFT_OUT.iter().any(|label| labels.contains_key(*label)))
}

/// Whether this proxy has nothing to do with the Service.
pub(crate) fn is_for_other_proxy(service: &Service) -> bool {
    is_left_out(service.metadata.labels.as_ref())
}

/// The ranges of one IP family that Services' addresses come from, in order.
pub(crate) fn ranges(all: &[Arc<ServiceCIDR>], family: Family) -> Vec<String> {
    let nets = all.iter().filter_map(|range| range.spec.as_ref()?.cidrs.as_ref()).flatten();
    let nets = nets.filter_map(|net| net.parse::<ipnet::IpNet>().ok());
    let nets: BTreeSet<String> =
        nets.filter(|net| Family::of(net.addr()) == family).map(|net| net.trunc().to_string()).collect();
    nets.into_iter().collect()
}

fn number(port: i32) -> u16 {
    u16::try_from(port).unwrap_or(0)
}

fn endpoints_of(
    port: &ApiPort,
    slices: &[&EndpointSlice],
    here: NodeTopology<'_>,
    family: Family,
) -> Vec<Endpoint> {
    let (mut ready, mut leaving) = (Vec::new(), Vec::new());
    for slice in slices.iter().filter(|s| s.address_type == family.name()) {
        let matching = slice.ports.iter().flatten().filter(|p| {
            p.name.as_deref().unwrap_or_default() == port.name.as_deref().unwrap_or_default()
                && p.protocol.as_deref().unwrap_or("TCP") == port.protocol.as_deref().unwrap_or("TCP")
        });
        for target in matching.filter_map(|p| p.port).map(number).filter(|p| *p != 0) {
            for endpoint in slice.endpoints.iter().flatten() {
                match usable(endpoint) {
                    Usable::Ready => ready.push((endpoint, target)),
                    Usable::Leaving => leaving.push((endpoint, target)),
                    Usable::No => {}
                }
            }
        }
    }
    let prefer = preference(ready.iter().map(|(endpoint, _)| *endpoint), here);
    let is_local = |endpoint: &ApiEndpoint| endpoint.node_name.as_deref() == Some(here.node);
    // Each set falls back by itself: what is on its way out here serves traffic that must stay here.
    let none_ready = ready.is_empty();
    let no_local_ready = !ready.iter().any(|(endpoint, _)| is_local(endpoint));
    let ready = ready.into_iter().map(|(e, port)| (e, port, is_local(e), prefer.includes(e, here)));
    let leaving = leaving.into_iter().map(|(e, port)| (e, port, is_local(e) && no_local_ready, none_ready));
    let mut by_socket: BTreeMap<(IpAddr, u16), Endpoint> = BTreeMap::new();
    for (endpoint, port, local, near) in ready.chain(leaving.filter(|(_, _, local, near)| *local || *near)) {
        // The API server refuses others; a node of another make, or a server before an upgrade, may not.
        let ip = endpoint.addresses.first().and_then(|a| a.parse().ok()).filter(|ip| is_machine_address(*ip));
        let Some(ip) = ip else { continue };
        let entry = by_socket.entry((ip, port)).or_insert(Endpoint { ip, port, local: false, near: false });
        entry.local |= local;
        entry.near |= near;
    }
    by_socket.into_values().collect()
}

/// Which endpoints this node's traffic goes to, by the hints of `trafficDistribution`.
#[derive(Clone, Copy)]
enum Preference {
    SameNode,
    SameZone,
    All,
}

impl Preference {
    fn includes(self, endpoint: &ApiEndpoint, here: NodeTopology<'_>) -> bool {
        match self {
            Self::SameNode => is_hinted(nodes_of(endpoint), here.node) == Some(true),
            Self::SameZone => is_hinted(zones_of(endpoint), here.zone) == Some(true),
            Self::All => true,
        }
    }
}

/// Hints count only where every ready endpoint has them and one names this place, as upstream: else the endpoints named
/// for elsewhere would be overloaded, or nobody would answer here.
fn preference<'a>(
    ready: impl Iterator<Item = &'a ApiEndpoint> + Clone,
    here: NodeTopology<'_>,
) -> Preference {
    let counts = |hinted: &mut dyn Iterator<Item = Option<bool>>| {
        let all: Option<Vec<bool>> = hinted.collect();
        all.is_some_and(|all| all.contains(&true))
    };
    if counts(&mut ready.clone().map(|e| is_hinted(nodes_of(e), here.node))) {
        Preference::SameNode
    } else if counts(&mut ready.map(|e| is_hinted(zones_of(e), here.zone))) {
        Preference::SameZone
    } else {
        Preference::All
    }
}

fn nodes_of(endpoint: &ApiEndpoint) -> Vec<&str> {
    let hints = endpoint.hints.iter().flat_map(|h| h.for_nodes.iter().flatten());
    hints.map(|node| node.name.as_str()).collect()
}

fn zones_of(endpoint: &ApiEndpoint) -> Vec<&str> {
    let hints = endpoint.hints.iter().flat_map(|h| h.for_zones.iter().flatten());
    hints.map(|zone| zone.name.as_str()).collect()
}

/// Whether hints name a place; `None` without hints.
fn is_hinted(hints: Vec<&str>, place: &str) -> Option<bool> {
    (!hints.is_empty()).then(|| hints.contains(&place))
}

pub(crate) enum Usable {
    Ready,
    Leaving,
    No,
}

pub(crate) fn usable(endpoint: &ApiEndpoint) -> Usable {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
    let serving = conditions.and_then(|c| c.serving).unwrap_or(ready);
    let terminating = conditions.and_then(|c| c.terminating).unwrap_or(false);
    match (ready, serving && terminating) {
        (true, _) => Usable::Ready,
        (false, true) => Usable::Leaving,
        (false, false) => Usable::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub fn one<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).expect("valid object"))
    }

    const HERE: NodeTopology<'_> = NodeTopology { node: "n", zone: "z" };

    fn build(
        services: &[Arc<Service>],
        slices: &[Arc<EndpointSlice>],
        here: NodeTopology<'_>,
        family: Family,
    ) -> Vec<ServicePort> {
        services.iter().flat_map(|service| ports_of(service, &counted(slices), here, family)).collect()
    }

    fn service(spec: Value) -> Arc<Service> {
        one(json!({"metadata": {"name": "web", "namespace": "d"}, "spec": spec}))
    }

    fn slice(endpoints: Value) -> Arc<EndpointSlice> {
        one(json!({"metadata": {"name": "web-1", "namespace": "d",
            "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints}))
    }

    #[test]
    fn ready_endpoints_are_preferred_to_leaving_ones() {
        let web = service(json!({"clusterIP": "10.43.0.9", "ports": [{"port": 80}]}));
        let leaving = json!({"addresses": ["10.42.0.2"],
            "conditions": {"ready": false, "serving": true, "terminating": true}});
        let ready = json!({"addresses": ["10.42.0.3"], "nodeName": "n", "conditions": {"ready": true}});
        let broken = json!({"addresses": ["10.42.0.4"], "conditions": {"ready": false}});
        let ips = |endpoints: Value| -> Vec<(String, bool)> {
            let ports = build(std::slice::from_ref(&web), &[slice(endpoints)], HERE, Family::V4);
            ports[0].endpoints.iter().map(|e| (e.ip.to_string(), e.local)).collect()
        };
        assert_eq!(ips(json!([leaving, ready, broken])), [("10.42.0.3".to_owned(), true)]);
        assert_eq!(ips(json!([leaving, broken])), [("10.42.0.2".to_owned(), false)]);
        assert!(ips(json!([broken])).is_empty());
    }

    #[test]
    fn a_leaving_endpoint_serves_what_must_stay_here() {
        let web = service(json!({"clusterIP": "10.43.0.9", "ports": [{"port": 80}]}));
        let leaving = json!({"addresses": ["10.42.0.2"], "nodeName": "n",
            "conditions": {"ready": false, "serving": true, "terminating": true}});
        let far = json!({"addresses": ["10.42.1.3"], "nodeName": "m", "conditions": {"ready": true}});
        let ports = build(std::slice::from_ref(&web), &[slice(json!([leaving, far]))], HERE, Family::V4);
        let ips = |all: Vec<&Endpoint>| all.iter().map(|e| e.ip.to_string()).collect::<Vec<_>>();
        assert_eq!(ips(ports[0].cluster_endpoints()), ["10.42.1.3"]);
        assert_eq!(ips(ports[0].local_endpoints()), ["10.42.0.2"]);
    }

    #[test]
    fn no_machine_is_led_to_itself() {
        for address in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"] {
            let web =
                service(json!({"clusterIP": "10.43.0.9", "ports": [{"port": 80}], "externalIPs": [address]}));
            let mut web = Arc::unwrap_or_clone(web);
            web.status =
                serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": address}]}})).unwrap();
            let endpoints = slice(json!([{"addresses": [address]}, {"addresses": ["10.42.0.2"]}]));
            let ports = build(&[Arc::new(web)], &[endpoints], HERE, Family::V4);
            let ips: Vec<String> = ports[0].endpoints.iter().map(|e| e.ip.to_string()).collect();
            assert_eq!(ips, ["10.42.0.2"], "{address} as an endpoint");
            assert!(
                ports[0].external_ips.is_empty() && ports[0].guarded_ips.is_empty(),
                "{address} as an entrance"
            );
        }
    }

    #[test]
    fn hints_count_where_all_have_them_and_one_is_for_here() {
        let web = service(json!({"clusterIP": "10.43.0.9", "ports": [{"port": 80}]}));
        let near = |hints: [Value; 2]| -> String {
            let endpoints = hints.into_iter().zip(["10.42.0.2", "10.42.0.3"]);
            let endpoints: Vec<Value> =
                endpoints.map(|(hints, ip)| json!({"addresses": [ip], "hints": hints})).collect();
            let ports = build(std::slice::from_ref(&web), &[slice(json!(endpoints))], HERE, Family::V4);
            ports[0].endpoints.iter().map(|e| if e.near { '1' } else { '0' }).collect()
        };
        let node = |name: &str| json!({"forNodes": [{"name": name}], "forZones": [{"name": "z"}]});
        let zone = |name: &str| json!({"forZones": [{"name": name}]});
        assert_eq!(near([node("n"), node("m")]), "10");
        assert_eq!(near([node("m"), node("m")]), "11", "none on this node: the zone's");
        assert_eq!(near([node("n"), zone("y")]), "10", "one without a node: by zone");
        assert_eq!(near([zone("y"), zone("z")]), "01");
        assert_eq!(near([zone("y"), zone("x")]), "11");
        assert_eq!(near([zone("z"), Value::Null]), "11");
    }

    #[test]
    fn source_ranges_guard_the_balancers_addresses_alone() {
        let ask = |ranges: Value, annotation: &str| {
            let mut web = json!({"metadata": {"name": "web", "namespace": "d"}, "spec": {"clusterIP": "10.43.0.9",
                "externalIPs": ["192.0.2.7"], "loadBalancerSourceRanges": ranges, "ports": [{"port": 80}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.7"}]}}});
            web["metadata"]["annotations"] = json!({ SOURCE_RANGES: annotation });
            let port = build(&[one(web)], &[], HERE, Family::V4).remove(0);
            let text = |all: &[IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            (text(&port.external_ips), text(&port.guarded_ips), port.sources.join(" "))
        };
        let is = |open: &str, guarded: &str, sources: &str| {
            (open.to_owned(), guarded.to_owned(), sources.to_owned())
        };
        let open = || is("192.0.2.1 192.0.2.7", "", "");
        assert_eq!(ask(json!([]), ""), open());
        assert_eq!(ask(json!(["198.51.100.0/24", "0.0.0.0/0"]), ""), open());
        let guarded = is("192.0.2.7", "192.0.2.1", "198.51.100.0/24");
        assert_eq!(ask(json!([" 198.51.100.0/24"]), "203.0.113.0/24"), guarded);
        assert_eq!(ask(Value::Null, "198.51.100.0/24, 2001:db8::/32"), guarded);
        assert_eq!(ask(json!(["2001:db8::/32"]), ""), is("192.0.2.7", "192.0.2.1", ""), "nobody of IPv4");
    }

    #[test]
    fn headless_external_and_foreign_services_have_no_rules() {
        let headless = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let external =
            service(json!({"type": "ExternalName", "externalName": "x.y", "ports": [{"port": 80}]}));
        let mut all = vec![headless, external];
        for label in LEFT_OUT {
            all.push(one::<Service>(
                json!({"metadata": {"name": "web", "namespace": "d", "labels": {label: ""}},
                "spec": {"clusterIP": "10.43.0.9", "ports": [{"port": 80}]}}),
            ));
        }
        assert!(build(&all, &[], HERE, Family::V4).is_empty());
    }

    #[test]
    fn slices_that_say_headless_are_nobodys_endpoints() {
        let web = service(json!({"clusterIP": "10.43.0.9", "ports": [{"port": 80}]}));
        let mut slice = Arc::unwrap_or_clone(slice(json!([{"addresses": ["10.42.0.2"]}])));
        let found = |slice: &EndpointSlice| {
            let ports = build(std::slice::from_ref(&web), &[Arc::new(slice.clone())], HERE, Family::V4);
            ports[0].endpoints.len()
        };
        assert_eq!(found(&slice), 1);
        slice.metadata.labels.get_or_insert_default().insert(LEFT_OUT[1].to_owned(), String::new());
        assert_eq!(found(&slice), 0);
    }

    #[test]
    fn ranges_are_those_of_the_family() {
        let all = [
            one(
                json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.43.0.0/16", "fd00::/108"]}}),
            ),
            one(json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.44.1.0/24"]}})),
            one(json!({"metadata": {"name": "again"}, "spec": {"cidrs": ["10.43.0.0/16"]}})),
        ];
        assert_eq!(ranges(&all, Family::V4), ["10.43.0.0/16", "10.44.1.0/24"]);
        assert_eq!(ranges(&all, Family::V6), ["fd00::/108"]);
    }
}
