//! When a pod gets CPUs, memory and devices of its own, what its containers are told of them, and when they are given back.

use super::qos::{self, QosClass};
use super::termination::{Eviction, Termination, is_terminal};
use super::worker::Worker;
use crate::container::config::Given;
use crate::container::resources::NodeResources;
use crate::container::swap;
use crate::cri::api;
use crate::kubelet::room::Pending;
use crate::metrics::Metric;
use crate::placement::CpuSet;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// What a worker knows of its pod's place.
#[derive(Debug, Default)]
pub(super) struct Placing {
    done: bool,
    /// The CPUs that each running container was told, by its id.
    told: HashMap<String, CpuSet>,
    /// When what the runtime refused is tried again.
    pub again_at: Option<Instant>,
}

/// Whether a container that may have swap asks for other memory without being started anew: its part would be another one.
fn swap_changes(granted: &Pod, wanted: &Pod, node: NodeResources) -> bool {
    let containers =
        |pod: &'_ Pod| pod.spec.iter().flat_map(|spec| spec.containers.clone()).collect::<Vec<_>>();
    let (before, after) = (containers(granted), containers(wanted));
    before.iter().zip(&after).any(|(old, new)| {
        let mut policies = old.resize_policy.iter().flatten();
        let anew = policies.any(|p| p.resource_name == "memory" && p.restart_policy == "RestartContainer");
        let memory = |container| qos::amount(container, false, "memory");
        !anew
            && memory(old) != memory(new)
            && (swap::may_have(granted, old, node) || swap::may_have(wanted, new, node))
    })
}

impl Worker {
    /// Places the pod once. One that cannot be placed is told to end. `false`: it is to end.
    pub(super) async fn place(&mut self, ending: Option<&Termination>) -> bool {
        if self.placing.done || ending.is_some() {
            return true;
        }
        let runs = self.observed.running().next().is_some();
        let (allocation, inbox) = (self.kubelet.allocation.clone(), self.inbox.clone());
        let pod = self.pod.clone();
        let placed = tokio::select! {
            placed = allocation.place(&pod, runs) => placed,
            () = inbox.overtaken(None) => return false,
        };
        match placed {
            Ok(changed) => {
                self.placing.done = true;
                if changed {
                    self.kubelet.cpus_changed();
                }
            }
            Err(rejection) if runs => {
                tracing::warn!(pod = %self.full_name(), why = rejection.message, "a pod that runs cannot be placed");
                self.placing.done = true;
            }
            Err(rejection) => {
                self.event(None, "Warning", rejection.reason, rejection.message.clone());
                self.kubelet.metrics.add(Metric::AdmissionRejections, &[rejection.reason]);
                let message = format!("Pod was rejected: {}", rejection.message);
                let grace = Some(Duration::ZERO);
                self.inbox.evict(Eviction { reason: rejection.reason, message, grace, disrupts: false });
                return false;
            }
        }
        true
    }

    /// Why the pod's containers cannot have other amounts while they run; upstream's words.
    pub(super) fn cannot_resize(&self) -> Option<Pending> {
        let settings = &self.kubelet.config.placement;
        let granted = self.memory.resizes.applied(&self.wanted);
        if swap_changes(&granted, &self.wanted, self.kubelet.node) {
            let message = "In-place resize of containers with swap is not supported.".to_owned();
            return Some(Pending::Infeasible { detail: "swap_limitation", message });
        }
        if qos::class(granted.as_ref()) != QosClass::Guaranteed {
            return None;
        }
        let differs = |resource: &str| {
            let amounts = |pod: &Pod| -> Vec<_> {
                let spec = pod.spec.iter();
                let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
                all.map(|container| qos::amount(container, false, resource)).collect()
            };
            amounts(&granted) != amounts(&self.wanted)
        };
        let why = |detail, manager: &str| Pending::Infeasible {
            detail,
            message: format!("Resize is infeasible for Guaranteed Pods alongside {manager}"),
        };
        if settings.cpus.is_some() && differs("cpu") {
            return Some(why("guaranteed_pod_cpu_manager_static_policy", "CPU Manager policy \"static\""));
        }
        (settings.memory && differs("memory"))
            .then(|| why("guaranteed_pod_memory_manager_static_policy", "Memory Manager policy \"Static\""))
    }

    /// Gives back what a pod has that has ended, before its status says so: then it may be given to others.
    pub(super) async fn give_back_when_over(&self, ending: Option<&Termination>) {
        let over = self.kubelet.allocation.has(&self.uid)
            && self.observed.is_stopped()
            && is_terminal(&self.status(ending, false));
        if over {
            self.give_back().await;
        }
    }

    pub(super) async fn give_back(&self) {
        if self.kubelet.allocation.release(&self.uid).await {
            self.kubelet.cpus_changed();
        }
    }

    /// Tells running containers which CPUs they may run on, where that has changed.
    pub(super) async fn keep_to_cpus(&mut self) {
        if self.kubelet.config.placement.cpus.is_none()
            || self.placing.again_at.is_some_and(|at| at > Instant::now())
        {
            return;
        }
        self.placing.again_at = None;
        let running: Vec<(String, String)> =
            self.observed.running().map(|seen| (seen.id.clone(), seen.name.clone())).collect();
        self.placing.told.retain(|id, _| running.iter().any(|(there, _)| there == id));
        for (id, name) in running {
            let Some(cpus) = self.kubelet.allocation.cpus_of(&self.uid, &name) else { continue };
            if self.placing.told.get(&id) == Some(&cpus) {
                continue;
            }
            let linux = api::LinuxContainerResources {
                cpuset_cpus: cpus.to_string(),
                ..api::LinuxContainerResources::default()
            };
            match self.calls.update_container_resources(&id, linux).await {
                Ok(()) => drop(self.placing.told.insert(id, cpus)),
                Err(error) => {
                    tracing::warn!(pod = %self.full_name(), container = name, %error, "its CPUs are not told, trying again");
                    self.placing.again_at = Some(Instant::now() + self.kubelet.config.placement.reconcile);
                }
            }
        }
    }

    /// The node as the container meets it: its own CPUs it has to itself, and may use all of their time.
    pub(super) fn node_for(&self, container: &str) -> NodeResources {
        let node = self.kubelet.node;
        let (own, _) = self.kubelet.allocation.own(&self.uid, container);
        NodeResources { cfs_quota: node.cfs_quota && own.is_empty(), ..node }
    }

    /// What a container gets of devices, CPUs and memory. Tells plugins that want to know that it is about to start.
    pub(super) async fn given(&self, container: &str) -> Result<Given, String> {
        let allocation = &self.kubelet.allocation;
        allocation.devices.pre_start(&self.uid, container).await?;
        let all = allocation.of_container(&self.uid, container);
        let mut given = Given {
            cpus: all.cpus.map(|cpus| cpus.to_string()).unwrap_or_default(),
            memory_nodes: all.memory_nodes.map(|nodes| nodes.to_string()).unwrap_or_default(),
            ..Given::default()
        };
        for answer in all.devices.into_values().map(|own| own.answer) {
            given.env.extend(answer.envs);
            given.annotations.extend(answer.annotations);
            given.cdi_devices.extend(answer.cdi_devices.into_iter().map(|device| device.name));
            given.mounts.extend(answer.mounts.into_iter().map(|mount| api::Mount {
                container_path: mount.container_path,
                host_path: mount.host_path,
                readonly: mount.read_only,
                ..api::Mount::default()
            }));
            given.devices.extend(answer.devices.into_iter().map(|device| api::Device {
                container_path: device.container_path,
                host_path: device.host_path,
                permissions: device.permissions,
            }));
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::swap::Swap;
    use serde_json::json;

    #[test]
    fn memory_of_containers_with_swap_changes_with_a_restart_only() {
        let pod = |memory: &str, policy: &str| -> Pod {
            let resize = json!([{ "resourceName": "memory", "restartPolicy": policy }]);
            let resources = json!({ "requests": { "memory": memory } });
            let container = json!({ "name": "c", "resizePolicy": resize, "resources": resources });
            serde_json::from_value(json!({ "spec": { "containers": [container] } })).unwrap()
        };
        let changes = |swap, policy: &str, memory: &str| {
            let node =
                NodeResources { cgroup_v2: true, memory_bytes: 1 << 40, swap, ..NodeResources::default() };
            swap_changes(&pod("1Gi", policy), &pod(memory, policy), node)
        };
        assert!(changes(Swap::Limited(1), "NotRequired", "2Gi"));
        assert!(!changes(Swap::Limited(1), "NotRequired", "1024Mi"));
        assert!(!changes(Swap::Limited(1), "RestartContainer", "2Gi"));
        assert!(!changes(Swap::Nothing, "NotRequired", "2Gi"));
    }
}
