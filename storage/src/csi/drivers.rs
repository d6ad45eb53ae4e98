//! The CSI drivers that are registered on this node.

use super::client::{CallError, CallListener, PluginClient};
use super::messages::{
    Empty, NODE_GET_CAPABILITIES, NODE_GET_INFO, NodeGetCapabilitiesResponse, NodeGetInfoResponse,
    NodeRpcType,
};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a call to a driver may take; upstream's `csiTimeout`. Shorter, and slow storage is never mounted; longer, and
/// a pod waits longer for a driver that hangs.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// A driver whose node service answers.
#[derive(Clone, Debug)]
pub struct Driver {
    pub name: String,
    pub client: PluginClient,
    pub info: NodeGetInfoResponse,
    capabilities: BTreeSet<NodeRpcType>,
}

impl Driver {
    /// Asks the driver at `endpoint` who it takes this node for, and what it can. `listener` hears of this and of all that it
    /// is asked later.
    pub async fn connect(
        name: &str,
        endpoint: &Path,
        timeout: Duration,
        listener: Option<CallListener>,
    ) -> Result<Self, CallError> {
        let client = PluginClient::new(endpoint, timeout).told_to(listener);
        let info: NodeGetInfoResponse = client.call(NODE_GET_INFO, Empty {}).await?;
        let answer: NodeGetCapabilitiesResponse = client.call(NODE_GET_CAPABILITIES, Empty {}).await?;
        let capabilities = answer.capabilities.into_iter().filter_map(|capability| {
            // What this version does not know is nothing that it could use.
            NodeRpcType::try_from(capability.rpc?.r#type).ok()
        });
        Ok(Self { name: name.to_owned(), client, info, capabilities: capabilities.collect() })
    }

    pub fn can(&self, what: NodeRpcType) -> bool {
        self.capabilities.contains(&what)
    }
}

/// Shared between who registers drivers and who mounts by them. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Drivers(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    drivers: RwLock<BTreeMap<String, Arc<Driver>>>,
    changed: watch::Sender<()>,
}

impl Drivers {
    /// Takes the place of a driver of the same name: one that came back on another socket.
    pub fn insert(&self, driver: Driver) {
        self.0.drivers.write().insert(driver.name.clone(), Arc::new(driver));
        self.0.changed.send_replace(());
    }

    /// Forgets a driver, unless it serves at another socket by now. Whether it was there.
    pub fn remove(&self, name: &str, endpoint: &Path) -> bool {
        let mut known = self.0.drivers.write();
        let same = known.get(name).is_some_and(|driver| driver.client.socket() == endpoint);
        same && known.remove(name).is_some()
    }

    pub fn clear(&self) {
        self.0.drivers.write().clear();
    }

    pub fn get(&self, name: &str) -> Option<Arc<Driver>> {
        self.0.drivers.read().get(name).cloned()
    }

    /// Sees every driver that comes from now on.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    pub fn all(&self) -> Vec<Arc<Driver>> {
        self.0.drivers.read().values().cloned().collect()
    }
}
