//! One question to a container: run a command, fetch a URL, open a port, ask gRPC health.

use super::{grpc, http};
use crate::cri::{self, Runtime};
use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Bytes of a probe's output that go into an event; upstream's limit.
const MAX_OUTPUT: usize = 10 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// A success that somebody should look at.
    Warning(String),
    /// With what upstream would say about it.
    Failure(String),
    /// The question itself came to nothing: this says nothing about the container.
    Unknown(String),
}

impl Outcome {
    /// As metrics name it.
    pub fn result(&self) -> &'static str {
        match self {
            Self::Success | Self::Warning(_) => "successful",
            Self::Failure(_) => "failed",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// The container that is asked.
#[derive(Clone)]
pub struct Target {
    pub runtime: Arc<dyn Runtime>,
    pub container_id: String,
    /// Where HTTP, TCP and gRPC go unless the action names a host.
    pub ip: String,
}

#[derive(Clone, Debug)]
pub enum Action {
    Exec(Vec<String>),
    Http {
        host: Option<String>,
        port: u16,
        https: bool,
        path: String,
        headers: Vec<(String, String)>,
        caller: http::Caller,
    },
    Tcp {
        host: Option<String>,
        port: u16,
    },
    Grpc {
        port: u16,
        service: String,
    },
    Sleep(Duration),
}

impl Action {
    /// `Err` says what is wrong with the spec (a port name that no container port has).
    pub fn of_probe(probe: &Probe, container: &Container) -> Result<Self, String> {
        if let Some(exec) = &probe.exec {
            return Ok(Self::exec(exec));
        }
        if let Some(get) = &probe.http_get {
            return Self::http(get, container, http::Caller::Probe);
        }
        if let Some(socket) = &probe.tcp_socket {
            return Self::tcp(socket, container);
        }
        match &probe.grpc {
            Some(action) => Self::grpc(action),
            None => Err("missing probe handler".to_owned()),
        }
    }

    pub fn of_handler(handler: &LifecycleHandler, container: &Container) -> Result<Self, String> {
        if let Some(exec) = &handler.exec {
            return Ok(Self::exec(exec));
        }
        if let Some(get) = &handler.http_get {
            return Self::http(get, container, http::Caller::Hook);
        }
        match &handler.sleep {
            Some(sleep) => Ok(Self::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0)))),
            None => Err("invalid handler: no handler type was specified".to_owned()),
        }
    }

    fn exec(action: &ExecAction) -> Self {
        Self::Exec(action.command.clone().unwrap_or_default())
    }

    fn http(action: &HTTPGetAction, container: &Container, caller: http::Caller) -> Result<Self, String> {
        let headers = action.http_headers.iter().flatten();
        Ok(Self::Http {
            host: action.host.clone().filter(|h| !h.is_empty()),
            port: port(&action.port, container)?,
            https: action.scheme.as_deref() == Some("HTTPS"),
            path: match action.path.as_deref() {
                Some(path) if path.starts_with('/') => path.to_owned(),
                Some(path) => format!("/{path}"),
                None => "/".to_owned(),
            },
            headers: headers.map(|h| (h.name.clone(), h.value.clone())).collect(),
            caller,
        })
    }

    fn tcp(action: &TCPSocketAction, container: &Container) -> Result<Self, String> {
        let host = action.host.clone().filter(|h| !h.is_empty());
        Ok(Self::Tcp { host, port: port(&action.port, container)? })
    }

    fn grpc(action: &GRPCAction) -> Result<Self, String> {
        let port = u16::try_from(action.port).map_err(|_| format!("invalid port number: {}", action.port))?;
        Ok(Self::Grpc { port, service: action.service.clone().unwrap_or_default() })
    }

    /// Asks once. Never takes much longer than `timeout`.
    pub async fn run(&self, target: &Target, timeout: Duration) -> Outcome {
        if let Self::Sleep(duration) = self {
            tokio::time::sleep(*duration).await;
            return Outcome::Success;
        }
        let answer = tokio::time::timeout(timeout, self.ask(target, timeout)).await;
        answer.unwrap_or_else(|_| Outcome::Failure(self.timed_out(target, timeout)))
    }

    async fn ask(&self, target: &Target, timeout: Duration) -> Outcome {
        match self {
            Self::Exec(command) => match exec(target, command.clone(), timeout).await {
                Err(error) if error.is_late() => Outcome::Failure(self.timed_out(target, timeout)),
                answer => answer.unwrap_or_else(|error| Outcome::Unknown(error.detail())),
            },
            Self::Http { host, port, https, path, headers, caller } => {
                let host = host.as_deref().unwrap_or(&target.ip);
                let (port, https, caller) = (*port, *https, *caller);
                http::get(&http::Get { host, port, https, path, headers, caller }).await
            }
            Self::Tcp { host, port } => tcp(host.as_deref().unwrap_or(&target.ip), *port).await,
            Self::Grpc { port, service } => grpc::check(&target.ip, *port, service).await,
            Self::Sleep(_) => Outcome::Success,
        }
    }

    fn timed_out(&self, target: &Target, timeout: Duration) -> String {
        match self {
            Self::Exec(command) => {
                format!("command timed out: {:?} timed out after {timeout:?}", command.join(" "))
            }
            Self::Http { port, https, path, .. } => {
                let scheme = if *https { "https" } else { "http" };
                let url = format!("{scheme}://{}:{port}{path}", target.ip);
                format!(
                    "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
                )
            }
            Self::Tcp { port, .. } => format!("dial tcp {}:{port}: i/o timeout", target.ip),
            _ => format!("timeout: health rpc did not complete within {timeout:?}"),
        }
    }
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            named.map(|p| p.container_port).or_else(|| name.parse().ok())
        }
    };
    let number = number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    number.ok_or_else(|| match port {
        IntOrString::Int(number) => format!("invalid port number: {number}"),
        IntOrString::String(name) => format!("couldn't find port: {name}"),
    })
}

async fn exec(target: &Target, command: Vec<String>, timeout: Duration) -> cri::Result<Outcome> {
    let response = target.runtime.exec_sync(&target.container_id, command, timeout).await?;
    if response.exit_code == 0 {
        return Ok(Outcome::Success);
    }
    let output = [response.stdout, response.stderr].concat();
    let output = &output[..output.len().min(MAX_OUTPUT)];
    Ok(Outcome::Failure(String::from_utf8_lossy(output).into_owned()))
}

async fn tcp(host: &str, port: u16) -> Outcome {
    match TcpStream::connect((host, port)).await {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure(dial_error(host, port, &error)),
    }
}

/// As Go's net package words it, which people grep for.
pub(super) fn dial_error(host: &str, port: u16, error: &std::io::Error) -> String {
    let text = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {host}:{port}: {text}")
}
