//! The controller side of CSI drivers, built in: what upstream's external-provisioner, -attacher, -resizer and
//! csi-snapshotter do.
//!
//! A driver is served here when two things are so: its CSIDriver carries the annotation `coracle.io/controller: built-in`,
//! and it is registered on this node with a controller service. While a sidecar holds its lease all the same, nothing is done,
//! and that is said in the log. All other drivers are left to their own sidecars, which find
//! nothing done that they would do. Names, annotations, finalizers, conditions and events are theirs, so a driver can be
//! handed over in both directions while no claim is in between.

mod attacher;
mod capacity;
mod create;
mod modifier;
mod parameters;
mod provisioner;
mod resize_plan;
mod resizer;
mod secrets;
mod services;
mod snapshotter;
mod source;
mod topology;

pub use source::DataSource;

use crate::csi::Drivers;
use coracle_client::{Context, ObjectKey, WorkQueue};
use services::Services;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// What the controller side of this node's drivers needs.
#[derive(Clone)]
pub struct CsiConfig {
    /// Those that have offered themselves to this node's kubelet.
    pub drivers: Drivers,
    /// How long a driver may take for a call. Shorter, and a slow one is asked again while it works, which it must bear;
    /// longer, and one that hangs keeps a worker.
    pub call_timeout: Duration,
}

impl CsiConfig {
    /// With the time that charts of drivers commonly give to their sidecars.
    pub fn new(drivers: Drivers) -> Self {
        Self { drivers, call_timeout: Duration::from_secs(60) }
    }
}

/// Calls that are made at a time, by each part. One driver that hangs takes one a volume of its own.
const WORKERS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Claim(ObjectKey),
    Volume(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "claim {key}"),
            Self::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

/// Runs until `context.stop` is cancelled. `context.client` needs the rights of all of upstream's sidecars.
pub async fn run(context: Context, config: CsiConfig) {
    let objects = context.informers.of();
    let services =
        Services::new(context.client.clone(), config.drivers.clone(), objects, config.call_timeout);
    let (context, config) = (&context, &config);
    tokio::join!(
        provisioner::run(context, config, services.clone()),
        attacher::run(context, config, services.clone()),
        resizer::run(context, config, services.clone()),
        modifier::run(context, config, services.clone()),
        capacity::run(context, config, services.clone()),
        snapshotter::run(context, config, services),
    );
}

/// Queues all keys again whenever a driver registers, until `stop`.
fn requeue_for_drivers<K: Clone + Eq + Hash + Send + Sync + 'static>(
    context: &Context,
    config: &CsiConfig,
    queue: &WorkQueue<K>,
    keys: impl Fn() -> Vec<K> + Send + 'static,
) {
    let (mut changed, queue, stop) = (config.drivers.watch(), queue.clone(), context.stop.clone());
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        while changed.changed().await.is_ok() {
            keys().into_iter().for_each(|key| queue.add(key));
        }
    }));
}
