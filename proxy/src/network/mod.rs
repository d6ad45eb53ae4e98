//! The pod network of a machine among others: the CNI configuration with the range of addresses that its Node was given,
//! and a route to every other node's range by way of that node's address.
//!
//! Nodes must share a network, because routes lead to them directly and nothing is wrapped. A node elsewhere is reached
//! only where something in between knows its range; the log says so.

mod configuration;
mod plan;
mod routes;

pub use configuration::is_ours;
pub use routes::clean_up;

use coracle_client::{Context, Informer};
use k8s_openapi::api::core::v1::Node;
use plan::Routes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Nodes that come this close together are taken in at once.
const GATHER: Duration = Duration::from_millis(100);
/// How often to look whether somebody took our routes away (an interface that went down and up does), while there are
/// any. The kernel tells, but to whoever keeps a socket open for it.
const LOOK_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// Where the runtime reads CNI configuration: `/etc/cni/net.d`.
    pub cni_conf_dir: PathBuf,
    /// Where the addresses that are in use are noted; `None` for the plugin's own place.
    pub addresses_dir: Option<PathBuf>,
    /// Whether a configuration is written where there is none at all.
    pub create: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("pod network configuration {}: {source}", path.display())]
    Configuration { path: PathBuf, source: std::io::Error },
    #[error("routes: {0}")]
    Routes(#[from] routes::RouteError),
}

/// Works until the context is stopped. Configuration and routes stay when it ends: pods live on.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let nodes = context.informers.of::<Node>();
    if context.stop.run_until_cancelled(nodes.synced()).await.is_none() {
        return Ok(());
    }
    let mut network = Network { nodes, config, written: Routes::new(), refused: Routes::new() };
    context.stop.run_until_cancelled(network.follow()).await.unwrap_or(Ok(()))
}

struct Network {
    nodes: Informer<Node>,
    config: Config,
    /// What the kernel has of ours.
    written: Routes,
    /// What it would not take; said once, and tried again when the nodes change or time has passed.
    refused: Routes,
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
        self.written = routes::present().await?;
        loop {
            self.sync().await?;
            if self.written.is_empty() && self.refused.is_empty() {
                changed.notified().await;
            } else if tokio::time::timeout(LOOK_AFTER, changed.notified()).await.is_err() {
                self.written = routes::present().await?;
                continue;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    async fn sync(&mut self) -> Result<(), Error> {
        let nodes = self.nodes.list();
        let own = &self.config.node_name;
        if let Some(range) = plan::range_of(&nodes, own) {
            configuration::ensure(&self.config, &range)?;
        }
        let wanted = plan::routes(&nodes, own);
        let stale: Vec<_> =
            self.written.keys().filter(|range| !wanted.contains_key(*range)).cloned().collect();
        for range in stale {
            routes::remove(&range).await?;
            self.written.remove(&range);
        }
        self.refused.retain(|range, gateway| wanted.get(range) == Some(gateway));
        for (range, gateway) in wanted {
            if self.written.get(&range) != Some(&gateway) {
                self.add(range, gateway).await?;
            }
        }
        Ok(())
    }

    async fn add(&mut self, range: String, gateway: std::net::Ipv4Addr) -> Result<(), Error> {
        match routes::replace(&range, gateway).await {
            Ok(()) => {
                tracing::info!(%range, %gateway, "route to a node's pods");
                self.refused.remove(&range);
                self.written.insert(range, gateway);
            }
            Err(routes::RouteError::Refused { why, .. }) => {
                if self.refused.insert(range.clone(), gateway).is_none() {
                    tracing::warn!(%range, %gateway, why, "no route of ours to a node's pods: the node is not on a network of this machine, and something between must know the range");
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
