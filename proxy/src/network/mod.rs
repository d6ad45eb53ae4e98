//! The pod network of a machine among others: the CNI configuration with the range of addresses that its Node was given,
//! and a route to every other node's range by way of that node's address.
//!
//! Who leads to pods also keeps from them what NetworkPolicies keep out: another's network sees to that by itself.
//!
//! Routes lead to nodes on a network of this machine directly. A node elsewhere is reached where something in between
//! knows its range (the log says so), or by VXLAN where the Node's annotation `coracle.io/pod-network` asks for it.

mod configuration;
mod kernel;
mod plan;
mod routes;
mod vxlan;

pub use configuration::is_ours;
pub use routes::clean_up;

use crate::policy;
use coracle_client::beat::{self, Patience};
use coracle_client::{Context, Informer};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kernel::Kernel;
use plan::{Plan, Site, Unroutable};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Nodes that come this close together are taken in at once.
const GATHER_DEBOUNCE: Duration = Duration::from_millis(100);
/// How often to look whether somebody took our routes away (an interface that went down and up does), while there are
/// any. The kernel tells, but to whoever keeps a socket open for it.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// The addresses of all pods, a range of each family at most.
    pub cluster_cidrs: Vec<IpNet>,
    /// The addresses of all Services, where they are known.
    pub service_cidrs: Vec<IpNet>,
    /// Addresses that no route may lead away from, beside the resolvers': this machine's and its API server's.
    pub kept: Vec<IpAddr>,
    /// Whose resolvers no route may lead away from: `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Where the runtime reads CNI configuration: `/etc/cni/net.d`.
    pub cni_conf_dir: PathBuf,
    /// Where the addresses that are in use are noted; `None` for the plugin's own place.
    pub addresses_dir: Option<PathBuf>,
    /// What the keeping of NetworkPolicies counts.
    pub policy_metrics: Arc<policy::metrics::Metrics>,
    /// Whether a configuration is written where there is none at all.
    pub create: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("pod network configuration {}", path.display())]
    Configuration { path: PathBuf, source: std::io::Error },
    #[error("routes")]
    Routes(#[from] routes::RouteError),
}

/// Works until the context is stopped. Configuration, routes and what NetworkPolicies ask for stay when it ends: pods
/// live on.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let policies = policy::Config {
        node_name: config.node_name.clone(),
        cluster_cidrs: config.cluster_cidrs.clone(),
        metrics: config.policy_metrics.clone(),
    };
    let enforced = policy::run(context.clone(), policies);
    let (led, ()) = tokio::try_join!(lead(context, config), async {
        enforced.await;
        Ok(())
    })?;
    Ok(led)
}

async fn lead(context: Context, config: Config) -> Result<(), Error> {
    let nodes = context.informers.of::<Node>();
    if context.stop.run_until_cancelled(nodes.synced()).await.is_none() {
        return Ok(());
    }
    let mut network = Network { nodes, config, kernel: Kernel::default(), disbelieved: BTreeMap::new() };
    context.stop.run_until_cancelled(network.follow()).await.unwrap_or(Ok(()))
}

struct Network {
    nodes: Informer<Node>,
    config: Config,
    kernel: Kernel,
    /// Nodes that are not led to, and why; said once.
    disbelieved: BTreeMap<String, Unroutable>,
}

impl Config {
    fn site(&self) -> Site {
        let mut kept = resolvers(&self.resolv_conf);
        kept.extend(&self.kept);
        Site {
            node_name: self.node_name.clone(),
            pods: self.cluster_cidrs.iter().map(IpNet::trunc).collect(),
            services: self.service_cidrs.clone(),
            networks: Vec::new(),
            kept,
        }
    }
}

/// As resolv.conf(5) names them; none where it cannot be read.
fn resolvers(resolv_conf: &Path) -> Vec<IpAddr> {
    let text = std::fs::read_to_string(resolv_conf).unwrap_or_default();
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|address| address.trim().parse().ok()).collect()
}

impl Network {
    async fn follow(&mut self) -> Result<(), Error> {
        let changed = Arc::new(Notify::new());
        let wake = Arc::downgrade(&changed);
        self.nodes.on_change_while(move |delta| {
            let Some(wake) = wake.upgrade() else { return false };
            if plan::matters(delta) {
                wake.notify_one();
            }
            true
        });
        self.kernel.look().await?;
        loop {
            beat::working(Patience::Long, self.sync()).await?;
            if self.kernel.is_empty() {
                changed.notified().await;
            } else if tokio::time::timeout(LOOK_INTERVAL, changed.notified()).await.is_err() {
                self.kernel.look().await?;
                continue;
            }
            tokio::time::sleep(GATHER_DEBOUNCE).await;
        }
    }

    async fn sync(&mut self) -> Result<(), Error> {
        let (nodes, mut site) = (self.nodes.list(), self.config.site());
        if plan::may_wrap(&nodes) {
            site.networks = vxlan::networks().await?;
        }
        let ranges = plan::ranges_of(&nodes, &site);
        let plan = plan::plan(&nodes, &site);
        self.say_who_is_disbelieved(&plan);
        let wrapping = self.kernel.wrap(plan.tunnel.as_ref()).await?;
        if !ranges.is_empty() {
            configuration::ensure(&self.config, &ranges, wrapping)?;
        }
        Ok(self.kernel.lead(plan.routes).await?)
    }

    fn say_who_is_disbelieved(&mut self, now: &Plan) {
        for (node, why) in &now.refused {
            if self.disbelieved.get(node) != Some(why) {
                tracing::warn!(node, %why, "no route to a node's pods");
            }
        }
        self.disbelieved = now.refused.clone();
    }
}

#[cfg(test)]
mod packets;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_leads_away_from_a_resolver() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("resolv.conf");
        std::fs::write(
            &file,
            "search a\nnameserver 192.0.2.53\n nameserver\t10.42.9.9\nnameserver 2001:db8::53\nnameserver fe80::1%eth0\n",
        )
        .expect("written");
        let wanted =
            ["192.0.2.53", "10.42.9.9", "2001:db8::53"].map(|ip| ip.parse::<IpAddr>().expect("an address"));
        assert_eq!(resolvers(&file), wanted);
        assert!(resolvers(&dir.path().join("none")).is_empty());
    }
}
