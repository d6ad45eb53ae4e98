//! EndpointSlices of the Endpoints that people write for Services without a selector.
//!
//! <https://kubernetes.io/docs/concepts/services-networking/service/#endpointslice-mirroring>

use super::counted::{self, Counted};
use super::plan::{Frame, Group};
use super::repack::repack;
use super::writer::{self, Writer};
use crate::clients::Clients;
use crate::common::ownership::controller_reference;
use crate::common::pending::{PENDING_TIMEOUT, Pending};
use crate::common::services::Family;
use crate::common::trigger;
use crate::metrics::Metric;
use coracle_api::well_known;
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::ResourceExt;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "endpointslicemirroring-controller";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// What Go takes for true.
const TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations of Endpoints that say nothing of their mirror.
const OWN: [&str; 2] = [trigger::ANNOTATION, well_known::LAST_APPLIED];
/// Addresses mirrored of one subset; upstream's --mirroring-max-endpoints-per-subset.
const MAX_PER_SUBSET: usize = 1000;

struct Mirror {
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    writer: Writer,
    recorder: Recorder,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let (services, endpoints) = (clients.informers.of::<Service>(), clients.informers.of::<Endpoints>());
    let slices = clients.informers.of::<EndpointSlice>();
    let client = clients.client(CONTROLLER);
    let recorder = Recorder::new(client.clone(), CONTROLLER, "");
    let writer = Writer {
        client,
        slices: slices.clone(),
        pending: Pending::default(),
        manager: MANAGER,
        counted: Counted::new(clients.metrics.clone(), &counted::MIRROR),
    };
    let reconciler = Mirror { services: services.clone(), endpoints: endpoints.clone(), writer, recorder };
    Controller::new(reconciler)
        .objects(&services)
        .objects(&endpoints)
        .watch(&slices, |delta| writer::service_of(delta, MANAGER))
        .run(stop)
        .await;
}

impl Reconciler for Mirror {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if !self.writer.pending.seen(key, &self.writer.slices) {
            return Ok(Action::RequeueAfter(PENDING_TIMEOUT));
        }
        let custom = self.services.get_key(key).is_some_and(|service| {
            let spec = service.spec.as_ref();
            spec.is_some_and(|s| s.selector.as_ref().is_none_or(|s| s.is_empty()))
        });
        let endpoints = self.endpoints.get_key(key).filter(|e| custom && is_mirrored(e));
        let subsets = endpoints.as_ref().map(|e| repack(e.subsets.as_deref().unwrap_or_default()));
        let subsets = subsets.unwrap_or_default();
        let wanted = endpoints.as_ref().map_or_else(Vec::new, |e| frames(e, &subsets));
        let began = Instant::now();
        let mut written = self.writer.write(key, wanted, &|_| {}).await;
        if let Some(endpoints) = &endpoints {
            written = writer::report(&self.recorder, endpoints.as_ref(), "Endpoints", written);
            self.report(endpoints, &subsets, matches!(written, Ok(changed) if changed > 0));
        }
        self.writer.counted.metrics.observe(Metric::MirrorDuration, &[], began.elapsed());
        written?;
        Ok(Action::AwaitChange)
    }
}

impl Mirror {
    /// Counts what could not be mirrored, and says so where something else was.
    fn report(&self, endpoints: &Endpoints, subsets: &[EndpointSubset], changed: bool) {
        let sizes = subsets.iter().map(|s| {
            s.addresses.as_ref().map_or(0, Vec::len) + s.not_ready_addresses.as_ref().map_or(0, Vec::len)
        });
        let skipped: usize = sizes.map(|size| size.saturating_sub(MAX_PER_SUBSET)).sum();
        let count = f64::from(u32::try_from(skipped).unwrap_or(u32::MAX));
        self.writer.counted.metrics.observe_number(Metric::MirrorSkipped, &[], count);
        if changed && skipped > 0 {
            let message = format!(
                "A max of {MAX_PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
            );
            self.recorder.warning(endpoints, "TooManyAddressesToMirror", message);
        }
    }
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    !deleting(endpoints)
        && endpoints.labels().get(SKIP).is_none_or(|skip| !TRUE.contains(&skip.as_str()))
        && !endpoints.annotations().contains_key(LEADER)
}

fn frames(endpoints: &Endpoints, subsets: &[EndpointSubset]) -> Vec<(Frame, Vec<Group>)> {
    let families = [Family::V4, Family::V6].into_iter();
    let frames = families.map(|family| {
        let groups = subsets.iter().map(|subset| group(subset, family));
        let groups: Vec<Group> = groups.filter(|g| !g.endpoints.is_empty()).collect();
        (frame(endpoints, family), groups)
    });
    frames.filter(|(_, groups)| !groups.is_empty()).collect()
}

fn frame(endpoints: &Endpoints, family: Family) -> Frame {
    let labels = endpoints.metadata.labels.clone().unwrap_or_default();
    let owner = controller_reference(endpoints);
    let mut metadata = super::metadata(endpoints, &endpoints.name_any(), labels, MANAGER, owner);
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !OWN.contains(&key.as_str()));
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    Frame { address_type: family.address_type().to_owned(), metadata }
}

fn group(subset: &EndpointSubset, family: Family) -> Group {
    let ready = subset.addresses.iter().flatten().map(|a| (a, true));
    let not_ready = subset.not_ready_addresses.iter().flatten().map(|a| (a, false));
    let of_family = ready.chain(not_ready).filter(|(a, _)| Family::of(&a.ip) == Some(family));
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    Group {
        ports: ports.collect(),
        endpoints: of_family.take(MAX_PER_SUBSET).map(|(a, ready)| endpoint(a, ready)).collect(),
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}
