//! What reaches the scheduler's task from outside.

use super::binding::Outcome;
use super::preempting::Told;
use crate::framework::ObjectKind;
use coracle_client::{Context, Delta, ObjectKey};
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

pub enum Event {
    Node(Delta<Node>),
    Pod(Delta<Pod>),
    /// Another object changed; without a name, all of them may have.
    Object(ObjectKind, ObjectKey),
    /// A binding ended, well or not.
    Bound(Box<Outcome>),
    /// The victims of a pod were told to go, or could not be.
    Told(Told),
}

/// Waits for the first lists, so that no decision is made on half of the nodes.
pub async fn synced(context: &Context, stop: &CancellationToken) {
    let (nodes, pods) = (context.informers.of::<Node>(), context.informers.of::<Pod>());
    let wait = futures::future::join(nodes.synced(), pods.synced());
    let _ = stop.run_until_cancelled(wait).await;
}

/// Sends everything that is there, and then every change, to the scheduler's task.
pub fn subscribe(context: &Context, sender: &UnboundedSender<Event>) {
    let to = sender.clone();
    context.informers.of::<Node>().on_change_while(move |d| {
        to.send(Event::Node(Delta { old: d.old.clone(), new: d.new.clone() })).is_ok()
    });
    let to = sender.clone();
    context.informers.of::<Pod>().on_change_while(move |d| {
        to.send(Event::Pod(Delta { old: d.old.clone(), new: d.new.clone() })).is_ok()
    });
}
