//! Which address a `proxy` request goes to.

use super::backend::{Backend, KubeletClient, Tls, not_allowed};
use super::{Target, items, text};
use coracle_api::well_known;
use coracle_api::{ApiError, Object};
use coracle_requests::ObjectReader;
use rand::seq::SliceRandom;
use std::net::IpAddr;

/// `[scheme:]name[:port]`; with two parts the second is the port.
pub(super) struct Name<'a> {
    https: bool,
    name: &'a str,
    port: &'a str,
}

pub(super) fn backend(
    name: &Name<'_>,
    target: Target<'_>,
    reader: &dyn ObjectReader,
    kubelets: &KubeletClient,
) -> Result<Backend, ApiError> {
    match target.resource {
        "pods" => pod(name, target, reader, kubelets),
        "services" => service(name, target, reader, kubelets),
        _ => node(name, reader, kubelets),
    }
}

impl<'a> Name<'a> {
    pub(super) fn parse(target: Target<'a>) -> Result<Self, ApiError> {
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

    fn backend(
        &self,
        ip: &str,
        port: u16,
        node: &str,
        kubelets: &KubeletClient,
    ) -> Result<Backend, ApiError> {
        let ip: IpAddr = ip.parse().map_err(|_| not_allowed())?;
        let reach = kubelets.guard.on_node(node);
        if !reach.allows(ip) {
            return Err(not_allowed());
        }
        let ip = ip.to_canonical();
        let tls =
            self.https.then(|| Tls { config: kubelets.any_tls.clone(), name: ip.into(), verified: false });
        Ok(Backend { host: ip.to_string(), port, tls, reach })
    }

    fn number(&self) -> Result<u16, ApiError> {
        let invalid = |_| ApiError::bad_request(format!("invalid port \"{}\"", self.port));
        self.port.parse().map_err(invalid)
    }
}

fn pod(
    name: &Name<'_>,
    target: Target<'_>,
    reader: &dyn ObjectReader,
    kubelets: &KubeletClient,
) -> Result<Backend, ApiError> {
    let pod = super::pod(Target { name: name.name, ..target }, reader)?;
    let port = match name.port {
        "" => first_port(&pod).unwrap_or(if name.https { 443 } else { 80 }),
        port => match named_port(&pod, port) {
            Some(port) => port,
            None => name.number()?,
        },
    };
    name.backend(text(&pod, "/status/podIP"), port, text(&pod, "/spec/nodeName"), kubelets)
}

fn ports(pod: &Object) -> impl Iterator<Item = &Object> {
    items(pod, "/spec/containers").iter().flat_map(|container| items(container, "/ports"))
}

fn number_of(port: &Object) -> Option<u16> {
    u16::try_from(port["containerPort"].as_u64()?).ok()
}

/// Upstream takes the first port that some container declares, whatever its protocol.
fn first_port(pod: &Object) -> Option<u16> {
    ports(pod).next().and_then(number_of)
}

/// The port that a container gives this name. Upstream reads numbers only.
fn named_port(pod: &Object, name: &str) -> Option<u16> {
    ports(pod).find(|port| text(port, "/name") == name).and_then(number_of)
}

/// A random ready endpoint of the service's port that a pod of the namespace stands behind. Endpoints without a pod are
/// passed over, as upstream does: who may write them may not lead the API server anywhere else.
fn service(
    name: &Name<'_>,
    target: Target<'_>,
    reader: &dyn ObjectReader,
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
    let mut ready: Vec<(&Object, u16)> = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"][well_known::SERVICE_NAME] == name.name)
        .flat_map(|slice| ready_endpoints(slice, port_name))
        .collect();
    ready.shuffle(&mut rand::rng());
    let found = ready
        .into_iter()
        .find_map(|(endpoint, port)| Some((address_of_pod(endpoint, target.namespace, reader)?, port)));
    let ((ip, node), port) = found.ok_or_else(|| {
        ApiError::unavailable(format!("no endpoints available for service \"{}\"", target.name))
    })?;
    name.backend(&ip, port, &node, kubelets)
}

/// Each endpoint that serves the port of this name, with the port's number. `ready` left out means ready.
fn ready_endpoints<'a>(slice: &'a Object, port_name: &str) -> Vec<(&'a Object, u16)> {
    let port = items(slice, "/ports")
        .iter()
        .find(|port| text(port, "/name") == port_name)
        .and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
    let Some(port) = port else { return Vec::new() };
    let ready = items(slice, "/endpoints").iter().filter(|e| e["conditions"]["ready"] != false);
    ready.map(|endpoint| (endpoint, port)).collect()
}

/// The endpoint's address and its pod's node, if the address is one of the pod's.
fn address_of_pod(endpoint: &Object, namespace: &str, reader: &dyn ObjectReader) -> Option<(String, String)> {
    let (address, target) = (endpoint["addresses"][0].as_str()?, &endpoint["targetRef"]);
    let elsewhere = target["namespace"].as_str().is_some_and(|other| other != namespace);
    if target["kind"] != "Pod" || elsewhere {
        return None;
    }
    let pod = reader.get("pods.", namespace, target["name"].as_str()?)?;
    let mut own = items(&pod, "/status/podIPs").iter().map(|ip| text(ip, "/ip"));
    let owns = text(&pod, "/status/podIP") == address || own.any(|ip| ip == address);
    owns.then(|| (address.to_owned(), text(&pod, "/spec/nodeName").to_owned()))
}

/// The node's kubelet, or another port of the node.
fn node(name: &Name<'_>, reader: &dyn ObjectReader, kubelets: &KubeletClient) -> Result<Backend, ApiError> {
    let kubelet = kubelets.backend(name.name, reader)?;
    if name.port.is_empty() || name.port == kubelet.port.to_string() {
        return Ok(kubelet);
    }
    let (port, reach) = (name.number()?, kubelets.guard.on_node(name.name));
    if kubelet.host.parse().is_ok_and(|ip| !reach.allows(ip)) {
        return Err(not_allowed());
    }
    // Whoever listens there, nobody vouches for it.
    let tls = kubelet.tls.filter(|_| name.https).map(|tls| Tls {
        config: kubelets.any_tls.clone(),
        verified: false,
        ..tls
    });
    Ok(Backend { host: kubelet.host, port, tls, reach })
}
