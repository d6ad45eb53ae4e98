//! How long a node's certificates are still good, and how often none came in their place: what the kubelet's metrics tell of
//! them, under upstream's names, for which alerts are written.

use super::Role;
use coracle_apiserver::pki::Pki;
use coracle_metrics::Text;
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Renewals that failed.
#[derive(Default)]
pub struct Failures {
    client: AtomicU64,
    serving: AtomicU64,
}

impl Failures {
    pub fn note(&self, role: Role) {
        let count = match role {
            Role::Kubelet => &self.client,
            Role::Serving => &self.serving,
            // Upstream's proxy has a kubeconfig of its own, and nobody counts.
            Role::Proxy => return,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// The certificates of one kubelet, by when they end: towards the API, and of its port.
pub struct Terms {
    /// `None` where it has none, or another credential.
    pub client: Option<Timestamp>,
    pub serving: Serving,
    pub failures: Arc<Failures>,
}

/// Who renews the port's certificate.
pub enum Serving {
    /// Whoever makes [`Terms`] anew then.
    Until(Option<Timestamp>),
    /// The server, at a handshake.
    Server(Arc<Pki>),
}

impl Terms {
    /// Asked at each scrape, as time goes on.
    pub fn render(&self, page: &mut Text, now: Timestamp) {
        let named = |whose: &str| format!("kubelet_certificate_manager_{whose}_ttl_seconds");
        let help = |what: &str| {
            format!(
                "Seconds until the kubelet's {what} certificate ends, +Inf where it has none that can be read"
            )
        };
        let left = |end: Option<Timestamp>| {
            end.map_or_else(|| "+Inf".to_owned(), |end| end.duration_since(now).as_secs().to_string())
        };
        let (serving, failed) = match &self.serving {
            Serving::Until(end) => (*end, self.failures.serving.load(Relaxed)),
            Serving::Server(pki) => (Some(pki.kubelet_serving_end()), pki.kubelet_serving_failures()),
        };
        page.single(&named("client"), &help("client"), "gauge", left(self.client));
        page.single(&named("server"), &help("serving"), "gauge", left(serving));
        for (name, what, count) in [
            (
                "kubelet_certificate_manager_client_expiration_renew_errors",
                "client",
                self.failures.client.load(Relaxed),
            ),
            ("kubelet_server_expiration_renew_errors", "serving", failed),
        ] {
            let help = format!("Renewals of the kubelet's {what} certificate that failed");
            page.single(name, &help, "counter", count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_find_what_they_ask_for() {
        let failures = Arc::new(Failures::default());
        for role in [Role::Kubelet, Role::Serving, Role::Serving, Role::Proxy] {
            failures.note(role);
        }
        let end = Timestamp::from_second(1000).expect("a time");
        let terms = Terms { client: None, serving: Serving::Until(Some(end)), failures };
        let shown = |second: i64| {
            let mut page = Text::default();
            terms.render(&mut page, Timestamp::from_second(second).expect("a time"));
            let page = page.finish();
            page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(400),
            [
                "kubelet_certificate_manager_client_ttl_seconds +Inf",
                "kubelet_certificate_manager_server_ttl_seconds 600",
                "kubelet_certificate_manager_client_expiration_renew_errors 1",
                "kubelet_server_expiration_renew_errors 2",
            ]
        );
        assert_eq!(shown(1030)[1], "kubelet_certificate_manager_server_ttl_seconds -30", "it is over");
    }
}
