//! From what is written to settings, and back.

use super::config::{Config, EvictionConfiguration, EvictionSettings, NodeConfiguration, NodeSettings};
use super::documents::Written;
use super::fields;
use super::images::ImageSettings;
use super::kernel::KernelSettings;
use super::logs::LogSettings;
use super::node::Registration;
use super::placement;
use super::port::PortSettings;
use super::reader::Reader;
use super::reserved::Reserved;
use super::shutdown::ShutdownSettings;
use super::static_pods::StaticPods;
use crate::pod_facts::backoff;
use crate::signal::Signal;
use coracle_api::duration::written as shown;
use coracle_client::events::Pace;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

impl Config {
    /// Takes over what is written. What nobody says keeps, of what names this node and its places, the value it has; all
    /// else gets its default.
    ///
    /// # Errors
    /// All mistakes, each with its field. Then some of what is right may have been taken over.
    pub fn apply(&mut self, written: &Written) -> Result<(), Vec<String>> {
        let mut mistakes = fields::refused(written);
        let mut reader = Reader::new(written);
        self.places(&mut reader);
        self.static_pods = StaticPods::read(&mut reader);
        self.port = PortSettings::read(&mut reader, self.anywhere());
        self.registration = Registration::read(&mut reader);
        self.logs = LogSettings::read(&mut reader);
        self.images = ImageSettings::read(&mut reader);
        self.reserved = Reserved::read(&mut reader);
        self.placement = placement::read(&mut reader);
        if let Some(cpus) = &self.placement.reserved_cpus {
            self.reserved.take_cpus(cpus.len());
        }
        self.kernel = KernelSettings::read(&mut reader);
        self.shutdown = ShutdownSettings::read(&mut reader);
        self.events = pace(&mut reader);
        self.max_restart_period = restart_period(&mut reader);
        match EvictionSettings::read(&eviction(&mut reader)) {
            Ok(settings) => self.eviction = settings,
            Err(more) => mistakes.extend(more),
        }
        match NodeSettings::read(&node(&mut reader)) {
            Ok(settings) => self.node = settings,
            Err(more) => mistakes.extend(more),
        }
        mistakes.extend(reader.mistakes);
        self.written.clone_from(written);
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    fn places(&mut self, reader: &mut Reader<'_>) {
        let socket = |text: &str| text.starts_with("unix://").then(|| text.to_owned());
        const SOCKET: &str = "no unix:///path";
        if let Some(endpoint) = reader.parsed("containerRuntimeEndpoint", socket, SOCKET) {
            self.runtime_endpoint = endpoint;
        }
        if let Some(endpoint) = reader.parsed("imageServiceEndpoint", socket, SOCKET) {
            self.image_endpoint = Some(endpoint);
        }
        if let Some(limit) = reader.duration("runtimeRequestTimeout") {
            self.runtime_request_timeout = limit;
        }
        if let Some(path) = reader.text("podLogsDir") {
            self.log_dir = PathBuf::from(path);
        }
        if let Some(addresses) = reader.get("clusterDNS") {
            self.cluster_dns = addresses;
        }
        if let Some(domain) = reader.text("clusterDomain") {
            self.cluster_domain = domain;
        }
        if let Some(path) = reader.get("resolvConf") {
            self.resolv_conf = path;
        }
        if let Some(time) = reader.duration("streamingConnectionIdleTimeout") {
            self.streaming_connection_idle_timeout = time;
        }
    }

    /// The settings in force, as a KubeletConfiguration that says them all.
    pub fn configuration(&self) -> Written {
        let mut all = Written::new();
        let entries = [
            ("containerRuntimeEndpoint", json!(self.runtime_endpoint)),
            ("imageServiceEndpoint", json!(self.image_endpoint)),
            ("runtimeRequestTimeout", json!(shown(self.runtime_request_timeout))),
            ("podLogsDir", json!(self.log_dir)),
            ("clusterDNS", json!(self.cluster_dns)),
            ("clusterDomain", json!(self.cluster_domain)),
            ("resolvConf", json!(self.resolv_conf)),
            ("streamingConnectionIdleTimeout", json!(shown(self.streaming_connection_idle_timeout))),
            ("staticPodPath", json!(self.static_pods_dir())),
            ("eventRecordQPS", json!(self.events.map_or(0, |pace| pace.per_second))),
            ("eventBurst", json!(self.events.map(|pace| pace.burst))),
            ("crashLoopBackOff", json!({ "maxContainerRestartPeriod": shown(self.max_restart_period) })),
            (
                "mergeDefaultEvictionSettings",
                self.written.get("mergeDefaultEvictionSettings").cloned().unwrap_or(json!(true)),
            ),
        ];
        all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
        self.static_pods.show(&mut all);
        self.port.show(&mut all);
        self.registration.show(&mut all);
        self.logs.show(&mut all);
        self.images.show(&mut all);
        self.reserved.show(&mut all);
        placement::show(&self.placement, &mut all);
        self.kernel.show(&mut all);
        self.shutdown.show(&mut all);
        for part in [json!(self.eviction.configuration()), json!(self.node.configuration())] {
            if let Value::Object(part) = part {
                all.extend(part);
            }
        }
        all.retain(|_, value| !value.is_null());
        all
    }
}

/// What is wrong with what is written, whatever the node.
pub fn check(written: &Written) -> Vec<String> {
    Config::new("checked", std::net::Ipv4Addr::LOCALHOST.into()).apply(written).err().unwrap_or_default()
}

fn pace(reader: &mut Reader<'_>) -> Option<Pace> {
    let all = Pace::default();
    let per_second = reader.whole("eventRecordQPS", 0..=i64::from(u32::MAX)).unwrap_or(all.per_second);
    let burst: u32 = reader.whole("eventBurst", 0..=i64::from(u32::MAX)).unwrap_or(0);
    (per_second > 0).then_some(Pace { per_second, burst: if burst == 0 { all.burst } else { burst } })
}

fn restart_period(reader: &mut Reader<'_>) -> Duration {
    const PATH: &str = "crashLoopBackOff.maxContainerRestartPeriod";
    reader.only("crashLoopBackOff", &["maxContainerRestartPeriod"]);
    let Some(period) = reader.duration(PATH) else { return backoff::MAX };
    if !(Duration::from_secs(1)..=backoff::MAX).contains(&period) {
        reader.mistake(PATH, "it is not between 1s and 300s");
    }
    period
}

fn eviction(reader: &mut Reader<'_>) -> EvictionConfiguration {
    let mut all = EvictionConfiguration {
        eviction_hard: reader.get("evictionHard"),
        eviction_soft: reader.get("evictionSoft"),
        eviction_soft_grace_period: reader.get("evictionSoftGracePeriod"),
        eviction_minimum_reclaim: reader.get("evictionMinimumReclaim"),
        eviction_max_pod_grace_period: reader.get("evictionMaxPodGracePeriod"),
        eviction_pressure_transition_period: reader.duration("evictionPressureTransitionPeriod").map(shown),
    };
    if reader.get("mergeDefaultEvictionSettings") == Some(false)
        && let Some(hard) = &mut all.eviction_hard
    {
        for (name, _) in Signal::ALL {
            hard.entry(name.to_owned()).or_insert_with(|| "0%".to_owned());
        }
    }
    all
}

fn node(reader: &mut Reader<'_>) -> NodeConfiguration {
    NodeConfiguration {
        max_pods: reader.get("maxPods"),
        pods_per_core: reader.get("podsPerCore"),
        pod_pids_limit: reader.get("podPidsLimit"),
        seccomp_default: reader.get("seccompDefault"),
        protect_kernel_defaults: reader.get("protectKernelDefaults"),
        image_pull_credentials_verification_policy: reader.text("imagePullCredentialsVerificationPolicy"),
        preloaded_images_verification_allowlist: reader.get("preloadedImagesVerificationAllowlist"),
    }
}
