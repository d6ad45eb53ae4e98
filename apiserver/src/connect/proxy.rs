//! `proxy` of pods, services and nodes: a reverse proxy with all methods, streaming bodies and upgrades.

use super::backend::{Backend, KubeletClient};
use super::{Target, forward, headers, items, text};
use crate::strategy::Reader;
use axum::body::Body;
use coracle_api::{ApiError, Object};
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use rand::seq::IndexedRandom;
use std::net::IpAddr;

pub(super) async fn proxy(
    request: Request<Body>,
    target: Target<'_>,
    reader: &dyn Reader,
    kubelets: &KubeletClient,
) -> Result<Response<Body>, ApiError> {
    let name = Name::parse(target)?;
    let backend = match target.resource {
        "pods" => pod(&name, target, reader, kubelets)?,
        "services" => service(&name, target, reader, kubelets)?,
        _ => node(&name, reader, kubelets)?,
    };
    let (prefix, rest) = split_path(request.uri().path(), target);
    let (prefix, rest) = (prefix.to_owned(), rest.to_owned());
    if rest.is_empty() && headers::upgrade_of(request.headers()).is_none() {
        return redirect_to_slash(request.uri());
    }
    let (mut parts, body) = request.into_parts();
    let mut forwarded = headers::for_backend(&parts);
    headers::add_forwarded(&mut forwarded, &parts);
    let path = if rest.is_empty() { "/" } else { &rest };
    let query = parts.uri.query().unwrap_or_default();
    parts.headers = forwarded;
    parts.uri = super::pods::joined(path, query).parse().map_err(ApiError::internal)?;
    parts.version = http::Version::HTTP_11;
    let mut response = forward::forward(Request::from_parts(parts, body), &backend, &kubelets.stop)
        .await
        .map_err(|error| ApiError::unavailable(format!("error trying to reach service: {error}")))?;
    relocate(&mut response, &prefix, &backend);
    Ok(response)
}

/// `[scheme:]name[:port]`; with two parts the second is the port.
struct Name<'a> {
    https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Name<'a> {
    fn parse(target: Target<'a>) -> Result<Self, ApiError> {
        let parts: Vec<&str> = target.name.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => ("invalid", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            let kind = target.resource.trim_end_matches('s');
            return Err(ApiError::bad_request(format!("invalid {kind} request \"{}\"", target.name)));
        }
        Ok(Self { https: scheme == "https", name, port })
    }

    fn backend(&self, ip: &str, port: u16, kubelets: &KubeletClient) -> Result<Backend, ApiError> {
        let ip: IpAddr = ip.parse().map_err(|_| ApiError::bad_request("address not allowed"))?;
        if !proxyable(ip) {
            return Err(ApiError::bad_request("address not allowed"));
        }
        let tls = self.https.then(|| kubelets.any_tls.clone());
        Ok(Backend { host: ip.to_string(), port, tls })
    }
}

/// Addresses that a pod's or endpoint's status may not lead the API server to: its own loopback, link-local ones.
fn proxyable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local)
}

fn pod(
    name: &Name<'_>,
    target: Target<'_>,
    reader: &dyn Reader,
    kubelets: &KubeletClient,
) -> Result<Backend, ApiError> {
    let pod = super::pod(Target { name: name.name, ..target }, reader)?;
    let port = if name.port.is_empty() {
        first_tcp_port(&pod).unwrap_or(if name.https { 443 } else { 80 })
    } else {
        let invalid = |_| ApiError::bad_request(format!("invalid port \"{}\"", name.port));
        name.port.parse().map_err(invalid)?
    };
    name.backend(text(&pod, "/status/podIP"), port, kubelets)
}

fn first_tcp_port(pod: &Object) -> Option<u16> {
    items(pod, "/spec/containers")
        .iter()
        .flat_map(|container| items(container, "/ports"))
        .find(|port| matches!(text(port, "/protocol"), "" | "TCP"))
        .and_then(|port| u16::try_from(port["containerPort"].as_u64()?).ok())
}

/// A random ready endpoint of the service's port.
fn service(
    name: &Name<'_>,
    target: Target<'_>,
    reader: &dyn Reader,
    kubelets: &KubeletClient,
) -> Result<Backend, ApiError> {
    let service = reader
        .get("services.", target.namespace, name.name)
        .ok_or_else(|| ApiError::not_found("", "services", name.name))?;
    let port_name = match name.port.parse::<u64>() {
        Err(_) => name.port,
        Ok(number) => {
            let port = items(&service, "/spec/ports").iter().find(|p| p["port"].as_u64() == Some(number));
            let missing = || {
                ApiError::unavailable(format!("no service port {number} found for service \"{}\"", name.name))
            };
            port.map(|port| text(port, "/name")).ok_or_else(missing)?
        }
    };
    let slices = reader.list("endpointslices.discovery.k8s.io", target.namespace);
    let ready: Vec<(&str, u16)> = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name.name)
        .flat_map(|slice| ready_endpoints(slice, port_name))
        .collect();
    let (ip, port) = ready.choose(&mut rand::rng()).copied().ok_or_else(|| {
        ApiError::unavailable(format!("no endpoints available for service \"{}\"", target.name))
    })?;
    name.backend(ip, port, kubelets)
}

/// Address and port of each endpoint that serves the port of this name. `ready` left out means ready.
fn ready_endpoints<'a>(slice: &'a Object, port_name: &str) -> Vec<(&'a str, u16)> {
    let port = items(slice, "/ports")
        .iter()
        .find(|port| text(port, "/name") == port_name)
        .and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
    let Some(port) = port else { return Vec::new() };
    items(slice, "/endpoints")
        .iter()
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .filter_map(|endpoint| Some((endpoint["addresses"][0].as_str()?, port)))
        .collect()
}

/// The node's kubelet, or another port of the node.
fn node(name: &Name<'_>, reader: &dyn Reader, kubelets: &KubeletClient) -> Result<Backend, ApiError> {
    let kubelet = kubelets.backend(name.name, reader)?;
    if name.port.is_empty() || name.port == kubelet.port.to_string() {
        return Ok(kubelet);
    }
    let invalid = |_| ApiError::bad_request(format!("invalid port \"{}\"", name.port));
    let port = name.port.parse().map_err(invalid)?;
    Ok(Backend { port, tls: name.https.then(|| kubelets.any_tls.clone()), ..kubelet })
}

/// The request's path up to and including `/proxy`, and what follows it, still encoded.
fn split_path<'a>(path: &'a str, target: Target<'_>) -> (&'a str, &'a str) {
    // /api/v1/nodes/<name>/proxy, /api/v1/namespaces/<namespace>/<plural>/<name>/proxy
    let slashes = if target.namespace.is_empty() { 6 } else { 8 };
    match path.match_indices('/').nth(slashes - 1) {
        Some((at, _)) => path.split_at(at),
        None => (path, ""),
    }
}

/// A page at `.../proxy` could not use relative links.
fn redirect_to_slash(uri: &Uri) -> Result<Response<Body>, ApiError> {
    let location = super::pods::joined(&format!("{}/", uri.path()), uri.query().unwrap_or_default());
    let location = HeaderValue::from_str(&location).map_err(ApiError::internal)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// Makes a redirect of the backend to itself lead through the proxy again.
fn relocate(response: &mut Response<Body>, prefix: &str, backend: &Backend) {
    let Some(location) = response.headers().get(header::LOCATION).and_then(|v| v.to_str().ok()) else {
        return;
    };
    let own = format!("{}://{}", backend.scheme(), backend.authority());
    let path = location.strip_prefix(&own).unwrap_or(location);
    if !path.starts_with('/') || path.starts_with("//") {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(&format!("{prefix}{path}")) {
        response.headers_mut().insert(header::LOCATION, value);
    }
}
