//! What a component is handed when it starts.

use crate::informer::Informers;
use tokio_util::sync::CancellationToken;

/// A component's view of the cluster. Cloning is cheap.
///
/// `client` speaks with the component's own identity; `informers` are shared by all components of the process.
#[derive(Clone)]
pub struct Context {
    pub client: kube::Client,
    pub informers: Informers,
    /// Cancelled when the component shall end; it then stops its tasks and returns.
    pub stop: CancellationToken,
}
