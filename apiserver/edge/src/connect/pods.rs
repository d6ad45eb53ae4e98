//! `exec`, `attach` and `portforward`: upgrades that the kubelet of the pod's node answers.

use super::backend::KubeletClient;
use super::{Target, forward, headers, items, pod, text};
use axum::body::Body;
use coracle_api::{ApiError, Object};
use coracle_registry::Query;
use coracle_requests::ObjectReader;
use form_urlencoded::Serializer;
use http::{Request, Response};
use std::num::{IntErrorKind, ParseIntError};

pub(super) async fn stream(
    request: Request<Body>,
    target: Target<'_>,
    query: &Query,
    reader: &dyn ObjectReader,
    kubelets: &KubeletClient,
) -> Result<Response<Body>, ApiError> {
    let pod = pod(target, reader)?;
    let path = kubelet_path(&pod, target, query)?;
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", target.name)));
    }
    if headers::upgrade_of(request.headers()).is_none() {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let backend = kubelets.backend(node, reader)?;
    let (mut parts, body) = request.into_parts();
    parts.headers = headers::for_backend(&parts);
    parts.uri = path.parse().map_err(ApiError::internal)?;
    parts.version = http::Version::HTTP_11;
    forward::forward(Request::from_parts(parts, body), &backend, &kubelets.ends)
        .await
        .map_err(|error| ApiError::internal(format!("error dialing backend: {error}")))
}

/// The kubelet's path and query for this subresource, with the container chosen.
fn kubelet_path(pod: &Object, target: Target<'_>, query: &Query) -> Result<String, ApiError> {
    let Target { namespace, name, .. } = target;
    if target.subresource == "portforward" {
        let ports: Vec<String> = ports(query)?.iter().map(u16::to_string).collect();
        let mut pairs = Serializer::new(String::new());
        if !ports.is_empty() {
            pairs.append_pair("port", &ports.join(","));
        }
        return Ok(joined(&format!("/portForward/{namespace}/{name}"), &pairs.finish()));
    }
    let container = container(pod, name, query.get("container").unwrap_or_default())?;
    let verb = target.subresource;
    let commands: Vec<&str> = query.all("command");
    if verb == "exec" && commands.is_empty() {
        return Err(ApiError::bad_request("you must specify at least 1 command"));
    }
    let flag = |name: &str| query.flag(name).unwrap_or(false);
    let tty = flag("tty");
    let streams =
        Streams { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr") && !tty, tty };
    let pairs = streams.query(if verb == "exec" { &commands } else { &[] })?;
    Ok(joined(&format!("/{verb}/{namespace}/{name}/{container}"), &pairs))
}

/// The ports to forward: in parameters of their own or with commas between them.
pub(crate) fn ports(query: &Query) -> Result<Vec<u16>, ApiError> {
    let parse = |text: &str| {
        text.parse().map_err(|error: ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!(
                "cannot convert to []int32: strconv.ParseUint: parsing {text:?}: {why}"
            ))
        })
    };
    query.values("ports").flat_map(|value| value.split(',')).map(parse).collect()
}

struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Streams {
    fn query(&self, commands: &[&str]) -> Result<String, ApiError> {
        if !self.stdin && !self.stdout && !self.stderr {
            return Err(ApiError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        let mut pairs = Serializer::new(String::new());
        let flags =
            [("input", self.stdin), ("output", self.stdout), ("error", self.stderr), ("tty", self.tty)];
        for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
            pairs.append_pair(name, "1");
        }
        for command in commands {
            pairs.append_pair("command", command);
        }
        Ok(pairs.finish())
    }
}

pub(super) fn joined(path: &str, query: &str) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The container that `asked` (may be empty) means, with upstream's words when it means none.
pub(super) fn container<'a>(pod: &'a Object, pod_name: &str, asked: &'a str) -> Result<&'a str, ApiError> {
    let names = |list: &str| -> Vec<&'a str> {
        items(pod, &format!("/spec/{list}")).iter().map(|c| text(c, "/name")).collect()
    };
    let (app, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    if !asked.is_empty() {
        let known = app.iter().chain(&init).chain(&ephemeral).any(|name| *name == asked);
        return if known {
            Ok(asked)
        } else {
            Err(ApiError::bad_request(format!("container {asked} is not valid for pod {pod_name}")))
        };
    }
    if let [only] = app.as_slice() {
        return Ok(only);
    }
    let mut message = format!("a container name must be specified for pod {pod_name}");
    if !app.is_empty() {
        message.push_str(&format!(", choose one of: [{}]", app.join(" ")));
        if !init.is_empty() {
            message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
        }
        if !ephemeral.is_empty() {
            message.push_str(&format!(" or one of the ephemeral containers: [{}]", ephemeral.join(" ")));
        }
    }
    Err(ApiError::bad_request(message))
}
