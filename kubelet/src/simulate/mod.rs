//! Nodes without machines: Node objects kept Ready, whose pods become Running by themselves.
//!
//! For tests, benchmarks and `coracle ci`. Nothing runs; what the API shows is what a healthy node would report.

mod nodes;
mod pods;
mod silence;
mod status;

pub use status::go_arch;

use coracle_client::Context;
use std::sync::Arc;
use std::time::Duration;

/// How a pod tells how long its containers shall run: whole seconds, or a Go duration in `ms`, `s` or `m`. After it
/// they exit with 0. Only honoured where `restartPolicy` is not Always.
pub const DURATION_ANNOTATION: &str = "simulate.coracle.local/duration";

/// On a Node: while it says `true` the node's kubelet does nothing, as if the machine had lost its power: no heartbeat,
/// no pod starts, ends or is confirmed gone.
pub const SILENT_ANNOTATION: &str = "simulate.coracle.local/silent";

/// On a Node: while it says `ignored` the node is kept Ready, but nobody runs its pods: they stay Pending where they were
/// bound, and are not confirmed gone. For load on the scheduler alone.
pub const PODS_ANNOTATION: &str = "simulate.coracle.local/pods";

/// Of the addresses of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

#[derive(Clone, Debug)]
pub struct SimulateConfig {
    pub count: usize,
    /// Nodes are called `<name_prefix>-<n>`, from 0.
    pub name_prefix: String,
    /// Capacity of each node, as Kubernetes quantities.
    pub cpu: String,
    pub memory: String,
    pub max_pods: u32,
    /// A pod has an address of each, the first is its `podIP`.
    pub families: Vec<Family>,
    pub lease_renew_interval: Duration,
    pub status_report_interval: Duration,
}

impl Default for SimulateConfig {
    fn default() -> Self {
        Self {
            count: 1,
            name_prefix: "sim".to_owned(),
            cpu: "32".to_owned(),
            memory: "256Gi".to_owned(),
            max_pods: 110,
            families: vec![Family::V4],
            lease_renew_interval: Duration::from_secs(10),
            status_report_interval: Duration::from_secs(300),
        }
    }
}

impl SimulateConfig {
    pub fn node_name(&self, index: usize) -> String {
        format!("{}-{index}", self.name_prefix)
    }

    /// The number of the node of this name, if it is one of ours.
    fn index_of(&self, node: &str) -> Option<usize> {
        let number = node.strip_prefix(self.name_prefix.as_str())?.strip_prefix('-')?;
        number.parse().ok().filter(|index| *index < self.count)
    }
}

/// Why the simulation ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[error("simulated node {node} not registered")]
pub struct Error {
    pub node: String,
    #[source]
    pub source: kube::Error,
}

/// Registers the nodes, then keeps them and their pods going until `context.stop` is cancelled. Nodes that exist
/// already are taken over.
pub async fn run_simulated(context: Context, config: SimulateConfig) -> Result<(), Error> {
    let config = Arc::new(config);
    let registered = nodes::register(&context.client, &config);
    match context.stop.run_until_cancelled(registered).await {
        None => return Ok(()),
        Some(result) => result?,
    }
    tokio::join!(
        nodes::keep_alive(&context, &config),
        nodes::report_status(&context, &config),
        pods::run(&context, config.clone()),
    );
    Ok(())
}
