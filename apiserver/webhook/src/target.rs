//! Where a webhook is, and how it is asked.

use super::error::{CallError, TransportError};
use super::pool::{Endpoints, Pool, Received};
use super::resolve::{self, Endpoint};
use super::{Call, answer};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use coracle_requests::ObjectReader;
use coracle_requests::value::{at, has, i64_at, str_at};
use coracle_tls as tls;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The port of services and URLs that name none.
const HTTPS: u16 = 443;

/// As upstream names itself to the webhooks of admission and conversion.
const AGENT: &str = "kube-apiserver-admission";

/// Protocols, as TLS negotiates them.
const HTTP_1: &[&[u8]] = &[b"http/1.1"];
const HTTP_2_OR_1: &[&[u8]] = &[b"h2", b"http/1.1"];

#[derive(Debug)]
enum Place {
    Service { namespace: String, name: String, port: u16 },
    Host(Endpoint),
}

/// A webhook's address with its trust and its connections.
pub struct Target {
    place: Place,
    /// `https://host:port/path`
    url: String,
    pool: Pool,
}

impl Target {
    /// From a `clientConfig` of a webhook configuration or of a conversion.
    pub(super) fn new(config: &Value) -> Result<Self, CallError> {
        let roots = roots(str_at(config, "caBundle"))?;
        if has(config, "service") {
            return Self::of_service(at(config, "service"), roots.as_deref());
        }
        match str_at(config, "url") {
            "" => Err(CallError::NoTarget),
            url => Self::of_url(url, roots.as_deref()),
        }
    }

    fn of_service(service: &Value, roots: Option<&[u8]>) -> Result<Self, CallError> {
        let (namespace, name) = (str_at(service, "namespace").to_owned(), str_at(service, "name").to_owned());
        let port = i64_at(service, "port").and_then(|port| u16::try_from(port).ok()).unwrap_or(HTTPS);
        let host = format!("{name}.{namespace}.svc");
        let url = format!("https://{host}:{port}{}", clean(str_at(service, "path")));
        let place = Place::Service { namespace, name, port };
        Self::at(place, url, &host, HTTP_1, roots)
    }

    fn of_url(url: &str, roots: Option<&[u8]>) -> Result<Self, CallError> {
        let (endpoint, shown) = address(url)?;
        let host = endpoint.host.clone();
        let protocols = if is_local(&host) { HTTP_2_OR_1 } else { HTTP_1 };
        Self::at(Place::Host(endpoint), shown, &host, protocols, roots)
    }

    /// For an `https` URL of a kubeconfig. `server_name` is what the certificate must be for, where it is not empty;
    /// `headers` go with every call; `config` makes the TLS side for the protocols that are offered.
    pub(super) fn remote(
        url: &str,
        server_name: &str,
        headers: HeaderMap,
        config: impl FnOnce(&[&[u8]]) -> Result<Arc<ClientConfig>, tls::TlsError>,
    ) -> Result<Self, CallError> {
        let (endpoint, shown) = address(url)?;
        let host = if server_name.is_empty() { &endpoint.host } else { server_name };
        let name = server_name_of(host, &shown)?;
        let config = config(HTTP_2_OR_1).map_err(|e| CallError::Roots(e.to_string()))?;
        Ok(Self { place: Place::Host(endpoint), url: shown, pool: Pool::new(config, name, headers) })
    }

    fn at(
        place: Place,
        url: String,
        host: &str,
        protocols: &[&[u8]],
        roots: Option<&[u8]>,
    ) -> Result<Self, CallError> {
        let config = tls::client_config(roots, protocols).map_err(|e| CallError::Roots(e.to_string()))?;
        let name = server_name_of(host, &url)?;
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(AGENT))]);
        Ok(Self { place, url, pool: Pool::new(config, name, headers) })
    }

    /// The address as messages and traces show it.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn post(&self, read: &dyn ObjectReader, call: Call) -> Result<Value, CallError> {
        self.post_to(call, &|| match &self.place {
            Place::Host(endpoint) => Ok(vec![endpoint.clone()]),
            Place::Service { namespace, name, port } => resolve::resolve(read, namespace, name, *port),
        })
        .await
    }

    /// For a target that names its host itself.
    pub(super) async fn post_directly(&self, call: Call) -> Result<Value, CallError> {
        self.post_to(call, &|| match &self.place {
            Place::Host(endpoint) => Ok(vec![endpoint.clone()]),
            Place::Service { name, .. } => Err(TransportError::NoService(name.clone())),
        })
        .await
    }

    async fn post_to(&self, call: Call, endpoints: &Endpoints<'_>) -> Result<Value, CallError> {
        let url = format!("{}?timeout={}s", self.url, whole_seconds(call.timeout));
        let timeout = call.timeout;
        let work = self.exchange(endpoints, &url, call);
        let late = || TransportError::Deadline(timeout);
        match tokio::time::timeout(timeout, work).await {
            Ok(Ok(received)) => answer::read(received),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::Transport { url, source: late() }),
        }
    }

    async fn exchange(
        &self,
        endpoints: &Endpoints<'_>,
        url: &str,
        call: Call,
    ) -> Result<Received, CallError> {
        let failed = |source| CallError::Transport { url: url.to_owned(), source };
        let most = call.most_bytes;
        let received = self.pool.post(url, call.body, most, endpoints).await.map_err(failed)?;
        received.ok_or_else(|| CallError::TooLarge { url: url.to_owned(), limit: most })
    }
}

/// Where a URL leads, and how it is shown.
fn address(url: &str) -> Result<(Endpoint, String), CallError> {
    let wrong = |why: &str| CallError::Url { url: url.to_owned(), why: why.to_owned() };
    let uri: http::Uri = url.parse().map_err(|e: http::uri::InvalidUri| wrong(&e.to_string()))?;
    let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(HTTPS);
    Ok((Endpoint { host, port }, format!("https://{authority}{}", clean(uri.path()))))
}

fn server_name_of(host: &str, url: &str) -> Result<ServerName<'static>, CallError> {
    let wrong =
        |e: rustls_pki_types::InvalidDnsNameError| CallError::Url { url: url.to_owned(), why: e.to_string() };
    ServerName::try_from(host.to_owned()).map_err(wrong)
}

/// Certificates in PEM, from base64.
fn roots(bundle: &str) -> Result<Option<Vec<u8>>, CallError> {
    if bundle.is_empty() {
        return Ok(None);
    }
    BASE64_STANDARD.decode(bundle).map(Some).map_err(|e| CallError::Roots(e.to_string()))
}

/// A path as upstream's client joins it: without double slashes and without one at the end.
fn clean(path: &str) -> String {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    format!("/{}", steps.join("/"))
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// Rounded up: the webhook may use all of its time.
fn whole_seconds(timeout: Duration) -> u64 {
    timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn url(config: Value) -> String {
        Target::new(&config).map_or_else(|e| e.to_string(), |target| target.url)
    }

    #[test]
    fn addresses() {
        let service = json!({ "name": "s", "namespace": "n", "path": "/a/b/" });
        assert_eq!(url(json!({ "service": service })), "https://s.n.svc:443/a/b");
        assert_eq!(url(json!({ "url": "https://localhost:8443" })), "https://localhost:8443/");
        assert_eq!(url(json!({ "url": "https://[::1]:8443/x" })), "https://[::1]:8443/x");
        assert_eq!(url(json!({})), "webhook configuration must have either service or URL");
        let bundle = BASE64_STANDARD.encode("nonsense");
        assert_eq!(
            url(json!({ "url": "https://a.b/c", "caBundle": bundle })),
            "unable to load root certificates: no certificate in the bundle"
        );
    }

    #[test]
    fn times_are_told_in_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_millis(9001)), 10);
        assert_eq!(whole_seconds(Duration::from_secs(10)), 10);
    }
}
