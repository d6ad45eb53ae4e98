//! Node objects and their heartbeats.

use super::silence::is_silent;
use super::{Error, SimulateConfig};
use crate::pod_facts::features::declared;
use coracle_api::node_addresses::CHECKED_ADDRESSES;
use coracle_api::well_known;
use coracle_client::{Context, Informer};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Requests in flight while nodes are registered or renewed; the server is in this process, more would only queue.
const CONCURRENCY: usize = 16;
/// Heartbeats of many nodes are spread over this many moments of the interval, so that no burst of them shows.
const SLOTS: usize = 100;

pub async fn register(client: &kube::Client, config: &SimulateConfig) -> Result<(), Error> {
    let nodes = futures::stream::iter(0..config.count);
    let created = nodes.map(|index| register_one(client, config, index));
    created.buffer_unordered(CONCURRENCY).try_collect().await
}

async fn register_one(client: &kube::Client, config: &SimulateConfig, index: usize) -> Result<(), Error> {
    let name = config.node_name(index);
    let step = async {
        let api: Api<Node> = Api::all(client.clone());
        let node = match api.create(&PostParams::default(), &node(config, index)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status_patch(config, index)))
                    .await?
            }
            other => other?,
        };
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
        match leases.create(&PostParams::default(), &lease(&node, config)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            // The namespace is made by the API server a moment after its start; the renewal makes the Lease then.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()),
        }
    };
    step.await.map_err(|source| Error { node: name.clone(), source })
}

fn labels(name: &str) -> std::collections::BTreeMap<String, String> {
    let arch = crate::simulate::status::go_arch();
    [(well_known::HOSTNAME, name), (well_known::OS, "linux"), (well_known::ARCH, arch)]
        .into_iter()
        .chain([("type", "simulated")])
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn node(config: &SimulateConfig, index: usize) -> Node {
    let name = config.node_name(index);
    let status = status_patch(config, index);
    Node {
        metadata: ObjectMeta {
            labels: Some(labels(&name)),
            name: Some(name),
            // Nobody can be met at a simulated node, so whoever makes it vouches for its address.
            annotations: Some(
                [("node.alpha.kubernetes.io/ttl", "0"), (CHECKED_ADDRESSES, &super::status::node_ip(index))]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec::default()),
        status: serde_json::from_str::<NodeStatus>(&status["status"].to_string()).ok(),
    }
}

fn lease(node: &Node, config: &SimulateConfig) -> Lease {
    let name = node.name_any();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some("kube-node-lease".to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: i32::try_from(config.lease_renew_interval.as_secs() * 4).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    }
}

fn status_patch(config: &SimulateConfig, index: usize) -> Value {
    let name = config.node_name(index);
    let resources = json!({
        "cpu": config.cpu, "memory": config.memory, "pods": config.max_pods.to_string(),
        "ephemeral-storage": "100Gi",
    });
    json!({ "status": {
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions(Timestamp::now()),
        "addresses": [
            { "type": "InternalIP", "address": super::status::node_ip(index) },
            { "type": "Hostname", "address": name },
        ],
        // What is asked of a container that never ends is done.
        "declaredFeatures": declared(false),
        "nodeInfo": {
            "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "simulated",
            "osImage": "simulated", "containerRuntimeVersion": "simulated://1.36.0",
            "kubeletVersion": "v1.36.0", "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": super::status::go_arch(),
        },
    }})
}

fn conditions(now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": Time(now), "lastTransitionTime": Time(now) })
    };
    json!([
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ])
}

/// Renews every Lease once an interval, a slot of nodes at a time.
pub async fn keep_alive(context: &Context, config: &SimulateConfig) {
    let nodes = context.informers.of::<Node>();
    nodes.synced().await;
    each_interval(context, config, config.lease_renew_interval, |index| {
        renew(context, config, &nodes, index)
    })
    .await;
}

/// Repeats node status, as upstream does every five minutes though nothing changed.
pub async fn report_status(context: &Context, config: &SimulateConfig) {
    let nodes = context.informers.of::<Node>();
    nodes.synced().await;
    let interval = config.status_report_interval;
    each_interval(context, config, interval, |index| report(context, config, &nodes, index)).await;
}

async fn each_interval<F>(
    context: &Context,
    config: &SimulateConfig,
    interval: Duration,
    work: impl Fn(usize) -> F,
) where
    F: Future<Output = Result<(), kube::Error>>,
{
    let slots = config.count.clamp(1, SLOTS);
    let pause = interval / u32::try_from(slots).unwrap_or(1);
    for slot in (0..slots).cycle() {
        if context.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        let due = (slot..config.count).step_by(slots);
        let requests = futures::stream::iter(due).map(&work).buffer_unordered(CONCURRENCY);
        requests
            .for_each(|result| async {
                if let Err(error) = result {
                    tracing::warn!(%error, "simulated node's heartbeat failed");
                }
            })
            .await;
    }
}

/// The node of this number, unless somebody deleted it (then it stays deleted) or told it to be silent.
fn speaking(nodes: &Informer<Node>, config: &SimulateConfig, index: usize) -> Option<Arc<Node>> {
    nodes.get("", &config.node_name(index)).filter(|node| !is_silent(node))
}

async fn renew(
    context: &Context,
    config: &SimulateConfig,
    nodes: &Informer<Node>,
    index: usize,
) -> Result<(), kube::Error> {
    let Some(node) = speaking(nodes, config, index) else { return Ok(()) };
    if node.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.status == "Unknown") {
        post(context, &node).await?;
    }
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), "kube-node-lease");
    let patch = json!({ "spec": { "renewTime": MicroTime(Timestamp::now()) } });
    match leases.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(|_| ()),
    }
    leases.create(&PostParams::default(), &lease(&node, config)).await.map(|_| ())
}

async fn report(
    context: &Context,
    config: &SimulateConfig,
    nodes: &Informer<Node>,
    index: usize,
) -> Result<(), kube::Error> {
    let Some(node) = speaking(nodes, config, index) else { return Ok(()) };
    post(context, &node).await
}

/// Says that the node is well: what was unknown while it was silent is known again, the rest is only repeated.
async fn post(context: &Context, node: &Node) -> Result<(), kube::Error> {
    let conditions = refreshed(node, Timestamp::now());
    let patch = json!({ "status": { "conditions": conditions } });
    let nodes: Api<Node> = Api::all(context.client.clone());
    nodes.patch_status(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
}

fn refreshed(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let healthy = conditions(now).to_string();
    let healthy: Vec<NodeCondition> = serde_json::from_str(&healthy).unwrap_or_default();
    let old = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let refresh = |mut condition: NodeCondition| match healthy.iter().find(|c| c.type_ == condition.type_) {
        Some(healthy) if condition.status == "Unknown" => healthy.clone(),
        Some(_) => {
            condition.last_heartbeat_time = Some(Time(now));
            condition
        }
        None => condition,
    };
    old.into_iter().map(refresh).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_unknown_is_known_again_and_the_rest_stays() {
        let (then, now) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(100).unwrap());
        let condition = |type_: &str, status: &str| NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            last_transition_time: Some(Time(then)),
            ..NodeCondition::default()
        };
        let all = vec![
            condition("Ready", "Unknown"),
            condition("DiskPressure", "True"),
            condition("example.com/own", "Unknown"),
        ];
        let status = NodeStatus { conditions: Some(all.clone()), ..NodeStatus::default() };
        let found = refreshed(&Node { status: Some(status), ..Node::default() }, now);
        assert_eq!((found[0].status.as_str(), found[0].reason.as_deref()), ("True", Some("KubeletReady")));
        assert_eq!(found[0].last_transition_time, Some(Time(now)));
        assert_eq!((found[1].status.as_str(), &found[1].last_transition_time), ("True", &Some(Time(then))));
        assert_eq!(found[1].last_heartbeat_time, Some(Time(now)));
        assert_eq!(found[2], all[2]);
    }
}
