//! What is told of a pod while its worker is busy with a step that may take minutes, such as its end: readiness, by which
//! Services choose where they send clients.

use super::observed::Observed;
use super::plan::{Health, Memory};
use super::status::{self, Input};
use super::termination::Termination;
use super::worker::Worker;
use crate::kubelet::inbox::Inbox;
use crate::pod_facts::now;
use crate::probe::prober::Kind as ProbeKind;
use crate::publisher::Publisher;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceStatus};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All that went into the status told last.
pub struct Teller {
    pub pod: Pod,
    pub observed: Observed,
    pub memory: Memory,
    pub ending: Option<Termination>,
    pub holds: bool,
    pub resources: BTreeMap<String, Vec<ResourceStatus>>,
    pub host_ips: Vec<String>,
    pub messages: HashMap<String, String>,
    pub recursive_mounts: bool,
    pub seen_at: Timestamp,
    pub inbox: Arc<Inbox>,
    pub publisher: Arc<Publisher>,
}

impl Worker {
    /// Tells of readiness while the worker itself is busy.
    pub(super) fn teller(&self, ending: Option<&Termination>) -> Option<Teller> {
        self.probes.keys().any(|(_, kind)| *kind == ProbeKind::Readiness).then(|| Teller {
            pod: self.last_reported(),
            observed: self.observed.clone(),
            memory: self.memory.clone(),
            ending: ending.cloned(),
            holds: self.kubelet.dra.holds(&self.uid),
            resources: self.kubelet.dra.statuses(&self.wanted),
            host_ips: self.kubelet.config.host_ips(),
            messages: self.messages.clone(),
            recursive_mounts: self.recursive_mounts,
            seen_at: self.seen_at,
            inbox: self.inbox.clone(),
            publisher: self.publisher.clone(),
        })
    }
}

/// As [`Teller::tell`], where there is something to tell.
pub async fn tell(teller: Option<Teller>) {
    match teller {
        Some(teller) => teller.tell().await,
        None => std::future::pending().await,
    }
}

impl Teller {
    /// Publishes each change of readiness; never returns. The worker reads the same verdicts when its step is done.
    async fn tell(mut self) {
        let ready = |(id, health): (&String, &Health)| (id.clone(), health.ready);
        let mut known: HashMap<String, bool> = self.memory.health.iter().map(ready).collect();
        loop {
            known.extend(self.inbox.readiness(&known).await);
            for (id, ready) in &known {
                self.memory.health.entry(id.clone()).and_modify(|health| health.ready = *ready);
            }
            let status = status::status(&Input {
                pod: &self.pod,
                observed: &self.observed,
                memory: &self.memory,
                ending: self.ending.as_ref(),
                holds: self.holds,
                resources: &self.resources,
                host_ips: &self.host_ips,
                messages: &self.messages,
                recursive_mounts: self.recursive_mounts,
                seen_at: self.seen_at,
                now: now(),
            });
            self.pod.status = Some(status.clone());
            self.publisher.publish(status);
        }
    }
}
