//! Node objects and their heartbeats.

use super::{Error, SimulateConfig};
use coracle_client::Context;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
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
    [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", arch)]
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
            annotations: Some(
                [("node.alpha.kubernetes.io/ttl".to_owned(), "0".to_owned())].into_iter().collect(),
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
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
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
    each_interval(context, config, config.lease_renew_interval, |index| renew(context, config, index)).await;
}

/// Repeats node status, as upstream does every five minutes though nothing changed.
pub async fn report_status(context: &Context, config: &SimulateConfig) {
    each_interval(context, config, config.status_report_interval, |index| report(context, config, index))
        .await;
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

async fn renew(context: &Context, config: &SimulateConfig, index: usize) -> Result<(), kube::Error> {
    let name = config.node_name(index);
    let leases: Api<Lease> = Api::namespaced(context.client.clone(), "kube-node-lease");
    let patch = json!({ "spec": { "renewTime": MicroTime(Timestamp::now()) } });
    match leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(|_| ()),
    }
    let nodes: Api<Node> = Api::all(context.client.clone());
    // A node that somebody deleted stays deleted.
    match nodes.get_opt(&name).await? {
        Some(node) => leases.create(&PostParams::default(), &lease(&node, config)).await.map(|_| ()),
        None => Ok(()),
    }
}

async fn report(context: &Context, config: &SimulateConfig, index: usize) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = config.node_name(index);
    let Some(node) = nodes.get_opt(&name).await? else { return Ok(()) };
    let mut conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
    for condition in &mut conditions {
        condition.last_heartbeat_time = Some(Time(Timestamp::now()));
    }
    let patch = json!({ "status": { "conditions": conditions } });
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
}
