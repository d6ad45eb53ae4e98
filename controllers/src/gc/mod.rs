//! Deletes objects whose owners are gone, and carries out foreground and orphaning deletions.
//!
//! <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>

mod api;
mod collect;
mod graph;
mod monitors;

use crate::clients::Clients;
use collect::Collector;
use coracle_client::{Recorder, WorkQueue, controller};
use monitors::Monitors;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "generic-garbage-collector";
/// The events' source, as upstream names it.
const COMPONENT: &str = "garbage-collector-controller";
const WORKERS: usize = 8;
/// How long the first look at everything may take before work begins without the rest: upstream's number.
const SYNCED_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let queue = WorkQueue::new();
    let graph = graph::Shared::default();
    let monitors = Arc::new(Monitors::new(client.clone(), graph.clone(), queue.clone()));
    let collector = Collector {
        recorder: Recorder::new(client.clone(), COMPONENT, ""),
        client,
        graph,
        monitors: monitors.clone(),
        queue: queue.clone(),
    };
    let work = async {
        // One resource that cannot be listed, such as one whose conversion webhook is gone, does not hold the others up.
        let synced = tokio::time::timeout(SYNCED_TIMEOUT, monitors.wait_synced());
        if let Some(synced) = stop.run_until_cancelled(synced).await {
            if synced.is_err() {
                tracing::warn!("not all resources could be listed; garbage is collected of those that were");
            }
            controller::run(Arc::new(collector), queue, WORKERS, stop.clone()).await;
        }
    };
    tokio::join!(monitors.clone().run(stop.clone()), work);
}
