//! The parts of the cluster that run in this process, each shown as a pod of kube-system: read-only, as static pods are.
//!
//! Nothing of the runtime belongs to such a pod. It has no address, so no Service leads to it, and it takes nothing of the
//! node. What is done to the object is undone; an idle one costs nothing.

mod logs;

pub use logs::ComponentLogs;

use crate::configuration::components::{Component, ComponentState};
use crate::configuration::config::Config;
use crate::own_node::OwnNode;
use crate::pod_facts::labels::{COMPONENT, CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE};
use crate::pods_api::{ContainerHandle, PodHandle};
use crate::publisher::Publisher;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";

/// What tools find it by.
fn labels(name: &str) -> Value {
    match name {
        "kube-proxy" => json!({ "k8s-app": "kube-proxy" }),
        "coredns" => json!({ "k8s-app": "kube-dns" }),
        name => json!({ "component": name, "tier": "control-plane" }),
    }
}

/// The same for the whole life of the node, so that its log stays one.
fn uid(config: &Config, name: &str) -> String {
    let digest = Sha256::digest(format!("{}\0{COMPONENT}\0{name}", config.node_name));
    coracle_api::hex::text(&digest[..16])
}

/// Where the runtime would write the log of the pod's container.
pub fn log_path(config: &Config, name: &str) -> PathBuf {
    let directory = format!("{NAMESPACE}_{name}-{}_{}", config.node_name, uid(config, name));
    config.log_dir.join(directory).join(name).join("0.log")
}

fn pod(config: &Config, name: &str) -> Option<Pod> {
    let uid = uid(config, name);
    let annotations =
        json!({ CONFIG_SOURCE: COMPONENT, CONFIG_HASH: uid, CONFIG_SEEN: Timestamp::now().to_string() });
    let metadata = json!({ "name": format!("{name}-{}", config.node_name), "namespace": NAMESPACE, "uid": uid,
        "labels": labels(name), "annotations": annotations });
    let container = json!({ "name": name, "image": "coracle", "imagePullPolicy": "Never" });
    let spec = json!({ "nodeName": config.node_name, "hostNetwork": true, "containers": [container],
        "priorityClassName": "system-node-critical", "priority": 2_000_001_000, "enableServiceLinks": false,
        "securityContext": { "seccompProfile": { "type": "Unconfined" } },
        "tolerations": [{ "operator": "Exists", "effect": "NoExecute" }] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).ok()
}

fn status(config: &Config, name: &str, began: Timestamp, state: &ComponentState) -> Option<PodStatus> {
    let second = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at).to_string();
    let condition = |kind: &str, since: Timestamp| json!({ "type": kind, "status": "True", "lastTransitionTime": second(since) });
    let steady = ["PodReadyToStartContainers", "Initialized", "PodScheduled"];
    let mut conditions: Vec<Value> = steady.map(|kind| condition(kind, began)).into();
    for kind in ["Ready", "ContainersReady"] {
        let mut ready = condition(kind, state.since);
        if state.failure.is_some() {
            ready["status"] = "False".into();
            ready["reason"] = "ContainersNotReady".into();
            ready["message"] = format!("containers with unready status: [{name}]").into();
        }
        conditions.push(ready);
    }
    let now = match &state.failure {
        None => json!({ "running": { "startedAt": second(state.since) } }),
        Some(why) => json!({ "waiting": { "reason": "CrashLoopBackOff", "message": why } }),
    };
    let works = state.failure.is_none();
    let container = json!({ "name": name, "image": "coracle", "imageID": "", "ready": works, "started": works,
        "restartCount": state.restarts, "state": now });
    let status = json!({ "phase": "Running", "startTime": second(began), "qosClass": "BestEffort", "conditions": conditions,
        "hostIP": config.node_ip, "hostIPs": config.node_ips().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(), "containerStatuses": [container] });
    serde_json::from_value(status).ok()
}

/// A part, and how it is shown.
struct Shown {
    component: Component,
    /// With the status that was published last.
    pod: Mutex<Arc<Pod>>,
    publisher: Mutex<Option<Publisher>>,
    log: PathBuf,
}

impl Shown {
    fn show(&self, config: &Config, began: Timestamp, state: &ComponentState) {
        let Some(status) = status(config, self.component.name, began, state) else { return };
        let mut pod = self.pod.lock();
        *pod = Arc::new(Pod { status: Some(status.clone()), ..Pod::clone(&pod) });
        if let Some(publisher) = &*self.publisher.lock() {
            publisher.publish(status);
        }
    }

    /// Shows each state; never ends.
    async fn follow(&self, config: &Config, client: &kube::Client, began: Timestamp) {
        let pod = self.pod.lock().clone();
        *self.publisher.lock() = Some(Publisher::spawn(client.clone(), &pod, config.metrics.clone()));
        let mut states = self.component.state.clone();
        loop {
            let state = states.borrow_and_update().clone();
            self.show(config, began, &state);
            if states.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Writes the whole status again, and makes the object where it is missing.
    fn repair(&self) {
        if let Some(publisher) = &*self.publisher.lock() {
            publisher.republish();
        }
    }
}

/// The parts of this process.
pub struct Components(Vec<Shown>);

impl Components {
    pub fn new(config: &Config) -> Self {
        let shown = config.components.iter().filter(|_| !config.standalone).filter_map(|component| {
            let pod = Mutex::new(Arc::new(pod(config, component.name)?));
            let log = log_path(config, component.name);
            Some(Shown { component: component.clone(), pod, publisher: Mutex::default(), log })
        });
        Self(shown.collect())
    }

    fn of(&self, object: &Pod) -> Option<&Shown> {
        self.0.iter().find(|shown| shown.pod.lock().metadata.name == object.metadata.name)
    }

    /// Whether the object of the API server is to be there. What somebody changed of its status is mended.
    pub fn keeps(&self, object: &Pod) -> bool {
        let hash =
            |pod: &Pod| pod.metadata.annotations.as_ref().and_then(|all| all.get(CONFIG_HASH).cloned());
        let Some(shown) = self.of(object).filter(|_| object.metadata.namespace.as_deref() == Some(NAMESPACE))
        else {
            return false;
        };
        let wanted = shown.pod.lock().clone();
        if object.metadata.deletion_timestamp.is_some() || hash(object) != hash(&wanted) {
            return false;
        }
        // One without a phase has just been made, and is written next.
        let written = object.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Pending"));
        if written && said(object) != said(&wanted) {
            shown.repair();
        }
        true
    }

    /// The object is gone, whoever took it away.
    pub fn gone(&self, object: &Pod) {
        if let Some(shown) = self.of(object) {
            shown.repair();
        }
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<PodHandle> {
        let named = |pod: &Pod| pod.metadata.name.as_deref() == Some(name);
        let shown = self.0.iter().find(|shown| namespace == NAMESPACE && named(&shown.pod.lock()))?;
        let pod = shown.pod.lock().clone();
        let container = ContainerHandle {
            name: shown.component.name.to_owned(),
            id: shown.component.name.to_owned(),
            attempt: 0,
            running: true,
            log_path: shown.log.clone(),
            previous_log_path: None,
            stdin: false,
            tty: false,
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        Some(PodHandle {
            pod,
            uid,
            sandbox_id: None,
            host_network: true,
            ips: Vec::new(),
            containers: vec![container],
        })
    }

    /// Shows the parts until `stop`, once `node` is there.
    pub async fn run(
        &self,
        config: &Config,
        client: &kube::Client,
        mut node: OwnNode,
        stop: CancellationToken,
    ) {
        let began = Timestamp::now();
        let work = async {
            if node.wait_for(Option::is_some).await.is_err() {
                return;
            }
            futures::future::join_all(self.0.iter().map(|shown| shown.follow(config, client, began))).await;
        };
        stop.run_until_cancelled(work).await;
        self.0.iter().for_each(|shown| *shown.publisher.lock() = None);
    }
}

/// What others could change of a status.
fn said(pod: &Pod) -> Value {
    let Some(status) = &pod.status else { return Value::Null };
    let mut conditions: Vec<(&str, &str)> =
        status.conditions.iter().flatten().map(|c| (&*c.type_, &*c.status)).collect();
    conditions.sort_unstable();
    let containers =
        status.container_statuses.iter().flatten().map(|c| json!([c.ready, c.restart_count, c.state]));
    json!([status.phase, status.pod_ip, conditions, containers.collect::<Vec<_>>()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_fails_is_shown_so() {
        let config = Config::new("n1", "192.0.2.1".parse().unwrap());
        let began = Timestamp::UNIX_EPOCH;
        let of = |failure: Option<&str>, restarts| {
            let state = ComponentState { failure: failure.map(str::to_owned), restarts, since: began };
            serde_json::to_value(status(&config, "kube-proxy", began, &state).unwrap()).unwrap()
        };
        let (good, bad) = (of(None, 0), of(Some("no iptables"), 3));
        assert_eq!(
            good["conditions"][3],
            json!({ "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z" })
        );
        assert!(good["podIP"].is_null(), "no Service leads there");
        assert_eq!(bad["conditions"][3]["status"], "False");
        assert_eq!(bad["containerStatuses"][0]["restartCount"], 3);
        assert_eq!(
            bad["containerStatuses"][0]["state"],
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "no iptables" } })
        );
        let pod = pod(&config, "kube-proxy").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("kube-proxy-n1"));
        assert!(crate::pod_facts::labels::is_static(&pod));
    }
}
