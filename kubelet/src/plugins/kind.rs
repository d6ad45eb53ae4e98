//! What is done with plugins of one kind.

use async_trait::async_trait;
use coracle_storage::csi::CallError;
use std::path::PathBuf;

/// A plugin that offers itself.
#[derive(Clone, Debug)]
pub(super) struct DiscoveredPlugin {
    /// Of a driver, or of a resource.
    pub name: String,
    /// Where it serves.
    pub endpoint: PathBuf,
    /// What it says that it speaks: versions, or names of services.
    pub versions: Vec<String>,
}

/// Why a plugin is not taken on. It is told this text.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("a plugin without a name")]
    NoName,
    #[error("none of the versions {0:?} is supported, this kubelet speaks 1")]
    Versions(Vec<String>),
    /// In upstream's words.
    #[error("{0}")]
    Services(String),
    #[error("the driver's node service does not answer: {0}")]
    Driver(CallError),
    #[error("the node's drivers are not written: {0}")]
    Node(#[from] kube::Error),
}

/// A kind of plugins. Calls for different plugins may come at once; for one socket they come one after the other.
#[async_trait]
pub(super) trait Kind: Send + Sync {
    /// What plugins of this kind say that they are.
    fn type_name(&self) -> &'static str;

    /// Takes a plugin on, or says why not; then it is asked again after a pause. May be called again for one that was taken
    /// on, when it does not know.
    async fn take_on(&self, offer: &DiscoveredPlugin) -> Result<(), Refusal>;

    /// The socket by which the plugin offered itself is gone. It may serve at another one by now.
    async fn forget(&self, offer: &DiscoveredPlugin);
}
