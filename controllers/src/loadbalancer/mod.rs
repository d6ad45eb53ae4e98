//! Load balancers for bare machines: a Service of type LoadBalancer gets the addresses of the nodes themselves.
//!
//! No process stands in between: the proxy of every node leads traffic for an address in `status.loadBalancer.ingress`
//! to the Service's endpoints, as it does for any load balancer of mode VIP, and with it comes `healthCheckNodePort` for
//! a balancer in front. A Service that names a `loadBalancerClass` is somebody else's. Of two Services that want one port
//! the second waits for another address or for the first to go; ports of the API server and the kubelets are nobody's.
//!
//! <https://kubernetes.io/docs/concepts/services-networking/service/#loadbalancer>

mod plan;

use crate::clients::Clients;
use crate::common::{code_of, message_of};
use coracle_client::write;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Patch;
use parking_lot::Mutex;
use plan::{FINALIZER, Share, World};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "service-controller";

struct Balancers {
    client: kube::Client,
    services: Informer<Service>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    recorder: Recorder,
    /// What was last said about Services that have nothing, by uid: said once, not at every look.
    refusals: Mutex<HashMap<String, String>>,
}

/// One pass decides for all Services: they compete for the same addresses. So there is but one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct All;

impl std::fmt::Display for All {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("all load balancers")
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let (services, nodes) = (clients.informers.of::<Service>(), clients.informers.of::<Node>());
    let slices = clients.informers.of::<EndpointSlice>();
    let reconciler = Balancers {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        client,
        services: services.clone(),
        nodes: nodes.clone(),
        slices: slices.clone(),
        refusals: Mutex::default(),
    };
    let by_slice = {
        let services = services.clone();
        move |delta: &Delta<EndpointSlice>| concerns(delta, &services).then_some(All)
    };
    Controller::new(reconciler)
        .watch(&services, |delta| asks(delta).then_some(All))
        .watch(&nodes, |delta| moves(delta).then_some(All))
        .watch(&slices, by_slice)
        .run(stop)
        .await;
}

/// Whether a Service asks for something else than before. What others write to its status does not: two implementations
/// that answer for one Service would write for ever.
fn asks(delta: &Delta<Service>) -> bool {
    let matters = |s: &Arc<Service>| plan::is_wanted(s) || plan::is_held(s);
    let either = [&delta.old, &delta.new].into_iter().flatten().any(matters);
    let same = match (&delta.old, &delta.new) {
        (Some(old), Some(new)) => {
            old.metadata.uid == new.metadata.uid
                && old.spec == new.spec
                && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        }
        _ => false,
    };
    either && !same
}

fn moves(delta: &Delta<Node>) -> bool {
    let gate = |node: &Option<Arc<Node>>| node.as_ref().and_then(|n| plan::gate(n));
    gate(&delta.old) != gate(&delta.new)
}

/// Only Services with policy Local ask where their endpoints are.
fn concerns(delta: &Delta<EndpointSlice>, services: &Informer<Service>) -> bool {
    let key = delta.object().and_then(|s| plan::service_of(s));
    let service = key.and_then(|key| services.get_key(&key));
    service.is_some_and(|s| {
        let policy = s.spec.as_ref().and_then(|s| s.external_traffic_policy.as_deref());
        plan::is_wanted(&s) && policy == Some("Local")
    })
}

impl Reconciler for Balancers {
    type Key = All;

    fn name(&self) -> &'static str {
        "service-lb-controller"
    }

    async fn reconcile(&self, _all: &All) -> Result<Action, ReconcileError> {
        let services = self.services.list();
        let world = World { services, nodes: self.nodes.list(), slices: self.slices.list() };
        let shares = plan::shares(&world);
        let mut failed = None;
        for service in &world.services {
            let done = match shares.get(&ObjectKey::of(service.as_ref())) {
                Some(share) => self.give(service, share).await,
                None if plan::is_held(service) => self.take(service).await,
                None => Ok(()),
            };
            failed = failed.or(done.err());
        }
        let known: Vec<String> = world.services.iter().map(|s| plan::identity(s)).collect();
        self.refusals.lock().retain(|uid, _| known.contains(uid));
        failed.map_or(Ok(Action::AwaitChange), |error| Err(error.into()))
    }
}

impl Balancers {
    async fn give(&self, service: &Service, share: &Share) -> Result<(), kube::Error> {
        let ingress = share.as_deref().unwrap_or_default();
        if let Err(why) = share {
            self.refuse(service, why);
        } else {
            self.refusals.lock().remove(&plan::identity(service));
        }
        if plan::is_held(service) && plan::ingress(service) == ingress {
            return Ok(());
        }
        if share.is_ok() {
            self.recorder.normal(service, "EnsuringLoadBalancer", "Ensuring load balancer");
        }
        let status = json!({ "loadBalancer": balancer(ingress) });
        let body = json!({ "metadata": { "uid": service.metadata.uid, "finalizers": [FINALIZER] }, "status": status });
        self.patch(service, body).await?;
        if share.is_ok() {
            self.recorder.normal(service, "EnsuredLoadBalancer", "Ensured load balancer");
        }
        Ok(())
    }

    /// Says why a Service has nothing, once for each reason.
    fn refuse(&self, service: &Service, why: &str) {
        let before = self.refusals.lock().insert(plan::identity(service), why.to_owned());
        if before.as_deref() != Some(why) {
            let message = format!("Error syncing load balancer: failed to ensure load balancer: {why}");
            self.recorder.warning(service, "SyncLoadBalancerFailed", message);
        }
    }

    /// Takes everything back from a Service that goes, or is of another type or class now.
    async fn take(&self, service: &Service) -> Result<(), kube::Error> {
        self.recorder.normal(service, "DeletingLoadBalancer", "Deleting load balancer");
        let metadata =
            json!({ "uid": service.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER] });
        self.patch(service, json!({ "metadata": metadata, "status": { "loadBalancer": balancer(&[]) } }))
            .await?;
        self.recorder.normal(service, "DeletedLoadBalancer", "Deleted load balancer");
        Ok(())
    }

    /// Status and finalizer in one request. A Service that went meanwhile needs neither.
    async fn patch(&self, service: &Service, body: serde_json::Value) -> Result<(), kube::Error> {
        let key = ObjectKey::of(service);
        match write::patch_status::<Service>(&self.client, &key, &Patch::Strategic(body)).await {
            Err(error) if code_of(&error) == 404 => Ok(()),
            Err(error) => {
                let message = format!(
                    "Error syncing load balancer: failed to update load balancer status: {}",
                    message_of(&error)
                );
                self.recorder.warning(service, "SyncLoadBalancerFailed", message);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }
}

fn balancer(ingress: &[LoadBalancerIngress]) -> serde_json::Value {
    if ingress.is_empty() { json!({ "ingress": null }) } else { json!({ "ingress": ingress }) }
}
