//! One task per pod: observe, remember, report, decide, do, and again.
//!
//! ```text
//!            mail, timer                 step done or overtaken
//!   Waiting ------------> Observing -> Reporting -> Planning --> Acting
//!      ^                                               |            |
//!      +---------------------- nothing to do ----------+            |
//!      |                        Observing <-------------------------+
//!   (object gone, all cleaned up) -> ended
//! ```
//!
//! A step is dropped half-way only when the pod is to end, or to end sooner. Its call to the runtime goes on: until that has
//! come to its end nothing counts as stopped, and the observation after it finds what it made.

use super::claims::Claims;
use super::containers::{self, Kind};
use super::observed::{Observed, State, observe};
use super::placing::Placing;
use super::plan::{CONFIG_ERROR, Memory, Step, View, Waiting, plan};
use super::resize::Resizes;
use super::stubborn::Stubborn;
use super::telling::tell;
use super::termination::{Eviction, Termination, is_terminal};
use super::{status, termination_message, timing};
use crate::cri::{self, Calls};
use crate::images::pull::PullBackoff;
use crate::kubelet::inbox::{Inbox, Mail};
use crate::kubelet::room::Trigger;
use crate::kubelet::{Kubelet, PodEntry};
use crate::metrics::Metric;
use crate::objects::References;
use crate::pod_facts::labels::is_static;
use crate::pod_facts::now;
use crate::probe::prober::Kind as ProbeKind;
use crate::publisher::Publisher;
use coracle_api::duration;
use coracle_storage::volumes::Mounted;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Pause after the runtime did not answer; short, because the runtime's return brings no event.
const RUNTIME_RETRY_INTERVAL: Duration = Duration::from_secs(2);

pub struct Worker {
    pub(super) kubelet: Arc<Kubelet>,
    pub(super) uid: String,
    /// With the resources that the node has granted.
    pub(super) pod: Arc<Pod>,
    /// With the resources that it wants.
    pub(super) wanted: Arc<Pod>,
    /// A resize was on its way at the last look.
    /// Since when what was granted is being carried out.
    pub(super) resizing: Option<Instant>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) observed: Observed,
    pub(super) memory: Memory,
    pub(super) pulls: PullBackoff,
    pub(super) mounted: BTreeMap<String, Mounted>,
    /// Volumes have been set up since the last change that matters to them.
    pub(super) volumes_ready: bool,
    pub(super) volumes_refresh: Option<Instant>,
    /// They were taken from a pod that has ended.
    pub(super) volumes_released: bool,
    pub(super) volume_failures: u32,
    pub(super) claims: Claims,
    pub(super) placing: Placing,
    /// Changes in a row that the runtime refused, while the pod was to go on.
    pub(super) changes_failed: u32,
    pub(super) stubborn: Stubborn,
    pub(super) calls: Calls,
    /// Containers whose preStop hook has run.
    pub(super) pre_stopped: HashSet<String>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) references: References,
    pub(super) probes: HashMap<(String, ProbeKind), AbortHandle>,
    pub(super) messages: HashMap<String, String>,
    /// The runtime makes whatever lies below a read-only mount read-only too; asked when a container wants it.
    pub(super) recursive_mounts: bool,
    removed: bool,
    evicted: Option<Eviction>,
    /// Confirmed to the API server; only the object's disappearance is awaited.
    pub(super) cleaned: bool,
    /// The disk is short.
    pub(super) discard: bool,
    pub(super) seen_at: Timestamp,
    reported: Option<PodStatus>,
    pub(super) start: timing::Start,
}

impl Worker {
    /// Starts the task; it ends when the pod is gone, or is aborted when the kubelet stops, which touches nothing.
    pub fn spawn(kubelet: Arc<Kubelet>, pod: Arc<Pod>, inbox: Arc<Inbox>) -> AbortHandle {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let references = References::new(kubelet.objects.clone(), uid.clone());
        references.follow(&pod);
        let resizes = Resizes::load(&kubelet.volumes.pod_dir(&uid));
        let worker = Self {
            publisher: Arc::new(Publisher::spawn(kubelet.client.clone(), &pod, kubelet.metrics.clone())),
            references,
            uid,
            inbox,
            observed: Observed::default(),
            memory: Memory::new(resizes, kubelet.config.max_restart_period),
            pulls: PullBackoff::default(),
            mounted: BTreeMap::new(),
            volumes_ready: false,
            volumes_refresh: None,
            volumes_released: false,
            volume_failures: 0,
            claims: Claims::default(),
            placing: Placing::default(),
            changes_failed: 0,
            stubborn: Stubborn::default(),
            calls: Calls::new(kubelet.runtime.clone(), kubelet.calls.clone()),
            pre_stopped: HashSet::new(),
            probes: HashMap::new(),
            messages: HashMap::new(),
            recursive_mounts: false,
            removed: false,
            evicted: None,
            cleaned: false,
            discard: false,
            seen_at: now(),
            reported: None,
            start: timing::Start::of(&pod),
            wanted: pod.clone(),
            resizing: None,
            pod,
            kubelet,
        };
        let (kubelet, fixed) = (worker.kubelet.clone(), is_static(&worker.pod));
        let task = tokio::spawn(worker.run(Instant::now()));
        let handle = task.abort_handle();
        if fixed {
            tokio::spawn(async move {
                // However it ended.
                let _ = task.await;
                kubelet.static_pod_ended.notify_one();
            });
        }
        handle
    }

    async fn observe(&self) -> cri::Result<Observed> {
        let runtime = self.kubelet.runtime_name().await?;
        let seen = observe(self.kubelet.runtime.as_ref(), &self.uid, &self.calls, &self.observed).await?;
        Ok(Observed { runtime, ..seen })
    }

    /// `seen` is when the kubelet came to know the pod.
    async fn run(mut self, seen: Instant) {
        self.kubelet.metrics.took(Metric::WorkerStart, &[], seen.elapsed());
        loop {
            let mail = self.inbox.take();
            self.read(mail);
            if self.cleaned && self.removed {
                break;
            }
            match self.observe().await {
                Ok(observed) => self.observed = observed,
                Err(error) => {
                    tracing::debug!(pod = %self.uid, %error, "runtime not observed");
                    self.wait(Some(RUNTIME_RETRY_INTERVAL)).await;
                    continue;
                }
            }
            let ending = self.ending();
            self.allocate(ending.as_ref());
            self.remember(ending.as_ref());
            if !self.place(ending.as_ref()).await {
                // Its end is in the mail.
                continue;
            }
            self.release_claims_when_over(ending.as_ref()).await;
            self.give_back_when_over(ending.as_ref()).await;
            self.report(ending.as_ref());
            self.keep_to_cpus().await;
            self.look_after_volumes(ending.as_ref()).await;
            let step = self.next_step(ending.as_ref());
            match step {
                Step::Wait(limit) => {
                    self.start.note(&self.pod, &self.observed, &self.kubelet.metrics);
                    self.prune().await;
                    let limit = limit.into_iter().chain(self.deadline_left(ending.as_ref())).min();
                    self.wait(limit).await;
                }
                Step::CleanUp if self.cleaned => self.wait(None).await,
                step => {
                    let _taken = timing::Taken::of(&step, self.kubelet.metrics.clone());
                    let inbox = self.inbox.clone();
                    let left = ending.as_ref().map(|ending| ending.grace(self.pod.spec.as_ref()));
                    let teller = self.teller(ending.as_ref());
                    tokio::select! {
                        () = self.act(step, ending.as_ref()) => {}
                        () = inbox.overtaken(left) => {}
                        () = tell(teller) => {}
                    }
                }
            }
        }
        self.probes.values().for_each(AbortHandle::abort);
        self.give_back().await;
        self.kubelet.register.lock().remove(&self.uid);
        self.kubelet.room_changed(Trigger::Removed);
        self.kubelet.metrics.probes.forget(&self.uid);
    }

    fn next_step(&self, ending: Option<&Termination>) -> Step {
        let (pod, observed, memory) = (self.pod.as_ref(), &self.observed, &self.memory);
        plan(&View { pod, observed, memory, ending, now: Instant::now() })
    }

    async fn wait(&mut self, limit: Option<Duration>) {
        let due = self.volumes_refresh.into_iter().chain(self.claims.release_at).chain(self.placing.again_at);
        let refresh = due.map(|at| at.saturating_duration_since(Instant::now()));
        let inbox = self.inbox.clone();
        match limit.into_iter().chain(refresh).min() {
            None => inbox.arrived().await,
            // An answer after the timeout is mail of the next round.
            Some(limit) => drop(tokio::time::timeout(limit, inbox.arrived()).await),
        }
        if self.volumes_refresh.is_some_and(|at| at <= Instant::now()) {
            self.volumes_ready = false;
        }
    }

    fn read(&mut self, mail: Mail) {
        if let Some(pod) = mail.pod {
            self.follow_references(&pod);
            let meta = |p: &Pod| (p.metadata.labels.clone(), p.metadata.annotations.clone());
            if meta(&pod) != meta(&self.pod) {
                // The downward API may show them.
                self.volumes_ready = false;
                self.volumes_refresh = None;
            }
            self.forgive_new_images(&pod);
            self.publisher.seen(&pod);
            self.pod = self.memory.resizes.applied(&pod);
            self.wanted = pod;
        }
        if mail.objects {
            self.volumes_ready = false;
            self.volumes_refresh = None;
            self.memory.pod_retry_at = None;
            let config = |w: &Waiting| w.reason == CONFIG_ERROR;
            let retry: Vec<String> =
                self.memory.waiting.iter().filter(|(_, w)| config(w)).map(|(n, _)| n.clone()).collect();
            self.memory.retry_at.retain(|name, _| !retry.contains(name));
        }
        self.removed |= mail.removed;
        self.discard |= mail.discard;
        // One that has ended meanwhile has nothing to give.
        let ended = self.has_ended();
        self.evicted = self.evicted.take().or(mail.evict.filter(|_| !ended));
        if mail.unmirrored && !self.removed {
            self.publisher.republish();
        }
        for probed in mail.probes {
            self.probed(probed.container_id, &probed.name, probed.kind, probed.report);
        }
    }

    /// Another image may do better: its container is not kept waiting for what the one before did.
    fn forgive_new_images(&mut self, pod: &Pod) {
        let images = |pod: &Pod| -> HashMap<String, Option<String>> {
            let all = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
            all.map(|c| (c.name.clone(), c.image.clone())).collect()
        };
        let (old, new) = (images(&self.wanted), images(pod));
        for (name, _) in new.iter().filter(|(name, image)| old.get(*name).is_some_and(|old| old != *image)) {
            self.memory.restarts.reset(name);
            self.memory.retry_at.remove(name);
        }
    }

    /// A pod that has ended or is cleaned up reads nothing any more, whatever becomes of its object.
    fn follow_references(&self, pod: &Pod) {
        if self.cleaned || self.has_ended() {
            self.references.release();
        } else {
            self.references.follow(pod);
        }
    }

    /// Whether its last status says that it succeeded or failed for good.
    pub(super) fn has_ended(&self) -> bool {
        self.reported.as_ref().is_some_and(is_terminal)
    }

    fn ending(&self) -> Option<Termination> {
        let late = self.deadline_left(None).is_some_and(|left| left.is_zero());
        Termination::of(&self.pod, self.removed, self.evicted.as_ref(), late)
    }

    /// What is left of `activeDeadlineSeconds`.
    fn deadline_left(&self, ending: Option<&Termination>) -> Option<Duration> {
        let limit = self.pod.spec.as_ref()?.active_deadline_seconds.filter(|_| ending.is_none())?;
        let started = self.pod.status.as_ref()?.start_time.as_ref()?.0;
        let end = started.checked_add(jiff::SignedDuration::from_secs(limit)).ok()?;
        Some(Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO))
    }

    pub(super) fn spec_of(&self, name: &str) -> Option<Container> {
        let spec = self.pod.spec.as_ref()?;
        let init = spec.init_containers.iter().flatten();
        let found = spec.containers.iter().chain(init).find(|c| c.name == name).cloned();
        found.or_else(|| {
            let ephemeral = spec.ephemeral_containers.iter().flatten().find(|c| c.name == name)?;
            Some(super::containers::as_container(ephemeral))
        })
    }

    fn kind_of(&self, name: &str) -> Kind {
        let spec = self.pod.spec.as_ref();
        let mut of_init = spec.and_then(|s| s.init_containers.as_ref()).into_iter().flatten();
        let mut of_ephemeral = spec.and_then(|s| s.ephemeral_containers.as_ref()).into_iter().flatten();
        if of_init.any(|c| c.name == name) {
            Kind::Init
        } else if of_ephemeral.any(|c| c.name == name) {
            Kind::Ephemeral
        } else {
            Kind::App
        }
    }

    /// Takes over what the observation says about exits and running containers.
    fn remember(&mut self, ending: Option<&Termination>) {
        let containers = self.observed.containers.clone();
        let now = Instant::now();
        for seen in &containers {
            match seen.state {
                State::Running => self.adopt(seen, ending.is_some()),
                State::Exited if !self.memory.exits.contains_key(&seen.id) => {
                    self.memory.exits.insert(seen.id.clone(), now);
                    let (exit_code, reason) = (seen.exit_code, super::status::end_reason(seen).to_owned());
                    let container_type = containers::container_type(self.kind_of(&seen.name));
                    let labels = [container_type, &exit_code.to_string(), &reason];
                    self.kubelet.metrics.add(Metric::TerminatedContainers, &labels);
                    let limit = termination_message::limit(self.pod.spec.as_ref());
                    let words =
                        self.spec_of(&seen.name).map(|spec| termination_message::read(&spec, seen, limit));
                    self.messages.insert(seen.id.clone(), words.unwrap_or_default());
                    self.stop_probing(&seen.id);
                }
                _ => {}
            }
        }
        let there = |id: &String| containers.iter().any(|c| c.id == *id);
        self.memory.exits.retain(|id, _| there(id));
        self.memory.health.retain(|id, _| there(id));
        self.memory.replaced.retain(there);
        self.memory.again.retain(there);
        self.memory.resizes.retain(there);
        self.messages.retain(|id, _| there(id));
        if ending.is_none() {
            if let Some(spec) = &self.pod.spec {
                if self.reported.is_none() {
                    self.memory.mark_condition(&self.pod, &self.observed);
                }
                self.memory.mark_all(spec, &self.observed);
            }
            self.note_crash_loops(now);
        }
    }

    fn note_crash_loops(&mut self, now: Instant) {
        let names: Vec<String> = self.observed.containers.iter().map(|c| c.name.clone()).collect();
        for name in names.into_iter().collect::<HashSet<_>>() {
            let Some(last) = self.observed.latest(&name).filter(|c| c.state == State::Exited) else {
                continue;
            };
            if !self.memory.runs_again(&self.pod, last) {
                continue;
            }
            let seen = self.memory.exits.get(&last.id).copied().unwrap_or(now);
            let Some((_, delay)) = self.memory.restarts.waiting(&name, seen, now) else { continue };
            let whole = self.full_name();
            let message = format!(
                "back-off {} restarting failed container={name} pod={whole}",
                duration::written(delay)
            );
            let waiting = Waiting { reason: "CrashLoopBackOff".to_owned(), message };
            if self.memory.waiting.insert(name.clone(), waiting.clone()) != Some(waiting) {
                let text = format!("Back-off restarting failed container {name} in pod {whole}");
                self.event(Some(&name), "Warning", "BackOff", text);
            }
        }
    }

    /// `name_namespace(uid)`, as upstream's messages call a pod.
    pub(super) fn full_name(&self) -> String {
        let meta = &self.pod.metadata;
        let part = |value: &Option<String>| value.clone().unwrap_or_default();
        format!("{}_{}({})", part(&meta.name), part(&meta.namespace), self.uid)
    }

    pub(super) fn ip(&self) -> String {
        let spec = self.pod.spec.as_ref();
        if spec.and_then(|s| s.host_network) == Some(true) {
            return self.kubelet.config.node_ip.to_string();
        }
        self.observed.sandbox().and_then(|s| s.ips.first().cloned()).unwrap_or_default()
    }

    /// The pod's status. `holds`: it has claims that are not given back yet.
    pub(super) fn status(&self, ending: Option<&Termination>, holds: bool) -> PodStatus {
        let host_ips = self.kubelet.config.host_ips();
        let mut resources = self.kubelet.dra.statuses(&self.wanted);
        for (container, devices) in self.kubelet.allocation.devices.statuses(&self.uid) {
            resources.entry(container).or_default().extend(devices);
        }
        status::status(&status::Input {
            pod: &self.last_reported(),
            observed: &self.observed,
            memory: &self.memory,
            ending,
            holds,
            resources: &resources,
            host_ips: &host_ips,
            messages: &self.messages,
            recursive_mounts: self.recursive_mounts,
            seen_at: self.seen_at,
            now: now(),
        })
    }

    /// The pod as it was reported last, with what others have said since.
    pub(super) fn last_reported(&self) -> Pod {
        let mut pod = Pod::clone(&self.pod);
        if let Some(reported) = &self.reported {
            // Our own last word is newer than what the watch has brought back, but for others' conditions.
            let foreign_status = pod.status.take().unwrap_or_default();
            let foreign = foreign_status.conditions.unwrap_or_default();
            let ours = reported.conditions.iter().flatten().cloned();
            let owned = |c: &&str, kind: &str| *c == kind;
            let is_ours = |kind: &str| crate::publisher::OWNED.iter().any(|c| owned(c, kind));
            let foreign = foreign.into_iter().filter(|c| !is_ours(&c.type_));
            let conditions = ours.filter(|c| is_ours(&c.type_)).chain(foreign).collect();
            pod.status = Some(PodStatus {
                conditions: Some(conditions),
                resource_claim_statuses: foreign_status.resource_claim_statuses,
                extended_resource_claim_status: foreign_status.extended_resource_claim_status,
                ..reported.clone()
            });
        }
        pod
    }

    /// Computes the status and hands it over to be written.
    fn report(&mut self, ending: Option<&Termination>) {
        let status = self.status(ending, self.kubelet.dra.holds(&self.uid));
        let mut pod = Pod::clone(&self.pod);
        let published = status.clone();
        let ended = is_terminal(&status) && !self.reported.as_ref().is_some_and(is_terminal);
        pod.status = Some(status.clone());
        self.reported = Some(status);
        // Before others can know that it is over: they may come for its place at once.
        self.show(pod);
        self.publisher.publish(published);
        if ended {
            self.references.release();
            self.kubelet.room_changed(Trigger::Terminated);
        }
    }

    /// Lets others see the pod. What it was granted since its worker looked last it keeps.
    fn show(&self, pod: Pod) {
        let mut register = self.kubelet.register.lock();
        let slot = register.entry(self.uid.clone()).or_insert_with(|| PodEntry::new(self.pod.clone()));
        slot.inbox = self.inbox.clone();
        slot.observed = Arc::new(self.observed.clone());
        slot.pod = Arc::new(match &slot.granted {
            Some(granted) => Pod { status: pod.status, ..Pod::clone(&granted.pod) },
            None => pod,
        });
    }

    /// The pod with the status that this worker last computed: what the downward API shows.
    pub(super) fn pod_with_status(&self) -> Pod {
        let status = self.reported.clone().or_else(|| self.pod.status.clone());
        Pod { status, ..Pod::clone(&self.pod) }
    }

    pub(super) async fn status_written(&self) {
        self.publisher.flush().await;
    }
}
