//! The ConfigMap `kube-root-ca.crt` of every namespace, by which its pods verify the API server.

use super::{RootCa as Published, namespace_of};
use crate::clients::Clients;
use crate::common::{code_of, namespace_terminating};
use crate::metrics::{Metric, Metrics};
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "root-ca-cert-publisher";
const NAME: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const NOTE: &str =
    "The CA by which clients inside the cluster verify the API server; meant for nothing else.";

struct RootCa {
    client: kube::Client,
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    pem: String,
    metrics: Arc<Metrics>,
}

/// Runs the controller until `stop` is cancelled; `ca` is the CA that signed the API server's certificate.
pub async fn run(clients: Clients, ca: Published, stop: CancellationToken) {
    ca.each(stop, |pem, stop| run_with(clients.clone(), pem, stop)).await;
}

async fn run_with(clients: Clients, pem: String, stop: CancellationToken) {
    let namespaces = clients.informers.of::<Namespace>();
    let only = &format!("metadata.name={NAME}");
    let maps = clients.informers.selected::<ConfigMap>(only, stop.clone());
    let reconciler = RootCa {
        client: clients.client(CONTROLLER),
        namespaces: namespaces.clone(),
        maps: maps.clone(),
        pem,
        metrics: clients.metrics.clone(),
    };
    Controller::new(reconciler).objects(&namespaces).watch(&maps, namespace_of).run(stop).await;
}

impl Reconciler for RootCa {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if self.namespaces.get_key(key).is_none_or(|ns| deleting(ns.as_ref())) {
            return Ok(Action::AwaitChange);
        }
        let began = Instant::now();
        let done = self.publish(key).await;
        let code = match &done {
            Ok(_) => "200".to_owned(),
            Err(ReconcileError::Api(kube::Error::Api(status))) => status.code.to_string(),
            Err(_) => "500".to_owned(),
        };
        self.metrics.add(Metric::RootCaSyncs, &[&code], 1);
        self.metrics.observe(Metric::RootCaSyncDuration, &[&code], began.elapsed());
        done
    }
}

impl RootCa {
    async fn publish(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.name);
        let data = BTreeMap::from([(FILE.to_owned(), self.pem.clone())]);
        let result = match self.maps.get(&key.name, NAME) {
            Some(map) if map.data.as_ref() == Some(&data) && is_described(&map) => {
                return Ok(Action::AwaitChange);
            }
            Some(map) => {
                let mut changed = ConfigMap { data: Some(data), ..ConfigMap::clone(&map) };
                if !is_described(&map) {
                    changed.annotations_mut().insert(DESCRIPTION.to_owned(), NOTE.to_owned());
                }
                api.replace(NAME, &PostParams::default(), &changed).await
            }
            None => api.create(&PostParams::default(), &new_map(data)).await,
        };
        match result {
            Ok(_) => Ok(Action::AwaitChange),
            // Stored already, or changed since: the informer will say so, and this runs again.
            Err(error) if code_of(&error) == 409 || namespace_terminating(&error) => Ok(Action::AwaitChange),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_described(map: &ConfigMap) -> bool {
    map.annotations().get(DESCRIPTION).is_some_and(|note| !note.is_empty())
}

fn new_map(data: BTreeMap<String, String>) -> ConfigMap {
    let annotations = BTreeMap::from([(DESCRIPTION.to_owned(), NOTE.to_owned())]);
    let metadata =
        ObjectMeta { name: Some(NAME.to_owned()), annotations: Some(annotations), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}
