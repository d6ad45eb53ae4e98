//! gRPC over the unix socket of a plugin.

use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};

/// A call to a plugin that did not go well.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing answers at the socket.
    #[error("{method}: no plugin answers at {}: {message}", socket.display())]
    Unreachable { method: &'static str, socket: PathBuf, message: String },
    /// The plugin's own answer. Worded as Go's gRPC words it.
    #[error("rpc error: code = {code:?} desc = {message}")]
    Failed { method: &'static str, code: tonic::Code, message: String },
    /// Whether it was done is not known.
    #[error("rpc error: code = DeadlineExceeded desc = {method} did not answer within {limit:?}")]
    Timeout { method: &'static str, limit: Duration },
}

impl CallError {
    pub fn code(&self) -> Option<tonic::Code> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether nothing of what was asked for is under way: the driver has refused. Of all else it may have been done, or be
    /// done still, so it is asked again until it says. Upstream's sidecars draw the same line.
    pub fn is_final(&self) -> bool {
        use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable};
        let unknown = [Cancelled, DeadlineExceeded, Unavailable, ResourceExhausted, Aborted];
        self.code().is_some_and(|code| !unknown.contains(&code))
    }

    /// Whether asking again for the same cannot go well; upstream's resizer's rule.
    pub fn is_infeasible(&self) -> bool {
        use tonic::Code::{InvalidArgument, NotFound, OutOfRange};
        self.code().is_some_and(|code| [InvalidArgument, NotFound, OutOfRange].contains(&code))
    }
}

/// How a call to a plugin went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The whole path of the method.
    pub path: &'static str,
    /// As Go's gRPC names it: `OK`, `DeadlineExceeded`.
    pub code: &'static str,
    pub time: Duration,
}

/// Hears of calls. Called where they were made; must not block.
#[derive(Clone)]
pub struct CallListener(Arc<dyn Fn(Called) + Send + Sync>);

impl CallListener {
    pub fn new(listener: impl Fn(Called) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }
}

impl std::fmt::Debug for CallListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallListener").finish_non_exhaustive()
    }
}

/// The code of a call's end, as Go's gRPC names it.
fn code<A>(called: &Result<A, CallError>) -> &'static str {
    use tonic::Code;
    let code = match called {
        Ok(_) => Code::Ok,
        Err(CallError::Failed { code, .. }) => *code,
        Err(CallError::Unreachable { .. }) => Code::Unavailable,
        Err(CallError::Timeout { .. }) => Code::DeadlineExceeded,
    };
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Connecting to a local socket works at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A plugin's socket. Connects at the first call, and again where the plugin was started anew. Cloning shares it.
#[derive(Clone, Debug)]
pub struct PluginClient {
    socket: PathBuf,
    channel: Channel,
    timeout: Duration,
    listener: Option<CallListener>,
}

impl PluginClient {
    /// `socket` is a path, or `unix://` and one. A call that takes longer than `timeout` has failed. Must be called inside
    /// the tokio runtime.
    pub fn new(socket: &Path, timeout: Duration) -> Self {
        let text = socket.to_string_lossy();
        let bare = text.strip_prefix("unix:").map(|rest| Path::new("/").join(rest.trim_start_matches('/')));
        let socket = bare.unwrap_or_else(|| socket.to_owned());
        let path = socket.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://plugin.invalid")
            .connect_timeout(CONNECT_TIMEOUT)
            .connect_with_connector_lazy(connector);
        Self { socket, channel, timeout, listener: None }
    }

    /// Tells `listener` of every call of one answer from now on.
    #[must_use]
    pub fn told_to(mut self, listener: Option<CallListener>) -> Self {
        self.listener = listener;
        self
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Makes one call, of a method that is named by its whole path: `/csi.v1.Node/NodeGetInfo`.
    pub async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let method = path.rsplit('/').next().unwrap_or(path);
        let mut grpc = Grpc::new(self.channel.clone());
        let call = async {
            grpc.ready().await.map_err(|error| self.unreachable(method, &error))?;
            let codec = tonic_prost::ProstCodec::default();
            let answer =
                grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| self.failed(method, &status))
        };
        let (limit, began) = (self.timeout, Instant::now());
        let called = tokio::time::timeout(limit, call).await;
        let called = called.unwrap_or(Err(CallError::Timeout { method, limit }));
        if let Some(CallListener(listener)) = &self.listener {
            listener(Called { path, code: code(&called), time: began.elapsed() });
        }
        called
    }

    /// Begins to hear what the plugin says. Only until it begins counts for the timeout.
    pub async fn stream<Q, A>(&self, path: &'static str, request: Q) -> Result<Answers<A>, CallError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let method = path.rsplit('/').next().unwrap_or(path);
        let mut grpc = Grpc::new(self.channel.clone());
        let call = async {
            grpc.ready().await.map_err(|error| self.unreachable(method, &error))?;
            let (request, path) = (tonic::Request::new(request), PathAndQuery::from_static(path));
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answer = grpc.server_streaming(request, path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| self.failed(method, &status))
        };
        let limit = self.timeout;
        let opened = tokio::time::timeout(limit, call).await;
        let stream = opened.unwrap_or(Err(CallError::Timeout { method, limit }))?;
        Ok(Answers { stream, method, client: self.clone() })
    }

    fn unreachable(&self, method: &'static str, error: &dyn std::error::Error) -> CallError {
        CallError::Unreachable { method, socket: self.socket.clone(), message: innermost(error) }
    }

    /// A status that was made here, of a connection that there is not, has a source; a plugin's own has none.
    fn failed(&self, method: &'static str, status: &tonic::Status) -> CallError {
        match std::error::Error::source(status) {
            Some(source) if status.code() == tonic::Code::Unavailable => self.unreachable(method, source),
            _ => CallError::Failed { method, code: status.code(), message: status.message().to_owned() },
        }
    }
}

/// What a plugin says, one message after the other.
pub struct Answers<A> {
    stream: tonic::Streaming<A>,
    method: &'static str,
    client: PluginClient,
}

impl<A> Answers<A> {
    /// `None` when the plugin has nothing more to say. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<A>, CallError> {
        self.stream.message().await.map_err(|status| self.client.failed(self.method, &status))
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[tokio::test]
    async fn who_listens_hears_of_calls_that_nobody_answered() {
        let dir = tempfile::tempdir().unwrap();
        let heard = Arc::<Mutex<Vec<Called>>>::default();
        let hear = heard.clone();
        let listener = CallListener::new(move |called| hear.lock().push(called));
        let client = PluginClient::new(&dir.path().join("no.sock"), Duration::from_secs(60));
        let path = "/csi.v1.Node/NodeGetInfo";
        let call = client.told_to(Some(listener));
        call.call::<(), ()>(path, ()).await.unwrap_err();
        let heard = heard.lock().iter().map(|called| (called.path, called.code)).collect::<Vec<_>>();
        assert_eq!(heard, [(path, "Unavailable")]);
    }

    #[test]
    fn codes_are_named_as_in_go() {
        let failed = |of: tonic::Code| {
            code::<()>(&Err(CallError::Failed { method: "m", code: of, message: String::new() }))
        };
        assert_eq!(failed(tonic::Code::Cancelled), "Canceled");
        assert_eq!(failed(tonic::Code::FailedPrecondition), "FailedPrecondition");
        let late = CallError::Timeout { method: "m", limit: Duration::ZERO };
        assert_eq!(code::<()>(&Err(late)), "DeadlineExceeded");
        assert_eq!(code(&Ok(())), "OK");
    }
}
