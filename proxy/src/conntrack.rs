//! The kernel's table of connections: what of it must be forgotten when Services change.

use crate::command::{CommandError, Own};
use crate::family::Family;
use crate::model::ServicePort;
use crate::plan::{Plan, changed};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Where packets to a Service go before they are sent on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entrance {
    Address(IpAddr),
    NodePort(u16),
}

/// Flows of UDP to forget: of one entrance, to one endpoint or (`None`) to anywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub family: Family,
    pub entrance: Entrance,
    pub endpoint: Option<IpAddr>,
}

/// Where connections are remembered.
#[async_trait]
pub trait Conntrack: Send + Sync {
    /// Forgets flows; that there are none is no error.
    ///
    /// # Errors
    /// None could be forgotten.
    async fn forget(&mut self, flows: &BTreeSet<Flow>) -> Result<(), CommandError>;
}

/// By the program conntrack(8).
pub struct Program(pub Own);

#[async_trait]
impl Conntrack for Program {
    async fn forget(&mut self, flows: &BTreeSet<Flow>) -> Result<(), CommandError> {
        for flow in flows {
            let (flag, value) = match &flow.entrance {
                Entrance::Address(ip) => ("--orig-dst", ip.to_string()),
                Entrance::NodePort(port) => ("--orig-port-dst", port.to_string()),
            };
            let family = if flow.family == Family::V4 { "ipv4" } else { "ipv6" };
            let endpoint = flow.endpoint.map(|ip| ip.to_string());
            let mut args = vec!["-D", "-f", family, "-p", "udp", flag, &value];
            if let Some(endpoint) = &endpoint {
                args.extend(["--dst-nat", endpoint]);
            }
            // It fails when there is no such flow, which is the usual case.
            self.0.run("conntrack", &args, None).await?;
        }
        Ok(())
    }
}

/// The entrances of UDP ports, with the endpoints behind them.
fn udp_flows(ports: &[ServicePort]) -> BTreeSet<(Entrance, IpAddr)> {
    let mut flows = BTreeSet::new();
    for port in ports.iter().filter(|p| p.name.protocol == "udp") {
        let addresses = std::iter::once(&port.cluster_ip).chain(&port.external_ips).chain(&port.guarded_ips);
        let addresses = addresses.map(|ip| Entrance::Address(*ip));
        let node_port = (port.node_port != 0).then_some(Entrance::NodePort(port.node_port));
        for entrance in addresses.chain(node_port) {
            flows.extend(port.endpoints.iter().map(|e| (entrance.clone(), e.ip)));
        }
    }
    flows
}

/// What to forget between two plans of one family: UDP has no end of connection, so the kernel would go on sending a
/// client's packets to an endpoint that is gone, or nowhere for a Service that had none.
pub fn stale(old: &Plan, new: &Plan) -> BTreeSet<Flow> {
    let mut stale = BTreeSet::new();
    let family = new.family;
    for (_, was, is) in changed(&old.services, &new.services) {
        let (before, now) = (was.map_or_else(BTreeSet::new, |p| udp_flows(p)), is.map(|p| udp_flows(p)));
        let now = now.unwrap_or_default();
        let had: BTreeSet<&Entrance> = before.iter().map(|(entrance, _)| entrance).collect();
        let gone = before.difference(&now);
        stale.extend(gone.map(|(e, endpoint)| Flow {
            family,
            entrance: e.clone(),
            endpoint: Some(*endpoint),
        }));
        let came = now.iter().filter(|(entrance, _)| !had.contains(entrance));
        stale.extend(came.map(|(e, _)| Flow { family, entrance: e.clone(), endpoint: None }));
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Endpoint, PortName};
    use coracle_client::ObjectKey;
    use std::sync::Arc;

    fn dns(endpoints: &[&str]) -> Plan {
        let name = PortName {
            namespace: "d".to_owned(),
            service: "dns".to_owned(),
            port: String::new(),
            protocol: "udp".to_owned(),
        };
        let endpoint =
            |ip: &&str| Endpoint { ip: ip.parse().expect("address"), port: 53, local: true, near: true };
        let port = ServicePort {
            name,
            cluster_ip: "10.43.0.9".parse().expect("address"),
            port: 53,
            node_port: 30053,
            external_ips: vec!["192.0.2.7".parse().expect("address")],
            guarded_ips: Vec::new(),
            sources: Vec::new(),
            affinity_seconds: 0,
            internal_local: false,
            external_local: false,
            endpoints: endpoints.iter().map(endpoint).collect(),
        };
        let mut plan = Plan::empty(Family::V4);
        plan.services.insert(ObjectKey::new("d", "dns"), Arc::new(vec![port]));
        plan
    }

    #[test]
    fn udp_flows_are_forgotten_at_every_entrance() {
        let text = |old: &Plan, new: &Plan| -> Vec<String> {
            let all = stale(old, new).into_iter();
            all.map(|flow| format!("{:?} {:?}", flow.entrance, flow.endpoint)).collect()
        };
        assert_eq!(
            text(&dns(&["10.42.0.2", "10.42.0.3"]), &dns(&["10.42.0.3", "10.42.0.4"])),
            [
                "Address(10.43.0.9) Some(10.42.0.2)",
                "Address(192.0.2.7) Some(10.42.0.2)",
                "NodePort(30053) Some(10.42.0.2)"
            ]
        );
        assert_eq!(
            text(&dns(&[]), &dns(&["10.42.0.2"])),
            ["Address(10.43.0.9) None", "Address(192.0.2.7) None", "NodePort(30053) None"]
        );
        assert!(text(&dns(&["10.42.0.2"]), &dns(&["10.42.0.2"])).is_empty());
        assert_eq!(text(&dns(&["10.42.0.2"]), &Plan::empty(Family::V4)).len(), 3);
    }
}
