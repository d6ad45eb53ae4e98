//! The machine is about to be shut down: pods end in time, those of the lowest priority first, and no new ones come. Told
//! by systemd-logind, which waits until they have ended, and by SIGPWR, which init systems send when the power fails.

use crate::configuration::shutdown::ShutdownPeriod;
use crate::kubelet::{Kubelet, PodEntry};
use crate::logind::{Logind, LogindError};
use crate::metrics::Metric;
use crate::pod_facts::termination::{Eviction, is_over, own_grace};
use coracle_api::error::chain;
use coracle_client::events::reference;
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::Signal;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Why a pod is not let in.
pub const REFUSED: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");
/// Between looks whether all pods of a priority have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Between attempts to follow logind: at first, upstream's, and at the most, where nobody answers.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Waits to be told until `stop`, where pods are given time at all.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let periods = &kubelet.config.shutdown.periods;
    if periods.is_empty() {
        return;
    }
    let mut told = match signal(SignalKind::from_raw(Signal::SIGPWR as i32)) {
        Ok(told) => told,
        Err(error) => {
            tracing::error!(%error, "the end of the machine is not told, its pods will not end in time");
            return;
        }
    };
    // Who is told twice ends the pods once.
    let turn = tokio::sync::Mutex::new(());
    let by_signal = async {
        while told.recv().await.is_some() {
            let _turn = turn.lock().await;
            end_all(&kubelet, periods).await;
        }
    };
    let work = async { tokio::join!(by_signal, by_logind(&kubelet, periods, &turn)) };
    stop.run_until_cancelled(work).await;
}

/// Follows logind, for ever where there is one.
async fn by_logind(kubelet: &Kubelet, periods: &[ShutdownPeriod], turn: &tokio::sync::Mutex<()>) {
    if !kubelet.logind.bus.exists() {
        tracing::info!("there is no system bus: of the machine's end only SIGPWR tells");
        return;
    }
    let (mut pause, mut said) = (RETRY_INTERVAL, String::new());
    loop {
        let began = tokio::time::Instant::now();
        let Err(error) = follow_logind(kubelet, periods, turn).await;
        let why = chain(&error);
        if why != said {
            tracing::warn!(error = why, "logind is not followed, trying again");
            said = why;
        }
        if began.elapsed() > MAX_RETRY_INTERVAL {
            pause = RETRY_INTERVAL;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY_INTERVAL);
    }
}

async fn follow_logind(
    kubelet: &Kubelet,
    periods: &[ShutdownPeriod],
    turn: &tokio::sync::Mutex<()>,
) -> Result<Infallible, LogindError> {
    let mut logind = Logind::connect(&kubelet.logind.bus).await?;
    let needed = periods.iter().map(ShutdownPeriod::time).sum();
    logind.wait_for(needed, &kubelet.logind.drop_ins).await?;
    let mut lock = Some(logind.inhibit().await?);
    tracing::info!(seconds = needed.as_secs(), "logind waits for pods to end");
    loop {
        if logind.told().await? {
            let _turn = turn.lock().await;
            end_all(kubelet, periods).await;
            lock.take();
        } else {
            tracing::warn!("the machine is not shutting down any more");
            kubelet.shutting_down.send_replace(false);
            note(kubelet, "Shutdown manager detected shutdown cancellation");
            lock = Some(logind.inhibit().await?);
        }
    }
}

fn note(kubelet: &Kubelet, text: &str) {
    if let Some(node) = kubelet.own.borrow().as_deref() {
        kubelet.recorder.event(reference(node), "Normal", "NodeShutdown", text);
    }
}

async fn end_all(kubelet: &Kubelet, periods: &[ShutdownPeriod]) {
    tracing::warn!("the machine is shutting down, its pods end");
    kubelet.shutting_down.send_replace(true);
    kubelet.metrics.happened(Metric::ShutdownStart);
    note(kubelet, "Shutdown manager detected shutdown event");
    let slots: Vec<PodEntry> =
        kubelet.register.lock().values().filter(|slot| !is_over(&slot.pod)).cloned().collect();
    for (time, group) in groups(periods, slots) {
        let uids: Vec<String> = group.iter().filter_map(|slot| slot.pod.metadata.uid.clone()).collect();
        for slot in group {
            let grace = Some(time.min(own_grace(slot.pod.spec.as_ref())));
            let message = MESSAGE.to_owned();
            slot.inbox.evict(Eviction { reason: Eviction::TERMINATED, message, grace, disrupts: true });
        }
        if tokio::time::timeout(time, ended(kubelet, &uids)).await.is_err() {
            tracing::warn!(seconds = time.as_secs(), "pods have not ended in their time");
        }
    }
    kubelet.metrics.happened(Metric::ShutdownEnd);
    tracing::warn!("the pods have ended, as far as there was time");
}

async fn ended(kubelet: &Kubelet, uids: &[String]) {
    let runs = |uid: &String| kubelet.register.lock().get(uid).is_some_and(|slot| !is_over(&slot.pod));
    while uids.iter().any(runs) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// The pods of each period that has any, in the order in which they end. A pod belongs to the highest priority that is not
/// above its own, and to the lowest where its own is below all.
fn groups(periods: &[ShutdownPeriod], slots: Vec<PodEntry>) -> Vec<(Duration, Vec<PodEntry>)> {
    let mut groups: Vec<(Duration, Vec<PodEntry>)> =
        periods.iter().map(|period| (period.time(), Vec::new())).collect();
    let of = |pod: &Pod| {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
        periods.iter().rposition(|period| period.priority <= priority).unwrap_or(0)
    };
    for slot in slots {
        let place = of(&slot.pod);
        if let Some((_, group)) = groups.get_mut(place) {
            group.push(slot);
        }
    }
    groups.retain(|(_, group)| !group.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_end_by_priority_from_the_lowest_on() {
        let period = |priority, shutdown_grace_period_seconds| ShutdownPeriod {
            priority,
            shutdown_grace_period_seconds,
        };
        let periods = [period(0, 10), period(1000, 20), period(5000, 30), period(100_000, 40)];
        let slot = |(name, priority): (&str, i32)| {
            let pod =
                json!({ "metadata": { "name": name }, "spec": { "containers": [], "priority": priority } });
            PodEntry::new(Arc::new(serde_json::from_value(pod).unwrap()))
        };
        let all = [
            ("top", 2_000_000_000),
            ("thousand", 1000),
            ("below", -5),
            ("none", 0),
            ("under", 999),
            ("over", 100_001),
        ];
        let found: Vec<(u64, Vec<String>)> = groups(&periods, all.into_iter().map(slot).collect())
            .into_iter()
            .map(|(time, group)| {
                (time.as_secs(), group.iter().filter_map(|slot| slot.pod.metadata.name.clone()).collect())
            })
            .collect();
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                (10, names(&["below", "none", "under"])),
                (20, names(&["thousand"])),
                (40, names(&["top", "over"]))
            ]
        );
    }
}
