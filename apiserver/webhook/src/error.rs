//! What can go wrong with a call, in the words of upstream's client.

use std::io;
use std::time::Duration;

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("webhook configuration must have either service or URL")]
    NoTarget,
    #[error("parse {url:?}: {why}")]
    Url { url: String, why: String },
    #[error("unable to load root certificates: {0}")]
    Roots(String),
    #[error("Post {url:?}: {source}")]
    Transport { url: String, source: TransportError },
    /// Another status than 2xx.
    #[error("{message}")]
    Answered { code: u16, message: String },
    #[error("the response of {url:?} exceeds the limit of {limit} bytes")]
    TooLarge { url: String, limit: usize },
    #[error("couldn't get version/kind; json parse error: {0}")]
    NotJson(String),
}

impl CallError {
    /// As metrics count it: the webhook's own status, or 503 where there is none.
    pub fn code(&self) -> u16 {
        match self {
            Self::Answered { code, .. } => *code,
            Self::NoTarget | Self::Url { .. } | Self::Roots(_) => 400,
            _ => 503,
        }
    }

    /// Whether the same call may succeed a little later, as upstream judges it: a server that was busy or failed by
    /// itself, and a connection that was cut.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Answered { code, .. } => matches!(code, 429 | 500 | 504),
            Self::Transport { source: TransportError::Http(error), .. } => is_reset(error),
            Self::Transport { source: TransportError::Tls(error), .. } => {
                error.kind() == io::ErrorKind::ConnectionReset
            }
            _ => false,
        }
    }

    /// Whether a target could not be made at all; nothing was sent.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::NoTarget | Self::Url { .. } | Self::Roots(_))
    }
}

/// What happened on the way.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("no service port {port} found for service {service:?}")]
    NoPort { service: String, port: u16 },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    #[error("dial tcp {address}: {}", dialing(source))]
    Dial { address: String, source: io::Error },
    #[error("{}", verifying(.0))]
    Tls(io::Error),
    #[error("{}", speaking(.0))]
    Http(hyper::Error),
    #[error("context deadline exceeded")]
    Deadline(Duration),
}

fn dialing(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// As Go words what certificates are refused for.
fn verifying(error: &io::Error) -> String {
    use rustls::CertificateError as Why;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(why)) => why,
        Some(other) => return format!("remote error: tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        None => return error.to_string(),
    };
    let words = match why {
        Why::UnknownIssuer | Why::BadSignature => "certificate signed by unknown authority".to_owned(),
        Why::Expired | Why::ExpiredContext { .. } | Why::NotValidYet | Why::NotValidYetContext { .. } => {
            format!("certificate has expired or is not yet valid: {why}")
        }
        Why::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            format!("certificate is not valid for any names, but wanted to match {}", expected.to_str())
        }
        Why::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| shown(name)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {words}")
}

/// A presented name without what rustls puts around it: `DnsName("a")`.
fn shown(name: &str) -> &str {
    name.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map_or(name, |(inner, _)| inner)
}

fn is_reset(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::ConnectionReset)
}

fn speaking(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}");
    }
    error.to_string()
}
