//! What wakes the work on snapshots.

use super::control::{Common, Key, Snapshots, named};
use super::taker::{Everything, Taker};
use coracle_client::{Controller, Informers, ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Snapshots that are worked on at a time: one may take minutes, or hang.
const WORKERS: usize = 8;

pub(super) async fn run<T: Taker>(common: Common, taker: T, stop: CancellationToken) {
    let informers = Informers::new(common.client.clone(), stop.clone());
    let this = Snapshots {
        common,
        snapshots: informers.of(),
        contents: informers.of(),
        classes: informers.of(),
        taker,
    };
    let queue = WorkQueue::new();
    wired(this, queue).workers(WORKERS).run(stop).await;
}

fn wired<T: Taker>(this: Snapshots<T>, queue: WorkQueue<Key>) -> Controller<Snapshots<T>> {
    let (snapshots, contents, classes) =
        (this.snapshots.clone(), this.contents.clone(), this.classes.clone());
    let claims = this.common.claims.clone();
    let everything: Everything = {
        let (snapshots, contents) = (snapshots.clone(), contents.clone());
        Arc::new(move || {
            let contents = contents.iter().map(|content| Key::Content(content.name_any()));
            contents.chain(snapshots.iter().map(|s| Key::Snapshot(ObjectKey::of(s.as_ref())))).collect()
        })
    };
    let for_class = everything.clone();
    let of_namespace = {
        let snapshots = snapshots.clone();
        move |namespace: &str| {
            let all = snapshots.iter_in(namespace);
            all.map(|s| Key::Snapshot(ObjectKey::of(s.as_ref()))).collect::<Vec<_>>()
        }
    };
    let taker = this.taker.clone();
    let controller = Controller::with_queue(this, queue.clone())
        .watch(&snapshots, |delta| {
            let object = delta.object();
            let content = object.map(|snapshot| Key::Content(named(snapshot)));
            object.map(|snapshot| Key::Snapshot(ObjectKey::of(snapshot.as_ref()))).into_iter().chain(content)
        })
        .watch(&contents, |delta| {
            let object = delta.object();
            let reference = object.map(|content| &content.spec.volume_snapshot_ref);
            let snapshot = reference.map(|r| Key::Snapshot(ObjectKey::new(&r.namespace, &r.name)));
            object.map(|content| Key::Content(content.name_any())).into_iter().chain(snapshot)
        })
        .watch(&classes, move |_| for_class())
        .watch(&claims, move |delta| {
            // One that is bound now may have been waited for; one that is no longer made of a snapshot lets it go.
            let bound = |claim: &PersistentVolumeClaim| is_bound(claim);
            let now = delta.new.as_ref().is_none_or(|claim| bound(claim));
            let before = delta.old.as_ref().is_some_and(|claim| bound(claim));
            let namespace = delta.object().and_then(|claim| claim.namespace()).unwrap_or_default();
            if now && !before { of_namespace(&namespace) } else { Vec::new() }
        });
    taker.wire(controller, &queue, everything)
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}
