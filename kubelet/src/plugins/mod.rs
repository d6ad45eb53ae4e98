//! Programs that offer themselves to this kubelet by a socket in `<root>/plugins_registry`, each of a kind.
//!
//! <https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/> and the drivers' side,
//! <https://kubernetes-csi.github.io/docs/node-driver-registrar.html>. A kind is a [`kind::Kind`] that
//! [`kinds`] names; plugins of others are told so.

mod csi;
mod csi_node;
mod devices;
mod dra;
mod keeper;
mod kind;
mod register;
mod registrar;

use crate::kubelet::Kubelet;
use crate::static_pods::Watch;
use coracle_storage::volumes::LinuxMounter;
use csi::Csi;
use devices::Devices;
use dra::Dra;
use kind::Kind;
use registrar::Registrar;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between looks at the directory, for what no event tells: directories below it, and file systems without events.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Registers plugins and looks after their volumes until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let work = async {
        tokio::join!(
            follow(kubelet.clone()),
            csi_node::wait_until_there(&kubelet),
            keeper::run(kubelet.clone()),
            Box::pin(local_path(&kubelet)),
        );
    };
    Box::pin(stop.run_until_cancelled(work)).await;
}

/// Makes and removes the local-path volumes of this node as its Node asks for it.
async fn local_path(kubelet: &Kubelet) {
    let root = kubelet.config.local_path();
    let (client, node) = (kubelet.client.clone(), kubelet.own.clone());
    coracle_storage::serve_local_path(client, node, root, Arc::new(LinuxMounter)).await;
}

/// All kinds of plugins that this kubelet takes on.
fn kinds(kubelet: &Arc<Kubelet>) -> Arc<[Arc<dyn Kind>]> {
    Arc::new([
        Arc::new(Csi(kubelet.clone())) as Arc<dyn Kind>,
        Arc::new(Dra(kubelet.clone())) as Arc<dyn Kind>,
        Arc::new(Devices(kubelet.clone())) as Arc<dyn Kind>,
    ])
}

async fn follow(kubelet: Arc<Kubelet>) {
    let dir = kubelet.root().join("plugins_registry");
    let watch = Watch::on(&dir, "plugins");
    if let Err(error) = std::fs::create_dir_all(kubelet.root().join("plugins")) {
        tracing::warn!(%error, "the directory of plugins is missing");
    }
    let mut registrar = Registrar::new(kinds(&kubelet), dir, kubelet.metrics.clone());
    loop {
        registrar.look().await;
        let pause = registrar.pause().min(LOOK_INTERVAL);
        tokio::select! {
            () = watch.changed() => {}
            () = registrar.finish_one() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
