//! What reaches the scheduler's task from outside.

use super::binding::Outcome;
use coracle_client::{Context, Delta};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use tokio::sync::mpsc::UnboundedSender;

pub enum Event {
    Node(Delta<Node>),
    Pod(Delta<Pod>),
    /// A claim, volume or class changed.
    Storage,
    /// A binding ended, well or not.
    Bound(Outcome),
}

/// Whether the pod uses nothing of its node any more.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Waits for the first lists, so that no decision is made on half of the nodes.
pub async fn synced(context: &Context) {
    let informers = &context.informers;
    let (nodes, pods) = (informers.of::<Node>(), informers.of::<Pod>());
    let (claims, volumes, classes) = (
        informers.of::<PersistentVolumeClaim>(),
        informers.of::<PersistentVolume>(),
        informers.of::<StorageClass>(),
    );
    let wait = futures::future::join5(
        nodes.synced(),
        pods.synced(),
        claims.synced(),
        volumes.synced(),
        classes.synced(),
    );
    let _ = context.stop.run_until_cancelled(wait).await;
}

/// Sends every change to the scheduler's task; the channel closes with it, and later changes go nowhere.
pub fn subscribe(context: &Context, sender: &UnboundedSender<Event>) {
    let informers = &context.informers;
    let to = sender.clone();
    informers.of::<Node>().on_change(move |d| {
        let _ = to.send(Event::Node(Delta { old: d.old.clone(), new: d.new.clone() }));
    });
    let to = sender.clone();
    informers.of::<Pod>().on_change(move |d| {
        let _ = to.send(Event::Pod(Delta { old: d.old.clone(), new: d.new.clone() }));
    });
    let to = sender.clone();
    informers.of::<PersistentVolumeClaim>().on_change(move |_| {
        let _ = to.send(Event::Storage);
    });
    let to = sender.clone();
    informers.of::<PersistentVolume>().on_change(move |_| {
        let _ = to.send(Event::Storage);
    });
    let to = sender.clone();
    informers.of::<StorageClass>().on_change(move |_| {
        let _ = to.send(Event::Storage);
    });
}
