//! What a worker does about resizes.

use super::resize;
use super::resize_order::{Change, Resized, Used, below_use, changes};
use super::termination::Termination;
use super::worker::Worker;
use crate::cgroup::limits::Limits;
use crate::container::resources;
use crate::cri::api;
use crate::kubelet::room::{self, Granted, Pending, Trigger, Waiting};
use crate::metrics::Metric;
use coracle_api::error::chain;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between attempts that fail.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

impl Worker {
    /// Grants what the spec wants if the node has room, and makes the pod the one that was granted.
    pub(super) fn allocate(&mut self, ending: Option<&Termination>) {
        self.memory.resizes.meet(&self.wanted, &self.observed);
        if ending.is_none() && self.memory.resizes.wants_more(&self.wanted) {
            for asked in self.memory.resizes.newly_asked(&self.wanted) {
                self.kubelet.metrics.add(Metric::RequestedResizes, &asked);
            }
            match self.take_room() {
                Ok(trigger) => self.granted(trigger),
                Err(pending) => self.put_off(pending),
            }
        } else {
            self.memory.resizes.pending = None;
            if let Some(own) = self.kubelet.register.lock().get_mut(&self.uid) {
                (own.waiting, own.granted) = (None, None);
            }
        }
        self.pod = self.memory.resizes.applied(&self.wanted);
        self.note_progress();
    }

    /// Under the register's lock, so that no two pods take the same room. Whoever waits and comes first gets it first.
    fn take_room(&self) -> Result<Trigger, Pending> {
        if let Some(infeasible) = self.cannot_resize() {
            return Err(infeasible);
        }
        let mut register = self.kubelet.register.lock();
        let Some(own) = register.get_mut(&self.uid) else { return Ok(Trigger::Updated) };
        let same = |granted: &Granted| granted.pod.metadata.generation == self.wanted.metadata.generation;
        if let Some(granted) = own.granted.take().filter(same) {
            return Ok(granted.trigger);
        }
        // What was granted to what it wants no more is given back.
        let pod = self.memory.resizes.applied(&self.wanted);
        own.pod = Arc::new(Pod { status: own.pod.status.clone(), ..Pod::clone(&pod) });
        let since = own.waiting.as_ref().map_or_else(Instant::now, |waiting| waiting.since);
        own.waiting = Some(Waiting { pod: self.wanted.clone(), since });
        let mut without = room::give(&mut register, &self.kubelet.allocatable, Trigger::Updated);
        match without.remove(&self.uid) {
            Some(pending) => Err(pending),
            None => {
                register.get_mut(&self.uid).and_then(|own| own.granted.take());
                Ok(Trigger::Updated)
            }
        }
    }

    fn granted(&mut self, trigger: Trigger) {
        if let Some(Pending::Deferred(_)) = self.memory.resizes.pending {
            self.kubelet.metrics.add(Metric::DeferredResizes, &[trigger.name()]);
        }
        let kept = self.memory.resizes.grant(&self.wanted);
        self.warn_unless(kept);
        self.memory.resize_retry_at = None;
        let text = format!("Pod resize started: {}", resize::description(&self.wanted, None));
        self.event(None, "Normal", "ResizeStarted", text);
        // The downward API may show them.
        self.volumes_ready = false;
        self.volumes_refresh = None;
        self.kubelet.room_changed(Trigger::Resized);
    }

    fn put_off(&mut self, pending: Pending) {
        if self.memory.resizes.pending.as_ref() == Some(&pending) {
            return;
        }
        if let Pending::Infeasible { detail, .. } = &pending {
            self.kubelet.metrics.add(Metric::InfeasibleResizes, &[detail]);
        }
        let (reason, message) = pending.words();
        let text = format!("Pod resize {reason}: {}", resize::description(&self.wanted, Some(message)));
        self.event(None, "Warning", &format!("Resize{reason}"), text);
        self.memory.resizes.pending = Some(pending);
    }

    /// Says when a resize is through.
    fn note_progress(&mut self) {
        let now = self.memory.resizes.in_progress(&self.pod, &self.observed);
        let before = self.resizing;
        self.resizing = now.then(|| before.unwrap_or_else(Instant::now));
        if let (Some(since), false) = (before, now) {
            self.kubelet.metrics.took_millis(Metric::ResizeDuration, &["true"], since.elapsed());
            let text = format!("Pod resize completed: {}", resize::description(&self.pod, None));
            self.event(None, "Normal", "ResizeCompleted", text);
        }
    }

    /// Carries out what was granted, as far as it is done in place.
    pub(super) async fn resize(&mut self) {
        match self.carry_out().await {
            Ok(()) => {
                self.memory.resize_retry_at = None;
                let kept = self.memory.resizes.placed();
                self.warn_unless(kept);
            }
            Err(why) => self.refused(why),
        }
    }

    async fn carry_out(&mut self) -> Result<(), String> {
        let kubelet = self.kubelet.clone();
        let (cgroups, runtime) = (&kubelet.cgroups, kubelet.runtime.as_ref());
        let pod = self.pod.clone();
        let before = cgroups.current(runtime, &pod).await.map_err(|e| chain(&e))?;
        let after = cgroups.wanted(&pod, kubelet.allocation.has_cpus(&self.uid));
        let containers = self.memory.resizes.unfinished(&pod, &self.observed);
        if let Some(why) = self.shrinks_below_use(&before, &after, &containers).await {
            return Err(why);
        }
        for change in changes(&before, &after, &containers) {
            match change {
                Change::Pod(limits) => {
                    cgroups.limit(runtime, &pod, limits).await.map_err(|e| chain(&e))?;
                }
                Change::Container { id, resource, resources } => self.tell(&id, resource, resources).await?,
            }
        }
        Ok(())
    }

    /// Tells the runtime one resource of a running container.
    async fn tell(
        &mut self,
        id: &str,
        resource: &str,
        resources: ResourceRequirements,
    ) -> Result<(), String> {
        let seen = self.observed.containers.iter().find(|seen| seen.id == id).cloned();
        let Some((seen, spec)) = seen.and_then(|seen| Some((seen.clone(), self.spec_of(&seen.name)?))) else {
            return Ok(());
        };
        let told = Container { resources: Some(resources), ..spec.clone() };
        let linux = resources::update(&self.pod, &told, self.node_for(&spec.name));
        self.calls.update_container_resources(id, linux).await.map_err(|error| error.detail())?;
        let kept = self.memory.resizes.done(&spec, &seen, resource);
        self.warn_unless(kept);
        Ok(())
    }

    fn refused(&mut self, why: String) {
        if let Some(since) = self.resizing {
            self.kubelet.metrics.took_millis(Metric::ResizeDuration, &["false"], since.elapsed());
        }
        self.memory.resize_retry_at = Some(Instant::now() + RETRY_INTERVAL);
        if self.memory.resizes.error.as_ref() != Some(&why) {
            let text = format!("Pod resize error: {}", resize::description(&self.pod, Some(&why)));
            self.event(None, "Warning", "ResizeError", text);
            self.memory.resizes.error = Some(why);
        }
    }

    async fn shrinks_below_use(
        &self,
        before: &Limits,
        after: &Limits,
        containers: &[Resized],
    ) -> Option<String> {
        let used: HashMap<String, u64> = match containers {
            [] => HashMap::new(),
            _ => {
                let all = self.kubelet.runtime.list_container_stats().await.unwrap_or_default();
                all.into_iter()
                    .filter_map(|stats| Some((stats.attributes.as_ref()?.id.clone(), in_use(&stats)?)))
                    .collect()
            }
        };
        let pod = self.kubelet.cgroups.memory_in_use(&self.pod).await;
        let used = Used { pod, containers: &|id: &str| used.get(id).copied() };
        below_use(before, after, containers, &used)
    }

    /// What is not noted is told again by the next process.
    pub(super) fn warn_unless(&self, kept: std::io::Result<()>) {
        if let Err(error) = kept {
            tracing::warn!(pod = %self.full_name(), %error, "the pod's resources are not noted");
        }
    }
}

/// All of it, as the kernel compares it with the limit; runtimes before containerd 1.7 say only what cannot be dropped.
fn in_use(stats: &api::ContainerStats) -> Option<u64> {
    let memory = stats.memory.as_ref()?;
    memory.usage_bytes.as_ref().or(memory.working_set_bytes.as_ref()).map(|bytes| bytes.value)
}
