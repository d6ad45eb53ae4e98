//! What reaches a pod's worker from outside, coalesced: only the newest of each kind waits.

use crate::pod_facts::termination::{Eviction, deletion_grace};
use crate::probe::prober::{Kind, Report};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

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
    /// The disk is short: what is left of containers goes once the pod has ended.
    pub discard: bool,
    pub probes: Vec<Probed>,
    /// The kubelet itself ends the pod.
    pub evict: Option<Eviction>,
}

impl Mail {
    pub fn is_empty(&self) -> bool {
        self.pod.is_none()
            && !(self.removed || self.runtime || self.objects || self.unmirrored || self.discard)
            && self.probes.is_empty()
            && self.evict.is_none()
    }

    fn asks_to_end_before(&self, left: Option<Duration>) -> bool {
        let deletion = self.pod.as_deref().and_then(deletion_grace);
        match left {
            None => deletion.is_some() || self.removed || self.evict.is_some(),
            Some(left) => {
                let eviction = self.evict.as_ref().and_then(|eviction| eviction.grace);
                deletion.into_iter().chain(eviction).any(|grace| grace < left)
            }
        }
    }
}

#[derive(Default)]
pub struct Inbox {
    mail: Mutex<Mail>,
    changed: watch::Sender<()>,
    evicted: AtomicBool,
    removed: AtomicBool,
}

impl Inbox {
    pub fn put(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.mail.lock());
        self.changed.send_replace(());
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

    /// Ends the pod because it is gone from its source.
    pub fn remove(&self) {
        self.removed.store(true, Ordering::Relaxed);
        self.put(|mail| mail.removed = true);
    }

    /// Whether the pod is gone from its source, though its containers may run on for their grace period.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Everything that has come; only the worker calls this.
    pub fn take(&self) -> Mail {
        std::mem::take(&mut *self.mail.lock())
    }

    /// Returns when there is something to take.
    pub async fn arrived(&self) {
        self.until(|mail| (!mail.is_empty()).then_some(())).await;
    }

    /// Returns when what waits makes the present work pointless: the pod is to end, or sooner than in `left`, the grace
    /// period that it is ending in.
    pub async fn overtaken(&self, left: Option<Duration>) {
        self.until(|mail| mail.asks_to_end_before(left).then_some(())).await;
    }

    /// Returns what the newest verdicts on readiness are, by container id, when one differs from those in `known`. They stay
    /// for the worker to take.
    pub async fn readiness(&self, known: &HashMap<String, bool>) -> HashMap<String, bool> {
        let of = |probed: &Probed| match probed.report {
            Report::Verdict(ready) if probed.kind == Kind::Readiness => {
                Some((probed.container_id.clone(), ready))
            }
            _ => None,
        };
        self.until(|mail| {
            let verdicts: HashMap<String, bool> = mail.probes.iter().filter_map(of).collect();
            verdicts.iter().any(|(id, ready)| known.get(id) != Some(ready)).then_some(verdicts)
        })
        .await
    }

    /// What `look` finds in the mail, as soon as it finds something.
    async fn until<T>(&self, look: impl Fn(&Mail) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(found) = look(&self.mail.lock()) {
                return found;
            }
            // The sender lives as long as this box.
            let _ = changed.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;

    fn deleted(seconds: i64) -> Arc<Pod> {
        let metadata =
            json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": seconds });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    fn evicted(grace: Option<u64>) -> Eviction {
        let (message, grace) = (String::new(), grace.map(Duration::from_secs));
        Eviction { reason: Eviction::EVICTED, message, grace, disrupts: true }
    }

    #[test]
    fn only_a_sooner_end_overtakes_one() {
        let overtakes = |left: Option<u64>, change: &dyn Fn(&Inbox)| {
            let inbox = Inbox::default();
            change(&inbox);
            inbox.overtaken(left.map(Duration::from_secs)).now_or_never().is_some()
        };
        let object = |pod: Arc<Pod>| move |inbox: &Inbox| inbox.put(|mail| mail.pod = Some(pod.clone()));
        assert!(!overtakes(None, &object(Arc::default())));
        assert!(overtakes(None, &object(deleted(30))));
        assert!(overtakes(None, &|inbox| inbox.put(|mail| mail.removed = true)));
        assert!(overtakes(None, &|inbox| inbox.evict(evicted(None))));
        assert!(!overtakes(Some(1), &object(deleted(30))), "an evicted pod gets no more time");
        assert!(overtakes(Some(30), &object(deleted(1))));
        assert!(overtakes(Some(30), &|inbox| inbox.evict(evicted(Some(1)))));
        assert!(!overtakes(Some(30), &|inbox| inbox.evict(evicted(None))));
    }

    #[test]
    fn the_first_eviction_counts() {
        let inbox = Inbox::default();
        inbox.evict(evicted(Some(1)));
        inbox.evict(evicted(Some(9)));
        assert!(inbox.is_evicted());
        assert_eq!(inbox.take().evict, Some(evicted(Some(1))));
    }
}
