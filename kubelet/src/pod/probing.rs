//! Looking after running containers: which probes are asked of them, and what their answers change.

use super::observed::Container as Seen;
use super::plan::Health;
use super::worker::Worker;
use crate::kubelet::inbox::Probed;
use crate::metrics::probes::Subject;
use crate::probe::Target;
use crate::probe::prober::{self, Kind as ProbeKind, Report};
use k8s_openapi::api::core::v1::Container;
use tokio::task::AbortHandle;

impl Worker {
    /// Starts looking after a running container. One that was ready before this process started is still ready.
    pub(super) fn adopt(&mut self, seen: &Seen, ends: bool) {
        let Some(spec) = self.spec_of(&seen.name) else { return };
        if !self.memory.health.contains_key(&seen.id) {
            let status = self.pod.status.as_ref();
            let all = status.iter().flat_map(|s| {
                s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten())
            });
            let id = self.observed.full_id(seen);
            let before = all.into_iter().find(|s| s.container_id.as_deref() == Some(&id));
            let started = spec.startup_probe.is_none() || before.is_some_and(|s| s.started == Some(true));
            let ready = started && (spec.readiness_probe.is_none() || before.is_some_and(|s| s.ready));
            self.memory.health.insert(seen.id.clone(), Health { started, ready, failed: None });
        }
        self.probe(seen, &spec, ends);
    }

    /// Starts the probes that the container's state calls for. Of one that is to end only readiness is still asked.
    fn probe(&mut self, seen: &Seen, spec: &Container, ends: bool) {
        let Some(health) = self.memory.health.get(&seen.id).cloned() else { return };
        let kinds: &[ProbeKind] = match (health.started, ends) {
            (true, false) => &[ProbeKind::Liveness, ProbeKind::Readiness],
            (true, true) => &[ProbeKind::Readiness],
            (false, false) => &[ProbeKind::Startup],
            (false, true) => &[],
        };
        let ip = self.ip();
        for kind in kinds {
            let key = (seen.id.clone(), *kind);
            let Some(probe) = kind.of(spec).filter(|_| !self.probes.contains_key(&key)) else { continue };
            let verdict = if *kind == ProbeKind::Liveness { true } else { health.ready };
            let runtime = self.kubelet.runtime.clone();
            let target = Target { runtime, container_id: seen.id.clone(), ip: ip.clone() };
            let subject = Subject {
                namespace: self.pod.metadata.namespace.clone().unwrap_or_default(),
                pod: self.pod.metadata.name.clone().unwrap_or_default(),
                pod_uid: self.uid.clone(),
                container: seen.name.clone(),
            };
            let (inbox, id, name, kind) = (self.inbox.clone(), seen.id.clone(), seen.name.clone(), *kind);
            let counts = self.kubelet.metrics.probes.clone();
            let count = move |result, time| counts.add(&subject, kind.title(), result, time);
            let report = move |report: Report| {
                let probed = Probed { container_id: id.clone(), name: name.clone(), kind, report };
                inbox.put(|mail| mail.probes.push(probed));
            };
            self.probes.insert(key, prober::spawn(kind, probe, spec, (target, count), verdict, report));
        }
    }

    pub(super) fn stop_probing(&mut self, id: &str) {
        self.probes.retain(|(container, _), task| {
            let keep = container != id;
            if !keep {
                task.abort();
            }
            keep
        });
    }

    /// A container that is to end is neither restarted nor waited for any more; whether it is ready matters to its last
    /// breath.
    pub(super) fn stop_judging(&mut self, id: &str) {
        self.probes.retain(|(container, kind), task| {
            let keep = container != id || *kind == ProbeKind::Readiness;
            if !keep {
                task.abort();
            }
            keep
        });
    }

    pub(super) fn probed(&mut self, id: String, name: &str, kind: ProbeKind, report: Report) {
        let verdict = match report {
            Report::Failed(message) => {
                let text = format!("{} probe failed: {message}", kind.title());
                return self.event(Some(name), "Warning", "Unhealthy", text);
            }
            Report::Warned(message) => {
                let text = format!("{} probe warning: {message}", kind.title());
                return self.event(Some(name), "Warning", "ProbeWarning", text);
            }
            Report::Lost(message) => {
                let text = format!("{} probe errored and resulted in unknown state: {message}", kind.title());
                return self.event(Some(name), "Warning", "Unhealthy", text);
            }
            Report::Verdict(verdict) => verdict,
        };
        let has_readiness = self.spec_of(name).is_some_and(|c| c.readiness_probe.is_some());
        let Some(health) = self.memory.health.get_mut(&id) else { return };
        match (kind, verdict) {
            (ProbeKind::Startup, true) => {
                health.started = true;
                health.ready = !has_readiness;
                self.probes.remove(&(id, kind)).iter().for_each(AbortHandle::abort);
            }
            (ProbeKind::Startup, false) => health.failed = Some("startup"),
            (ProbeKind::Liveness, alive) => health.failed = (!alive).then_some("liveness"),
            (ProbeKind::Readiness, ready) => health.ready = ready,
        }
    }
}
