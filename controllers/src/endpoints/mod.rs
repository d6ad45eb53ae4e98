//! Endpoints, the older form of EndpointSlices, for Services with a selector.
//!
//! <https://kubernetes.io/docs/concepts/services-networking/service/#endpoints>

mod plan;

use crate::clients::Clients;
use crate::common::services::{self, ServiceSelectors};
use crate::common::trigger::{self, Triggers};
use crate::common::{code_of, message_of, namespace_terminating};
use coracle_client::informer::{api_for, deleting};
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "endpoint-controller";

struct EndpointsOf {
    client: kube::Client,
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
    recorder: Recorder,
    triggers: Triggers,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let (services, pods) = (clients.informers.of::<Service>(), clients.informers.of::<Pod>());
    let endpoints = clients.informers.of::<Endpoints>();
    let reconciler = EndpointsOf {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        client,
        services: services.clone(),
        pods: pods.clone(),
        endpoints: endpoints.clone(),
        triggers: Triggers::default(),
    };
    let by_pod = {
        let selectors = ServiceSelectors::follow(&services);
        move |delta: &Delta<Pod>| services::keys_of(delta, &selectors)
    };
    Controller::new(reconciler)
        .objects(&services)
        .watch(&pods, by_pod)
        .watch(&endpoints, managed)
        .workers(2)
        .run(stop)
        .await;
}

/// Endpoints of ours that were changed or that lost their Service while nobody looked.
fn managed(delta: &Delta<Endpoints>) -> Option<ObjectKey> {
    delta.object().filter(|e| plan::is_managed(e)).map(|e| ObjectKey::of(e.as_ref()))
}

impl Reconciler for EndpointsOf {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let api: Api<Endpoints> = api_for(&self.client, key);
        let Some(service) = self.services.get_key(key) else {
            self.triggers.forget(key);
            if self.endpoints.get_key(key).is_some() {
                match api.delete(&key.name, &DeleteParams::default()).await {
                    Err(error) if code_of(&error) != 404 => return Err(error.into()),
                    _ => {}
                }
            }
            return Ok(Action::AwaitChange);
        };
        let Some(selector) = services::selector(&service).filter(|_| !deleting(service.as_ref())) else {
            return Ok(Action::AwaitChange);
        };
        let pods = self.pods.labelled(&key.namespace, |labels| services::selects(selector, labels));
        let old = self.endpoints.get_key(key);
        let mut new = plan::endpoints(&service, &pods, old.as_deref());
        let changed_at = self.triggers.since_last(key, &service, &pods);
        if old.as_deref() == Some(&new) {
            return Ok(Action::AwaitChange);
        }
        trigger::stamp(&mut new.metadata, changed_at);
        let written = match old {
            Some(_) => api.replace(&key.name, &PostParams::default(), &new).await,
            None => api.create(&PostParams::default(), &new).await,
        };
        match written {
            Ok(_) => Ok(Action::AwaitChange),
            Err(error) if namespace_terminating(&error) => Ok(Action::AwaitChange),
            Err(error) => {
                if code_of(&error) != 409 {
                    let (reason, what) = if new.metadata.uid.is_some() {
                        ("FailedToUpdateEndpoint", "update endpoint")
                    } else {
                        ("FailedToCreateEndpoint", "create endpoint for service")
                    };
                    let message = format!("Failed to {what} {key}: {}", message_of(&error));
                    self.recorder.warning(&new, reason, message);
                }
                Err(error.into())
            }
        }
    }
}
