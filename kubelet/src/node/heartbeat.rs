//! Registration, the Lease, and status when it changes or every five minutes.

use super::facts::{self, Facts};
use super::own::{self, Note};
use super::status::{RuntimeFacts, read_pressure, resources, same, status, trouble};
use crate::config::Config;
use crate::cri::Runtime;
use crate::eviction::Signal;
use crate::pod::publisher::now;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often the runtime is asked whether it is well; upstream updates its node status as often.
const LOOK: Duration = Duration::from_secs(10);
/// While it is not, so that the node is Ready soon after the runtime is.
const LOOK_WHEN_DOWN: Duration = Duration::from_secs(1);
/// How long a renewal may take; several must fit into the 40 s after which a node counts as lost.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause after the API server did not answer.
const RETRY: Duration = Duration::from_secs(1);

struct Heart {
    client: kube::Client,
    config: Config,
    runtime: Arc<dyn Runtime>,
    facts: Facts,
    /// The node as the API server has it.
    node: Node,
    written: Instant,
    version: String,
    own: Note,
    short: watch::Sender<Option<Signal>>,
}

/// Keeps the Node registered and alive until `stop`.
pub async fn run(
    client: kube::Client,
    config: Config,
    runtime: Arc<dyn Runtime>,
    facts: Facts,
    own: Note,
    short: watch::Sender<Option<Signal>>,
    stop: CancellationToken,
) {
    let registered = register(&client, &config, runtime.as_ref(), &facts);
    let Some(node) = stop.run_until_cancelled(registered).await else { return };
    own::note(&own, node.clone());
    let lease = renew_for_ever(client.clone(), config.clone(), node.clone());
    let written = Instant::now();
    let (noted, name) = (own.clone(), config.node_name.clone());
    let follow = own::follow(client.clone(), &name, &noted);
    let heart = Heart { client, config, runtime, facts, node, written, version: String::new(), own, short };
    let work = futures::future::join3(lease, heart.beat(), follow);
    Box::pin(stop.run_until_cancelled(work)).await;
}

async fn register(client: &kube::Client, config: &Config, runtime: &dyn Runtime, facts: &Facts) -> Node {
    let (runtime_facts, _) = ask(runtime, "").await;
    let initial =
        status(config, facts, &runtime_facts, &read_pressure(config), &NodeStatus::default(), now());
    let node = Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels(config)),
            annotations: Some(BTreeMap::from([(
                "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
                "true".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(initial),
    };
    let api: Api<Node> = Api::all(client.clone());
    loop {
        match register_once(&api, &node, config).await {
            Ok(node) => return node,
            Err(error) => {
                tracing::warn!(node = %config.node_name, %error, "node not registered, trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Creates the node; of one that exists already only the labels are brought up to date.
async fn register_once(api: &Api<Node>, node: &Node, config: &Config) -> Result<Node, kube::Error> {
    match api.create(&PostParams::default(), node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => return other,
    }
    let patch = json!({ "metadata": { "labels": labels(config) } });
    api.patch(&config.node_name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn labels(config: &Config) -> BTreeMap<String, String> {
    let own = [
        ("kubernetes.io/hostname", config.node_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", facts::go_arch()),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.chain(config.node_labels.iter().cloned()).collect()
}

/// What the runtime says of itself, and its version (the known one when it does not answer).
async fn ask(runtime: &dyn Runtime, known: &str) -> (RuntimeFacts, String) {
    let answer = runtime.status().await;
    let trouble = trouble(&answer);
    let mut version = known.to_owned();
    let mut images = Vec::new();
    if answer.is_ok() {
        if version.is_empty()
            && let Ok(v) = runtime.version().await
        {
            version = format!("{}://{}", v.runtime_name, v.runtime_version);
        }
        images = runtime.list_images().await.unwrap_or_default();
    }
    let shown = if version.is_empty() { "containerd://unknown".to_owned() } else { version.clone() };
    let (handlers, features) = answer.map(|a| (a.runtime_handlers, a.features)).unwrap_or_default();
    (RuntimeFacts { trouble, version: shown, images, handlers, features }, version)
}

impl Heart {
    /// Wakes who evicts, again and again while something is short.
    fn tell(&self, short: Option<Signal>) {
        self.short.send_if_modified(|known| {
            let news = short.is_some() || *known != short;
            *known = short;
            news
        });
    }

    async fn beat(mut self) {
        // The first look comes at once, so that a node that registered before its runtime was asked is right soon.
        let mut pause = Duration::ZERO;
        let mut changes = self.own.subscribe();
        loop {
            // What others have written comes at once, so that a resource they gave the node can be used.
            let _ = tokio::time::timeout(pause, changes.changed()).await;
            if let Some(node) = changes.borrow_and_update().clone() {
                self.node = Node::clone(&node);
            }
            let (runtime, version) = ask(self.runtime.as_ref(), &self.version).await;
            self.version = version;
            pause = if runtime.trouble.is_some() { LOOK_WHEN_DOWN } else { LOOK };
            if runtime.trouble.is_some() {
                // It may come back as another version.
                self.version.clear();
            }
            let old = self.node.status.clone().unwrap_or_default();
            let pressure = read_pressure(&self.config);
            self.tell(Signal::of(&pressure, &self.config.eviction_hard));
            let new = status(&self.config, &self.facts, &runtime, &pressure, &old, now());
            let due = self.written.elapsed() >= self.config.status_report_interval;
            if !due && same(&old, &new) {
                continue;
            }
            if let Err(error) = self.write(&new).await {
                tracing::warn!(%error, "node status not written, trying again");
                pause = RETRY;
            }
        }
    }

    /// The patch: of the capacity only what is this machine's own, and of what can be given no more than there is.
    fn difference(&self, status: &NodeStatus) -> Value {
        let mut patch = json!(status);
        if let Some(capacity) = patch["capacity"].as_object_mut() {
            let own = resources(&self.config, &self.facts);
            capacity.retain(|name, _| own.contains_key(name));
        }
        let old = self.node.status.as_ref().and_then(|s| s.allocatable.as_ref());
        for name in old.into_iter().flat_map(|amounts| amounts.keys()) {
            if status.allocatable.as_ref().is_none_or(|new| !new.contains_key(name)) {
                patch["allocatable"][name] = Value::Null;
            }
        }
        patch
    }

    async fn write(&mut self, status: &NodeStatus) -> Result<(), kube::Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({ "status": self.difference(status) });
        match api.patch_status(&self.config.node_name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(node) => {
                own::note(&self.own, node.clone());
                self.node = node;
                self.written = Instant::now();
                Ok(())
            }
            Err(kube::Error::Api(answer)) if answer.code == 404 => {
                // Somebody deleted the node; a kubelet that runs registers again.
                self.node = register(&self.client, &self.config, self.runtime.as_ref(), &self.facts).await;
                own::note(&self.own, self.node.clone());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

async fn renew_for_ever(client: kube::Client, config: Config, node: Node) {
    let api: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut pause = Duration::ZERO;
    loop {
        tokio::time::sleep(pause).await;
        // A connection whose other end is gone without a word answers nothing at all.
        pause = match tokio::time::timeout(ANSWER, renew(&api, &config, &node)).await {
            Ok(Ok(())) => config.lease_renew_interval,
            Ok(Err(error)) => {
                tracing::warn!(%error, "node lease not renewed, trying again");
                RETRY
            }
            Err(_) => {
                tracing::warn!("node lease not renewed in time, trying again");
                RETRY
            }
        };
    }
}

async fn renew(api: &Api<Lease>, config: &Config, node: &Node) -> Result<(), kube::Error> {
    let renew_time = MicroTime(Timestamp::now());
    let patch = json!({ "spec": { "renewTime": renew_time, "holderIdentity": config.node_name } });
    match api.patch(&config.node_name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(|_| ()),
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: config.node_name.clone(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            namespace: Some("kube-node-lease".to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(config.node_name.clone()),
            lease_duration_seconds: i32::try_from(config.lease_renew_interval.as_secs() * 4).ok(),
            renew_time: Some(renew_time),
            ..LeaseSpec::default()
        }),
    };
    api.create(&PostParams::default(), &lease).await.map(|_| ())
}
