//! The scheduler's one task: takes in what happened, decides about one pod after the other, hands the outcome to
//! tasks that write.

mod binding;
mod events;

use crate::cache::{PodInfo, Snapshot};
use crate::config::Config;
use crate::cycle::{self, Failure};
use crate::framework::{ClusterEvent, Framework, Permission, ProfileError, Status};
use crate::plugins::Registry;
use crate::queue::{Popped, Queue};
use binding::{Binder, Outcome, Verdict};
use coracle_client::{Context, Delta};
use events::Event;
use k8s_openapi::api::core::v1::{Node, Pod};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("configuration refused")]
    Profile(#[from] ProfileError),
    #[error("the informers ended")]
    Informers,
}

/// Schedules the pods of the configured profiles until the context is stopped.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let registry = Registry::in_tree(&context);
    let frameworks = config
        .profiles
        .iter()
        .map(|profile| Framework::new(profile, &registry).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    events::synced(&context).await;
    let (sender, events) = unbounded_channel();
    events::subscribe(&context, &sender);
    let scheduler = Scheduler {
        frameworks,
        snapshot: Snapshot::default(),
        queue: Queue::new(config.backoff),
        binder: Binder::new(&context, sender, config.parallel_bindings),
        percentage: config.percentage_of_nodes_to_score,
        next_start: 0,
        random: SmallRng::from_os_rng(),
    };
    let stop = context.stop.clone();
    match stop.run_until_cancelled(scheduler.work(events)).await {
        Some(()) => Err(Error::Informers),
        None => Ok(()),
    }
}

struct Scheduler {
    frameworks: Vec<Arc<Framework>>,
    snapshot: Snapshot,
    queue: Queue,
    binder: Binder,
    percentage: usize,
    next_start: usize,
    random: SmallRng,
}

/// Pods decided about in a row before other tasks of the thread get their turn.
const TURN: usize = 16;

impl Scheduler {
    async fn work(mut self, mut events: UnboundedReceiver<Event>) {
        let mut turn = 0;
        loop {
            while let Ok(event) = events.try_recv() {
                self.take_in(event);
            }
            if let Some(popped) = self.queue.pop(Instant::now()) {
                self.schedule(popped).await;
                turn += 1;
                if turn % TURN == 0 {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let release = self.queue.next_release();
            let event = match release {
                Some(at) => tokio::time::timeout_at(at, events.recv()).await,
                None => Ok(events.recv().await),
            };
            match event {
                Ok(Some(event)) => self.take_in(event),
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Node(delta) => self.on_node(&delta),
            Event::Pod(delta) => self.on_pod(&delta),
            Event::Storage => self.queue.on_event(&ClusterEvent::StorageChanged, Instant::now()),
            Event::Bound(outcome) => self.on_outcome(&outcome),
        }
    }

    fn on_node(&mut self, delta: &Delta<Node>) {
        let now = Instant::now();
        let Some(node) = &delta.new else {
            if let Some(gone) = &delta.old {
                self.snapshot.remove_node(gone.metadata.name.as_deref().unwrap_or_default());
            }
            return;
        };
        let old = self.snapshot.set_node(node.clone());
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(new) = self.snapshot.node_named(name) else { return };
        match &old {
            Some(old) => self.queue.on_event(&ClusterEvent::NodeUpdated { old, new }, now),
            None => self.queue.on_event(&ClusterEvent::NodeAdded(new), now),
        }
    }

    fn on_pod(&mut self, delta: &Delta<Pod>) {
        let now = Instant::now();
        let Some(pod) = delta.object() else { return };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if delta.new.is_none() || events::is_over(pod) {
            self.queue.remove(&uid);
            if let Some(gone) = self.snapshot.remove_pod(&uid) {
                self.queue.on_event(&ClusterEvent::PodGone(&gone), now);
            }
            return;
        }
        let info = Arc::new(PodInfo::new(pod.clone(), now));
        if info.node_name().is_some() {
            self.queue.remove(&uid);
            self.snapshot.set_pod(info);
            return;
        }
        let Some(framework) = self.framework_of(pod) else { return };
        if coracle_client::informer::deleting(pod.as_ref()) {
            self.queue.remove(&uid);
        } else if !self.snapshot.is_assumed(&uid) {
            let same = |old: &Arc<Pod>| old.spec == pod.spec && old.metadata.labels == pod.metadata.labels;
            let changed = !delta.old.as_ref().is_some_and(same);
            self.queue.set(info, &framework, changed, now);
        }
    }

    fn framework_of(&self, pod: &Pod) -> Option<Arc<Framework>> {
        let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or("default-scheduler");
        self.frameworks.iter().find(|f| f.scheduler_name == name).cloned()
    }

    async fn schedule(&mut self, popped: Popped) {
        let Popped { pod, framework } = popped;
        let decision = cycle::decide(
            &framework,
            &self.snapshot,
            &pod,
            self.percentage,
            &mut self.next_start,
            &mut self.random,
        );
        match decision {
            Ok(placement) => self.place(pod, framework, placement).await,
            Err(Failure::Unschedulable(diagnosis)) => {
                self.queue.unschedulable(&pod.uid, diagnosis.plugins.clone());
                self.binder.report(&pod, &framework, "Unschedulable", diagnosis.message());
            }
            Err(Failure::Error(why)) => self.failed(&pod, &framework, why),
        }
    }

    fn failed(&mut self, pod: &PodInfo, framework: &Framework, why: String) {
        self.queue.retry(&pod.uid, Instant::now());
        self.binder.report(pod, framework, "SchedulerError", why);
    }

    /// Reserve and Permit; what they allow is assumed and bound beside the next cycles.
    async fn place(&mut self, pod: Arc<PodInfo>, framework: Arc<Framework>, placement: cycle::Placement) {
        let cycle::Placement { node, state } = placement;
        self.snapshot.assume(pod.clone(), &node);
        let mut refusal = None;
        for plugin in &framework.reserve {
            let status = plugin.reserve(&state, &pod, &node);
            if !status.is_success() {
                refusal = Some((plugin.name(), status));
                break;
            }
        }
        let mut wait = None;
        for plugin in &framework.permit {
            if refusal.is_some() {
                break;
            }
            match plugin.permit(&state, &pod, &node) {
                Permission::Approve => {}
                Permission::Deny(status) => refusal = Some((plugin.name(), status)),
                Permission::Wait(time) => wait = wait.max(Some(time)),
            }
        }
        match refusal {
            None => self.binder.bind(Verdict { pod, framework, node, wait }).await,
            Some((plugin, status)) => {
                framework.reserve.iter().for_each(|p| p.unreserve(&pod, &node));
                self.snapshot.forget(&pod.uid);
                self.refuse(&pod, &framework, plugin, status);
            }
        }
    }

    fn refuse(&mut self, pod: &PodInfo, framework: &Framework, plugin: &'static str, status: Status) {
        if let Status::Error(why) = status {
            return self.failed(pod, framework, why);
        }
        self.queue.unschedulable(&pod.uid, vec![plugin]);
        self.binder.report(pod, framework, "Unschedulable", status.reasons().join(", "));
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        let uid = &outcome.pod.uid;
        let Some(why) = &outcome.failure else {
            self.queue.remove(uid);
            return;
        };
        self.snapshot.forget(uid);
        self.failed(&outcome.pod, &outcome.framework, why.clone());
        self.queue.on_event(&ClusterEvent::PodGone(&outcome.pod), Instant::now());
    }
}
