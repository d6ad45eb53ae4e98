//! The kubelet's own ports, and who gets in.

use super::documents::Written;
use super::reader::Reader;
use coracle_api::duration::written;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Who is known at the port and what he may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether strangers are `system:anonymous`, whom authorization judges like anybody.
    pub anonymous: bool,
    /// Whether bearer tokens are shown to the API server.
    pub tokens: bool,
    /// How long a good token is believed; upstream: two minutes. So short, because who is taken back must be out at once;
    /// long enough that the requests of one page or one scrape ask once. A question costs a millisecond, and no network on
    /// the server's own node.
    pub token_lasts: Duration,
    /// Whether everybody who is known may do everything.
    pub always_allow: bool,
    /// How long a permission is believed; upstream: five minutes. As short as a token, for the same reason.
    pub permission_lasts: Duration,
    /// How long a refusal is believed; upstream: 30 s. Just long enough to blunt a client that hammers.
    pub refusal_lasts: Duration,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            anonymous: false,
            tokens: true,
            token_lasts: Duration::from_secs(1),
            always_allow: false,
            permission_lasts: Duration::from_secs(1),
            refusal_lasts: Duration::from_secs(5),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Whether there is the port at all.
    pub serve: bool,
    pub address: IpAddr,
    /// The port of logs, exec and metrics, and what `status.daemonEndpoints` says.
    pub port: u16,
    /// Where anybody may ask whether the kubelet is well.
    pub healthz: Option<SocketAddr>,
    /// Whether there are exec, attach, port-forward, run, logs and the list of what runs.
    pub debugging: bool,
    /// Whether `/logs/` shows the machine's own.
    pub system_logs: bool,
    /// Certificate and key, where they are somebody's files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// PEM of the authority by which clients are known, where it is somebody's file.
    pub client_ca: Option<PathBuf>,
    pub access: Access,
}

impl Default for PortSettings {
    fn default() -> Self {
        Self {
            serve: true,
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 10250,
            healthz: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10248)),
            debugging: true,
            system_logs: true,
            tls: None,
            client_ca: None,
            access: Access::default(),
        }
    }
}

impl PortSettings {
    /// `anywhere`: where the port listens unless somebody says so.
    pub fn read(reader: &mut Reader<'_>, anywhere: IpAddr) -> Self {
        let all = Self::default();
        let address =
            |reader: &mut Reader<'_>, path: &str| reader.parsed(path, |t| t.parse().ok(), "no IP address");
        let healthz_address =
            address(reader, "healthzBindAddress").unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let healthz_port: u16 = reader.whole("healthzPort", 0..=65_535).unwrap_or(10_248);
        let path = |reader: &mut Reader<'_>, field: &str| reader.text(field).map(PathBuf::from);
        let (certificate, key) = (path(reader, "tlsCertFile"), path(reader, "tlsPrivateKeyFile"));
        if certificate.is_some() != key.is_some() {
            reader.mistake("tlsCertFile", "a certificate and its key (tlsPrivateKeyFile) go together");
        }
        let port: u16 = reader.whole("port", 0..=65_535).unwrap_or(0);
        Self {
            serve: reader.get("enableServer").unwrap_or(all.serve),
            address: address(reader, "address").unwrap_or(anywhere),
            port: if port == 0 { all.port } else { port },
            healthz: (healthz_port > 0).then(|| SocketAddr::new(healthz_address, healthz_port)),
            debugging: reader.get("enableDebuggingHandlers").unwrap_or(all.debugging),
            system_logs: reader.get("enableSystemLogHandler").unwrap_or(all.system_logs),
            tls: certificate.zip(key),
            client_ca: path(reader, "authentication.x509.clientCAFile"),
            access: Access::read(reader),
        }
    }

    pub fn show(&self, all: &mut Written) {
        let access = &self.access;
        let mut authentication = json!({
            "anonymous": { "enabled": access.anonymous },
            "webhook": { "enabled": access.tokens, "cacheTTL": written(access.token_lasts) },
            "x509": {},
        });
        if let Some(path) = &self.client_ca {
            authentication["x509"]["clientCAFile"] = json!(path);
        }
        let authorization = json!({
            "mode": if access.always_allow { "AlwaysAllow" } else { "Webhook" },
            "webhook": {
                "cacheAuthorizedTTL": written(access.permission_lasts),
                "cacheUnauthorizedTTL": written(access.refusal_lasts),
            },
        });
        let healthz = self.healthz.unwrap_or_else(|| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        let entries: [(&str, Value); 9] = [
            ("enableServer", json!(self.serve)),
            ("address", json!(self.address)),
            ("port", json!(self.port)),
            ("healthzPort", json!(healthz.port())),
            ("healthzBindAddress", json!(healthz.ip())),
            ("enableDebuggingHandlers", json!(self.debugging)),
            ("enableSystemLogHandler", json!(self.system_logs)),
            ("authentication", authentication),
            ("authorization", authorization),
        ];
        all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
        if let Some((certificate, key)) = &self.tls {
            all.insert("tlsCertFile".to_owned(), json!(certificate));
            all.insert("tlsPrivateKeyFile".to_owned(), json!(key));
        }
    }
}

impl Access {
    fn read(reader: &mut Reader<'_>) -> Self {
        let all = Self::default();
        for (section, known) in [
            ("authentication", &["anonymous", "webhook", "x509"][..]),
            ("authentication.anonymous", &["enabled"]),
            ("authentication.webhook", &["enabled", "cacheTTL"]),
            ("authentication.x509", &["clientCAFile"]),
            ("authorization", &["mode", "webhook"]),
            ("authorization.webhook", &["cacheAuthorizedTTL", "cacheUnauthorizedTTL"]),
        ] {
            reader.only(section, known);
        }
        Self {
            anonymous: reader.get("authentication.anonymous.enabled").unwrap_or(all.anonymous),
            tokens: reader.get("authentication.webhook.enabled").unwrap_or(all.tokens),
            token_lasts: reader.duration("authentication.webhook.cacheTTL").unwrap_or(all.token_lasts),
            always_allow: reader
                .word("authorization.mode", &[("Webhook", false), ("AlwaysAllow", true)])
                .unwrap_or(all.always_allow),
            permission_lasts: reader
                .duration("authorization.webhook.cacheAuthorizedTTL")
                .unwrap_or(all.permission_lasts),
            refusal_lasts: reader
                .duration("authorization.webhook.cacheUnauthorizedTTL")
                .unwrap_or(all.refusal_lasts),
        }
    }
}
