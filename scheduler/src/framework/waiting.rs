//! Pods that Permit holds back: plugins approve or reject them from outside.

use super::Status;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Upstream's longest wait, however long a plugin asks for.
const LONGEST: Duration = Duration::from_secs(15 * 60);

struct Waiting {
    /// Plugins that have not approved yet.
    pending: HashSet<&'static str>,
    answer: Option<oneshot::Sender<Result<(), (&'static str, Status)>>>,
}

/// Shared by the scheduler and its plugins.
#[derive(Clone, Default)]
pub struct WaitingPods {
    pods: Arc<Mutex<HashMap<String, Waiting>>>,
}

/// A pod's wait, over when every plugin has approved, one has rejected, or one's time is over.
pub struct Permit {
    uid: String,
    pods: WaitingPods,
    receiver: oneshot::Receiver<Result<(), (&'static str, Status)>>,
    /// The most impatient plugin, and its time.
    until: (Instant, &'static str, Duration),
}

impl WaitingPods {
    /// Holds a pod back until `plugins` approve, each within its time. `None` when there are none.
    pub(crate) fn hold(&self, uid: &str, plugins: &[(&'static str, Duration)]) -> Option<Permit> {
        let now = Instant::now();
        let times = plugins.iter().map(|(plugin, time)| (*plugin, (*time).min(LONGEST)));
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
        let _ = sender.send(Err((plugin, Status::unschedulable(why.to_owned()))));
        true
    }
}

impl Permit {
    /// The plugin that ended the wait, and why, when the pod may not be bound.
    pub async fn granted(mut self) -> Result<(), (&'static str, Status)> {
        match tokio::time::timeout_at(self.until.0, &mut self.receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err((self.until.1, Status::Error("the wait was abandoned".to_owned()))),
            Err(_) => {
                let (_, plugin, time) = self.until;
                let time = crate::config::written(time);
                let why = format!("rejected due to timeout after waiting {time} at plugin {plugin}");
                Err((plugin, Status::unschedulable(why)))
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
        assert!(pods.reject("a", "Z", "preempted"));
        assert_eq!(permit.granted().await, Err(("Z", Status::unschedulable("preempted"))));
        let permit = pods.hold("b", &[("X", MINUTE), ("Y", MINUTE * 2)]).expect("two plugins");
        let (plugin, status) = permit.granted().await.expect_err("nobody approved");
        assert_eq!(plugin, "X");
        assert_eq!(status.message(), "rejected due to timeout after waiting 1m0s at plugin X");
        assert!(pods.list().is_empty());
        let permit = pods.hold("c", &[("X", MINUTE * 60)]).expect("a plugin");
        let (_, status) = permit.granted().await.expect_err("nobody approved");
        assert_eq!(status.message(), "rejected due to timeout after waiting 15m0s at plugin X");
    }
}
