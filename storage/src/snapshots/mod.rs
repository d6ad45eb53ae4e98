//! VolumeSnapshots: what upstream's snapshot-controller does, for drivers whose snapshots this process takes.
//!
//! It works while the definitions of upstream's resources are installed ([`DEFINITIONS`]). Whose snapshots are taken, and
//! how, is a [`Taker`]'s to say; all others are for upstream's snapshot-controller and the drivers' sidecars. Names,
//! finalizers, annotations, statuses and events are upstream's.
//! <https://kubernetes.io/docs/concepts/storage/volume-snapshots/>

mod content;
mod control;
mod source;
mod taker;
mod types;
mod wiring;

pub use control::{Common, Key, Snapshots};
pub use taker::{Everything, TakeError, Taken, Taker};
pub use types::{VolumeSnapshotClass, VolumeSnapshotContent, text};

use coracle_client::FollowedObject;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio_util::sync::CancellationToken;

/// The definitions of the resources, as a manifest.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");

/// The definition that is made last; all are there with it.
const LAST_DEFINITION: &str = "volumesnapshots.snapshot.storage.k8s.io";

/// Runs until `stop` is cancelled, whenever the definitions are installed.
pub async fn run<T: Taker>(common: Common, taker: T, stop: &CancellationToken) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definition =
        FollowedObject::<CustomResourceDefinition>::new(common.client.clone(), definitions, LAST_DEFINITION);
    let work = async {
        let mut running = None;
        loop {
            let there = definition.next().await.is_some_and(|definition| is_served(&definition));
            if !there {
                running = None;
            } else if running.is_none() {
                let stop = stop.child_token();
                tokio::spawn(wiring::run(common.clone(), taker.clone(), stop.clone()));
                running = Some(stop.drop_guard());
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

fn is_served(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Established" && c.status == "True")
}
