//! What reaches a pod's worker from outside, coalesced: only the newest of each kind waits.

use super::plan::Ending;
use crate::probe::prober::{Kind, Report};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Why the kubelet itself ends a pod: what the pod's status says then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub reason: &'static str,
    pub message: String,
    /// Instead of the pod's own grace period.
    pub grace: Option<Duration>,
    /// Whether a condition says that it is not the pod's own fault.
    pub disrupts: bool,
}

/// A probe's report about one container.
#[derive(Clone, Debug)]
pub struct Probed {
    pub container_id: String,
    pub name: String,
    pub kind: Kind,
    pub report: Report,
}

#[derive(Default)]
pub struct Mail {
    /// The newest object, when there is a newer one than was taken last.
    pub pod: Option<Arc<Pod>>,
    /// The object is gone from its source.
    pub removed: bool,
    /// The runtime has news about the pod.
    pub runtime: bool,
    /// An object that the pod references has changed.
    pub objects: bool,
    /// The object that shows a static pod is gone.
    pub unmirrored: bool,
    pub probes: Vec<Probed>,
    /// The kubelet itself ends the pod.
    pub evict: Option<Eviction>,
}

impl Mail {
    pub fn is_empty(&self) -> bool {
        self.pod.is_none()
            && !(self.removed || self.runtime || self.objects || self.unmirrored)
            && self.probes.is_empty()
            && self.evict.is_none()
    }
}

#[derive(Default)]
pub struct Inbox {
    mail: Mutex<Mail>,
    changed: Notify,
    evicted: AtomicBool,
}

impl Inbox {
    pub fn put(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.mail.lock());
        self.changed.notify_one();
    }

    /// Ends the pod for good; only the first reason counts.
    pub fn evict(&self, eviction: Eviction) {
        if !self.evicted.swap(true, Ordering::Relaxed) {
            self.put(|mail| mail.evict = Some(eviction));
        }
    }

    /// Whether the pod is on its way out by [`evict`](Self::evict).
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Everything that has come; only the worker calls this.
    pub fn take(&self) -> Mail {
        std::mem::take(&mut *self.mail.lock())
    }

    /// Returns when there is something to take.
    pub async fn arrived(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.mail.lock().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Returns when what waits makes the present work pointless: the pod is to end, or sooner than it was.
    pub async fn overtaken(&self, ending: Option<&Ending>) {
        loop {
            let changed = self.changed.notified();
            {
                let mail = self.mail.lock();
                let new = mail.pod.as_deref().and_then(deletion_grace);
                let now = match ending {
                    Some(Ending::Deleted { grace }) => new.is_some_and(|new| new < *grace),
                    Some(_) => new.is_some(),
                    None => new.is_some() || mail.removed || mail.evict.is_some(),
                };
                if now {
                    return;
                }
            }
            changed.await;
        }
    }
}

/// How long a pod that is being deleted has; `None` while it is not.
pub fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let own = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(own).unwrap_or(30);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
