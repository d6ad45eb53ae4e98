//! Registration, the Lease, and status when it changes or every five minutes.

use super::runtime::RuntimeWatch;
use super::status::{resources, same, status};
use crate::configuration::config::Config;
use crate::configuration::eviction::Rule;
use crate::eviction::monitor::Monitor;
use crate::facts::{self, Facts};
use crate::kubelet::Kubelet;
use crate::own_node::{self, OwnNode, OwnNodeSender};
use crate::pod_facts::now;
use coracle_api::well_known;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
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

/// What the node's condition says while the machine is about to be shut down.
const SHUTTING_DOWN: &str = "node is shutting down";
/// While it is not, so that the node is Ready soon after the runtime is.
const DOWN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a renewal may take; several must fit into the 40 s after which a node counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the API server did not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

struct Heart {
    kubelet: Arc<Kubelet>,
    facts: Facts,
    runtime: RuntimeWatch,
    monitor: Monitor,
    /// The node as the API server has it.
    node: Node,
    written: Instant,
    own: OwnNodeSender,
    due: watch::Sender<Option<Rule>>,
}

/// Keeps the Node registered and alive until `stop`. `own` learns of it once it says what this machine is now, and `due`
/// what pods have to go for.
pub async fn run(
    kubelet: Arc<Kubelet>,
    facts: Facts,
    own: OwnNodeSender,
    due: watch::Sender<Option<Rule>>,
    stop: CancellationToken,
) {
    let (client, config) = (kubelet.client.clone(), kubelet.config.clone());
    let mut heart = Heart {
        runtime: RuntimeWatch::new(kubelet.runtime.clone(), config.runtime_patience),
        monitor: Monitor::new(config.eviction.clone()),
        node: Node::default(),
        written: Instant::now(),
        own: own.clone(),
        kubelet,
        facts,
        due,
    };
    let work = async {
        if config.standalone {
            return heart.look_for_ever().await;
        }
        heart.register().await;
        let lease = renew_for_ever(client.clone(), config.clone(), own.subscribe(), heart.node.clone());
        let alive = Box::pin(async {
            heart.first_beat().await;
            futures::future::join(heart.beat(), own_node::follow(client, &config.node_name, &own)).await
        });
        futures::future::join(lease, alive).await;
    };
    Box::pin(stop.run_until_cancelled(work)).await;
}

/// Creates the node, unless somebody else is to; of one that exists already only the labels are brought up to date.
async fn register_once(api: &Api<Node>, node: &Node, config: &Config) -> Result<Node, kube::Error> {
    if !config.registration.register {
        return api.get(&config.node_name).await;
    }
    match api.create(&PostParams::default(), node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => config.metrics.startup.was_there(),
        other => {
            other.iter().for_each(|_| config.metrics.startup.registered());
            return other;
        }
    }
    let patch = json!({ "metadata": { "labels": labels(config) } });
    api.patch(&config.node_name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn labels(config: &Config) -> BTreeMap<String, String> {
    let own = [
        (well_known::HOSTNAME, config.node_name.as_str()),
        (well_known::OS, "linux"),
        (well_known::ARCH, facts::go_arch()),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.chain(config.node_labels.iter().cloned()).collect()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What a node has to say of its machine and does not.
fn wrong_labels(node: &Node) -> BTreeMap<&'static str, &'static str> {
    let has =
        |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let own = [(well_known::OS, "linux"), (well_known::ARCH, facts::go_arch())];
    own.into_iter().filter(|(key, value)| has(key) != Some(value)).collect()
}

impl Heart {
    /// Wakes who evicts, again and again while somebody has to go.
    fn tell(&self, due: Option<Rule>) {
        self.due.send_if_modified(|known| {
            let news = due.is_some() || *known != due;
            *known = due;
            news
        });
    }

    /// What the node is to say now.
    async fn look(&mut self) -> NodeStatus {
        let mut runtime = self.runtime.look().await;
        if *self.kubelet.shutting_down.borrow() {
            let before = runtime.trouble.take().map(|trouble| format!("{trouble}, ")).unwrap_or_default();
            runtime.trouble = Some(before + SHUTTING_DOWN);
        }
        let found = self.monitor.look(&self.kubelet.observer.look().await, Instant::now());
        self.tell(found.due);
        let old = self.node.status.clone().unwrap_or_default();
        let devices = self.kubelet.allocation.devices.amounts();
        let runtime = (&runtime, &devices);
        let mut new = status(&self.kubelet.now(), &self.facts, runtime, &found.pressures, &old, now());
        let in_use = self.kubelet.volumes.in_use();
        // An empty list takes away what was told before.
        new.volumes_in_use = (!in_use.is_empty() || old.volumes_in_use.is_some()).then_some(in_use);
        new
    }

    async fn register(&mut self) {
        self.node.status = None;
        let config = &self.kubelet.config;
        let mut node = Node {
            metadata: ObjectMeta {
                name: Some(config.node_name.clone()),
                labels: Some(labels(config)),
                annotations: Some(BTreeMap::from([(
                    "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
                    "true".to_owned(),
                )])),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(config.registration.taints.clone()).filter(|taints| !taints.is_empty()),
                provider_id: config.registration.provider_id.clone(),
                ..NodeSpec::default()
            }),
            status: None,
        };
        node.status = Some(self.look().await);
        let api: Api<Node> = Api::all(self.kubelet.client.clone());
        self.kubelet.metrics.startup.attempted();
        self.node = loop {
            match register_once(&api, &node, &self.kubelet.config).await {
                Ok(node) => break node,
                Err(error) => {
                    let node = &self.kubelet.config.node_name;
                    tracing::warn!(node, %error, "node not registered, trying again");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        };
    }

    /// The node may have been there before, as it was then: nobody may be judged by it before it is written anew.
    async fn first_beat(&mut self) {
        loop {
            let new = self.look().await;
            match self.write_if_due(&new).await {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "node status not written, trying again"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        own_node::note(&self.own, self.node.clone());
    }

    async fn beat(&mut self) {
        let mut changes = self.own.subscribe();
        let mut shutting_down = self.kubelet.shutting_down.subscribe();
        let mut devices = self.kubelet.allocation.devices.subscribe();
        let mut pause = self.pause();
        loop {
            // What others have written comes at once, so that a resource they gave the node can be used. What this task
            // wrote itself comes back too, and is no news.
            let mine = self.node.metadata.resource_version.clone();
            let news = |known: &Option<Arc<Node>>| {
                known.as_ref().is_some_and(|node| node.metadata.resource_version != mine)
            };
            let kubelet = self.kubelet.clone();
            let newer = tokio::select! {
                newer = tokio::time::timeout(pause, changes.wait_for(news)) => match newer {
                    Ok(Ok(node)) => node.clone(),
                    _ => None,
                },
                // What is told late could be detached while it is in use.
                () = kubelet.volumes.in_use_changed() => None,
                Ok(()) = devices.changed() => None,
                // The kubelet, which tells, lives as long as this task.
                Ok(()) = shutting_down.changed() => None,
            };
            if let Some(node) = newer {
                self.node = Node::clone(&node);
            }
            let new = self.look().await;
            pause = self.pause();
            if let Err(error) = self.write_if_due(&new).await {
                tracing::warn!(%error, "node status not written, trying again");
                pause = RETRY_INTERVAL;
            }
        }
    }

    /// Nobody is told, but pods have to go when the node is short of something.
    async fn look_for_ever(&mut self) {
        loop {
            self.look().await;
            tokio::time::sleep(self.pause()).await;
        }
    }

    fn pause(&self) -> Duration {
        if self.runtime.is_well() {
            self.kubelet.now().registration.status_update
        } else {
            DOWN_CHECK_INTERVAL
        }
    }

    /// Whoever says that the machine is another one is corrected, as upstream has it.
    async fn keep_labels(&mut self) -> Result<(), kube::Error> {
        let wrong = wrong_labels(&self.node);
        if wrong.is_empty() {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "metadata": { "labels": wrong } }));
        let api: Api<Node> = Api::all(self.kubelet.client.clone());
        let name = &self.kubelet.config.node_name;
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(node) => self.node = node,
            // The status is written next, and finds the same.
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write_if_due(&mut self, new: &NodeStatus) -> Result<(), kube::Error> {
        self.keep_labels().await?;
        let due = self.written.elapsed() >= self.kubelet.now().registration.status_report;
        let old = self.node.status.clone().unwrap_or_default();
        if due || !same(&old, new) {
            self.write(new).await?;
        }
        if is_ready(&self.node) {
            self.kubelet.metrics.startup.ready();
        }
        let told = self.node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref());
        self.kubelet.volumes.note_reported(told.unwrap_or_default());
        Ok(())
    }

    async fn write(&mut self, status: &NodeStatus) -> Result<(), kube::Error> {
        let devices = self.kubelet.allocation.devices.amounts();
        let own = resources(&self.kubelet.config, &self.facts, &devices);
        let old = self.node.status.clone().unwrap_or_default();
        let patch = Patch::Merge(json!({ "status": difference(&old, status, &own) }));
        let api: Api<Node> = Api::all(self.kubelet.client.clone());
        let name = &self.kubelet.config.node_name;
        let parameters = PatchParams::default();
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, api.patch_status(name, &parameters, &patch)).await;
        let Ok(answer) = answer else {
            // The next beat tries again; what may run short is looked at meanwhile.
            tracing::warn!("node status not written in time");
            return Ok(());
        };
        match answer {
            Ok(node) => {
                own_node::note(&self.own, node.clone());
                self.node = node;
                self.written = Instant::now();
                Ok(())
            }
            Err(kube::Error::Api(answer)) if answer.code == 404 => {
                // Somebody deleted the node; a kubelet that runs registers again.
                self.register().await;
                own_node::note(&self.own, self.node.clone());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The patch from one status to another: of the capacity only what is this machine's own, and nothing any more of what is
/// gone.
fn difference(old: &NodeStatus, new: &NodeStatus, own: &BTreeMap<String, Quantity>) -> Value {
    let mut patch = json!(new);
    // Whoever attaches volumes writes this, perhaps at this moment.
    patch.as_object_mut().map(|fields| fields.remove("volumesAttached"));
    if let Some(capacity) = patch["capacity"].as_object_mut() {
        capacity.retain(|name, _| own.contains_key(name));
    }
    for (field, old, new) in
        [("capacity", &old.capacity, &new.capacity), ("allocatable", &old.allocatable, &new.allocatable)]
    {
        let gone = |name: &&String| new.as_ref().is_none_or(|new| !new.contains_key(*name));
        for name in old.iter().flat_map(BTreeMap::keys).filter(gone) {
            patch[field][name] = Value::Null;
        }
    }
    patch
}

/// A node that was deleted and is registered anew owns the lease by its new UID.
async fn renew_for_ever(client: kube::Client, config: Config, own: OwnNode, first: Node) {
    let api: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut pause = Duration::ZERO;
    loop {
        tokio::time::sleep(pause).await;
        let node = own.borrow().as_deref().unwrap_or(&first).uid().unwrap_or_default();
        // A connection whose other end is gone without a word answers nothing at all.
        pause = match tokio::time::timeout(ANSWER_TIMEOUT, renew(&api, &config, node)).await {
            Ok(Ok(())) => config.registration.lease / 4,
            Ok(Err(error)) => {
                tracing::warn!(%error, "node lease not renewed, trying again");
                RETRY_INTERVAL
            }
            Err(_) => {
                tracing::warn!("node lease not renewed in time, trying again");
                RETRY_INTERVAL
            }
        };
    }
}

/// `node` is the UID of the lease's owner.
async fn renew(api: &Api<Lease>, config: &Config, node: String) -> Result<(), kube::Error> {
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
        uid: node,
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
            lease_duration_seconds: i32::try_from(config.registration.lease.as_secs()).ok(),
            renew_time: Some(renew_time),
            ..LeaseSpec::default()
        }),
    };
    api.create(&PostParams::default(), &lease).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_machine_is_corrected() {
        let mut node = Node::default();
        let both = BTreeMap::from([(well_known::OS, "linux"), (well_known::ARCH, facts::go_arch())]);
        assert_eq!(wrong_labels(&node), both);
        let labels = both.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        node.metadata.labels = Some(labels);
        assert_eq!(wrong_labels(&node), BTreeMap::new());
        node.metadata.labels.get_or_insert_default().insert(well_known::OS.to_owned(), "dummy".to_owned());
        assert_eq!(wrong_labels(&node), BTreeMap::from([(well_known::OS, "linux")]));
    }

    #[test]
    fn what_is_gone_is_taken_away() {
        let amounts = |names: &[&str]| -> BTreeMap<String, Quantity> {
            names.iter().map(|name| ((*name).to_owned(), Quantity("1".to_owned()))).collect()
        };
        let status = |names: &[&str]| NodeStatus {
            capacity: Some(amounts(names)),
            allocatable: Some(amounts(names)),
            ..NodeStatus::default()
        };
        let old = status(&["cpu", "example.com/foo", "hugepages-1Gi", "x.kubernetes.io/y"]);
        let new = status(&["cpu", "example.com/foo"]);
        let patch = difference(&old, &new, &amounts(&["cpu"]));
        let gone = Value::Null;
        assert_eq!(
            patch["capacity"],
            json!({ "cpu": "1", "hugepages-1Gi": gone, "x.kubernetes.io/y": gone })
        );
        assert_eq!(
            patch["allocatable"],
            json!({ "cpu": "1", "example.com/foo": "1", "hugepages-1Gi": gone, "x.kubernetes.io/y": gone })
        );
        assert_eq!(difference(&new, &new, &amounts(&["cpu"]))["capacity"], json!({ "cpu": "1" }));
    }
}
