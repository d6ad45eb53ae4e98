//! The loop, and what is done with each decision.

mod taking_in;

use super::Event;
use super::backlog::Backlog;
use super::binding::{Binder, Verdict};
use super::extender::Lookup;
use super::preempting;
use super::report::Nomination;
use crate::cache::Place;
use crate::core::{Found, SchedulerState};
use crate::cycle::Failure;
use crate::framework::Diagnosis;
use crate::framework::{Candidate, Permission, PostFilter, Status, Unhelpful};
use crate::metrics::{Metric, Metrics};
use crate::queue::{Popped, Rejection};
use coracle_client::beat::{self, Patience};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Pods decided about in a row before other tasks of the thread get their turn.
const MAX_CYCLES_IN_A_ROW: usize = 16;
/// How long a bound pod may stay unseen before its room is given to others. The binding was acknowledged, so only an
/// informer that stands still for so long can be wrong.
const ASSUMED_TIMEOUT: Duration = Duration::from_secs(60);
/// So long after the last pod that was scheduled memory that only makes the next ones quicker is given back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Gauges are brought up to date so often, while something happens.
const GAUGES_INTERVAL: Duration = Duration::from_secs(1);

/// Upstream's words when extenders leave no candidate.
const NO_CANDIDATE: &str = "preemption: no candidate node for preemption";

pub struct Scheduler {
    core: SchedulerState,
    binder: Binder,
    client: kube::Client,
    metrics: Arc<Metrics>,
    bound: Box<Lookup>,
    /// Bindings under way.
    binding: usize,
    /// Uids of bound pods that have not been seen yet, with when that becomes too long: the oldest first, seen ones among
    /// them.
    unseen: VecDeque<(Instant, String)>,
    /// Not before this are gauges looked at again.
    gauges_at: Instant,
    /// Whether they are behind.
    gauges_due: bool,
    backlog: Backlog,
    /// When nobody was scheduled for long enough. Other events, of which a cluster of some size has one every moment, do
    /// not move it.
    rests_at: Instant,
}

impl Scheduler {
    /// `bound` finds pods on nodes.
    pub fn new(
        core: SchedulerState,
        binder: Binder,
        client: kube::Client,
        metrics: Arc<Metrics>,
        bound: Box<Lookup>,
    ) -> Self {
        let gauges_at = Instant::now();
        Self {
            core,
            binder,
            client,
            metrics,
            bound,
            binding: 0,
            unseen: VecDeque::new(),
            gauges_at,
            gauges_due: true,
            backlog: Backlog::default(),
            rests_at: gauges_at,
        }
    }

    /// Works until `stop` is cancelled and the bindings under way have ended (true), or nobody sends events any more.
    pub async fn work(mut self, mut events: UnboundedReceiver<Event>, stop: &CancellationToken) -> bool {
        let mut turn = 0;
        loop {
            while let Ok(event) = events.try_recv() {
                self.take_in(event);
            }
            if stop.is_cancelled() {
                return self.drain(&mut events).await;
            }
            let now = Instant::now();
            self.expire(now);
            self.binder.reporter.storm.set(self.backlog.is_storm(self.core.queue.active(), now));
            if let Some(popped) = self.core.queue.pop(now) {
                self.gauges_due = true;
                self.backlog.attempted(now);
                self.rests_at = now + IDLE_TIMEOUT;
                // Extenders have time limits of their own.
                beat::working(Patience::Long, self.schedule(popped)).await;
                turn += 1;
                if turn % MAX_CYCLES_IN_A_ROW == 0 {
                    self.gauges();
                    tokio::task::yield_now().await;
                }
                continue;
            }
            self.gauges();
            let Some(waited) = stop.run_until_cancelled(self.wait(&mut events)).await else { continue };
            match waited {
                Some(Some(event)) => self.take_in(event),
                Some(None) => return false,
                None => {}
            }
        }
    }

    /// The next event; `None` when something is due without one.
    async fn wait(&mut self, events: &mut UnboundedReceiver<Event>) -> Option<Option<Event>> {
        let released = self.core.queue.next_release();
        let expires = self.unseen.front().map(|(at, _)| *at);
        let rest = (!self.core.is_rested()).then_some(self.rests_at);
        let gauges = self.gauges_due.then_some(self.gauges_at);
        let calm = self.backlog.ends(Instant::now());
        let due = released.into_iter().chain(expires).chain(rest).chain(gauges).chain(calm).min();
        let Some(due) = due else { return Some(events.recv().await) };
        match tokio::time::timeout_at(due, events.recv()).await {
            Ok(event) => Some(event),
            Err(_) => {
                if rest == Some(due) {
                    self.core.rest();
                }
                None
            }
        }
    }

    async fn drain(&mut self, events: &mut UnboundedReceiver<Event>) -> bool {
        // The process may end meanwhile; a binding that hangs must not keep it.
        let until = Instant::now() + Duration::from_secs(5);
        while self.binding > 0 {
            match tokio::time::timeout_at(until, events.recv()).await {
                Ok(Some(event)) => self.take_in(event),
                _ => break,
            }
        }
        true
    }

    async fn schedule(&mut self, popped: Popped) {
        let begun = Instant::now();
        let Found { mut class, feasible } = self.core.find(&popped);
        let profile = popped.framework.scheduler_name.clone();
        let code = if feasible.is_ok() { "Success" } else { "Unschedulable" };
        self.metrics.observe(Metric::ExtensionPoint, &["Filter", code, &profile], begun.elapsed());
        popped.framework.count_asked(&class.state, false);
        let chosen = match feasible {
            Ok(slots) => self.choose(&popped, &mut class, slots).await,
            Err(failure) => Err(failure),
        };
        self.metrics.observe(Metric::AlgorithmDuration, &[], begun.elapsed());
        match chosen {
            Ok(slot) => self.place(&popped, &mut class, slot, begun).await,
            Err(Failure::Unschedulable(diagnosis)) => {
                self.no_node(&popped, &mut class, diagnosis, begun).await;
            }
            Err(Failure::Error(why)) => self.failed(&popped, &why, &Nomination::Clear, begun),
        }
        self.core.done(&popped, class);
    }

    async fn choose(
        &mut self,
        popped: &Popped,
        class: &mut crate::cycle::EquivalenceClass,
        mut slots: Vec<usize>,
    ) -> Result<usize, Failure> {
        let extenders = self.binder.extenders.clone();
        if !extenders.is_empty() {
            slots = self.extended(popped, class, slots).await?;
        }
        let begun = Instant::now();
        let mut totals = self.core.score(popped, class, &slots)?;
        popped.framework.count_asked(&class.state, true);
        let profile = popped.framework.scheduler_name.as_str();
        self.metrics.observe(Metric::ExtensionPoint, &["Score", "Success", profile], begun.elapsed());
        if !extenders.is_empty() && totals.len() > 1 {
            extenders.prioritize(&popped.pod, &self.core.snapshot, &mut totals).await;
        }
        self.core.choose(&totals).ok_or_else(|| Failure::Error("no node was scored".to_owned()))
    }

    /// The nodes that extenders leave. When they refuse the one that the pod is nominated to, others are looked at.
    async fn extended(
        &mut self,
        popped: &Popped,
        class: &mut crate::cycle::EquivalenceClass,
        slots: Vec<usize>,
    ) -> Result<Vec<usize>, Failure> {
        let extenders = self.binder.extenders.clone();
        let nominated = self.core.snapshot.nomination(&popped.pod.uid);
        let nominated = nominated.and_then(|name| self.core.snapshot.node_named(name)).map(|node| node.slot);
        let mut again = slots.len() == 1 && slots.first().copied() == nominated;
        let mut slots = slots;
        loop {
            let mut diagnosis = self.core.diagnosis(popped, class);
            let left = extenders.filter(&popped.pod, &self.core.snapshot, slots, &mut diagnosis).await;
            let left = left.map_err(Failure::Error)?;
            match left.is_empty() {
                false => return Ok(left),
                true if !again => return Err(Failure::Unschedulable(Arc::new(diagnosis))),
                true => again = false,
            }
            slots = self.core.find_anywhere(popped, class)?;
        }
    }

    /// Reserve and Permit; what they allow is assumed and bound beside the next cycles.
    async fn place(
        &mut self,
        popped: &Popped,
        class: &mut crate::cycle::EquivalenceClass,
        slot: usize,
        begun: Instant,
    ) {
        let node = match self.core.reserve(popped, class, slot, Instant::now()) {
            Ok(node) => node,
            Err((plugin, status)) => return self.refused(popped, "Reserve", plugin, &status, begun),
        };
        let mut waits = Vec::new();
        for plugin in &popped.framework.permit {
            match plugin.permit(&class.state, &popped.pod, &node) {
                Permission::Approve => {}
                Permission::Wait(time) => waits.push((plugin.name(), time)),
                Permission::Deny(status) => {
                    popped.framework.unreserve(&popped.pod, &node);
                    // Nobody else saw its room taken.
                    self.core.snapshot.forget(&popped.pod.uid);
                    return self.refused(popped, "Permit", plugin.name(), &status, begun);
                }
            }
        }
        let permit = self.binder.waiting.hold(&popped.pod.uid, &waits);
        self.binding += 1;
        let verdict = Verdict { popped: popped.clone(), node, begun };
        self.binder.bind(verdict, permit).await;
    }

    /// A plugin refused at `point` after a node was found, which upstream words as a cluster of that node alone.
    fn refused(
        &mut self,
        popped: &Popped,
        point: &str,
        plugin: &'static str,
        status: &Status,
        begun: Instant,
    ) {
        if let Status::Error(why) = status {
            let why = format!("running {point} plugin {plugin:?}: {why}");
            return self.failed(popped, &why, &Nomination::Clear, begun);
        }
        let mut diagnosis = Diagnosis::new(1);
        diagnosis.refuse(plugin, status, 1);
        self.core.withdraw(&popped.pod.uid);
        let rejection = Rejection { plugins: vec![plugin], pending: diagnosis.pending, nominated: None };
        self.core.queue.unschedulable(&popped.pod.uid, rejection, Instant::now());
        self.report(popped, "Unschedulable", &diagnosis.message(), &Nomination::Clear);
        self.attempted("unschedulable", popped, begun);
    }

    fn failed(&mut self, popped: &Popped, why: &str, nomination: &Nomination, begun: Instant) {
        if *nomination != Nomination::Keep {
            self.core.withdraw(&popped.pod.uid);
        }
        self.core.queue.retry(&popped.pod.uid, Instant::now());
        self.report(popped, "SchedulerError", why, nomination);
        self.attempted("error", popped, begun);
    }

    fn attempted(&self, result: &str, popped: &Popped, begun: Instant) {
        let labels = [result, popped.framework.scheduler_name.as_str()];
        self.metrics.add(Metric::ScheduleAttempts, &labels, 1);
        self.metrics.observe(Metric::AttemptDuration, &labels, begun.elapsed());
    }

    fn report(&mut self, popped: &Popped, reason: &'static str, message: &str, nomination: &Nomination) {
        let news = self.core.queue.is_news(&popped.pod.uid, message, Instant::now());
        let scheduler = &popped.framework.scheduler_name;
        self.binder.reporter.failed(&popped.pod, scheduler, reason, message, nomination, news);
    }

    /// No node fits: PostFilter may make room on one.
    async fn no_node(
        &mut self,
        popped: &Popped,
        class: &mut crate::cycle::EquivalenceClass,
        diagnosis: Arc<Diagnosis>,
        begun: Instant,
    ) {
        let asks = self.binder.extenders.preempts();
        let mut rejection =
            Rejection { plugins: diagnosis.plugins.clone(), pending: diagnosis.pending, nominated: None };
        let known = diagnosis.preemption.as_ref();
        let (mut preemption, mut stays_nominated) = (known.map_or("", Unhelpful::why).to_owned(), false);
        let answer = self.core.post_filter(popped, class, &diagnosis, asks);
        let candidates = match answer {
            Ok(PostFilter::Preempt(candidates)) => {
                (preemption, stays_nominated) = (NO_CANDIDATE.to_owned(), true);
                self.accepted(popped, candidates).await
            }
            Ok(PostFilter::Unhelpful(why)) => {
                stays_nominated = matches!(why, Unhelpful::NotEligible(_));
                preemption = why.why().to_owned();
                Ok(None)
            }
            Ok(PostFilter::Error(why)) => Err(why),
            Err(Failure::Error(why)) => Err(why),
            Err(Failure::Unschedulable(_)) => Ok(None),
        };
        let candidate = match candidates {
            Ok(candidate) => candidate,
            Err(why) => return self.failed(popped, &why, &Nomination::Keep, begun),
        };
        self.metrics.add(Metric::PreemptionAttempts, &[], 1);
        self.attempted("unschedulable", popped, begun);
        let uid = &popped.pod.uid;
        if let Some(candidate) = candidate {
            rejection.nominated = Some(candidate.node.clone());
            self.preempt(popped, candidate, rejection, &diagnosis.message_with(""));
            return;
        }
        let mut nomination = Nomination::Keep;
        if !stays_nominated {
            self.core.withdraw(uid);
            nomination = Nomination::Clear;
        }
        rejection.nominated = self.core.snapshot.nomination(uid).map(str::to_owned);
        self.core.queue.unschedulable(uid, rejection, Instant::now());
        self.report(popped, "Unschedulable", &diagnosis.message_with(&preemption), &nomination);
    }

    /// The candidate that is left when extenders have been asked.
    async fn accepted(
        &self,
        popped: &Popped,
        candidates: Vec<Candidate>,
    ) -> Result<Option<Candidate>, String> {
        let extenders = self.binder.extenders.clone();
        if !extenders.preempts() {
            return Ok(candidates.into_iter().next());
        }
        let left = extenders.preempt(&popped.pod, candidates, &*self.bound).await?;
        Ok(left.into_iter().min_by_key(Candidate::rank))
    }

    fn preempt(&mut self, popped: &Popped, candidate: Candidate, rejection: Rejection, said: &str) {
        let victims = u32::try_from(candidate.victims.len()).unwrap_or(u32::MAX);
        self.metrics.observe_number(Metric::PreemptionVictims, &[], f64::from(victims));
        let node = candidate.node.clone();
        self.override_lower(popped, &node);
        self.core.snapshot.nominate(popped.pod.clone(), &node);
        self.core.queue.preempting(&popped.pod.uid, rejection, Instant::now());
        self.report(popped, "Unschedulable", said, &Nomination::Set(node));
        let told = preempting::tell(
            self.client.clone(),
            self.binder.reporter.clone(),
            self.binder.waiting.clone(),
            popped.clone(),
            candidate,
        );
        let (sender, metrics, begun) = (self.binder.events(), self.metrics.clone(), Instant::now());
        tokio::spawn(async move {
            let told = told.await;
            let result = if told.worked { "success" } else { "error" };
            metrics.observe(Metric::PreemptionDuration, &[result], begun.elapsed());
            metrics.add(Metric::PreemptionExecutions, &[result], 1);
            // Nobody listens when the scheduler has ended.
            let _ = sender.send(Event::Told(told));
        });
    }

    /// Pods of lower priority that were promised room on the node look elsewhere.
    fn override_lower(&mut self, popped: &Popped, node: &str) {
        let Some(info) = self.core.snapshot.node_named(node) else { return };
        let lower = info.nominated.iter().filter(|p| p.priority < popped.pod.priority);
        for pod in lower.cloned().collect::<Vec<_>>() {
            self.core.withdraw(&pod.uid);
            self.core.queue.force(&pod.uid);
            self.binder.reporter.unnominated(&pod);
        }
    }

    /// Gives the room of pods back that were bound and never seen.
    fn expire(&mut self, now: Instant) {
        self.leave_seen();
        while let Some((_, uid)) = self.unseen.pop_front_if(|(at, _)| *at <= now) {
            if let Some(pod) = self.core.snapshot.pod(&uid).cloned() {
                tracing::warn!(pod = %pod.key, "its binding was never seen, its room is free again");
                let node = self.core.snapshot.node_of(&uid).map(str::to_owned).unwrap_or_default();
                self.core.forget(&pod, &node, now);
            }
            self.leave_seen();
        }
    }

    /// Pods are mostly seen in the order in which they were bound.
    fn leave_seen(&mut self) {
        let snapshot = &self.core.snapshot;
        let seen = |(_, uid): &mut (Instant, String)| snapshot.whereabouts(uid) != Place::Assumed;
        while self.unseen.pop_front_if(seen).is_some() {}
        if self.unseen.is_empty() {
            self.unseen = VecDeque::new();
        }
    }

    fn gauges(&mut self) {
        let now = Instant::now();
        if now < self.gauges_at || !self.gauges_due {
            return;
        }
        self.gauges_at = now + GAUGES_INTERVAL;
        self.gauges_due = false;
        self.leave_seen();
        super::gauges::set(&mut self.core, &self.metrics, self.unseen.len() + self.binding);
    }
}
