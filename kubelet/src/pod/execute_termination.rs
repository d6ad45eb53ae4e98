//! Ending a pod: stopping what runs and removing what is left, by force where the runtime cannot.

use super::containers::is_sidecar;
use super::observed::Observed;
use super::stubborn::{EndError, patiently};
use super::termination::Termination;
use super::worker::Worker;
use crate::cgroup::processes;
use crate::container::sandbox;
use crate::cri::{Calls, Result, RuntimeError};
use crate::kubelet::Kubelet;
use crate::metrics::Metric;
use crate::pod_facts::labels::is_static;
use crate::probe::{Action, Outcome};
use coracle_storage::beneath;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The least time that a container gets to stop in an orderly way, also at the end of a grace period.
pub(super) const MIN_GRACE: Duration = Duration::from_secs(2);

impl Worker {
    /// Stops all containers at once, sidecars after the rest in reverse order, then the sandboxes. A failure makes the pod
    /// wait.
    pub(super) async fn end(&mut self, grace: Duration, ending: Option<&Termination>) {
        let ended = self.stop_everything(grace, ending).await;
        self.note_end(ended.map_err(EndError::from));
    }

    async fn stop_everything(&mut self, grace: Duration, ending: Option<&Termination>) -> Result<()> {
        let started = Instant::now();
        let running: Vec<(String, String)> =
            self.observed.running().map(|c| (c.id.clone(), c.name.clone())).collect();
        let deleted = matches!(ending, Some(Termination::Deleted { .. }));
        if deleted || ending.is_some_and(|e| e.words().is_some()) {
            for (_, name) in &running {
                self.event(Some(name), "Normal", "Killing", format!("Stopping container {name}"));
            }
        }
        let sidecars = self.sidecars();
        let (last, first): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|(_, name)| sidecars.contains(name));
        let mut stopped = self.stop_all(first, grace).await;
        for name in sidecars.iter().rev() {
            if let Some((id, name)) = last.iter().find(|(_, n)| n == name) {
                let left = grace.saturating_sub(started.elapsed()).max(MIN_GRACE.min(grace));
                stopped = stopped.and(self.stop(id, name, left).await);
            }
        }
        if matches!(stopped, Err(RuntimeError::Timeout { .. })) {
            // More of the same would only put off what helps.
            return stopped;
        }
        if self.calls.underway() {
            // The way back of what was begun is the next look's to know.
            let settled = async {
                self.calls.settled().await;
                Ok(())
            };
            return stopped.and(patiently("the call before", Duration::ZERO, settled).await);
        }
        for sandbox in &self.observed.sandboxes {
            let stop = self.calls.stop_pod_sandbox(&sandbox.id);
            stopped = stopped.and(patiently("StopPodSandbox", Duration::ZERO, stop).await);
        }
        stopped
    }

    fn sidecars(&self) -> Vec<String> {
        let init = self.pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
        init.filter(|c| is_sidecar(c)).map(|c| c.name.clone()).collect()
    }

    /// Stops these containers, all at the same time: each is stopped when its own preStop hook has ended, with what the hook
    /// left of the grace period. The first failure is returned when all have been tried.
    pub(super) async fn stop_all(
        &mut self,
        containers: Vec<(String, String)>,
        grace: Duration,
    ) -> Result<()> {
        let mut stops = Vec::new();
        for (id, name) in &containers {
            self.stop_judging(id);
            let spec = self.spec_of(name);
            let hook = spec.and_then(|c| {
                let handler = c.lifecycle.as_ref()?.pre_stop.clone()?;
                Some(Action::of_handler(&handler, &c))
            });
            let hook = hook.filter(|_| !grace.is_zero() && !self.pre_stopped.contains(id));
            stops.push((id.clone(), name.clone(), hook));
        }
        let this = &*self;
        let work = stops.into_iter().map(|(id, name, hook)| async move {
            let started = Instant::now();
            let had_hook = hook.is_some();
            if let Some(action) = hook {
                let outcome = this.hook(action, &id, grace).await;
                this.note_pre_stop(&name, outcome);
            }
            let left = if had_hook { grace.saturating_sub(started.elapsed()).max(MIN_GRACE) } else { grace };
            patiently("StopContainer", left, this.calls.stop_container(&id, left)).await
        });
        let results = futures::future::join_all(work).await;
        self.pre_stopped.extend(containers.into_iter().map(|(id, _)| id));
        results.into_iter().collect()
    }

    pub(super) fn note_pre_stop(&self, name: &str, outcome: Outcome) {
        if let Outcome::Failure(message) = outcome {
            let text = format!("PreStopHook failed: {message}");
            self.event(Some(name), "Warning", "FailedPreStopHook", text);
        }
    }

    /// Removes what the runtime and the disk still have of the pod, then confirms the deletion.
    pub(super) async fn clean_up(&mut self) {
        // A static pod ends because its manifest is gone; nobody reads its last status.
        if !is_static(&self.pod) {
            self.status_written().await;
        }
        if self.kubelet.dra.holds(&self.uid) {
            // Then its status says that it has ended, and it is cleaned up.
            let released = self.release_claims().await;
            return self.note_end(released.map_err(EndError::from));
        }
        let ended = match self.remove_all().await {
            Ok(()) => {
                self.references.release();
                self.confirm_deletion().await
            }
            failed => failed,
        };
        self.cleaned = ended.is_ok();
        self.note_end(ended);
    }

    async fn remove_all(&self) -> std::result::Result<(), EndError> {
        remove_everything(&self.calls, &self.observed).await?;
        self.kubelet.volumes.tear_down(&self.uid).await?;
        let logs = sandbox::log_directory(&self.kubelet.config.log_dir, &self.pod);
        if let Err(error) = beneath::remove_below(&self.kubelet.config.log_dir, &logs) {
            tracing::warn!(path = %logs.display(), %error, "could not remove logs");
        }
        self.observed.containers.iter().for_each(|seen| self.unlink_log(&seen.name, &seen.id));
        let began = Instant::now();
        let removed = processes::remove(&self.kubelet.cgroup_root, &self.uid);
        self.kubelet.metrics.took(Metric::Cgroup, &["destroy"], began.elapsed());
        Ok(removed?)
    }

    /// What failed is tried again after a pause; where the runtime has failed often, what holds the pod is killed.
    fn note_end(&mut self, ended: std::result::Result<(), EndError>) {
        let Err(error) = ended else {
            self.stubborn.done();
            self.memory.end_retry_at = None;
            return;
        };
        let pause = self.stubborn.failed(&error);
        self.memory.end_retry_at = Some(Instant::now() + pause);
        let again_ms = pause.as_millis();
        tracing::warn!(pod = %self.full_name(), %error, again_ms, "the pod does not end");
        self.event(None, "Warning", "FailedKillPod", format!("error killing pod: {error}"));
        if !self.stubborn.wants_force() {
            return;
        }
        for what in force(&self.kubelet, &self.uid, &self.observed) {
            self.event(
                None,
                "Warning",
                "ForcedKill",
                format!("The runtime cannot end the pod: killed {what}"),
            );
        }
    }

    async fn confirm_deletion(&self) -> std::result::Result<(), EndError> {
        let api: Api<Pod> =
            Api::namespaced(self.kubelet.client.clone(), &self.pod.namespace().unwrap_or_default());
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            // The object that shows a static pod has a UID of its own.
            preconditions: (!is_static(&self.pod))
                .then(|| Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match api.delete(&self.pod.name_any(), &params).await {
            Ok(_) => Ok(()),
            // Gone, or another one of the name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(EndError::Confirmation(Box::new(error))),
        }
    }
}

/// Removes a pod's containers and sandboxes, stopped before. What cannot be removed keeps nothing else from being tried; the
/// first failure is returned.
pub async fn remove_everything(calls: &Calls, observed: &Observed) -> Result<()> {
    let mut removed = Ok(());
    for container in &observed.containers {
        let remove = calls.remove_container(&container.id);
        removed = removed.and(patiently("RemoveContainer", Duration::ZERO, remove).await);
    }
    for sandbox in &observed.sandboxes {
        let remove = async {
            calls.stop_pod_sandbox(&sandbox.id).await?;
            calls.remove_pod_sandbox(&sandbox.id).await
        };
        removed = removed.and(patiently("RemovePodSandbox", Duration::ZERO, remove).await);
    }
    removed
}

/// Kills what holds a pod that the runtime cannot end: the shims of its sandboxes, and what is left in its cgroups. Says
/// whom it killed.
pub fn force(kubelet: &Kubelet, uid: &str, observed: &Observed) -> Vec<String> {
    let ids: BTreeSet<String> = observed.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
    let shims = kubelet.shims.of(&ids).into_iter().filter(|shim| kubelet.shims.kill(shim));
    let mut killed: Vec<String> =
        shims.map(|shim| format!("the shim of sandbox {} (process {})", shim.id, shim.pid)).collect();
    let count = processes::kill(&kubelet.cgroup_root, uid);
    if count > 0 {
        killed.push(format!("{count} processes in the pod's cgroup"));
    }
    for what in &killed {
        tracing::warn!(%uid, "the runtime cannot end the pod: killed {what}");
    }
    killed
}
