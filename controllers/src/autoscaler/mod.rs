//! Resizes what has a size by what it is seen to use.
//!
//! <https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/>

mod behavior;
mod counted;
mod judge;
mod metrics;
mod replicas;
mod rivals;
mod scale;

use crate::clients::Clients;
use crate::discovery::Known;
use behavior::{Bounds, Memory};
use coracle_api::LabelSelector;
use coracle_api::condition::set_condition;
use coracle_client::informer::{Delta, api_for};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use counted::Counted;
use jiff::Timestamp;
use judge::{Judge, Opinion, Trouble};
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use metrics::Metrics;
use parking_lot::Mutex;
use replicas::Tolerance;
use rivals::Claims;
use scale::Target;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "horizontal-pod-autoscaler";
/// Upstream's --horizontal-pod-autoscaler-sync-period.
const SYNC_INTERVAL: Duration = Duration::from_secs(15);
/// Upstream's --horizontal-pod-autoscaler-tolerance.
const TOLERANCE: f64 = 0.1;

struct Autoscalers {
    client: kube::Client,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    known: Known,
    recorder: Recorder,
    memory: Mutex<HashMap<ObjectKey, Memory>>,
    claims: Mutex<Claims>,
    counted: Counted,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(CONTROLLER);
    let autoscalers = clients.informers.of::<HorizontalPodAutoscaler>();
    let pods = clients.informers.of::<Pod>();
    let reconciler = Autoscalers {
        recorder: Recorder::new(client.clone(), CONTROLLER, ""),
        known: Known::new(client.clone()),
        client,
        autoscalers: autoscalers.clone(),
        pods: pods.clone(),
        memory: Mutex::default(),
        claims: Mutex::default(),
        counted: Counted::new(clients.metrics.clone()),
    };
    // Its own status is no reason to look again before the period is over.
    let asked = |delta: &Delta<HorizontalPodAutoscaler>| {
        fn spec(h: &Option<Arc<HorizontalPodAutoscaler>>) -> Option<&HorizontalPodAutoscalerSpec> {
            h.as_ref().map(|h| &h.spec)
        }
        let changed = spec(&delta.old) != spec(&delta.new);
        delta.object().filter(|_| changed).map(|h| ObjectKey::of(h.as_ref()))
    };
    Controller::new(reconciler).watch(&autoscalers, asked).reads(&pods).run(stop).await;
}

impl Reconciler for Autoscalers {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "horizontalpodautoscaling"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(stored) = self.autoscalers.get_key(key) else {
            self.memory.lock().remove(key);
            self.claims.lock().forget(key);
            self.counted.forget(key);
            return Ok(Action::AwaitChange);
        };
        let spec = &stored.spec;
        let mut pass = Pass {
            room: self,
            key,
            stored: &stored,
            spec,
            status: stored.status.clone().unwrap_or_default(),
            now: Timestamp::now(),
            outcome: counted::Outcome::default(),
        };
        let began = Instant::now();
        pass.status.observed_generation = stored.metadata.generation;
        pass.run().await;
        self.counted.looked(key, pass.outcome, pass.status.desired_replicas, began.elapsed());
        if stored.status.as_ref() != Some(&pass.status) {
            let changed = HorizontalPodAutoscaler {
                status: Some(pass.status),
                ..HorizontalPodAutoscaler::clone(&stored)
            };
            let api: Api<HorizontalPodAutoscaler> = api_for(&self.client, key);
            api.replace_status(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(Action::RequeueAfter(SYNC_INTERVAL))
    }
}

struct Pass<'a> {
    room: &'a Autoscalers,
    key: &'a ObjectKey,
    stored: &'a HorizontalPodAutoscaler,
    spec: &'a HorizontalPodAutoscalerSpec,
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
    outcome: counted::Outcome,
}

impl Pass<'_> {
    fn condition(&mut self, type_: &str, value: bool, reason: &str, message: &str) {
        let text = if value { "True" } else { "False" };
        let condition = HorizontalPodAutoscalerCondition {
            type_: type_.to_owned(),
            status: text.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(self.now)),
        };
        set_condition(self.status.conditions.get_or_insert_default(), condition);
    }

    fn warn(&self, reason: &str, message: &str) {
        self.room.recorder.warning(self.stored, reason, message);
    }

    async fn run(&mut self) {
        let Autoscalers { client, known, .. } = self.room;
        let target = Target::get(client, known, &self.key.namespace, &self.spec.scale_target_ref).await;
        let target = match target {
            Ok(target) => target,
            Err(why) => {
                self.outcome.error = counted::Error::Internal;
                self.warn("FailedGetScale", &why);
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                return self.condition("AbleToScale", false, "FailedGetScale", &message);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        self.condition("AbleToScale", true, "SucceededGetScale", message);
        let (current, least) = (target.wanted(), self.spec.min_replicas.unwrap_or(1));
        self.status.current_replicas = Some(current);
        self.room.memory.lock().entry(self.key.clone()).or_default().begin(Instant::now(), current);
        let (wanted, reason) = match current {
            0 if least != 0 => {
                let message = "scaling is disabled since the replica count of the target is zero";
                self.status.desired_replicas = 0;
                return self.condition("ScalingActive", false, "ScalingDisabled", message);
            }
            n if n > self.spec.max_replicas => {
                (self.spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
            }
            n if n < least => (least, "Current number of replicas below Spec.MinReplicas".to_owned()),
            _ => match self.measured(&target, current).await {
                Some(wanted) => wanted,
                None => return,
            },
        };
        self.status.desired_replicas = wanted;
        if wanted != current {
            self.resize(&target, current, wanted, &reason).await;
        }
    }

    async fn resize(&mut self, target: &Target, current: i32, wanted: i32, reason: &str) {
        if let Err(why) = target.resize(&self.room.client, wanted).await {
            self.warn("FailedRescale", &format!("New size: {wanted}; reason: {reason}; error: {why}"));
            let message = format!("the HPA controller was unable to update the target scale: {why}");
            self.status.desired_replicas = current;
            self.outcome.error = counted::Error::Internal;
            return self.condition("AbleToScale", false, "FailedUpdateScale", &message);
        }
        let message = format!("the HPA controller was able to update the target scale to {wanted}");
        self.condition("AbleToScale", true, "SucceededRescale", &message);
        self.outcome.action = counted::Action::of(current, wanted);
        let event = format!("New size: {wanted}; reason: {reason}");
        self.room.recorder.normal(self.stored, "SuccessfulRescale", event);
        self.status.last_scale_time = Some(Time(self.now));
        if self.spec.behavior.is_some() {
            let mut memory = self.room.memory.lock();
            memory.entry(self.key.clone()).or_default().changed(Instant::now(), wanted - current);
        }
    }

    /// The size that the metrics ask for and the rules let through. `None` when nothing could be measured.
    async fn measured(&mut self, target: &Target, current: i32) -> Option<(i32, String)> {
        let asked = match self.opinions(target, current).await {
            Ok(asked) => asked,
            Err(trouble) => {
                self.status.current_metrics = None;
                return self.give_up(trouble);
            }
        };
        // One for each metric, an empty one for what cannot be had: readers know them by their places.
        let seen =
            |asked: &Result<Opinion, Trouble>| asked.as_ref().map(|o| o.status.clone()).unwrap_or_default();
        let seen: Vec<_> = asked.iter().map(seen).collect();
        self.status.current_metrics = (!seen.is_empty()).then_some(seen);
        let (mut opinions, mut troubles) = (Vec::new(), Vec::new());
        for answer in asked {
            match answer {
                Ok(opinion) => opinions.push(opinion),
                Err(trouble) => troubles.push(trouble),
            }
        }
        // Of equal ones the first.
        let proposed = opinions.iter().rev().max_by_key(|opinion| opinion.replicas);
        let proposed = proposed.map(|opinion| (opinion.replicas, opinion.name.clone()));
        let unknown = troubles.len();
        if let Some(first) = troubles.into_iter().next() {
            self.outcome.error = counted::Error::of(&first);
            let less = proposed.as_ref().is_none_or(|(replicas, _)| *replicas < current);
            if less {
                // With a metric unknown nobody can say that less is enough.
                return self.give_up(first.of_some(unknown, unknown + opinions.len()));
            }
        }
        let (replicas, name) = proposed?;
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        self.condition("ScalingActive", true, "ValidMetricFound", &message);
        let bounds =
            Bounds { current, min: self.spec.min_replicas.unwrap_or(1), max: self.spec.max_replicas };
        let limited = {
            let mut all = self.room.memory.lock();
            let memory = all.entry(self.key.clone()).or_default();
            behavior::limit(replicas, &bounds, self.spec.behavior.as_ref(), memory, Instant::now())
        };
        self.condition("AbleToScale", true, limited.able.0, limited.able.1);
        let held = limited.limited.0 != "DesiredWithinRange";
        self.condition("ScalingLimited", held, limited.limited.0, limited.limited.1);
        let up = limited.replicas > current;
        let reason = if up { format!("{name} above target") } else { "All metrics below target".to_owned() };
        Some((limited.replicas, reason))
    }

    /// Stays at the present size, and says why.
    fn give_up<T>(&mut self, trouble: Trouble) -> Option<T> {
        self.outcome.error = counted::Error::of(&trouble);
        if trouble.of_metric.is_none() {
            self.warn(trouble.reason, &trouble.why);
        }
        self.warn("FailedComputeMetricsReplicas", trouble.of());
        let message = trouble.condition();
        self.condition("ScalingActive", false, trouble.reason, &message);
        None
    }

    /// What every metric asks for, and the trouble with those that cannot be had, each told in an event.
    async fn opinions(
        &self,
        target: &Target,
        current: i32,
    ) -> Result<Vec<Result<Opinion, Trouble>>, Trouble> {
        let (client, namespace) = (&self.room.client, self.key.namespace.as_str());
        let selector = target.selector();
        if selector.is_empty() {
            return Err(Trouble::new("InvalidSelector", "the HPA target's scale is missing a selector"));
        }
        let read = LabelSelector::parse(selector).map_err(|error| {
            let why =
                format!("couldn't convert selector into a corresponding internal selector object: {error}");
            Trouble::new("InvalidSelector", why)
        })?;
        let selects = |labels: &BTreeMap<String, String>| {
            read.matches_with(|name| labels.get(name).map(String::as_str))
        };
        let pods = self.room.pods.labelled(namespace, selects);
        let rivals = self.room.claims.lock().of(self.key, selector, &pods);
        if rivals.len() > 1 {
            let why = rivals::message(selector, &rivals);
            return Err(Trouble::new("AmbiguousSelector", why));
        }
        let judge = Judge {
            metrics: Metrics { client, namespace, selector },
            known: &self.room.known,
            pods: &pods,
            current,
            running: target.running(),
            tolerance: self.tolerance(),
            now: self.now,
        };
        let mut asked = Vec::new();
        for metric in self.spec.metrics.iter().flatten() {
            let began = Instant::now();
            let answer = judge.opinion(metric).await;
            let before = self.stored.status.as_ref().and_then(|s| s.current_replicas).unwrap_or(0);
            self.room.counted.judged(&metric.type_, before, &answer, began.elapsed());
            if let Err(trouble) = &answer {
                self.warn(trouble.reason, &trouble.why);
            }
            asked.push(answer);
        }
        Ok(asked)
    }

    fn tolerance(&self) -> Tolerance {
        let behavior = self.spec.behavior.as_ref();
        let of = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
            let given = rules.and_then(|r| r.tolerance.as_ref());
            let milli = given.and_then(|q| q.0.parse::<coracle_api::Quantity>().ok()).map(|q| q.milli());
            milli.map_or(TOLERANCE, |milli| replicas::ratio(milli, 1000))
        };
        Tolerance {
            up: of(behavior.and_then(|b| b.scale_up.as_ref())),
            down: of(behavior.and_then(|b| b.scale_down.as_ref())),
        }
    }
}
