//! Subsets of Endpoints in one form, whichever way they were written: ports that the same addresses have stand together.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::BTreeMap;

/// Tells addresses apart: IP, and the UID of what has it.
type Key = (String, String);

/// The addresses of a port, and whether each is ready; no port stands for addresses without any.
#[derive(Default)]
struct Ports(Vec<(Option<EndpointPort>, BTreeMap<Key, bool>)>);

fn key(address: &EndpointAddress) -> Key {
    let uid = address.target_ref.as_ref().and_then(|target| target.uid.clone());
    (address.ip.clone(), uid.unwrap_or_default())
}

impl Ports {
    /// Who is unready once for a port is unready.
    fn note(&mut self, port: Option<&EndpointPort>, key: &Key, ready: bool) {
        let at = self.0.iter().position(|(known, _)| known.as_ref() == port).unwrap_or_else(|| {
            self.0.push((port.cloned(), BTreeMap::new()));
            self.0.len() - 1
        });
        *self.0[at].1.entry(key.clone()).or_insert(true) &= ready;
    }

    /// The ports by the addresses that they have.
    fn grouped(self) -> Vec<(Vec<EndpointPort>, BTreeMap<Key, bool>)> {
        let mut groups: Vec<(Vec<EndpointPort>, BTreeMap<Key, bool>)> = Vec::new();
        for (port, addresses) in self.0 {
            match groups.iter_mut().find(|(_, known)| *known == addresses) {
                Some((ports, _)) => ports.extend(port),
                None => groups.push((port.into_iter().collect(), addresses)),
            }
        }
        groups
    }
}

/// The subsets as upstream's controller reads them.
pub fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let (mut ports, mut all) = (Ports::default(), BTreeMap::new());
    for subset in subsets {
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, ready) in ready.chain(unready) {
            let key = key(address);
            all.entry(key.clone()).or_insert_with(|| address.clone());
            let own = subset.ports.as_deref().unwrap_or_default();
            own.iter().for_each(|port| ports.note(Some(port), &key, ready));
            if own.is_empty() {
                ports.note(None, &key, ready);
            }
        }
    }
    let subset = |(ports, addresses): (Vec<EndpointPort>, BTreeMap<Key, bool>)| {
        let of = |ready: bool| -> Option<Vec<EndpointAddress>> {
            let some = addresses.iter().filter(|(_, is)| **is == ready);
            let some: Vec<_> = some.filter_map(|(key, _)| all.get(key).cloned()).collect();
            (!some.is_empty()).then_some(some)
        };
        EndpointSubset {
            addresses: of(true),
            not_ready_addresses: of(false),
            ports: (!ports.is_empty()).then_some(ports),
        }
    };
    ports.grouped().into_iter().map(subset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Each subset as its ports, its ready and its unready addresses.
    fn shown(subsets: &Value) -> Vec<String> {
        let subsets: Vec<EndpointSubset> = serde_json::from_value(subsets.clone()).unwrap();
        let ips = |all: &Option<Vec<EndpointAddress>>| -> String {
            all.iter().flatten().map(|a| a.ip.as_str()).collect::<Vec<_>>().join(",")
        };
        let ports = |s: &EndpointSubset| -> String {
            s.ports.iter().flatten().map(|p| p.port.to_string()).collect::<Vec<_>>().join("+")
        };
        let line = |s: EndpointSubset| {
            format!("{}: {} / {}", ports(&s), ips(&s.addresses), ips(&s.not_ready_addresses))
        };
        repack(&subsets).into_iter().map(line).collect()
    }

    fn subset(port: i32, ready: &[&str], unready: &[&str]) -> Value {
        let of = |ips: &[&str]| ips.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>();
        json!({ "addresses": of(ready), "notReadyAddresses": of(unready), "ports": [{ "port": port }] })
    }

    #[test]
    fn ports_of_the_same_addresses_stand_together() {
        let same = json!([subset(80, &["b", "a"], &[]), subset(90, &["a", "b"], &[])]);
        assert_eq!(shown(&same), ["80+90: a,b / "]);
        let other = json!([subset(80, &["a"], &[]), subset(90, &["b"], &[])]);
        assert_eq!(shown(&other), ["80: a / ", "90: b / "]);
        let split = json!([subset(80, &["a"], &[]), subset(80, &["b"], &["a"])]);
        assert_eq!(shown(&split), ["80: b / a"]);
        let bare = json!([{ "addresses": [{ "ip": "a" }] }, subset(80, &["a"], &[])]);
        assert_eq!(shown(&bare), ["80: a / "]);
        assert!(shown(&json!([])).is_empty());
    }
}
