//! What a worker does about resizes.

use super::ending::Ending;
use super::resize::{self, Pending};
use super::worker::Worker;
use crate::container::resources;
use crate::cri::api;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between attempts that the runtime refuses.
const RETRY: Duration = Duration::from_secs(10);

impl Worker {
    /// Grants what the spec wants if the node has room, and makes the pod the one that was granted.
    pub(super) fn allocate(&mut self, ending: Option<&Ending>) {
        self.memory.resizes.meet(&self.wanted, &self.observed);
        if ending.is_none() && self.memory.resizes.wants_more(&self.wanted) {
            match self.take_room() {
                Ok(()) => self.granted(),
                Err(pending) => self.put_off(pending),
            }
        } else {
            self.memory.resizes.pending = None;
        }
        self.pod = self.memory.resizes.applied(&self.wanted);
        self.note_progress();
    }

    /// Under the register's lock, so that no two pods take the same room.
    fn take_room(&self) -> Result<(), Pending> {
        let mut register = self.kubelet.register.lock();
        let others = register.iter().filter(|(uid, _)| **uid != self.uid).map(|(_, slot)| slot.pod.as_ref());
        let verdict = resize::room(&self.wanted, others, &self.kubelet.allocatable);
        if let Some(own) = register.get_mut(&self.uid) {
            // At once: room that is given up a moment later must not be missed.
            own.wants_room = matches!(verdict, Err(Pending::Deferred(_)));
            if verdict.is_ok() {
                own.pod = Arc::new(Pod { status: own.pod.status.clone(), ..Pod::clone(&self.wanted) });
            }
        }
        verdict
    }

    fn granted(&mut self) {
        self.memory.resizes.grant(&self.wanted);
        self.memory.retry_at.clear();
        let text = format!("Pod resize started: {}", resize::description(&self.wanted, None));
        self.event(None, "Normal", "ResizeStarted", text);
        // The downward API may show them.
        self.volumes_ready = false;
        self.volumes_refresh = None;
        self.kubelet.room_changed(&self.uid);
    }

    fn put_off(&mut self, pending: Pending) {
        if self.memory.resizes.pending.as_ref() == Some(&pending) {
            return;
        }
        let (reason, message) = pending.words();
        let text = format!("Pod resize {reason}: {}", resize::description(&self.wanted, Some(message)));
        self.event(None, "Warning", &format!("Resize{reason}"), text);
        self.memory.resizes.pending = Some(pending);
    }

    /// Says when a resize is through.
    fn note_progress(&mut self) {
        let now = self.memory.resizes.in_progress(&self.pod, &self.observed);
        if std::mem::replace(&mut self.resizing, now) && !now {
            let text = format!("Pod resize completed: {}", resize::description(&self.pod, None));
            self.event(None, "Normal", "ResizeCompleted", text);
        }
    }

    /// Tells the runtime what was granted to a running container.
    pub(super) async fn resize(&mut self, id: &str, name: &str) {
        let Some(spec) = self.spec_of(name) else { return };
        let told = match self.shrinks_below_use(id, &spec).await {
            Some(why) => Err(why),
            None => self.tell(id, &spec).await,
        };
        match told {
            Ok(()) => {
                if let Err(error) = self.memory.resizes.done(id, spec.resources.unwrap_or_default()) {
                    tracing::warn!(pod = %self.full_name(), %error, "the resize is not noted");
                }
            }
            Err(why) => self.refused(name, why),
        }
    }

    /// The pod's own limits go up before those of the container, and down after them.
    async fn tell(&self, id: &str, spec: &Container) -> Result<(), String> {
        let (cgroups, runtime) = (&self.kubelet.cgroups, self.kubelet.runtime.as_ref());
        let chain = |error: crate::cgroup::CgroupsError| coracle_api::error::chain(&error);
        cgroups.raise(runtime, &self.pod).await.map_err(chain)?;
        let wanted = resources::update(&self.pod, spec, self.kubelet.node);
        let told = self.calls.update_container_resources(id, wanted).await;
        told.map_err(|error| error.detail())?;
        cgroups.set(runtime, &self.pod).await.map_err(chain)
    }

    fn refused(&mut self, name: &str, why: String) {
        self.memory.retry_at.insert(name.to_owned(), Instant::now() + RETRY);
        if self.memory.resizes.error.as_ref() != Some(&why) {
            let text = format!("Pod resize error: {}", resize::description(&self.pod, Some(&why)));
            self.event(Some(name), "Warning", "ResizeError", text);
            self.memory.resizes.error = Some(why);
        }
    }

    /// The kernel would kill a container whose memory is cut below what it uses. Where the runtime does not say what that
    /// is, it is left to the runtime to refuse.
    async fn shrinks_below_use(&self, id: &str, spec: &Container) -> Option<String> {
        let limit = super::qos::amount(spec, true, "memory").units();
        if limit == 0 {
            return None;
        }
        let stats = self.kubelet.runtime.list_container_stats().await.ok()?;
        let own = stats.into_iter().find(|s| s.attributes.as_ref().is_some_and(|a| a.id == id))?;
        let used = in_use(&own)?;
        (i128::from(used) > i128::from(limit)).then(|| {
            format!("attempting to set container memory limit ({limit}) below current usage ({used})")
        })
    }
}

/// Without what the kernel can drop at once.
fn in_use(stats: &api::ContainerStats) -> Option<u64> {
    stats.memory.as_ref()?.working_set_bytes.as_ref().map(|bytes| bytes.value)
}
