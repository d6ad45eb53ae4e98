//! Doing what the plan says. Execution makes no choices; what fails is remembered for the next plan.

use super::containers::{self, Kind};
use super::execute_termination::MIN_GRACE;
use super::plan::{Step, Waiting};
use super::stubborn::patiently;
use super::termination::{Termination, is_over};
use super::userns::{Users, UsersError};
use super::worker::Worker;
use crate::container::{dns, hosts, sandbox};
use crate::cri::api;
use crate::log_links;
use crate::metrics::Metric;
use crate::probe::{Action, Outcome, Target};
use coracle_storage::beneath;
use coracle_storage::volumes::{SetUp, VolumeError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause after volumes or the sandbox failed; upstream: 500 ms, doubled up to two minutes.
pub(super) const RETRY: Duration = Duration::from_millis(500);
pub(super) const MAX_RETRY: Duration = Duration::from_secs(122);

impl Worker {
    pub(super) async fn act(&mut self, step: Step, ending: Option<&Termination>) {
        match step {
            Step::Wait(_) => {}
            Step::End { grace } => self.end(grace, ending).await,
            Step::CleanUp => self.clean_up().await,
            Step::NewSandbox { attempt } => self.new_sandbox(attempt).await,
            Step::Start { kind, name, attempt } => self.start(kind, &name, attempt).await,
            Step::Discard { id } => {
                let removed = self.calls.remove_container(&id).await;
                self.note_change(removed, "remove the container");
            }
            Step::Kill { id, name, message } => {
                self.event(Some(&name), "Normal", "Killing", message);
                // Who restarts with all others is not asked to end in an orderly way, as upstream has it.
                let at_once = self.memory.again.contains(&id);
                let grace = if at_once { Duration::ZERO } else { self.kill_grace(&id, &name) };
                self.memory.replaced.insert(id.clone());
                let stopped = self.stop(&id, &name, grace).await;
                self.note_change(stopped, "stop the container");
            }
            Step::Resize => self.resize().await,
        }
    }

    fn log_failure<T>(&self, result: crate::cri::Result<T>, what: &str) {
        if let Err(error) = result {
            tracing::warn!(pod = %self.full_name(), %error, "could not {what}");
        }
    }

    /// After a change to a pod that goes on; one that failed would be planned again at once.
    fn note_change(&mut self, result: crate::cri::Result<()>, what: &str) {
        match result {
            Ok(()) => self.changes_failed = 0,
            Err(error) => {
                let pause = RETRY.saturating_mul(1 << self.changes_failed.min(10)).min(MAX_RETRY);
                self.changes_failed += 1;
                self.memory.pod_retry_at = Some(Instant::now() + pause);
                tracing::warn!(pod = %self.full_name(), %error, "could not {what}");
            }
        }
    }

    /// A failing probe may have a grace period of its own.
    fn kill_grace(&self, id: &str, name: &str) -> Duration {
        let failed = self.memory.health.get(id).and_then(|h| h.failed);
        let spec = self.spec_of(name);
        let probe = match failed {
            Some("liveness") => spec.as_ref().and_then(|c| c.liveness_probe.as_ref()),
            Some(_) => spec.as_ref().and_then(|c| c.startup_probe.as_ref()),
            None => None,
        };
        let own = probe.and_then(|p| p.termination_grace_period_seconds);
        let pod = self.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
        own.or(pod).map_or(Duration::from_secs(30), super::termination::grace_of)
    }

    /// preStop, then the stop signal, then the end, all within `grace`.
    pub(super) async fn stop(&mut self, id: &str, name: &str, grace: Duration) -> crate::cri::Result<()> {
        self.stop_judging(id);
        let spec = self.spec_of(name);
        let hook = spec.as_ref().and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref());
        let started = Instant::now();
        if let (Some(hook), Some(spec)) = (hook, &spec)
            && !grace.is_zero()
            && !self.pre_stopped.contains(id)
        {
            let outcome = self.hook(Action::of_handler(hook, spec), id, grace).await;
            self.note_pre_stop(name, outcome);
            self.pre_stopped.insert(id.to_owned());
        }
        let left = grace.saturating_sub(started.elapsed());
        let left = if grace.is_zero() { grace } else { left.max(MIN_GRACE.min(grace)) };
        patiently("StopContainer", left, self.calls.stop_container(id, left)).await
    }

    pub(super) async fn hook(&self, action: Result<Action, String>, id: &str, timeout: Duration) -> Outcome {
        match action {
            Ok(action) => {
                let runtime = self.kubelet.runtime.clone();
                let target = Target { runtime, container_id: id.to_owned(), ip: self.ip() };
                let limited = tokio::time::timeout(timeout, action.run(&target, timeout)).await;
                if limited.is_err() && matches!(action, Action::Sleep(_)) {
                    self.kubelet.metrics.add(Metric::SleepsCut, &[]);
                }
                match limited.unwrap_or_else(|_| Outcome::Failure("timed out".to_owned())) {
                    Outcome::Unknown(message) => Outcome::Failure(message),
                    Outcome::Warning(message) => {
                        self.kubelet.metrics.add(Metric::HttpFallbacks, &[]);
                        self.event(None, "Warning", "LifecycleHTTPFallback", message);
                        Outcome::Success
                    }
                    told => told,
                }
            }
            Err(message) => Outcome::Failure(message),
        }
    }

    pub(super) async fn set_up_volumes(&mut self) {
        let mut pod = self.pod_with_status();
        // Images are the runtime's to mount, when their containers start.
        let volumes = pod.spec.as_mut().and_then(|s| s.volumes.as_mut());
        volumes.into_iter().for_each(|all| all.retain(|volume| volume.image.is_none()));
        let first = self.observed.containers.is_empty();
        let SetUp { mounted, failed, notes } =
            Box::pin(self.kubelet.volumes.set_up(&pod, &self.kubelet.allocatable, first, Timestamp::now()))
                .await;
        for note in notes {
            self.event(None, if note.warning { "Warning" } else { "Normal" }, note.reason, note.message);
        }
        let refresh = mounted.values().filter_map(|m| m.refresh_after).min();
        self.volumes_refresh = refresh.map(|after| Instant::now() + after.max(Duration::from_secs(10)));
        self.mounted = mounted;
        self.volumes_ready = failed.is_empty();
        if failed.is_empty() {
            self.volume_failures = 0;
            return;
        }
        self.volume_failures = self.volume_failures.saturating_add(1);
        let pause = RETRY.saturating_mul(1 << self.volume_failures.min(10)).min(MAX_RETRY);
        self.volumes_refresh = Some(Instant::now() + pause);
        for error in failed {
            let text = match &error.source {
                VolumeError::Claim { .. } => format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{0}], unattached volumes=[], \
                     failed to process volumes=[{0}]: {1}",
                    error.volume, error.source
                ),
                _ => error.to_string(),
            };
            self.event(None, "Warning", "FailedMount", text);
        }
    }

    /// Whether volumes stand; a failure delays the next attempt.
    async fn need_volumes(&mut self) -> bool {
        if !self.volumes_ready {
            self.set_up_volumes().await;
        }
        if !self.volumes_ready {
            self.memory.pod_retry_at = self.volumes_refresh;
        }
        self.volumes_ready
    }

    /// The users of a pod that does not share the node's.
    pub(super) fn users(&self) -> Result<Option<Users>, String> {
        if self.pod.spec.as_ref().and_then(|s| s.host_users) != Some(false) {
            return Ok(None);
        }
        let directory = self.kubelet.volumes.pod_dir(&self.uid);
        std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        self.kubelet.users.of(&self.uid).map(Some).map_err(|e| e.to_string())
    }

    /// A runtime that knows nothing of users would run such a pod with the node's.
    async fn check_users(&self, config: &api::PodSandboxConfig, handler: &str) -> Result<(), String> {
        let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let namespaces = security.and_then(|security| security.namespace_options.as_ref());
        if namespaces.is_none_or(|namespaces| namespaces.userns_options.is_none()) {
            return Ok(());
        }
        let status = self.kubelet.runtime.status().await.map_err(|e| e.to_string())?;
        let mut handlers = status.runtime_handlers.iter();
        let able =
            handlers.any(|h| h.name == handler && h.features.as_ref().is_some_and(|f| f.user_namespaces));
        if able { Ok(()) } else { Err(UsersError::Runtime(handler.to_owned()).to_string()) }
    }

    pub(super) fn sandbox_config(&self, attempt: u32) -> Result<api::PodSandboxConfig, String> {
        let config = self.kubelet.now();
        let text = std::fs::read_to_string(&config.resolv_conf).unwrap_or_default();
        let host = dns::ResolvConf::parse(&text);
        let dns = dns::NodeDns { cluster: &config.cluster_dns, domain: &config.cluster_domain, host: &host };
        sandbox::config(&sandbox::SandboxInput {
            pod: &self.pod,
            attempt,
            dns,
            log_dir: &config.log_dir,
            cgroup_parent: self.kubelet.cgroups.names().for_runtime(&self.pod),
            confinement: &self.kubelet.confinement,
            users: self.users()?,
        })
    }

    async fn new_sandbox(&mut self, attempt: u32) {
        if !self.need_volumes().await {
            return;
        }
        if !self.need_claims(true).await {
            return;
        }
        self.stop_old_sandboxes().await;
        let own_users = self.pod.spec.as_ref().and_then(|s| s.host_users) == Some(false);
        self.kubelet.metrics.add(Metric::StartedPods, &[]);
        if own_users {
            self.kubelet.metrics.add(Metric::UserPods, &[]);
        }
        let began = Instant::now();
        let own_cpus = self.kubelet.allocation.has_cpus(&self.uid);
        let limited = self.kubelet.cgroups.set(self.kubelet.runtime.as_ref(), &self.pod, own_cpus).await;
        self.kubelet.metrics.took(Metric::Cgroup, &["create"], began.elapsed());
        let config = match limited {
            Ok(()) => self.sandbox_config(attempt),
            Err(error) => Err(format!("cannot limit the pod: {}", coracle_api::error::chain(&error))),
        };
        let made = match config {
            Ok(config) => self.run_sandbox(config).await,
            Err(message) => Err(message),
        };
        match made {
            Ok(()) => {
                self.volume_failures = 0;
                let kept = self.memory.resizes.placed();
                self.warn_unless(kept);
            }
            Err(message) => {
                self.kubelet.metrics.add(Metric::StartedPodsErrors, &[]);
                if own_users {
                    self.kubelet.metrics.add(Metric::UserPodsErrors, &[]);
                }
                let text = format!("Failed to create pod sandbox: {message}");
                self.event(None, "Warning", "FailedCreatePodSandBox", text);
                self.volume_failures = self.volume_failures.saturating_add(1);
                let pause =
                    RETRY.saturating_mul(1 << self.volume_failures.min(10)).min(Duration::from_secs(60));
                self.memory.pod_retry_at = Some(Instant::now() + pause);
            }
        }
    }

    async fn run_sandbox(&self, config: api::PodSandboxConfig) -> Result<(), String> {
        std::fs::create_dir_all(&config.log_directory)
            .map_err(|e| format!("{}: {e}", config.log_directory))?;
        let handler = self.runtime_handler().await?;
        self.check_users(&config, &handler).await?;
        let (began, metrics) = (Instant::now(), &self.kubelet.metrics);
        let made = self.calls.run_pod_sandbox(config, handler.clone()).await;
        metrics.took(Metric::Sandbox, &[&handler], began.elapsed());
        if made.is_err() {
            metrics.add(Metric::SandboxErrors, &[&handler]);
        }
        made.map(|_| ()).map_err(|e| e.to_string())
    }

    /// What the pod's RuntimeClass calls the runtime; empty for the default one.
    pub(super) async fn runtime_handler(&self) -> Result<String, String> {
        let class = self.pod.spec.as_ref().and_then(|s| s.runtime_class_name.as_deref());
        let Some(class) = class.filter(|name| !name.is_empty()) else { return Ok(String::new()) };
        let classes: Api<RuntimeClass> = Api::all(self.kubelet.client.clone());
        let found =
            classes.get_opt(class).await.map_err(|e| format!("failed to get sandbox runtime: {e}"))?;
        found.map(|class| class.handler).ok_or_else(|| {
            format!("failed to get sandbox runtime: RuntimeClass.node.k8s.io {class:?} not found")
        })
    }

    async fn stop_old_sandboxes(&mut self) {
        let old: Vec<_> = self.observed.running().map(|c| (c.id.clone(), c.name.clone())).collect();
        if !self.observed.sandboxes.is_empty() {
            let text = "Pod sandbox changed, it will be killed and re-created.";
            self.event(None, "Normal", "SandboxChanged", text);
        }
        let grace = self.kill_grace("", "");
        let stopped = self.stop_all(old, grace).await;
        self.log_failure(stopped, "stop a container");
        for sandbox in &self.observed.sandboxes {
            self.log_failure(self.calls.stop_pod_sandbox(&sandbox.id).await, "stop the sandbox");
        }
    }

    async fn start(&mut self, kind: Kind, name: &str, attempt: u32) {
        let Some(spec) = self.spec_of(name) else { return };
        if !self.need_volumes().await || !self.need_claims(false).await {
            return;
        }
        if attempt > 0 {
            self.memory.restarts.next(name, Instant::now());
        }
        let container_type = containers::container_type(kind);
        self.kubelet.metrics.add(Metric::StartedContainers, &[container_type]);
        match self.create_and_start(kind, &spec, attempt).await {
            Ok(id) => {
                self.memory.waiting.remove(name);
                self.memory.retry_at.remove(name);
                let kept = self.memory.resizes.started(&id, &spec);
                self.warn_unless(kept);
                self.link_log(name, &id, attempt);
                self.post_start(&spec, &id).await;
            }
            Err(failure) => {
                let code = failure.waiting.reason.clone();
                self.kubelet.metrics.add(Metric::StartedContainersErrors, &[&code, container_type]);
                self.memory.retry_at.insert(name.to_owned(), Instant::now() + failure.retry_after);
                self.memory.waiting.insert(name.to_owned(), failure.waiting);
            }
        }
    }

    /// The container's log may not be there yet: a link may be there before what it leads to.
    fn link_log(&self, name: &str, id: &str, attempt: u32) {
        let config = &self.kubelet.config;
        let Some(links) = &config.log_links else { return };
        let log =
            sandbox::log_directory(&config.log_dir, &self.pod).join(name).join(format!("{attempt}.log"));
        let link = log_links::name(&self.pod, name, id);
        if let Err(error) = log_links::link(links, &link, &log) {
            tracing::warn!(pod = %self.full_name(), %error, "no link to the container's log");
        }
    }

    /// Takes the link to a container's log away with it.
    pub(super) fn unlink_log(&self, name: &str, id: &str) {
        let Some(links) = &self.kubelet.config.log_links else { return };
        let link = links.join(log_links::name(&self.pod, name, id));
        // It may be gone already; what is not, is found dangling at the next look.
        let _ = beneath::remove_below(links, &link);
    }

    async fn post_start(&mut self, spec: &Container, id: &str) {
        let Some(handler) = spec.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else { return };
        // Upstream sets no limit; a hook that hangs ends with the pod.
        let limit = Duration::from_secs(24 * 3600);
        if let Outcome::Failure(message) = self.hook(Action::of_handler(handler, spec), id, limit).await {
            let name = spec.name.clone();
            let text = format!("PostStartHook failed: {message}");
            self.event(Some(&name), "Warning", "FailedPostStartHook", text);
            self.event(Some(&name), "Normal", "Killing", "FailedPostStartHook");
            let grace = self.kill_grace(id, &name);
            let stopped = self.stop(id, &name, grace).await;
            self.log_failure(stopped, "stop the container");
        }
    }

    /// Keeps one dead attempt of each container and the newest sandbox, as upstream's collector does. Of a pod that has
    /// ended no container is kept where the disk is short.
    pub(super) async fn prune(&mut self) {
        let kept = if self.discard && is_over(&self.pod) { 0 } else { 2 };
        let mut seen: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
        let mut stale = Vec::new();
        for container in &self.observed.containers {
            let rank = seen.entry(&container.name).or_default();
            *rank += 1;
            if *rank > kept && container.state == super::observed::State::Exited {
                stale.push((container.id.clone(), container.name.clone(), container.log_path.clone()));
            }
        }
        for (id, name, log) in stale {
            self.unlink_log(&name, &id);
            self.log_failure(self.calls.remove_container(&id).await, "remove the container");
            // The log of an attempt goes with it; it may be gone already.
            let _ = beneath::remove_below(&self.kubelet.config.log_dir, &log);
        }
        let used: BTreeSet<&str> = self.observed.containers.iter().map(|c| c.sandbox.as_str()).collect();
        let old =
            self.observed.sandboxes.iter().skip(1).filter(|s| !s.ready && !used.contains(s.id.as_str()));
        for sandbox in old {
            self.log_failure(self.calls.remove_pod_sandbox(&sandbox.id).await, "remove the sandbox");
        }
    }

    /// Writes the pod's hosts file and returns its path.
    pub(super) fn write_hosts(&self) -> Result<std::path::PathBuf, String> {
        let path = self.kubelet.volumes.pod_dir(&self.uid).join("etc-hosts");
        let host_network = self.pod.spec.as_ref().and_then(|s| s.host_network) == Some(true);
        let text = if host_network {
            let node = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
            hosts::host_network_file(&self.pod, &node)
        } else {
            let ips = self.observed.sandbox().map(|s| s.ips.clone()).unwrap_or_default();
            hosts::file(&self.pod, &ips, &self.kubelet.now().cluster_domain)
        };
        let directory = self.kubelet.volumes.pod_dir(&self.uid);
        std::fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
        let write = || {
            let dir = beneath::Dir::open(&directory)?;
            // Containers may have written anything of any length into it.
            let limit = u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(1);
            if dir.read("etc-hosts", limit).is_ok_and(|old| old == text.as_bytes()) {
                return Ok(());
            }
            dir.overwrite("etc-hosts", text.as_bytes(), 0o644)
        };
        write().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))?;
        Ok(path)
    }
}

/// A start that failed.
pub(super) struct Failure {
    pub waiting: Waiting,
    pub retry_after: Duration,
}

impl Failure {
    pub fn new(reason: &str, message: impl Into<String>, retry_after: Duration) -> Self {
        Self { waiting: Waiting { reason: reason.to_owned(), message: message.into() }, retry_after }
    }
}

/// How long a pull took, as Go prints it.
pub(super) fn took(duration: Duration) -> String {
    if duration.as_secs() >= 60 {
        return coracle_api::duration::written(Duration::from_secs(duration.as_secs()));
    }
    if duration.as_millis() >= 1000 {
        return format!("{:.3}s", duration.as_secs_f64());
    }
    format!("{}ms", duration.as_millis())
}
