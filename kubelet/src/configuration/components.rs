//! The parts of the cluster that run in the kubelet's process.

use jiff::Timestamp;
use tokio::sync::watch;

/// How a part is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentState {
    /// Why it does not work at the moment.
    pub failure: Option<String>,
    /// How often it was started again.
    pub restarts: u32,
    /// When it became so.
    pub since: Timestamp,
}

/// A part that is shown.
#[derive(Clone, Debug)]
pub struct Component {
    /// Upstream's: `kube-scheduler`.
    pub name: &'static str,
    pub state: watch::Receiver<ComponentState>,
}
