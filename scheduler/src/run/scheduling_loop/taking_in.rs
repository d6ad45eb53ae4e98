//! What events do to the scheduler: objects that changed, and bindings that have ended.

use super::{ASSUMED_TIMEOUT, Scheduler};
use crate::metrics::Metric;
use crate::queue::Popped;
use crate::run::Event;
use crate::run::binding::{Outcome, Unbound, Verdict};
use crate::run::preempting::Told;
use crate::run::report::Nomination;
use coracle_client::{Delta, ObjectKey};
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::time::Instant;

impl Scheduler {
    pub(in crate::run) fn take_in(&mut self, event: Event) {
        self.gauges_due = true;
        let now = Instant::now();
        match event {
            Event::Node(delta) => self.on_node(&delta, now),
            Event::Pod(delta) => self.on_pod(&delta, now),
            Event::Object(kind, ObjectKey { namespace, name }) => {
                self.core.object_changed(kind, &namespace, &name, now);
            }
            Event::Bound(outcome) => self.on_outcome(*outcome, now),
            Event::Told(told) => self.on_told(told, now),
        }
    }

    fn on_node(&mut self, delta: &Delta<Node>, now: Instant) {
        match (&delta.new, &delta.old) {
            (Some(node), _) => self.core.set_node(node.clone(), now),
            (None, Some(gone)) => self.core.remove_node(gone, now),
            (None, None) => {}
        }
    }

    fn on_pod(&mut self, delta: &Delta<Pod>, now: Instant) {
        match (&delta.new, &delta.old) {
            (Some(pod), old) => {
                if pod.metadata.deletion_timestamp.is_some() {
                    self.let_go(pod);
                }
                self.core.set_pod(pod, old.as_ref(), now);
            }
            (None, Some(gone)) => {
                self.let_go(gone);
                self.core.remove_pod(gone, now);
            }
            (None, None) => {}
        }
    }

    /// A pod that goes before it is bound waits for nothing any more.
    fn let_go(&self, pod: &Pod) {
        let bound = pod.spec.as_ref().is_some_and(|s| s.node_name.as_ref().is_some_and(|n| !n.is_empty()));
        if !bound {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            self.binder.waiting.cancel(uid, "removed");
        }
    }

    fn on_told(&mut self, told: Told, now: Instant) {
        if !told.worked {
            self.core.withdraw(&told.uid);
        }
        self.core.queue.preempted(&told.uid, told.worked, now);
    }

    fn on_outcome(&mut self, outcome: Outcome, now: Instant) {
        self.binding = self.binding.saturating_sub(1);
        let Outcome { verdict: Verdict { popped, node, begun }, failure, announced } = outcome;
        let uid = popped.pod.uid.clone();
        let nomination = if announced { Nomination::TakeBack } else { Nomination::Clear };
        match failure {
            None => self.bound(&popped, begun, now),
            // It was deleted, or somebody else bound it: nothing is tried again, and nobody wants to hear of it.
            Some(_) if !self.core.queue.knows(&uid) => self.core.forget(&popped.pod, &node, now),
            Some(Unbound::Denied(plugin, status)) => {
                tracing::debug!(pod = %popped.pod.key, %node, why = status.message(), "not permitted");
                self.core.snapshot.forget(&uid);
                self.refused(&popped, "Permit", plugin, &status, begun);
                if announced {
                    self.binder.reporter.unnominated(&popped.pod);
                }
                self.core.forget(&popped.pod, &node, now);
            }
            Some(Unbound::Failed { why, rejected }) => {
                tracing::debug!(pod = %popped.pod.key, %node, why, "not bound");
                self.core.forget(&popped.pod, &node, now);
                self.unbound(&popped, &why, rejected, &nomination, begun);
            }
        }
    }

    /// PreBind or Bind failed: the pod is tried again after its back-off, whoever is to blame.
    fn unbound(
        &mut self,
        popped: &Popped,
        why: &str,
        rejected: bool,
        nomination: &Nomination,
        begun: Instant,
    ) {
        if !rejected {
            return self.failed(popped, why, nomination, begun);
        }
        self.core.queue.retry(&popped.pod.uid, Instant::now());
        self.report(popped, "Unschedulable", why, nomination);
        self.attempted("unschedulable", popped, begun);
    }

    fn bound(&mut self, popped: &Popped, begun: Instant, now: Instant) {
        let pod = &popped.pod;
        self.metrics.add(Metric::AfterFlush, &[], i64::from(popped.flushed));
        self.core.queue.remove(&pod.uid);
        self.unseen.push_back((now + ASSUMED_TIMEOUT, pod.uid.clone()));
        self.leave_seen();
        self.attempted("scheduled", popped, begun);
        self.metrics.observe_number(Metric::Attempts, &[], f64::from(popped.attempts));
        let attempts = if popped.attempts < 15 { popped.attempts.to_string() } else { "15+".to_owned() };
        self.metrics.observe(Metric::SliDuration, &[&attempts], now - popped.first);
    }
}
