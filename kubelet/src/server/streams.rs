//! `/exec`, `/attach`, `/portForward` and `/run`.

use super::Server;
use super::auth::Admitted;
use super::error::HttpError;
use super::routes::text;
use crate::cri::api;
use crate::pods_api::{ContainerHandle, PodHandle};
use crate::streaming::{self, Kind, Streams};
use axum::body::Body;
use coracle_api::well_known;
use http::{Method, Request, Response, StatusCode};
use std::time::Duration;

/// Upstream's limit of a command run by `/run`; its output is bounded by the runtime.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// Ports of one port-forward by WebSocket without tunnelling: each takes two of the 255 channels.
const MAX_PORTS: usize = 127;

/// `rest` is `<namespace>/<pod>[/<uid>]`, followed by `/<container>` for all but port-forward.
pub(super) async fn answer(
    server: &Server,
    request: Request<Body>,
    verb: &str,
    rest: &[&str],
    admitted: Admitted,
) -> Result<Response<Body>, HttpError> {
    let (namespace, pod, uid, container) = match (verb, rest) {
        ("portForward", [namespace, pod]) => (*namespace, *pod, None, ""),
        ("portForward", [namespace, pod, uid]) => (*namespace, *pod, Some(*uid), ""),
        ("exec" | "attach" | "run", [namespace, pod, container]) => (*namespace, *pod, None, *container),
        ("exec" | "attach" | "run", [namespace, pod, uid, container]) => {
            (*namespace, *pod, Some(*uid), *container)
        }
        _ => return Err(HttpError::not_found("404 page not found\n")),
    };
    let handle =
        server.pods.find(namespace, pod, uid).ok_or_else(|| HttpError::not_found("pod does not exist"))?;
    if is_component(&handle) {
        let text = format!("pod \"{pod}\" shows a part of the node's own process: there is no container\n");
        return Err(HttpError::bad_request(text));
    }
    let query = Query::of(&request);
    match (verb, request.method()) {
        ("run", &Method::POST) => run(server, &handle, container, &query).await,
        ("exec" | "attach" | "portForward", &(Method::GET | Method::POST)) => {
            if streaming::upgrade_of(request.headers()).is_none() {
                return Err(streaming::StreamError::UpgradeRequired.into());
            }
            let (url, kind) = match verb {
                "exec" => exec(server, &handle, container, &query).await?,
                "attach" => attach(server, &handle, container, &query).await?,
                _ => port_forward(server, &handle, &query).await?,
            };
            Ok(streaming::serve(request, &url, kind, server.ends(admitted)).await?)
        }
        _ => Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")),
    }
}

fn is_component(pod: &PodHandle) -> bool {
    let annotations = pod.pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|all| all.get(well_known::CONFIG_SOURCE));
    source.is_some_and(|source| source == well_known::COMPONENT_SOURCE)
}

struct Query(Vec<(String, String)>);

impl Query {
    fn of(request: &Request<Body>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn all(&self, key: &str) -> Vec<String> {
        self.0.iter().filter(|(k, _)| k == key).map(|(_, value)| value.clone()).collect()
    }

    /// The kubelet's streaming flags are `1` (from the API server) or `true`.
    fn flag(&self, key: &str) -> bool {
        self.0.iter().any(|(k, value)| k == key && matches!(value.as_str(), "1" | "true"))
    }

    fn streams(&self) -> Result<Streams, HttpError> {
        let tty = self.flag("tty");
        let (stdin, stdout) = (self.flag("input"), self.flag("output"));
        let stderr = self.flag("error") && !tty;
        if !stdin && !stdout && !stderr {
            return Err(HttpError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(Streams { stdin, stdout, stderr, tty })
    }
}

fn container<'a>(handle: &'a PodHandle, name: &str) -> Result<&'a ContainerHandle, HttpError> {
    handle
        .containers
        .iter()
        .find(|container| container.name == name)
        .ok_or_else(|| HttpError::internal(format!("container not found (\"{name}\")")))
}

async fn exec(
    server: &Server,
    pod: &PodHandle,
    name: &str,
    query: &Query,
) -> Result<(String, Kind), HttpError> {
    let streams = query.streams()?;
    let cmd = query.all("command");
    if cmd.is_empty() {
        return Err(HttpError::bad_request("you must specify at least 1 command"));
    }
    let Streams { stdin, stdout, stderr, tty } = streams;
    let container_id = container(pod, name)?.id.clone();
    let url = server.pods.exec(api::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }).await?;
    Ok((url, Kind::RemoteCommand(streams)))
}

/// Attaching needs the same kind of terminal that the container was made with, else the runtime cannot join them.
async fn attach(
    server: &Server,
    pod: &PodHandle,
    name: &str,
    query: &Query,
) -> Result<(String, Kind), HttpError> {
    let streams = query.streams()?;
    let container = container(pod, name)?;
    let Streams { stdin, stdout, stderr, tty } = Streams { tty: container.tty, ..streams };
    let stderr = stderr && !tty;
    let request = api::AttachRequest { container_id: container.id.clone(), stdin, tty, stdout, stderr };
    let url = server.pods.attach(request).await?;
    Ok((url, Kind::RemoteCommand(Streams { stdin, stdout, stderr, tty })))
}

async fn port_forward(server: &Server, pod: &PodHandle, query: &Query) -> Result<(String, Kind), HttpError> {
    let mut ports = Vec::new();
    for text in query.all("port").iter().flat_map(|ports| ports.split(',')) {
        match text.parse::<u16>() {
            Ok(port) if port != 0 => ports.push(port),
            _ => return Err(HttpError::bad_request(format!("invalid port \"{text}\""))),
        }
    }
    if ports.len() > MAX_PORTS {
        return Err(HttpError::bad_request(format!("more than {MAX_PORTS} ports")));
    }
    let missing = || HttpError::internal("unable to forward ports: the pod has no ready sandbox");
    let pod_sandbox_id = pod.sandbox_id.clone().ok_or_else(missing)?;
    let port = ports.iter().map(|port| i32::from(*port)).collect();
    let url = server.pods.port_forward(api::PortForwardRequest { pod_sandbox_id, port }).await?;
    Ok((url, Kind::PortForward { ports }))
}

/// Runs a command to its end and answers with its output.
async fn run(
    server: &Server,
    pod: &PodHandle,
    name: &str,
    query: &Query,
) -> Result<Response<Body>, HttpError> {
    let commands = query.all("cmd");
    let command: Vec<String> =
        commands.first().map(|cmd| cmd.split_whitespace().map(str::to_owned).collect()).unwrap_or_default();
    if command.is_empty() {
        return Err(HttpError::bad_request("you must specify the command as cmd"));
    }
    let id = &container(pod, name)?.id;
    let answer = server.pods.exec_sync(id, command, RUN_TIMEOUT).await?;
    let mut output = answer.stdout;
    output.extend_from_slice(&answer.stderr);
    if answer.exit_code != 0 {
        let output = String::from_utf8_lossy(&output);
        return Err(HttpError::internal(format!("command exited with {}: {output}", answer.exit_code)));
    }
    Ok(text(output))
}
