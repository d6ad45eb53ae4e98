//! Pods that go because the node runs short, one at a time
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>).
//!
//! Asleep until the heartbeat, which looks every ten seconds anyway, says that something is short.

pub mod local;
mod rank;
mod usage;

use crate::images::gc;
use crate::kubelet::{Kubelet, Slot};
use crate::node::status::{Pressure, read_pressure};
use crate::pod::admit::{is_critical, is_over};
use crate::pod::inbox::Eviction;
use k8s_openapi::api::core::v1::Node;
use rank::{Candidate, order};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What an evicted pod gets to end in, whatever its own grace period; upstream's second for hard thresholds.
const GRACE: Duration = Duration::from_secs(1);
/// How long the next pod waits for the one before to be gone; upstream's limit.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// Between looks whether it is.
const LOOK: Duration = Duration::from_secs(1);
/// Between two evictions; upstream's monitoring period.
const PERIOD: Duration = Duration::from_secs(10);

/// What is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Memory,
    Disk,
    Pids,
}

impl Signal {
    /// The most urgent one.
    pub fn of(at: &Pressure, thresholds: &crate::config::Thresholds) -> Option<Self> {
        if thresholds.memory_short(at) {
            return Some(Self::Memory);
        }
        if thresholds.disk_short(at) {
            return Some(Self::Disk);
        }
        thresholds.pids_short(at).then_some(Self::Pids)
    }

    /// What messages call it.
    fn resource(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "ephemeral-storage",
            Self::Pids => "pids",
        }
    }
}

/// Evicts until `stop`. `short` is what the heartbeat found out.
pub async fn run(kubelet: Arc<Kubelet>, mut short: watch::Receiver<Option<Signal>>, stop: CancellationToken) {
    let work = async {
        while short.wait_for(Option::is_some).await.is_ok() {
            let pressure = read_pressure(&kubelet.config);
            if let Some(signal) = Signal::of(&pressure, &kubelet.config.eviction_hard) {
                relieve(&kubelet, signal, &pressure).await;
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

async fn relieve(kubelet: &Arc<Kubelet>, signal: Signal, pressure: &Pressure) {
    let node = kubelet.own.borrow().clone();
    if let Some(node) = &node {
        tell(kubelet, node, signal);
    }
    if signal == Signal::Disk {
        gc::remove_all_unused(kubelet).await;
        if !kubelet.config.eviction_hard.disk_short(&read_pressure(&kubelet.config)) {
            return;
        }
    }
    let slots: Vec<Slot> = kubelet.register.lock().values().cloned().collect();
    let running = slots.into_iter().filter(|slot| {
        !is_over(&slot.pod) && !slot.inbox.is_evicted() && slot.observed.running().next().is_some()
    });
    let mut candidates = usage::measure(kubelet, running.collect()).await;
    candidates.sort_by(|a, b| order(a, b, signal));
    let Some(victim) = candidates.iter().find(|c| !is_critical(&c.slot.pod)) else {
        tracing::warn!(resource = signal.resource(), "the node runs short, and there is no pod to evict");
        return;
    };
    evict(kubelet, victim, message(signal, pressure, kubelet, victim)).await;
}

fn tell(kubelet: &Kubelet, node: &Node, signal: Signal) {
    let text = format!("Attempting to reclaim {}", signal.resource());
    kubelet.recorder.warning(node, "EvictionThresholdMet", text);
}

async fn evict(kubelet: &Kubelet, victim: &Candidate, message: String) {
    let pod = &victim.slot.pod;
    tracing::warn!(pod = pod.metadata.name, %message, "pod evicted");
    kubelet.recorder.warning(pod.as_ref(), "Evicted", message.clone());
    victim.slot.inbox.evict(Eviction { reason: "Evicted", message, grace: Some(GRACE), disrupts: true });
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let gone = async {
        while kubelet.register.lock().get(&uid).is_some_and(|slot| !is_over(&slot.pod)) {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(GONE_WITHIN, gone).await.is_err() {
        tracing::warn!(%uid, "an evicted pod still runs");
    }
}

fn message(signal: Signal, at: &Pressure, kubelet: &Kubelet, victim: &Candidate) -> String {
    let resource = signal.resource();
    let (threshold, available) = kubelet.config.eviction_hard.met(signal, at);
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. "
    );
    for container in &victim.containers {
        let (used, requested) = match signal {
            Signal::Memory => (container.memory, container.memory_request),
            Signal::Disk => (container.disk, container.disk_request),
            Signal::Pids => continue,
        };
        if used > requested {
            let (used, requested) = (binary(used), binary(requested));
            let name = &container.name;
            text.push_str(&format!(
                "Container {name} was using {used}, request is {requested}, has larger consumption of {resource}. "
            ));
        }
    }
    text
}

/// A number of bytes as a Kubernetes quantity: `512Mi`, `1023`.
pub fn binary(bytes: u64) -> String {
    let mut rest = (bytes, "");
    for suffix in ["Ki", "Mi", "Gi", "Ti"] {
        if rest.0 == 0 || !rest.0.is_multiple_of(1024) {
            break;
        }
        rest = (rest.0 / 1024, suffix);
    }
    format!("{}{}", rest.0, rest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_quantities() {
        for (bytes, text) in [(0, "0"), (1023, "1023"), (2048, "2Ki"), (512 << 20, "512Mi"), (3 << 41, "6Ti")]
        {
            assert_eq!(binary(bytes), text);
        }
    }
}
