//! From the API server's pods to workers: who runs here, who no longer does, what the runtime has to say.

use crate::cri::{Runtime, api};
use crate::kubelet::inbox::Inbox;
use crate::kubelet::{Kubelet, PodEntries, PodEntry, PodTable};
use crate::last_seen;
use crate::metrics::{Metric, Metrics};
use crate::orphans;
use crate::pod::admit::{self, AdmitAttributes, Refusal, Verdict};
use crate::pod::worker::Worker;
use crate::pod_facts::labels;
use crate::pod_facts::labels::is_mirror;
use crate::pod_facts::termination::{self, Eviction};
use crate::shutdown;
use crate::static_pods;
use bytes::Bytes;
use coracle_client::fold::{Fold, Listed, ReadObject, Step};
use coracle_client::informer::{all_of, decode, try_decode};
use coracle_client::{ObjectKey, Reflector};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// How often a runtime without events is asked, while there are pods.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);
/// Between attempts to open the runtime's event stream.
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);

/// How long the first list of pods is waited for. Then those that were there last run.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The pods of one source and their workers.
struct Manager {
    kubelet: Arc<Kubelet>,
    /// The UID that a name has now.
    names: HashMap<ObjectKey, String>,
    workers: HashMap<String, (Arc<Inbox>, AbortHandle)>,
    /// UIDs of static pods whose manifests are there.
    from_files: HashSet<String>,
    /// Of these, those that were taken away and are back, and wait until they have ended.
    coming_back: HashSet<String>,
    /// UIDs of pods that may not run here, and whose status does not say so yet.
    refused: HashSet<String>,
}

/// Follows the pods that are bound to this node until `stop`; containers outlive it.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let selection = all_of::<Pod>().fields(format!("spec.nodeName={}", kubelet.config.node_name));
    let mut changes = Reflector::new(kubelet.client.clone(), selection);
    let mut manager = Manager {
        kubelet,
        names: HashMap::new(),
        workers: HashMap::new(),
        from_files: HashSet::new(),
        coming_back: HashSet::new(),
        refused: HashSet::new(),
    };
    let mut fold = Fold::new(changes.path());
    let mut first = true;
    let mut away = Box::pin(tokio::time::sleep(FIRST_LIST_TIMEOUT));
    let mut patient = !manager.kubelet.config.standalone;
    let mut look = tokio::time::interval(manager.kubelet.config.static_pods.file_check);
    let mut own = manager.kubelet.own.clone();
    let files = static_pods::Watch::new(&manager.kubelet.config);
    let (shown, mut fetched) = tokio::sync::watch::channel(Vec::new());
    let kubelet = manager.kubelet.clone();
    let mut fetching = std::pin::pin!(static_pods::url::follow(&kubelet.config, shown));
    let ended = manager.kubelet.clone();
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => break,
            () = async { tokio::select! { _ = look.tick() => {}, () = files.changed() => {} } } => {
                let all = static_pods::read(&manager.kubelet.config).into_iter().chain(fetched.borrow().clone());
                manager.static_pods(all.collect());
                continue;
            }
            () = ended.static_pod_ended.notified() => {
                look.reset_immediately();
                continue;
            }
            () = &mut fetching => continue,
            () = &mut away, if patient => {
                patient = false;
                manager.as_last_seen();
                continue;
            }
            Ok(()) = fetched.changed() => {
                look.reset_immediately();
                continue;
            }
            // A pod is judged by its node. That is followed until the kubelet stops.
            Some(change) = async {
                own.wait_for(Option::is_some).await.ok()?;
                Some(changes.next().await)
            } => change,
        };
        if manager.take_step(fold.apply(change, read_pod)) {
            patient = false;
            if std::mem::take(&mut first) {
                let orphans = orphans::remove_all(manager.kubelet.clone(), manager.uids());
                tokio::spawn(stop.clone().run_until_cancelled_owned(orphans));
            }
        }
    }
    manager.workers.values().for_each(|(_, task)| task.abort());
}

fn read_pod(bytes: &Bytes, _listing: bool) -> Result<ReadObject<Pod>, String> {
    let pod: Pod = try_decode(bytes)?;
    Ok(ReadObject { key: ObjectKey::of(&pod), kept: Some(pod) })
}

impl Manager {
    /// Does what the API says. Whether that was all pods of the node.
    fn take_step(&mut self, step: Step<Pod, Bytes>) -> bool {
        match step {
            Step::Nothing => {}
            Step::Applied(_, pod) => self.take_from_api(pod),
            Step::Deleted(_, document) => {
                if let Some(pod) = document.and_then(|bytes| decode::<Pod>(&bytes)) {
                    self.delete(&pod);
                }
            }
            Step::Replace(listed) => {
                self.kubelet.last_seen.hear();
                self.replace(listed);
                return true;
            }
        }
        false
    }

    fn uids(&self) -> HashSet<String> {
        self.workers.keys().cloned().collect()
    }

    /// A complete list: what is not in it is gone.
    fn replace(&mut self, listed: Listed<Pod>) {
        let unreadable = listed.unreadable.iter().filter_map(|key| self.names.get(key).cloned());
        let there = listed.objects.values().filter_map(ResourceExt::uid).chain(unreadable);
        let there: HashSet<String> = there.collect();
        for (uid, (inbox, _)) in &self.workers {
            if !there.contains(uid) && !self.from_files.contains(uid) {
                inbox.remove();
            }
        }
        let leaving: HashSet<String> =
            self.workers.keys().filter(|uid| self.is_leaving(uid)).cloned().collect();
        self.names
            .retain(|_, uid| there.contains(uid) || self.from_files.contains(uid) || leaving.contains(uid));
        self.refused.retain(|uid| there.contains(uid));
        // Who was let in before, or was there first, has what two want.
        let mut pods: Vec<Pod> = listed.objects.into_values().collect();
        pods.sort_by_key(|pod| {
            (admit::is_new(pod), pod.metadata.creation_timestamp.as_ref().map(|at| at.0), pod.name_any())
        });
        pods.into_iter().for_each(|pod| self.take_from_api(pod));
        self.forget_unread();
    }

    /// The server is away: its pods are as they were when it was seen last. They were let in then.
    fn as_last_seen(&mut self) {
        let pods: Vec<Pod> = self.kubelet.last_seen.pods().into_iter().filter(last_seen::goes_on).collect();
        tracing::warn!(pods = pods.len(), "the server is away, this node's pods are as it said last");
        pods.into_iter().for_each(|pod| self.apply(pod));
    }

    /// Forgets what no pod of the API server is or reads any more.
    fn forget_unread(&self) {
        let register = self.kubelet.register.lock();
        let there: HashSet<&String> =
            self.names.values().filter(|uid| !self.from_files.contains(*uid)).collect();
        let pods = register.iter().filter(|(uid, _)| there.contains(uid)).map(|(_, slot)| slot.pod.as_ref());
        self.kubelet.last_seen.retain(pods);
    }

    /// Whether the pod is gone from its source, and not from here yet.
    fn is_leaving(&self, uid: &str) -> bool {
        self.workers.get(uid).is_some_and(|(inbox, task)| inbox.is_removed() && !task.is_finished())
    }

    /// What the manifests say now, all of them. Of one name there is one static pod at a time: who takes another's place, or
    /// comes back, waits until that one has ended.
    fn static_pods(&mut self, pods: Vec<Pod>) {
        let there: HashSet<String> = pods.iter().filter_map(ResourceExt::uid).collect();
        for uid in self.from_files.difference(&there) {
            if let Some((inbox, _)) = self.workers.get(uid) {
                inbox.remove();
            }
        }
        let is_new = |pod: &Pod| pod.uid().is_some_and(|uid| !self.from_files.contains(&uid));
        let waits = |pod: &Pod| self.names.get(&ObjectKey::of(pod)).is_some_and(|uid| self.is_leaving(uid));
        let (waiting, new): (Vec<Pod>, Vec<Pod>) = pods.into_iter().filter(is_new).partition(waits);
        let waiting: HashSet<String> = waiting.iter().filter_map(ResourceExt::uid).collect();
        self.from_files = there.difference(&waiting).cloned().collect();
        self.count_restarted(&waiting, &new);
        new.into_iter().for_each(|pod| self.apply(pod));
    }

    /// A static pod that is back waits for its own end first. One that takes another's place is another.
    fn count_restarted(&mut self, waiting: &HashSet<String>, new: &[Pod]) {
        let back = new.iter().filter(|pod| pod.uid().is_some_and(|uid| self.coming_back.contains(&uid)));
        back.for_each(|_| self.kubelet.metrics.add(Metric::RestartedPods, &["true"]));
        self.coming_back = waiting.iter().filter(|uid| self.is_leaving(uid)).cloned().collect();
    }

    fn take_from_api(&mut self, mut pod: Pod) {
        if is_mirror(&pod) {
            return self.mirror(&pod);
        }
        static_pods::came_from_api(&mut pod);
        if admit::is_new(&pod) && pod.uid().is_some_and(|uid| self.refused.contains(&uid)) {
            // Its failure is being written. Judged anew it might be let in, and run as one that has failed.
            return;
        }
        match self.admit(&pod) {
            Err(refusal) => self.refuse(pod, refusal),
            Ok(()) => {
                self.kubelet.last_seen.put_pod(&pod);
                self.apply(pod);
            }
        }
    }

    /// Judges the pod and gives it its place under one lock, so that no two pods, nor one that grows, get the same.
    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let uid = pod.uid().unwrap_or_default();
        if self.workers.contains_key(&uid) || !admit::is_new(pod) {
            return Ok(());
        }
        if *self.kubelet.shutting_down.borrow() {
            let (reason, message) = shutdown::REFUSED;
            return Err(Refusal::new(reason, message));
        }
        let node = self.kubelet.own.borrow().clone().unwrap_or_default();
        let mut register = self.kubelet.register.lock();
        let others = self.counting(&register, &uid);
        let others: Vec<&Pod> = others.iter().map(Arc::as_ref).collect();
        let situation = AdmitAttributes {
            node: &node,
            others: &others,
            apparmor: self.kubelet.apparmor,
            sysctls: &self.kubelet.config.kernel.allowed_sysctls,
        };
        match admit::judge(pod, &situation) {
            Verdict::Refused(refusal) => return Err(refusal),
            Verdict::Preempts { victims, short_of } => self.preempt(&register, &victims, &short_of),
            Verdict::Admitted => {}
        }
        register.insert(uid, PodEntry::new(Arc::new(pod.clone())));
        Ok(())
    }

    /// The other pods that have their share of the node. One whose object is gone has none: its place may have been given
    /// away already, though its worker has not heard of it.
    fn counting(&self, register: &PodEntries, but: &str) -> Vec<Arc<Pod>> {
        let there: HashSet<&String> = self.names.values().chain(&self.from_files).collect();
        let counts = register.iter().filter(|(uid, slot)| {
            there.contains(uid) && *uid != but && !slot.inbox.is_evicted() && !termination::is_over(&slot.pod)
        });
        counts.map(|(_, slot)| slot.pod.clone()).collect()
    }

    /// The victims' places are the critical pod's at once; they themselves have their grace periods.
    /// `short_of` is the resource that they are taken for.
    fn preempt(&self, register: &PodEntries, victims: &[String], short_of: &str) {
        let message = "Preempted in order to admit critical pod";
        for slot in victims.iter().filter_map(|uid| register.get(uid)) {
            self.kubelet.recorder.warning(slot.pod.as_ref(), Eviction::PREEMPTING, message);
            self.kubelet.metrics.add(Metric::Preemptions, &[short_of]);
            let (reason, message) = (Eviction::PREEMPTING, message.to_owned());
            slot.inbox.evict(Eviction { reason, message, grace: None, disrupts: true });
        }
    }

    /// Says that the pod has failed, again and again until that is known. Then it comes back as one that is over.
    fn refuse(&mut self, pod: Pod, refusal: Refusal) {
        let uid = pod.uid().unwrap_or_default();
        if !self.refused.insert(uid.clone()) {
            return;
        }
        self.kubelet.recorder.warning(&pod, &refusal.reason, refusal.message.clone());
        self.kubelet.metrics.add(Metric::AdmissionRejections, &[&refusal.reason]);
        let message = format!("Pod was rejected: {}", refusal.message);
        let status = json!({ "phase": "Failed", "reason": refusal.reason, "message": message,
            "observedGeneration": pod.metadata.generation });
        let body = Patch::Merge(json!({ "metadata": { "uid": uid }, "status": status }));
        let api: Api<Pod> =
            Api::namespaced(self.kubelet.client.clone(), &pod.namespace().unwrap_or_default());
        tokio::spawn(async move {
            while let Err(error) = api.patch_status(&pod.name_any(), &PatchParams::default(), &body).await {
                // Gone, or another one of the name.
                if matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409)) {
                    break;
                }
                tracing::debug!(pod = %pod.name_any(), %error, "refusal not written");
                tokio::time::sleep(REOPEN_INTERVAL).await;
            }
        });
    }

    /// A mirror pod that is being deleted is let go at once, and so is one whose manifest is gone, unless its pod still has
    /// its grace period: then it goes with that.
    fn mirror(&self, pod: &Pod) {
        if self.kubelet.components.keeps(pod) {
            return;
        }
        let hash = pod.annotations().get(labels::CONFIG_HASH).cloned().unwrap_or_default();
        let shows = self.from_files.contains(&hash) || self.is_leaving(&hash);
        if pod.metadata.deletion_timestamp.is_none() && shows {
            return;
        }
        let api: Api<Pod> =
            Api::namespaced(self.kubelet.client.clone(), &pod.namespace().unwrap_or_default());
        let (name, uid) = (pod.name_any(), pod.uid());
        tokio::spawn(async move {
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid, resource_version: None }),
                ..DeleteParams::default()
            };
            if let Err(error) = api.delete(&name, &params).await {
                tracing::debug!(%name, %error, "mirror pod not deleted");
            }
        });
    }

    fn apply(&mut self, mut pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        pod.metadata.managed_fields = None;
        self.workers.retain(|_, (_, task)| !task.is_finished());
        let key = ObjectKey::of(&pod);
        let pod = Arc::new(pod);
        // Another pod of this name is gone, though its deletion was missed.
        if let Some(old) = self.names.insert(key, uid.clone()).filter(|old| *old != uid)
            && let Some((inbox, _)) = self.workers.get(&old)
        {
            inbox.remove();
        }
        if let Some((inbox, _)) = self.workers.get(&uid) {
            inbox.put(|mail| mail.pod = Some(pod));
            return;
        }
        self.count_containers(&pod);
        let slot = PodEntry::new(pod.clone());
        let inbox = slot.inbox.clone();
        self.kubelet.register.lock().insert(uid.clone(), slot);
        if let Some(eviction) = Eviction::resumed(&pod, self.kubelet.config.eviction.resumed_grace()) {
            inbox.evict(eviction);
        }
        let task = Worker::spawn(self.kubelet.clone(), pod, inbox.clone());
        self.workers.insert(uid, (inbox, task));
    }

    fn count_containers(&self, pod: &Pod) {
        let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let containers = u32::try_from(containers).unwrap_or(u32::MAX);
        self.kubelet.metrics.counted(Metric::ContainersPerPod, &[], f64::from(containers));
    }

    fn delete(&mut self, pod: &Pod) {
        if is_mirror(pod) {
            self.kubelet.components.gone(pod);
            let hash = pod.annotations().get(labels::CONFIG_HASH).cloned().unwrap_or_default();
            if let Some((inbox, _)) = self.workers.get(&hash) {
                inbox.put(|mail| mail.unmirrored = true);
            }
            return;
        }
        let uid = pod.uid().unwrap_or_default();
        self.refused.remove(&uid);
        self.names.retain(|_, known| *known != uid);
        if let Some((inbox, _)) = self.workers.get(&uid) {
            inbox.remove();
        }
        self.forget_unread();
    }
}

/// Tells workers when the runtime has news, by its events or by asking again and again.
pub async fn follow_runtime(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let (runtime, register, metrics) = (&kubelet.runtime, &kubelet.register, &kubelet.metrics);
    let follow = async {
        loop {
            match runtime.container_events().await {
                Ok(mut events) => {
                    metrics.add(Metric::EventsConnections, &[]);
                    wake_all(register);
                    while let Some(Ok(event)) = events.next().await {
                        count_latency(&event, metrics);
                        wake(register, &event);
                    }
                }
                Err(error) if error.is_unimplemented() => relist(runtime.as_ref(), register, metrics).await,
                Err(error) => {
                    metrics.add(Metric::EventsErrors, &[]);
                    tracing::debug!(%error, "runtime's events not followed");
                }
            }
            tokio::time::sleep(REOPEN_INTERVAL).await;
            wake_all(register);
        }
    };
    stop.run_until_cancelled(follow).await;
}

/// After a step of the wall clock nobody knows which tokens are still good, and deadlines are nearer or further away.
pub async fn follow_clock(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let mut steps = coracle_client::clock::steps();
    while let Some(Ok(())) = stop.run_until_cancelled(steps.changed()).await {
        kubelet.objects.forget_tokens();
        kubelet.register.lock().values().for_each(|slot| slot.inbox.put(|mail| mail.objects = true));
    }
}

/// How long the event was on its way. Some runtimes do not say when they made it.
fn count_latency(event: &api::ContainerEventResponse, metrics: &Metrics) {
    let Some(made) = u64::try_from(event.created_at).ok().filter(|made| *made > 0) else { return };
    let heard = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    metrics.took(Metric::EventsLatency, &[], heard.saturating_sub(Duration::from_nanos(made)));
}

fn wake_all(register: &PodTable) {
    register.lock().values().for_each(|slot| slot.inbox.put(|mail| mail.runtime = true));
}

fn wake(register: &PodTable, event: &api::ContainerEventResponse) {
    let metadata = event.pod_sandbox_status.as_ref().and_then(|s| s.metadata.as_ref());
    match metadata.map(|m| m.uid.as_str()) {
        Some(uid) => {
            if let Some(slot) = register.lock().get(uid) {
                slot.inbox.put(|mail| mail.runtime = true);
            }
        }
        None => wake_all(register),
    }
}

/// Compares states once a second and wakes the workers of pods where something changed. Returns on an error.
async fn relist(runtime: &dyn Runtime, register: &PodTable, metrics: &Metrics) {
    let mut old: HashMap<String, (String, i32)> = HashMap::new();
    let mut last = None;
    loop {
        tokio::time::sleep(RELIST_INTERVAL).await;
        if register.lock().is_empty() {
            old.clear();
            continue;
        }
        let began = Instant::now();
        if let Some(last) = last.replace(began) {
            metrics.took(Metric::PlegInterval, &[], began.duration_since(last));
        }
        let lists =
            futures::future::try_join(runtime.list_pod_sandboxes(None), runtime.list_containers(None));
        let Ok((sandboxes, containers)) = lists.await else { return };
        metrics.took(Metric::PlegRelist, &[], began.elapsed());
        metrics.happened(Metric::PlegSeen);
        let uid = |labels: &HashMap<String, String>| labels.get(labels::POD_UID).cloned().unwrap_or_default();
        let sandboxes = sandboxes.into_iter().map(|s| (s.id, (uid(&s.labels), s.state)));
        let containers = containers.into_iter().map(|c| (c.id, (uid(&c.labels), c.state)));
        let new: HashMap<String, (String, i32)> = sandboxes.chain(containers).collect();
        let changed = new.iter().filter(|(id, state)| old.get(*id) != Some(*state));
        let gone = old.iter().filter(|(id, _)| !new.contains_key(*id));
        let uids: HashSet<&String> = changed.chain(gone).map(|(_, (uid, _))| uid).collect();
        let register = register.lock();
        for slot in uids.into_iter().filter_map(|uid| register.get(uid)) {
            slot.inbox.put(|mail| mail.runtime = true);
        }
        drop(register);
        old = new;
    }
}
