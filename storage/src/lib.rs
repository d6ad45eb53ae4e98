//! Storage: the life of claims and volumes, and the volume plugins that the kubelet mounts.

mod attach;
pub mod beneath;
mod binder;
mod capacities;
pub mod csi;
mod csi_control;
mod expand;
mod facts;
mod local_path;
pub mod metrics;
mod nfs;
mod place;
mod protection;
mod provision;
pub mod quota;
mod snapshot_api;
mod snapshots;
pub mod volumes;

pub use coracle_client::ClientFor;
use coracle_client::accounts::{NamedTask, run_until_one_ends};
use coracle_client::{Clients, Context};
use std::sync::Arc;

pub use binder::Here;
pub use csi_control::CsiConfig;
pub use local_path::{
    LocalPathConfig, incoming, moving, root_in as local_path_root, serve as serve_local_path, transfer,
};
pub use nfs::NfsConfig;
pub use snapshots::DEFINITIONS as SNAPSHOT_DEFINITIONS;

#[derive(Clone, Default)]
pub struct Config {
    /// Absent: all controllers act as the context's client, which then needs the rights of all.
    pub client_for: Option<ClientFor>,
    /// Absent: volumes of the policy Recycle are emptied by pods.
    pub here: Option<Here>,
    /// What they count.
    pub metrics: Arc<metrics::Metrics>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("storage controller {0} ended unexpectedly")]
    Ended(&'static str),
}

/// Runs the binder, attaching, expansion and the in-use protections until `context.stop` is cancelled, or until one of them fails.
pub async fn run_controllers(context: Context, config: Config) -> Result<(), Error> {
    let clients = || Clients::new(&context, config.client_for.clone());
    let (stop, metrics) = (context.stop.child_token(), || config.metrics.clone());
    let all: Vec<NamedTask> = vec![
        (
            "persistentvolume-binder",
            Box::pin(binder::run(clients(), config.here.clone(), metrics(), stop.clone())),
        ),
        ("attachdetach", Box::pin(attach::run(clients(), metrics(), stop.clone()))),
        ("persistentvolume-expander", Box::pin(expand::run(clients(), stop.clone()))),
        ("persistentvolumeclaim-protection", Box::pin(protection::run_claims(clients(), stop.clone()))),
        ("persistentvolume-protection", Box::pin(protection::run_volumes(clients(), stop.clone()))),
        ("volumeattributesclass-protection", Box::pin(protection::classes::run(clients(), stop.clone()))),
    ];
    run_until_one_ends(all, &stop).await.map_err(Error::Ended)
}

/// Runs the local-path provisioner of the cluster until `context.stop` is cancelled.
pub async fn run_local_path(context: Context, config: LocalPathConfig) -> Result<(), Error> {
    let stop = context.stop.clone();
    let ended = coracle_client::beat::spawn("local-path", async move {
        let local = local_path::LocalPath::new(&context, config);
        let snapshots = snapshots::run(local.common(), local.clone(), &context.stop);
        let rooms = local_path::room::run(&context, local.clone());
        tokio::join!(local_path::run(&context, local.clone()), snapshots, rooms);
    })
    .await;
    if ended.is_err() && !stop.is_cancelled() { Err(Error::Ended("local-path-provisioner")) } else { Ok(()) }
}

/// Runs the provisioner of NFS until `context.stop` is cancelled. One runs in the cluster.
pub async fn run_nfs(context: Context, config: NfsConfig) -> Result<(), Error> {
    let stop = context.stop.clone();
    let ended = coracle_client::beat::spawn("nfs", nfs::run(context, config)).await;
    if ended.is_err() && !stop.is_cancelled() { Err(Error::Ended("nfs-provisioner")) } else { Ok(()) }
}

/// Runs the controller side of this node's CSI drivers until `context.stop` is cancelled.
pub async fn run_csi(context: Context, config: CsiConfig) -> Result<(), Error> {
    let stop = context.stop.clone();
    let ended = coracle_client::beat::spawn("csi", csi_control::run(context, config)).await;
    if ended.is_err() && !stop.is_cancelled() { Err(Error::Ended("csi-controller")) } else { Ok(()) }
}
