//! ServiceCIDRs: ready when they are there, and kept while an address would be left without a range
//! (<https://kubernetes.io/docs/tasks/network/extend-service-ip-ranges/>, KEP-1880).

mod plan;

use crate::clients::Clients;
use crate::common::code_of;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, write};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use plan::{FINALIZER, Step, step};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Upstream's name, which its fields are owned under.
const CONTROLLER: &str = "service-cidr-controller";
const ACCOUNT: &str = "service-cidrs-controller";

struct Ranges {
    client: kube::Client,
    ranges: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
}

/// What wakes the controller: a range that comes or goes decides about others that overlap it, so all are looked at
/// together. There are a handful at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct All;

impl std::fmt::Display for All {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("servicecidrs")
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let ranges = clients.informers.of::<ServiceCIDR>();
    let addresses = clients.informers.of::<IPAddress>();
    let reconciler =
        Ranges { client: clients.client(ACCOUNT), ranges: ranges.clone(), addresses: addresses.clone() };
    Controller::new(reconciler)
        .watch(&ranges, |_: &Delta<ServiceCIDR>| Some(All))
        // A change of an address changes nothing here.
        .watch(&addresses, |delta: &Delta<IPAddress>| {
            (delta.old.is_none() || delta.new.is_none()).then_some(All)
        })
        .run(stop)
        .await;
}

impl Reconciler for Ranges {
    type Key = All;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, _: &All) -> Result<Action, ReconcileError> {
        let all = self.ranges.list();
        let mut soonest: Option<Duration> = None;
        for range in &all {
            let next = step(range, &all, || self.addresses.list(), jiff::Timestamp::now());
            if let Step::Wait(time) = next {
                soonest = Some(soonest.map_or(time, |s| s.min(time)));
            }
            self.take(&range.name_any(), next).await?;
        }
        Ok(soonest.map_or(Action::AwaitChange, Action::RequeueAfter))
    }
}

impl Ranges {
    async fn take(&self, name: &str, step: Step) -> Result<(), ReconcileError> {
        let finalizers = |key: &str| json!({ "metadata": { key: [FINALIZER] } });
        let key = ObjectKey::new("", name);
        let params = PatchParams { field_manager: Some(CONTROLLER.to_owned()), ..PatchParams::default() };
        let strategic = async |patch: Value| {
            let patch = Patch::Strategic(patch);
            write::patch_part::<ServiceCIDR>(&self.client, &key, None, &params, &patch).await
        };
        let done = match step {
            Step::Nothing | Step::Wait(_) => return Ok(()),
            Step::Protect => strategic(finalizers("finalizers")).await,
            Step::Release => strategic(finalizers("$deleteFromPrimitiveList/finalizers")).await,
            Step::Report(condition) => {
                let applied = json!({
                    "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": { "name": name },
                    "status": { "conditions": [condition] },
                });
                let (params, patch) = (PatchParams::apply(CONTROLLER).force(), Patch::Apply(applied));
                write::patch_part::<ServiceCIDR>(&self.client, &key, Some("status"), &params, &patch).await
            }
        };
        match done {
            // The informer will say so, and this runs again.
            Err(error) if !matches!(code_of(&error), 404 | 409) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
