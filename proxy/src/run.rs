//! Watches Services and EndpointSlices and keeps the kernel's rules in step with them.

use crate::checks::{self, Checks};
use crate::health::{self, LastSync};
use crate::iptables::apply::{ApplyError, Iptables};
use crate::iptables::rules::{self, Networks, RuleSet};
use crate::model::{self, Here, ServicePort};
use coracle_client::{Context, Informer};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Notify;

/// The rules are those of IPv4.
const IPV6: bool = false;
/// Changes that come this close together are written at once.
const GATHER: Duration = Duration::from_millis(20);
/// How often to look whether somebody flushed the tables; kube-proxy looks every 30 s.
const LOOK_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    pub cluster_cidr: String,
    /// Whether traffic of pods to anybody but pods leaves under the node's address: where the pod network's own plugin
    /// does not see to it. One rule for all, where the plugin would run iptables several times at each pod's start.
    pub masquerade_pods: bool,
    pub health_address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kernel rules")]
    Apply(#[from] ApplyError),
}

/// Proxies in iptables mode until the context is stopped. The rules stay when it ends, so that traffic goes on over a
/// restart.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let services = context.informers.of::<Service>();
    let slices = context.informers.of::<EndpointSlice>();
    let stop = context.stop.clone();
    let ready = futures::future::join(services.synced(), slices.synced());
    if stop.run_until_cancelled(ready).await.is_none() {
        return Ok(());
    }
    let last = LastSync::default();
    let health = tokio::spawn(health::serve(config.health_address, last.clone(), stop.clone()));
    set(IP_FORWARD, "1").await;
    let mut proxy = Proxy {
        services,
        slices,
        nodes: context.informers.of(),
        ranges: context.informers.of(),
        checks: Checks::default(),
        config,
        kernel: Iptables::adopt().await?,
        written: RuleSet::default(),
        ports: Vec::new(),
        opened_localnet: false,
        last,
    };
    let outcome = stop.run_until_cancelled(proxy.follow()).await.unwrap_or(Ok(()));
    health.abort();
    outcome
}

struct Proxy {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    nodes: Informer<Node>,
    ranges: Informer<ServiceCIDR>,
    checks: Checks,
    config: Config,
    kernel: Iptables,
    written: RuleSet,
    ports: Vec<ServicePort>,
    /// Whether [`ROUTE_LOCALNET`] is ours to take back.
    opened_localnet: bool,
    last: LastSync,
}

impl Proxy {
    async fn follow(&mut self) -> Result<(), Error> {
        let changed = Arc::new(Notify::new());
        let wake = changed.clone();
        self.services.on_change(move |_| wake.notify_one());
        let wake = changed.clone();
        self.slices.on_change(move |_| wake.notify_one());
        let wake = changed.clone();
        self.ranges.on_change(move |_| wake.notify_one());
        let (wake, name) = (changed.clone(), self.config.node_name.clone());
        self.nodes.on_change(move |delta| {
            let of_old = delta.old.as_ref().map(|node| zone(node));
            let of_new = delta.new.as_ref().map(|node| zone(node));
            let own = delta.object().is_some_and(|node| node.metadata.name.as_ref() == Some(&name));
            if own && of_old != of_new {
                wake.notify_one();
            }
        });
        self.sync().await?;
        self.kernel.hook().await?;
        self.set_localnet().await;
        loop {
            if tokio::time::timeout(LOOK_AFTER, changed.notified()).await.is_ok() {
                tokio::time::sleep(GATHER).await;
                self.sync().await.inspect_err(|_| self.last.failed())?;
                self.set_localnet().await;
            } else if self.kernel.flushed().await? {
                tracing::warn!("the kernel's tables were flushed, writing them again");
                self.written = RuleSet::default();
                self.sync().await?;
                self.kernel.hook().await?;
            }
        }
    }

    /// The rules are in force. A setting that somebody else made is left as it is.
    async fn set_localnet(&mut self) {
        let needed = needs_localnet(&self.ports);
        if needed == self.opened_localnet {
            return;
        }
        let is_set = tokio::fs::read_to_string(ROUTE_LOCALNET).await.is_ok_and(|value| value.trim() == "1");
        if needed && !is_set {
            set(ROUTE_LOCALNET, "1").await;
            self.opened_localnet = true;
        } else if !needed {
            set(ROUTE_LOCALNET, "0").await;
            self.opened_localnet = false;
        }
    }

    async fn sync(&mut self) -> Result<(), Error> {
        let (services, slices) = (self.services.list(), self.slices.list());
        let node = self.nodes.get("", &self.config.node_name);
        let here = Here { node: &self.config.node_name, zone: node.as_deref().map_or("", zone) };
        let ports = model::build(&services, &slices, here, IPV6);
        let networks = Networks {
            cluster_cidr: &self.config.cluster_cidr,
            masquerade_pods: self.config.masquerade_pods,
            service_cidrs: &model::ranges(&self.ranges.list(), IPV6),
        };
        let set = rules::render(&ports, networks);
        if set != self.written {
            self.kernel.apply(&set).await?;
            self.written = set;
            forget_flows(&self.ports, &ports).await;
        }
        self.ports = ports;
        self.last.now();
        let checks = checks::wanted(&services, &slices, &self.config.node_name, IPV6);
        self.checks.serve(checks, &self.last);
        Ok(())
    }
}

/// Packets of pods are forwarded only where the kernel is told so.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// Node ports answer on 127.0.0.1 only where the kernel lets such packets through a network device. Whoever is next to
/// this machine on a network could then send to its loopback, but for a rule of KUBE-FIREWALL: it is never set before
/// that rule is in force, and not at all while there is no node port.
const ROUTE_LOCALNET: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

async fn set(path: &str, value: &str) {
    if let Err(error) = tokio::fs::write(path, value).await {
        tracing::warn!(path, %error, "kernel setting not written");
    }
}

/// Whether packets to loopback must pass network devices.
fn needs_localnet(ports: &[ServicePort]) -> bool {
    ports.iter().any(|port| port.node_port != 0)
}

fn zone(node: &Node) -> &str {
    let labels = node.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("topology.kubernetes.io/zone")).map_or("", String::as_str)
}

/// Where packets to a Service go before they are sent on, as conntrack(8) selects it: a flag and its value.
type Entrance = (&'static str, String);

/// Addresses and the node port of UDP ports, with the endpoints behind them.
fn udp_flows(ports: &[ServicePort]) -> BTreeSet<(Entrance, IpAddr)> {
    let mut flows = BTreeSet::new();
    for port in ports.iter().filter(|p| p.name.protocol == "udp") {
        let addresses = std::iter::once(&port.cluster_ip).chain(&port.external_ips).chain(&port.guarded_ips);
        let addresses = addresses.map(|ip| ("--orig-dst", ip.to_string()));
        let node_port = (port.node_port != 0).then(|| ("--orig-port-dst", port.node_port.to_string()));
        for entrance in addresses.chain(node_port) {
            flows.extend(port.endpoints.iter().map(|e| (entrance.clone(), e.ip)));
        }
    }
    flows
}

/// What to forget between two states: flows to endpoints that are gone, and everything that arrived at an entrance
/// while nothing was behind it (no endpoint).
fn stale_flows(old: &[ServicePort], new: &[ServicePort]) -> BTreeSet<(Entrance, Option<IpAddr>)> {
    let (before, now) = (udp_flows(old), udp_flows(new));
    let had: BTreeSet<&Entrance> = before.iter().map(|(entrance, _)| entrance).collect();
    let gone = before.difference(&now).map(|(entrance, endpoint)| (entrance.clone(), Some(*endpoint)));
    let came = now.iter().filter(|(e, _)| !had.contains(e)).map(|(entrance, _)| (entrance.clone(), None));
    gone.chain(came).collect()
}

/// UDP has no end of connection: the kernel would go on sending a client's packets to an endpoint that is gone, or
/// nowhere for a Service that had none.
async fn forget_flows(old: &[ServicePort], new: &[ServicePort]) {
    for ((flag, value), endpoint) in stale_flows(old, new) {
        let mut command = Command::new("conntrack");
        command.args(["-D", "-p", "udp", flag, &value]);
        if let Some(endpoint) = endpoint {
            command.args(["--dst-nat", &endpoint.to_string()]);
        }
        // It fails when there is no such flow, which is the usual case.
        if let Err(error) = command.output().await {
            tracing::warn!(%error, "conntrack could not be run, old UDP flows may live on");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Endpoint, PortName};

    #[test]
    fn packets_to_loopback_pass_devices_only_for_node_ports() {
        let mut ports = dns(&["10.42.0.2"]);
        ports.iter_mut().for_each(|port| port.node_port = 0);
        assert!(!needs_localnet(&[]) && !needs_localnet(&ports));
        ports[0].node_port = 30_053;
        assert!(needs_localnet(&ports));
    }

    fn dns(endpoints: &[&str]) -> Vec<ServicePort> {
        let name = PortName {
            namespace: "d".to_owned(),
            service: "dns".to_owned(),
            port: String::new(),
            protocol: "udp".to_owned(),
        };
        let endpoint =
            |ip: &&str| Endpoint { ip: ip.parse().expect("address"), port: 53, local: true, near: true };
        vec![ServicePort {
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
        }]
    }

    #[test]
    fn udp_flows_are_forgotten_at_every_entrance() {
        let text = |old: &[&str], new: &[&str]| -> Vec<String> {
            let all = stale_flows(&dns(old), &dns(new)).into_iter();
            all.map(|((flag, value), to)| {
                format!("{flag} {value} {}", to.map_or("-".to_owned(), |ip| ip.to_string()))
            })
            .collect()
        };
        assert_eq!(
            text(&["10.42.0.2", "10.42.0.3"], &["10.42.0.3", "10.42.0.4"]),
            [
                "--orig-dst 10.43.0.9 10.42.0.2",
                "--orig-dst 192.0.2.7 10.42.0.2",
                "--orig-port-dst 30053 10.42.0.2"
            ]
        );
        assert_eq!(
            text(&[], &["10.42.0.2"]),
            ["--orig-dst 10.43.0.9 -", "--orig-dst 192.0.2.7 -", "--orig-port-dst 30053 -"]
        );
        assert!(text(&["10.42.0.2"], &["10.42.0.2"]).is_empty());
    }
}
