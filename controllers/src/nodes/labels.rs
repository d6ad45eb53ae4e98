//! Keeps the labels of nodes under their former names equal to those of today: selectors still name them.

use super::ACCOUNT;
use crate::clients::Clients;
use coracle_api::well_known;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// Today's and former names.
const NAMES: [(&str, &str); 2] =
    [(well_known::OS, well_known::BETA_OS), (well_known::ARCH, well_known::BETA_ARCH)];

struct Labels {
    client: kube::Client,
    nodes: Informer<Node>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let nodes = clients.informers.of::<Node>();
    let reconciler = Labels { client: clients.client(ACCOUNT), nodes: nodes.clone() };
    Controller::new(reconciler).objects(&nodes).run(stop).await;
}

/// What to write.
fn missing(labels: &BTreeMap<String, String>) -> Map<String, Value> {
    let differing = NAMES.iter().filter_map(|(today, former)| {
        let value = labels.get(*today).filter(|value| labels.get(*former) != Some(value))?;
        Some(((*former).to_owned(), json!(value)))
    });
    differing.collect()
}

impl Reconciler for Labels {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "node-labels-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::AwaitChange) };
        let labels = missing(node.labels());
        if !labels.is_empty() {
            let patch = Patch::Merge(json!({ "metadata": { "uid": node.uid(), "labels": labels } }));
            let api: Api<Node> = Api::all(self.client.clone());
            api.patch(&key.name, &PatchParams::default(), &patch).await?;
        }
        Ok(Action::AwaitChange)
    }
}
