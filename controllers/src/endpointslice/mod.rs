//! EndpointSlices of Services with a selector; [`mirror`] makes them of Endpoints that people keep themselves.
//!
//! <https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/>

mod counted;
mod hints;
pub mod mirror;
mod plan;
mod repack;
mod writer;

use crate::clients::Clients;
use crate::common::ownership::controller_reference;
use crate::common::pending::{PENDING_TIMEOUT, Pending};
use crate::common::pods;
use crate::common::services::{self, Family, HEADLESS, ServiceSelectors};
use crate::common::tally::Tally;
use crate::common::trigger::{self, Triggers};
use crate::metrics::Metric;
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use counted::Counted;
use hints::Mode;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use plan::{Frame, Group};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use writer::{MANAGED_BY, SERVICE_NAME, Writer};

const CONTROLLER: &str = "endpointslice-controller";
const MANAGER: &str = "endpointslice-controller.k8s.io";

struct Slices {
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    writer: Writer,
    recorder: Recorder,
    triggers: Triggers,
    /// What was last said about the hints of a Service that go by weight: why there are none, or that there are.
    said: Mutex<HashMap<(ObjectKey, &'static str), Option<String>>>,
    distributions: Tally,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let (services, pods) = (clients.informers.of::<Service>(), clients.informers.of::<Pod>());
    let (nodes, slices) = (clients.informers.of::<Node>(), clients.informers.of::<EndpointSlice>());
    let client = clients.client(CONTROLLER);
    let writer = Writer {
        client: client.clone(),
        slices: slices.clone(),
        pending: Pending::default(),
        manager: MANAGER,
        counted: Counted::new(clients.metrics.clone(), &counted::SERVICES),
    };
    let reconciler = Slices {
        services: services.clone(),
        pods: pods.clone(),
        nodes: nodes.clone(),
        writer,
        recorder: Recorder::new(client, CONTROLLER, ""),
        triggers: Triggers::default(),
        said: Mutex::default(),
        distributions: Tally::new(clients.metrics.clone(), Metric::SlicesDistributions),
    };
    let by_pod = {
        let selectors = ServiceSelectors::follow(&services);
        move |delta: &Delta<Pod>| services::keys_of(delta, &selectors)
    };
    let by_node = {
        let services = services.clone();
        move |delta: &Delta<Node>| concerned(delta, &services)
    };
    Controller::new(reconciler)
        .objects(&services)
        .watch(&pods, by_pod)
        .watch(&nodes, by_node)
        .watch(&slices, |delta| writer::service_of(delta, MANAGER))
        .workers(2)
        .run(stop)
        .await;
}

fn zone(node: &Node) -> Option<&String> {
    node.metadata.labels.as_ref()?.get(hints::ZONE)
}

/// All Services when a node's zone changed; when its weight did, those whose hints go by weight.
fn concerned(delta: &Delta<Node>, services: &Informer<Service>) -> Vec<ObjectKey> {
    let moved = delta.old.as_deref().and_then(zone) != delta.new.as_deref().and_then(zone);
    let weight = |node: &Option<Arc<Node>>| node.as_deref().and_then(hints::weight);
    if !moved && weight(&delta.old) == weight(&delta.new) {
        return Vec::new();
    }
    let all = services.list();
    let concerned = all.iter().filter(|s| moved || hints::mode(s) == Mode::Proportional);
    concerned.map(|s| ObjectKey::of(s.as_ref())).collect()
}

impl Reconciler for Slices {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(service) = self.services.get_key(key) else {
            // The garbage collector takes the slices with their owner.
            self.writer.pending.forget(key);
            self.triggers.forget(key);
            self.said.lock().retain(|(of, _), _| of != key);
            self.writer.counted.forget(key);
            self.distributions.set(key, None);
            return Ok(Action::AwaitChange);
        };
        let Some(selector) = services::selector(&service).filter(|_| !deleting(service.as_ref())) else {
            self.distributions.set(key, None);
            return Ok(Action::AwaitChange);
        };
        self.distributions.set(key, hints::distribution(&service).map(|label| vec![label]));
        if !self.writer.pending.seen(key, &self.writer.slices) {
            self.writer.counted.metrics.add(Metric::SlicesSyncs, &["stale"], 1);
            return Ok(Action::RequeueAfter(PENDING_TIMEOUT));
        }
        let pods = self.pods.labelled(&key.namespace, |labels| services::selects(selector, labels));
        let families = services::families(&service);
        let wanted = families.into_iter().map(|family| {
            let zone = |node: &str| self.nodes.get("", node).as_deref().and_then(zone).cloned();
            let mut groups = groups(&service, &pods, family, &zone);
            self.hint(key, &service, family, &mut groups);
            (frame(&service, family), groups)
        });
        let changed_at = self.triggers.since_last(key, &service, &pods);
        let stamp = |slice: &mut EndpointSlice| trigger::stamp(&mut slice.metadata, changed_at);
        let written = self.writer.write(key, wanted.collect(), &stamp).await;
        self.count(&service, written.as_ref().ok().copied());
        writer::report(&self.recorder, service.as_ref(), "Service", written)?;
        Ok(Action::AwaitChange)
    }
}

impl Slices {
    /// The Service was looked at, and so many slices changed; `None`: that failed.
    fn count(&self, service: &Service, changed: Option<usize>) {
        let metrics = &self.writer.counted.metrics;
        let result = if changed.is_some() { "success" } else { "error" };
        metrics.add(Metric::SlicesSyncs, &[result], 1);
        let Some(changed) = changed else { return };
        let by_weight = hints::mode(service) == Mode::Proportional;
        let topology = if by_weight { "Auto" } else { "Disabled" };
        let distribution = hints::distribution(service).filter(|d| !by_weight && *d != hints::OTHER);
        let labels = [topology, distribution.unwrap_or_default()];
        let changed = f64::from(u32::try_from(changed).unwrap_or(u32::MAX));
        metrics.observe_number(Metric::SlicesChanged, &labels, changed);
    }

    fn hint(&self, key: &ObjectKey, service: &Service, family: Family, groups: &mut [Group]) {
        let mode = hints::mode(service);
        let given = match mode {
            Mode::Anywhere => Ok(()),
            Mode::SameZone | Mode::SameNode => {
                hints::near(groups, mode);
                Ok(())
            }
            Mode::Proportional => hints::proportional(groups, &self.nodes.list()),
        };
        let place = (key.clone(), family.address_type());
        let news = match (mode, given) {
            (Mode::Proportional, Ok(())) => Some(None),
            (Mode::Proportional, Err(why)) => Some(Some(why)),
            _ => None,
        };
        let mut said = self.said.lock();
        let before = match &news {
            Some(news) => said.insert(place, news.clone()),
            None => said.remove(&place),
        };
        let (type_, reason, message) = match (news, before) {
            (Some(None), Some(None)) | (None, None | Some(Some(_))) => return,
            (Some(Some(why)), before) if before.as_ref() == Some(&Some(why.clone())) => return,
            (Some(None), _) => {
                ("Normal", "TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled".to_owned())
            }
            (Some(Some(why)), _) => ("Warning", "TopologyAwareHintsDisabled", why),
            (None, Some(None)) => {
                ("Warning", "TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled".to_owned())
            }
        };
        let message = format!("{message}, addressType: {}", family.address_type());
        self.recorder.event(coracle_client::events::reference(service), type_, reason, message);
    }
}

fn frame(service: &Service, family: Family) -> Frame {
    let name = service.metadata.name.clone().unwrap_or_default();
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if services::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    Frame {
        address_type: family.address_type().to_owned(),
        metadata: metadata(service, &name, labels, MANAGER, controller_reference(service)),
    }
}

/// Metadata of a new slice of the Service called `name`.
fn metadata<K: kube::Resource>(
    beside: &K,
    name: &str,
    mut labels: BTreeMap<String, String>,
    manager: &str,
    owner: k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference,
) -> ObjectMeta {
    labels.insert(SERVICE_NAME.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), manager.to_owned());
    ObjectMeta {
        generate_name: Some(format!("{name}-")),
        namespace: beside.meta().namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The endpoints of one family, grouped by the ports they resolve to.
fn groups(
    service: &Service,
    pods: &[Arc<Pod>],
    family: Family,
    zone: &dyn Fn(&str) -> Option<String>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pod in pods.iter().filter(|p| services::counts(p, true)) {
        let Some(address) = services::address(pod, family) else { continue };
        let ports = ports(service, pod);
        let endpoint = endpoint(service, pod, address, zone);
        match groups.iter_mut().find(|g| g.ports == ports) {
            Some(group) => group.endpoints.push(endpoint),
            None => groups.push(Group { ports, endpoints: vec![endpoint] }),
        }
    }
    groups
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let declared = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let resolved = declared.iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(services::target_port(pod, port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}

fn endpoint(service: &Service, pod: &Pod, address: &str, zone: &dyn Fn(&str) -> Option<String>) -> Endpoint {
    let serving = pods::is_ready(pod);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let ready = services::publishes_unready(service) || (serving && !terminating);
    let node = pods::node_name(pod);
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: services::hostname(pod, service),
        node_name: node.map(str::to_owned),
        target_ref: Some(services::target_reference(pod)),
        zone: node.and_then(zone),
        ..Endpoint::default()
    }
}
