//! Pods that go because the node runs short, one at a time
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>).
//!
//! Asleep until the heartbeat, which looks every ten seconds anyway, says that somebody has to go.

pub mod local;
pub mod monitor;
mod rank;
mod usage;

use crate::configuration::eviction::{HARD_GRACE, Rule};
use crate::image_upkeep;
use crate::kubelet::{Kubelet, PodEntry};
use crate::metrics::Metric;
use crate::pod_facts::critical::is_critical;
use crate::pod_facts::termination::{Eviction, is_over, own_grace};
use crate::signal::{Observations, Pressure, Signal};
use coracle_api::Quantity;
use k8s_openapi::api::core::v1::{Node, Pod};
use rank::{Candidate, Want, order};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long the next pod waits for the one before to be gone; upstream's limit.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long containers of pods that have ended are waited for before images are looked at; the runtime removes one in
/// milliseconds. What is there later keeps its image until the next look.
const DISCARDED_TIMEOUT: Duration = Duration::from_secs(10);
/// Between looks whether it is.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Between two evictions; upstream's monitoring period.
const MONITOR_INTERVAL: Duration = Duration::from_secs(10);

/// Evicts until `stop`. `due` is what the heartbeat found out.
pub async fn run(kubelet: Arc<Kubelet>, mut due: watch::Receiver<Option<Rule>>, stop: CancellationToken) {
    let work = async {
        while let Ok(rule) = due.wait_for(Option::is_some).await.map(|rule| *rule) {
            let (looked, at) = (Instant::now(), kubelet.observer.look().await);
            if let Some(rule) = rule.filter(|rule| rule.crossed(&at, true)) {
                relieve(&kubelet, rule, (looked, &at)).await;
            }
            tokio::time::sleep(MONITOR_INTERVAL).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// `looked` is when the node was found to be short, as `at` has it.
async fn relieve(kubelet: &Arc<Kubelet>, rule: Rule, (looked, at): (Instant, &Observations)) {
    let node = kubelet.own.borrow().clone();
    if let Some(node) = &node {
        tell(kubelet, node, rule.signal);
    }
    if images_help(rule.signal, at.imagefs_apart) {
        discard_finished(kubelet).await;
        image_upkeep::remove_all_unused(kubelet).await;
        let at = kubelet.observer.look().await;
        let rules = kubelet.config.eviction.rules.iter();
        let mut disks = rules.filter(|rule| rule.signal.pressure() == Pressure::Disk);
        if !disks.any(|rule| rule.crossed(&at, true)) {
            return;
        }
    }
    let slots: Vec<PodEntry> = kubelet.register.lock().values().cloned().collect();
    let running = slots.into_iter().filter(|slot| {
        !is_over(&slot.pod) && !slot.inbox.is_evicted() && slot.observed.running().next().is_some()
    });
    let mut candidates = usage::measure(kubelet, running.collect()).await;
    let want = Want { signal: rule.signal, apart: at.imagefs_apart };
    candidates.sort_by(|a, b| order(a, b, want));
    let Some(victim) = candidates.iter().find(|c| !is_critical(&c.slot.pod)) else {
        let resource = rule.signal.resource();
        tracing::warn!(resource, "the node runs short, and there is no pod to evict");
        return;
    };
    kubelet.metrics.took(Metric::EvictionStatsAge, &[rule.signal.name()], looked.elapsed());
    evict(kubelet, victim, rule, message(rule, at, victim)).await;
}

/// Whether the disk that is short is the one that images are on.
/// Containers of pods that have ended take room, and keep their images: they go first, as upstream has it.
async fn discard_finished(kubelet: &Kubelet) {
    let finished = || -> Vec<PodEntry> {
        let register = kubelet.register.lock();
        let left = |slot: &&PodEntry| is_over(&slot.pod) && !slot.observed.containers.is_empty();
        register.values().filter(left).cloned().collect()
    };
    finished().iter().for_each(|slot| slot.inbox.put(|mail| mail.discard = true));
    let gone = async {
        while !finished().is_empty() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(DISCARDED_TIMEOUT, gone).await.is_err() {
        tracing::warn!("containers of pods that have ended are still there");
    }
}

fn images_help(signal: Signal, imagefs_apart: bool) -> bool {
    let images = matches!(signal, Signal::ImagefsAvailable | Signal::ImagefsInodesFree);
    signal.pressure() == Pressure::Disk && (images || !imagefs_apart)
}

fn tell(kubelet: &Kubelet, node: &Node, signal: Signal) {
    let text = format!("Attempting to reclaim {}", signal.resource());
    kubelet.recorder.warning(node, "EvictionThresholdMet", text);
}

/// A hard threshold leaves a second, a soft one the pod's own grace period up to `most`, and never less than a hard one.
fn grace(pod: &Pod, rule: Rule, most: Duration) -> Duration {
    if rule.patience.is_none() { HARD_GRACE } else { own_grace(pod.spec.as_ref()).min(most).max(HARD_GRACE) }
}

async fn evict(kubelet: &Kubelet, victim: &Candidate, rule: Rule, message: String) {
    let pod = &victim.slot.pod;
    tracing::warn!(pod = pod.metadata.name, %message, "pod evicted");
    kubelet.recorder.warning(pod.as_ref(), Eviction::EVICTED, message.clone());
    kubelet.metrics.add(Metric::Evictions, &[rule.signal.name()]);
    let grace = grace(pod, rule, kubelet.config.eviction.max_pod_grace);
    let reason = Eviction::EVICTED;
    victim.slot.inbox.evict(Eviction { reason, message, grace: Some(grace), disrupts: true });
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let gone = async {
        while kubelet.register.lock().get(&uid).is_some_and(|slot| !is_over(&slot.pod)) {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    if tokio::time::timeout(GONE_TIMEOUT, gone).await.is_err() {
        tracing::warn!(%uid, "an evicted pod still runs");
    }
}

fn message(rule: Rule, at: &Observations, victim: &Candidate) -> String {
    let resource = rule.signal.resource();
    let (threshold, available) = rule.words(at);
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. "
    );
    for container in &victim.containers {
        let (used, requested) = match resource {
            "memory" => (container.memory, container.memory_request),
            "ephemeral-storage" => (container.disk(), container.disk_request),
            _ => continue,
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

/// A number of bytes as a Kubernetes quantity: `512Mi`.
fn binary(bytes: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn images_go_where_they_take_of_what_is_short() {
        for (signal, apart, expected) in [
            (Signal::NodefsAvailable, false, true),
            (Signal::NodefsAvailable, true, false),
            (Signal::ImagefsInodesFree, true, true),
            (Signal::MemoryAvailable, false, false),
        ] {
            assert_eq!(images_help(signal, apart), expected, "{signal:?} {apart}");
        }
    }

    #[test]
    fn soft_thresholds_leave_time_to_end_in() {
        let settings = json!({ "evictionHard": {}, "evictionSoft": { "memory.available": "1Gi" },
            "evictionSoftGracePeriod": { "memory.available": "1m" } });
        let settings =
            crate::configuration::eviction::Settings::read(&serde_json::from_value(settings).unwrap())
                .unwrap();
        let soft = settings.rules.iter().find(|rule| rule.patience.is_some()).unwrap();
        let pod = json!({ "spec": { "containers": [], "terminationGracePeriodSeconds": 20 } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let of = |rule: &Rule, most| grace(&pod, *rule, Duration::from_secs(most)).as_secs();
        assert_eq!(of(&settings.rules[0], 60), 1);
        assert_eq!(of(soft, 60), 20);
        assert_eq!(of(soft, 5), 5);
        assert_eq!(of(soft, 0), 1, "the default is no harsher than a hard threshold");
    }
}
