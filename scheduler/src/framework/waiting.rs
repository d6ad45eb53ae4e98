//! Pods on their way to their node that are held up: by Permit, until plugins approve or reject them from outside, or by
//! PreBind. Either wait can be cancelled, so that a pod which is not bound yet need not be deleted to make room.

use super::Status;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Upstream's longest wait, however long a plugin asks for.
const MAX_WAIT_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Why a wait ended without permission.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// A plugin rejected the pod, or was not heard of in time.
    Refused(&'static str, Status),
    /// The pod is no longer wanted there.
    Cancelled(&'static str),
}

struct Waiting {
    /// Plugins that have not approved yet.
    pending: HashSet<&'static str>,
    answer: Option<oneshot::Sender<Result<(), Ended>>>,
}

/// Shared by the scheduler and its plugins.
#[derive(Clone, Default)]
pub struct WaitingPods {
    pods: Arc<Mutex<HashMap<String, Waiting>>>,
    preparing: Arc<Mutex<HashMap<String, oneshot::Sender<&'static str>>>>,
}

/// A pod on its way to its binding: in PreBind, or before it.
pub struct Preparing {
    uid: String,
    pods: WaitingPods,
    receiver: oneshot::Receiver<&'static str>,
}

/// A pod's wait, over when every plugin has approved, one has rejected, or one's time is over.
pub struct Permit {
    uid: String,
    pods: WaitingPods,
    receiver: oneshot::Receiver<Result<(), Ended>>,
    /// The most impatient plugin, and its time.
    until: (Instant, &'static str, Duration),
}

impl WaitingPods {
    /// Holds a pod back until `plugins` approve, each within its time. `None` when there are none.
    pub(crate) fn hold(&self, uid: &str, plugins: &[(&'static str, Duration)]) -> Option<Permit> {
        let now = Instant::now();
        let times = plugins.iter().map(|(plugin, time)| (*plugin, (*time).min(MAX_WAIT_TIMEOUT)));
        let until = times.map(|(plugin, time)| (now + time, plugin, time)).min()?;
        let pending = plugins.iter().map(|(plugin, _)| *plugin).collect();
        let (sender, receiver) = oneshot::channel();
        self.pods.lock().insert(uid.to_owned(), Waiting { pending, answer: Some(sender) });
        Some(Permit { uid: uid.to_owned(), pods: self.clone(), receiver, until })
    }

    /// UIDs of the pods that wait.
    pub fn list(&self) -> Vec<String> {
        self.pods.lock().keys().cloned().collect()
    }

    pub fn is_waiting(&self, uid: &str) -> bool {
        self.pods.lock().contains_key(uid)
    }

    /// `plugin` approves; the pod goes on when it was the last one. False when the pod does not wait.
    pub fn allow(&self, uid: &str, plugin: &str) -> bool {
        let mut pods = self.pods.lock();
        let Some(waiting) = pods.get_mut(uid) else { return false };
        waiting.pending.remove(plugin);
        if waiting.pending.is_empty()
            && let Some(sender) = pods.remove(uid).and_then(|w| w.answer)
        {
            // A pod whose binding was cancelled no longer listens.
            let _ = sender.send(Ok(()));
        }
        true
    }

    /// `plugin` rejects: the pod goes back to the queue. False when the pod does not wait.
    pub fn reject(&self, uid: &str, plugin: &'static str, why: &str) -> bool {
        let Some(sender) = self.pods.lock().remove(uid).and_then(|w| w.answer) else { return false };
        // As above.
        let _ = sender.send(Err(Ended::Refused(plugin, Status::unschedulable(why.to_owned()))));
        true
    }

    /// Ends the pod's wait for permission, or what it does before its binding. False when it is in neither: then it is
    /// bound, or about to be.
    pub fn cancel(&self, uid: &str, why: &'static str) -> bool {
        let waiting = self.pods.lock().remove(uid).and_then(|w| w.answer);
        if waiting.is_some_and(|sender| sender.send(Err(Ended::Cancelled(why))).is_ok()) {
            return true;
        }
        // `finish` must find either the sender or the word.
        let mut preparing = self.preparing.lock();
        preparing.remove(uid).is_some_and(|sender| sender.send(why).is_ok())
    }

    /// Lets the pod's way to its binding be cancelled until the value is [`finished`](Preparing::finish).
    pub(crate) fn prepare(&self, uid: &str) -> Preparing {
        let (sender, receiver) = oneshot::channel();
        self.preparing.lock().insert(uid.to_owned(), sender);
        Preparing { uid: uid.to_owned(), pods: self.clone(), receiver }
    }
}

impl Preparing {
    /// Ready with the reason when it is cancelled.
    pub async fn cancelled(&mut self) -> &'static str {
        match (&mut self.receiver).await {
            Ok(why) => why,
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends the time in which the pod can be cancelled; the reason when that happened just now.
    pub fn finish(mut self) -> Result<(), &'static str> {
        if self.pods.preparing.lock().remove(&self.uid).is_some() {
            return Ok(());
        }
        self.receiver.try_recv().map_or(Ok(()), Err)
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.pods.preparing.lock().remove(&self.uid);
    }
}

impl Permit {
    /// What ended the wait when the pod may not be bound.
    pub async fn granted(mut self) -> Result<(), Ended> {
        match tokio::time::timeout_at(self.until.0, &mut self.receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(Ended::Refused(self.until.1, Status::Error("the wait was abandoned".to_owned())))
            }
            Err(_) => {
                let (_, plugin, time) = self.until;
                let time = coracle_api::duration::written(time);
                let why = format!("rejected due to timeout after waiting {time} at plugin {plugin}");
                Err(Ended::Refused(plugin, Status::unschedulable(why)))
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pods.pods.lock().remove(&self.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn the_last_approval_lets_the_pod_go() {
        let pods = WaitingPods::default();
        let permit = pods.hold("a", &[("X", MINUTE), ("Y", MINUTE)]).expect("two plugins");
        assert!(pods.allow("a", "X"));
        assert!(pods.is_waiting("a"));
        assert!(pods.allow("a", "Y"));
        assert_eq!(permit.granted().await, Ok(()));
        assert!(!pods.allow("a", "Y"));
    }

    #[tokio::test(start_paused = true)]
    async fn rejection_and_time_end_the_wait() {
        let pods = WaitingPods::default();
        let permit = pods.hold("a", &[("X", MINUTE)]).expect("a plugin");
        assert!(pods.reject("a", "Z", "full"));
        let refused = |plugin, why: &'static str| Err(Ended::Refused(plugin, Status::unschedulable(why)));
        assert_eq!(permit.granted().await, refused("Z", "full"));
        let permit = pods.hold("b", &[("X", MINUTE), ("Y", MINUTE * 2)]).expect("two plugins");
        let late = "rejected due to timeout after waiting 1m0s at plugin X";
        assert_eq!(permit.granted().await, refused("X", late));
        assert!(pods.list().is_empty());
        let permit = pods.hold("c", &[("X", MINUTE * 60)]).expect("a plugin");
        let late = "rejected due to timeout after waiting 15m0s at plugin X";
        assert_eq!(permit.granted().await, refused("X", late));
    }

    #[tokio::test]
    async fn either_wait_can_be_cancelled_and_nothing_after_it() {
        let pods = WaitingPods::default();
        assert!(!pods.cancel("a", "preempted"), "it does not wait");
        let permit = pods.hold("a", &[("X", MINUTE)]).expect("a plugin");
        assert!(pods.cancel("a", "preempted"));
        assert_eq!(permit.granted().await, Err(Ended::Cancelled("preempted")));
        let mut preparing = pods.prepare("a");
        assert!(pods.cancel("a", "preempted"));
        assert!(!pods.cancel("a", "preempted"), "once is enough");
        assert_eq!(preparing.cancelled().await, "preempted");
        drop(preparing);
        let preparing = pods.prepare("a");
        assert!(pods.cancel("a", "removed"));
        assert_eq!(preparing.finish(), Err("removed"), "whoever was told that it worked can rely on it");
        let preparing = pods.prepare("a");
        assert_eq!(preparing.finish(), Ok(()));
        assert!(!pods.cancel("a", "preempted"), "it is being bound");
    }

    #[test]
    fn a_pod_is_never_both_cancelled_and_bound() {
        let pods = WaitingPods::default();
        for round in 0..20_000 {
            let preparing = pods.prepare("a");
            let begin = std::sync::Barrier::new(2);
            let (cancelled, finished) = std::thread::scope(|scope| {
                let canceller = scope.spawn(|| {
                    begin.wait();
                    pods.cancel("a", "preempted")
                });
                begin.wait();
                let finished = preparing.finish();
                (canceller.join().expect("it ends"), finished)
            });
            assert_eq!(finished.is_err(), cancelled, "round {round}");
        }
    }
}
