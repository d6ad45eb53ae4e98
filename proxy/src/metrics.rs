//! What the proxy counts, under upstream's names, and its page on port 10249.

use crate::userspace::Relays;
use coracle_listen::page;
use coracle_listen::zpages::{Program, Zpages};
use coracle_metrics::{CONTENT_TYPE, Text};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub type Metrics = coracle_metrics::Metrics<Metric>;

coracle_metrics::metric_families! { "kubeproxy_";
    SyncDuration = histogram(0.001, 2.0, 15) "sync_proxy_rules_duration_seconds" ["ip_family"],
        "Time of bringing a change into force.";
    LastTimestamp = gauge "sync_proxy_rules_last_timestamp_seconds" ["ip_family"],
        "When rules were last brought into force.";
    ProgrammingDuration = histogram(0.002, 2.0, 16) "network_programming_duration_seconds" [],
        "Time from the change of a Service's endpoints to its being in force.";
    RulesTotal = gauge "sync_proxy_rules_iptables_total" ["ip_family", "table"],
        "Rules of the mode iptables in force.";
    Entries = gauge "entries" ["ip_family", "table"],
        "Rules, entries of maps or relays in force, whatever the mode.";
    IptablesFailures = counter "sync_proxy_rules_iptables_restore_failures_total" ["ip_family"],
        "Failed attempts to write rules of the mode iptables.";
    NftablesFailures = counter "sync_proxy_rules_nftables_sync_failures_total" ["ip_family"],
        "Failed attempts to write rules of the mode nftables.";
    ServiceChanges = counter "sync_proxy_rules_service_changes_total" [],
        "Changes of Services.";
    EndpointChanges = counter "sync_proxy_rules_endpoint_changes_total" [],
        "Changes of endpoints.";
    Repairs = counter "repairs_total" [],
        "How often rules that somebody broke were written again.";
    Refusals = counter "configuration_refused_total" [],
        "Configurations that were not taken in.";
}

const TEXT: &str = "text/plain; charset=utf-8";
/// What the port serves.
const PATHS: [&str; 6] = ["/flagz", "/healthz", "/metrics", "/proxyMode", "/relays", "/statusz"];

/// What the port shows beside metrics.
#[derive(Clone)]
pub struct Shown {
    pub metrics: Arc<Metrics>,
    pub policies: Arc<crate::policy::metrics::Metrics>,
    pub mode: watch::Receiver<&'static str>,
    pub relays: Relays,
    pub program: Arc<Program>,
}

impl Shown {
    /// Status, media type, further headers and body of a path.
    fn page(&self, path: &str, accept: &str) -> (&'static str, &'static str, String, String) {
        let pages = Zpages { component: "kube-proxy", program: &self.program, paths: &PATHS };
        match pages.page(path, accept, jiff::Timestamp::now()) {
            Some(Ok(page)) => {
                let warning = page.warning_header().map(|text| format!("Warning: {text}\r\n"));
                ("200 OK", page.media, warning.unwrap_or_default(), page.body)
            }
            Some(Err(error)) => ("406 Not Acceptable", TEXT, String::new(), format!("{error}\n")),
            None => {
                let (status, media, body) = self.other_page(path);
                (status, media, String::new(), body)
            }
        }
    }

    fn other_page(&self, path: &str) -> (&'static str, &'static str, String) {
        match path {
            "/metrics" => {
                let mut text = Text::default();
                self.metrics.render(&mut text);
                self.policies.render(&mut text);
                coracle_client::metrics::render(&mut text);
                coracle_metrics::stability::render(&mut text);
                ("200 OK", CONTENT_TYPE, text.finish())
            }
            "/proxyMode" => ("200 OK", TEXT, (*self.mode.borrow()).to_owned()),
            "/relays" => ("200 OK", "application/json", self.relays.json()),
            "/healthz" => ("200 OK", TEXT, "ok".to_owned()),
            _ => ("404 Not Found", TEXT, "404 page not found\n".to_owned()),
        }
    }
}

/// Serves until it is aborted.
pub async fn serve(listener: TcpListener, shown: Shown) {
    loop {
        let stream = page::next(|| listener.accept()).await;
        let shown = shown.clone();
        tokio::spawn(page::respond_as(stream, move |path, accept| shown.page(path, accept)));
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
        let program = Arc::default();
        let shown = Shown { metrics, policies: Arc::default(), mode, relays: Relays::default(), program };
        let (status, _, _, page) = shown.page("/metrics", "");
        assert_eq!(status, "200 OK");
        assert!(
            page.contains("kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1"),
            "{page}"
        );
        assert!(
            page.contains("kubeproxy_sync_proxy_rules_iptables_total{ip_family=\"IPv4\",table=\"nat\"} 7"),
            "{page}"
        );
        for head in [
            "# HELP kubeproxy_sync_proxy_rules_duration_seconds [ALPHA] ",
            "# HELP workqueue_depth [BETA] ",
            "# HELP kubeproxy_repairs_total How often",
        ] {
            assert!(page.contains(head), "{head} in {page}");
        }
        assert_eq!(shown.page("/proxyMode", "").3, "iptables");
        assert_eq!(shown.page("/relays", "").3, "{}");
        assert_eq!(shown.page("/x", "").0, "404 Not Found");
        let (_, media, _, status) = shown.page("/statusz", "text/plain");
        assert!(media == TEXT && status.starts_with("\nkube-proxy statusz\n"), "{status}");
        let (_, media, more, flags) =
            shown.page("/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz");
        assert!(
            media == "application/json" && more.starts_with("Warning: 299 - ") && more.ends_with("\r\n"),
            "{more}"
        );
        assert!(flags.contains("\"kind\":\"Flagz\""), "{flags}");
        assert_eq!(shown.page("/flagz", "application/xml").0, "406 Not Acceptable");
    }
}
