//! What the cluster's names mean: <https://github.com/kubernetes/dns/blob/master/docs/specification.md>.

use coracle_api::well_known;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// What is asked for; other types exist for no name of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryType {
    A,
    Aaaa,
    Srv,
    Ptr,
    Txt,
    Soa,
    Ns,
    Any,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Address(IpAddr),
    Srv {
        port: u16,
        target: String,
    },
    /// Resolved further by whoever answers, where it is not ours.
    Cname(String),
    Ptr(String),
    Txt(&'static str),
    Soa,
    Ns,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Without the final dot.
    pub name: String,
    pub data: Data,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// `extra` are the addresses of SRV targets.
    Found { records: Vec<Record>, extra: Vec<Record> },
    /// The name exists, without a record of this type.
    NoData,
    /// The name does not exist.
    NoName,
    /// Not a name of the cluster: ask others.
    NotOurs,
}

/// What the zone is made of.
pub trait Directory {
    fn has_namespace(&self, namespace: &str) -> bool;
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>>;
    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>>;
    /// The Service with this cluster IP.
    fn service_at(&self, ip: IpAddr) -> Option<Arc<Service>>;
    /// The slices in which this address is an endpoint.
    fn slices_at(&self, ip: IpAddr) -> Vec<Arc<EndpointSlice>>;
}

/// The cluster's zone over a directory.
pub struct Zone<D> {
    pub directory: D,
    /// For example `cluster.local`.
    pub domain: String,
}

fn address(ip: IpAddr, asked: QueryType) -> Option<Data> {
    let wanted = matches!(
        (asked, ip),
        (QueryType::Any, _) | (QueryType::A, IpAddr::V4(_)) | (QueryType::Aaaa, IpAddr::V6(_))
    );
    wanted.then_some(Data::Address(ip))
}

/// The label of an endpoint: its hostname, or its address with dashes.
fn endpoint_label(endpoint: &Endpoint) -> String {
    match endpoint.hostname.as_deref().filter(|h| !h.is_empty()) {
        Some(hostname) => hostname.to_owned(),
        None => endpoint.addresses.first().map(|a| a.replace(['.', ':'], "-")).unwrap_or_default(),
    }
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)
}

fn addresses(endpoint: &Endpoint) -> impl Iterator<Item = IpAddr> {
    endpoint.addresses.first().into_iter().filter_map(|a| a.parse().ok())
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()).is_none_or(|ip| ip == "None" || ip.is_empty())
}

fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let all: Vec<IpAddr> = spec.cluster_ips.iter().flatten().filter_map(|ip| ip.parse().ok()).collect();
    if all.is_empty() { spec.cluster_ip.iter().filter_map(|ip| ip.parse().ok()).collect() } else { all }
}

fn found(records: Vec<Record>) -> Answer {
    if records.is_empty() { Answer::NoData } else { Answer::Found { records, extra: Vec::new() } }
}

impl<D: Directory> Zone<D> {
    /// `name` in lower case, without the final dot.
    pub fn answer(&self, name: &str, asked: QueryType) -> Answer {
        if let Some(reverse) = reverse_address(name) {
            return self.reverse(name, reverse, asked);
        }
        if name == self.domain {
            return self.apex(asked);
        }
        let Some(inside) = name.strip_suffix(&self.domain).and_then(|n| n.strip_suffix('.')) else {
            return Answer::NotOurs;
        };
        let labels: Vec<&str> = inside.split('.').rev().collect();
        match labels.as_slice() {
            ["svc"] | ["pod"] => Answer::NoData,
            ["dns-version"] => self.version(name, asked),
            ["svc", namespace] | ["pod", namespace] => self.namespace(namespace),
            ["svc", namespace, service, rest @ ..] => self.service(name, namespace, service, rest, asked),
            ["pod", namespace, address] => self.pod(name, namespace, address, asked),
            _ => Answer::NoName,
        }
    }

    fn apex(&self, asked: QueryType) -> Answer {
        let record = |data| Record { name: self.domain.clone(), data };
        match asked {
            QueryType::Soa => found(vec![record(Data::Soa)]),
            QueryType::Ns => found(vec![record(Data::Ns)]),
            _ => Answer::NoData,
        }
    }

    fn version(&self, name: &str, asked: QueryType) -> Answer {
        match asked {
            QueryType::Txt | QueryType::Any => {
                found(vec![Record { name: name.to_owned(), data: Data::Txt("1.1.0") }])
            }
            _ => Answer::NoData,
        }
    }

    fn namespace(&self, namespace: &str) -> Answer {
        if self.directory.has_namespace(namespace) { Answer::NoData } else { Answer::NoName }
    }

    /// `a-b-c-d.namespace.pod`: the address that is in the name, for namespaces that exist.
    fn pod(&self, name: &str, namespace: &str, label: &str, asked: QueryType) -> Answer {
        let v4 = label.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
        let ip = v4.or_else(|_| label.replace('-', ":").parse::<IpAddr>());
        let Some(ip) = ip.ok().filter(|_| self.directory.has_namespace(namespace)) else {
            return Answer::NoName;
        };
        found(address(ip, asked).map(|data| Record { name: name.to_owned(), data }).into_iter().collect())
    }

    /// `rest` are the labels left of the Service's name, from right to left.
    fn service(&self, name: &str, namespace: &str, service: &str, rest: &[&str], asked: QueryType) -> Answer {
        let Some(object) = self.directory.service(namespace, service) else { return Answer::NoName };
        let spec = object.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            let target = spec.external_name.unwrap_or_default();
            return match rest {
                [] => found(vec![Record { name: name.to_owned(), data: Data::Cname(target) }]),
                _ => Answer::NoName,
            };
        }
        let base = format!("{service}.{namespace}.svc.{}", self.domain);
        match rest {
            [] => self.whole(&object, &base, asked),
            [protocol, port] if protocol.starts_with('_') && port.starts_with('_') => {
                self.ports(&object, &base, name, Some((&port[1..], &protocol[1..])), asked)
            }
            [label] => self.endpoint(&object, name, label, asked),
            _ => Answer::NoName,
        }
    }

    fn slices_of(&self, service: &Service) -> Vec<Arc<EndpointSlice>> {
        let meta = &service.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        self.directory.slices(namespace, meta.name.as_deref().unwrap_or_default())
    }

    fn whole(&self, service: &Service, base: &str, asked: QueryType) -> Answer {
        if asked == QueryType::Srv {
            return self.ports(service, base, base, None, asked);
        }
        let record = |data| Record { name: base.to_owned(), data };
        if !is_headless(service) {
            return found(
                cluster_ips(service).into_iter().filter_map(|ip| address(ip, asked)).map(record).collect(),
            );
        }
        let slices = self.slices_of(service);
        let ready: Vec<&Endpoint> =
            slices.iter().flat_map(|s| s.endpoints.iter().flatten()).filter(|e| is_ready(e)).collect();
        if ready.is_empty() {
            // A headless Service without endpoints has no name, as CoreDNS answers it.
            return Answer::NoName;
        }
        let mut records: Vec<Record> = Vec::new();
        for data in ready.into_iter().flat_map(addresses).filter_map(|ip| address(ip, asked)) {
            if !records.iter().any(|r| r.data == data) {
                records.push(record(data));
            }
        }
        found(records)
    }

    /// One endpoint of a Service, by hostname or dashed address; those of Services with an address have names too.
    fn endpoint(&self, service: &Service, name: &str, label: &str, asked: QueryType) -> Answer {
        let slices = self.slices_of(service);
        let all = slices.iter().flat_map(|s| s.endpoints.iter().flatten());
        let named: Vec<&Endpoint> = all.filter(|e| is_ready(e) && endpoint_label(e) == label).collect();
        if named.is_empty() {
            return Answer::NoName;
        }
        let data = named.into_iter().flat_map(addresses).filter_map(|ip| address(ip, asked));
        found(data.map(|data| Record { name: name.to_owned(), data }).collect())
    }

    /// SRV records: of all named ports, or of the port and protocol asked for.
    fn ports(
        &self,
        service: &Service,
        base: &str,
        name: &str,
        wanted: Option<(&str, &str)>,
        asked: QueryType,
    ) -> Answer {
        let (mut records, mut extra) = (Vec::new(), Vec::new());
        let matches = |port: Option<&str>, protocol: Option<&str>| {
            let protocol = protocol.unwrap_or("TCP").to_lowercase();
            wanted.is_none_or(|(p, t)| port == Some(p) && protocol == t)
        };
        let mut add = |port: i32, target: String, ips: Vec<IpAddr>| {
            let data = Data::Srv { port: u16::try_from(port).unwrap_or(0), target: target.clone() };
            records.push(Record { name: name.to_owned(), data });
            extra.extend(ips.into_iter().map(|ip| Record { name: target.clone(), data: Data::Address(ip) }));
        };
        if is_headless(service) {
            for slice in self.slices_of(service) {
                for port in
                    slice.ports.iter().flatten().filter(|p| matches(p.name.as_deref(), p.protocol.as_deref()))
                {
                    for endpoint in slice.endpoints.iter().flatten().filter(|e| is_ready(e)) {
                        let target = format!("{}.{base}", endpoint_label(endpoint));
                        add(port.port.unwrap_or(0), target, addresses(endpoint).collect());
                    }
                }
            }
        } else {
            let ports = service.spec.iter().flat_map(|s| s.ports.iter().flatten());
            for port in ports.filter(|p| matches(p.name.as_deref(), p.protocol.as_deref())) {
                add(port.port, base.to_owned(), cluster_ips(service));
            }
        }
        if records.is_empty() {
            return if wanted.is_some() { Answer::NoName } else { Answer::NoData };
        }
        match asked {
            QueryType::Srv | QueryType::Any => Answer::Found { records, extra },
            _ => Answer::NoData,
        }
    }

    fn reverse(&self, name: &str, ip: IpAddr, asked: QueryType) -> Answer {
        let pointer = |target: String| match asked {
            QueryType::Ptr | QueryType::Any => {
                found(vec![Record { name: name.to_owned(), data: Data::Ptr(target) }])
            }
            _ => Answer::NoData,
        };
        if let Some(service) = self.directory.service_at(ip) {
            let meta = &service.metadata;
            let (name, namespace) = (meta.name.as_deref(), meta.namespace.as_deref());
            return pointer(format!(
                "{}.{}.svc.{}",
                name.unwrap_or_default(),
                namespace.unwrap_or_default(),
                self.domain
            ));
        }
        let text = ip.to_string();
        for slice in self.directory.slices_at(ip) {
            let labels = slice.metadata.labels.as_ref();
            let Some(service) = labels.and_then(|l| l.get(well_known::SERVICE_NAME)) else { continue };
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            let headless = self.directory.service(namespace, service).is_some_and(|s| is_headless(&s));
            let at = slice.endpoints.iter().flatten().find(|e| e.addresses.contains(&text));
            if let Some(endpoint) = at.filter(|_| headless) {
                return pointer(format!(
                    "{}.{service}.{namespace}.svc.{}",
                    endpoint_label(endpoint),
                    self.domain
                ));
            }
        }
        Answer::NotOurs
    }
}

/// The address of an `in-addr.arpa` or `ip6.arpa` name.
pub fn reverse_address(name: &str) -> Option<IpAddr> {
    if let Some(octets) = name.strip_suffix(".in-addr.arpa") {
        let turned: Vec<&str> = octets.split('.').rev().collect();
        return turned.join(".").parse().ok().map(IpAddr::V4);
    }
    let nibbles: Vec<&str> = name.strip_suffix(".ip6.arpa")?.split('.').rev().collect();
    let groups: Vec<String> = nibbles.chunks(4).map(<[&str]>::concat).collect();
    groups.join(":").parse().ok().map(IpAddr::V6)
}

#[cfg(test)]
pub mod tests;
