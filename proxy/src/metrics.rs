//! What the proxy counts, under upstream's names, and its page on port 10249.

use crate::health;
use crate::userspace::Relays;
use coracle_client::metrics::families::{NONE, Page, metric_families};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub type Metrics = coracle_client::metrics::families::Metrics<Metric>;

metric_families! { "kubeproxy_";
    SyncDuration = "sync_proxy_rules_duration_seconds", "histogram", ["ip_family"], (0.001, 2.0, 15),
        "Time of bringing a change into force.";
    LastTimestamp = "sync_proxy_rules_last_timestamp_seconds", "gauge", ["ip_family"], NONE,
        "When rules were last brought into force.";
    ProgrammingDuration = "network_programming_duration_seconds", "histogram", [], (0.002, 2.0, 16),
        "Time from the change of a Service's endpoints to its being in force.";
    RulesTotal = "sync_proxy_rules_iptables_total", "gauge", ["ip_family", "table"], NONE,
        "Rules of the mode iptables in force.";
    Entries = "entries", "gauge", ["ip_family", "table"], NONE,
        "Rules, entries of maps or relays in force, whatever the mode.";
    IptablesFailures = "sync_proxy_rules_iptables_restore_failures_total", "counter", ["ip_family"], NONE,
        "Failed attempts to write rules of the mode iptables.";
    NftablesFailures = "sync_proxy_rules_nftables_sync_failures_total", "counter", ["ip_family"], NONE,
        "Failed attempts to write rules of the mode nftables.";
    ServiceChanges = "sync_proxy_rules_service_changes_total", "counter", [], NONE, "Changes of Services.";
    EndpointChanges = "sync_proxy_rules_endpoint_changes_total", "counter", [], NONE, "Changes of endpoints.";
    Repairs = "repairs_total", "counter", [], NONE, "How often rules that somebody broke were written again.";
    Refusals = "configuration_refused_total", "counter", [], NONE,
        "Configurations that were not taken in.";
}

/// Prometheus' text format.
struct Text(String);

impl Page for Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} [ALPHA] {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{braces} {value}");
    }
}

/// What the port shows beside metrics.
#[derive(Clone)]
pub struct Shown {
    pub metrics: Arc<Metrics>,
    pub mode: watch::Receiver<&'static str>,
    pub relays: Relays,
}

impl Shown {
    /// Status, media type and body of a path.
    fn page(&self, path: &str) -> (&'static str, &'static str, String) {
        const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
        match path {
            "/metrics" => {
                let mut text = Text(String::new());
                self.metrics.render(&mut text);
                ("200 OK", TEXT, text.0 + &coracle_client::metrics::render())
            }
            "/proxyMode" => ("200 OK", "text/plain; charset=utf-8", (*self.mode.borrow()).to_owned()),
            "/relays" => ("200 OK", "application/json", self.relays.json()),
            "/healthz" => ("200 OK", "text/plain; charset=utf-8", "ok".to_owned()),
            _ => ("404 Not Found", "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
        }
    }
}

/// Serves until it is aborted.
pub async fn serve(listener: TcpListener, shown: Shown) {
    loop {
        let stream = health::next(|| listener.accept()).await;
        let shown = shown.clone();
        tokio::spawn(health::respond_as(stream, move |path| {
            let (status, media, body) = shown.page(path);
            (status, media, String::new(), body)
        }));
    }
}

/// # Errors
/// The address cannot be had.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn upstreams_names_are_on_the_page() {
        let metrics = Arc::new(Metrics::default());
        metrics.observe(Metric::SyncDuration, &["IPv4"], Duration::from_millis(3));
        metrics.set_all(Metric::RulesTotal, [(vec!["IPv4", "nat"], 7)]);
        let (_, mode) = watch::channel("iptables");
        let shown = Shown { metrics, mode, relays: Relays::default() };
        let (status, _, page) = shown.page("/metrics");
        assert_eq!(status, "200 OK");
        assert!(
            page.contains("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1"),
            "{page}"
        );
        assert!(
            page.contains("kubeproxy_sync_proxy_rules_iptables_total{ip_family=\"IPv4\",table=\"nat\"} 7"),
            "{page}"
        );
        assert_eq!(shown.page("/proxyMode").2, "iptables");
        assert_eq!(shown.page("/relays").2, "{}");
        assert_eq!(shown.page("/x").0, "404 Not Found");
    }
}
