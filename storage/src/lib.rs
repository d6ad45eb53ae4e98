//! Storage: the life of claims and volumes, and the volume plugins that the kubelet mounts.

mod attach;
pub mod beneath;
mod binder;
pub mod csi;
mod expand;
mod facts;
mod local_path;
mod nfs;
mod protection;
mod provision;
pub mod volumes;

use coracle_client::{Context, Informers};
use std::sync::Arc;
use tokio::task::JoinSet;

pub use local_path::LocalPathConfig;
pub use nfs::NfsConfig;

/// Makes a client that acts as the service account of this name in kube-system, for example
/// `persistent-volume-binder`.
pub type ClientFor = Arc<dyn Fn(&str) -> kube::Client + Send + Sync>;

#[derive(Clone, Default)]
pub struct Config {
    /// Absent: all controllers act as the context's client, which then needs the rights of all.
    pub client_for: Option<ClientFor>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a storage controller ended unexpectedly")]
    Ended,
}

#[derive(Clone)]
struct Clients {
    default: kube::Client,
    by_account: Option<ClientFor>,
    informers: Informers,
}

impl Clients {
    fn client(&self, account: &str) -> kube::Client {
        self.by_account.as_ref().map_or_else(|| self.default.clone(), |make| make(account))
    }
}

/// Runs the binder, attaching, expansion and the in-use protections until `context.stop` is cancelled, or until one of them fails.
pub async fn run_controllers(context: Context, config: Config) -> Result<(), Error> {
    let clients = Clients {
        default: context.client.clone(),
        by_account: config.client_for,
        informers: context.informers.clone(),
    };
    let stop = context.stop.child_token();
    let mut tasks = JoinSet::new();
    tasks.spawn(binder::run(clients.clone(), stop.clone()));
    tasks.spawn(attach::run(clients.clone(), stop.clone()));
    tasks.spawn(expand::run(clients.clone(), stop.clone()));
    tasks.spawn(protection::run_claims(clients.clone(), stop.clone()));
    tasks.spawn(protection::run_volumes(clients.clone(), stop.clone()));
    tasks.spawn(protection::classes::run(clients, stop.clone()));
    let mut result = Ok(());
    while tasks.join_next().await.is_some() {
        if !context.stop.is_cancelled() {
            stop.cancel();
            result = Err(Error::Ended);
        }
    }
    result
}

/// Runs the local-path provisioner of one node until `context.stop` is cancelled.
pub async fn run_local_path(context: Context, config: LocalPathConfig) -> Result<(), Error> {
    let stop = context.stop.clone();
    let ended = tokio::spawn(local_path::run(context, config)).await;
    if ended.is_err() && !stop.is_cancelled() { Err(Error::Ended) } else { Ok(()) }
}

/// Runs the provisioner of NFS until `context.stop` is cancelled. One runs in the cluster.
pub async fn run_nfs(context: Context, config: NfsConfig) -> Result<(), Error> {
    let stop = context.stop.clone();
    let ended = tokio::spawn(nfs::run(context, config)).await;
    if ended.is_err() && !stop.is_cancelled() { Err(Error::Ended) } else { Ok(()) }
}
