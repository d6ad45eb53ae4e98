//! Carries one request to a backend and its answer back, upgrades included.

use super::backend::{Backend, BackendError};
use super::headers;
use axum::body::Body;
use coracle_access::authn::Standing;
use coracle_listen::Quiet;
use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_buf};
use tokio_util::sync::CancellationToken;

/// Copy buffer of each direction in bytes: the size of the pieces that Kubernetes clients write.
const BUFFER: usize = 32 * 1024;

/// How long the other direction may go on once one has ended. SPDY and WebSocket know no half-closed connection, so
/// this only lets the last bytes out; without it a vanished client would keep its backend connection for ever.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);

/// Upstream's kubelets end streams after so long without a byte; here both ends of the way to them do.
pub const STREAM_IDLE: Duration = Duration::from_secs(4 * 3600);

/// What ends upgraded connections that neither side ends.
#[derive(Clone)]
pub(crate) struct Ends {
    pub stop: CancellationToken,
    /// Without a byte for so long; zero is never.
    pub idle: Duration,
}

impl From<&CancellationToken> for Ends {
    fn from(stop: &CancellationToken) -> Self {
        Self { stop: stop.clone(), idle: STREAM_IDLE }
    }
}

/// Sends `request` (already addressed to the backend). If both sides change protocol, a task copies bytes until one
/// of them closes, or `ends` has it.
pub(super) async fn forward(
    mut request: Request<Body>,
    backend: &Backend,
    ends: &Ends,
) -> Result<Response<Body>, BackendError> {
    let client = client_side(&mut request);
    let response = backend.send(request).await?;
    answer(response, client, ends)
}

/// The client's end of a change of protocol.
pub(crate) struct ClientSide {
    upgrade: OnUpgrade,
    /// Absent for callers that cannot be taken back.
    standing: Option<Standing>,
}

/// That end, if the client asks for one; take it before the request is sent on.
pub(crate) fn client_side(request: &mut Request<Body>) -> Option<ClientSide> {
    headers::upgrade_of(request.headers())?;
    let standing = request.extensions_mut().remove();
    Some(ClientSide { upgrade: hyper::upgrade::on(request), standing })
}

impl ClientSide {
    /// Until whoever asked is known no more.
    async fn lost(standing: Option<Standing>) {
        match standing {
            Some(standing) => standing.lost().await,
            None => std::future::pending().await,
        }
    }
}

/// The backend's answer as the client may see it. A client that asked for another protocol gets that or an error.
pub(crate) fn answer<B>(
    mut response: Response<B>,
    client: Option<ClientSide>,
    ends: &Ends,
) -> Result<Response<Body>, BackendError>
where
    B: http_body::Body<Data = bytes::Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    let status = response.status();
    let upgraded = status == StatusCode::SWITCHING_PROTOCOLS;
    match client {
        Some(client) if upgraded => {
            let server = hyper::upgrade::on(&mut response);
            let (stop, idle) = (ends.stop.clone(), ends.idle);
            let ClientSide { upgrade, standing } = client;
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = ClientSide::lost(standing) => tracing::debug!("whoever opened a stream is known no more"),
                    () = join(upgrade, server, idle) => {}
                }
            });
        }
        Some(_) if status.as_u16() < 400 => return Err(BackendError::NoUpgrade(status.as_u16())),
        _ => {}
    }
    headers::for_client(response.headers_mut(), upgraded);
    Ok(response.map(Body::new))
}

/// Waits for both upgrades, then copies until nothing has moved for so long.
async fn join(client: OnUpgrade, server: OnUpgrade, idle: Duration) {
    match tokio::try_join!(client, server) {
        Ok((client, server)) => {
            let quiet = Quiet::default();
            let client = quiet.stamp(TokioIo::new(client));
            tokio::select! {
                () = splice(client, TokioIo::new(server)) => {}
                () = quiet.lasts(idle) => tracing::debug!(?idle, "an upgraded connection was idle"),
            }
        }
        Err(error) => tracing::debug!(%error, "upgrade did not happen"),
    }
}

/// Copies both ways. Whatever ends first passes its end on; the other direction then has [`LINGER_TIMEOUT`].
async fn splice<A, B>(client: A, server: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(server);
    let mut up = std::pin::pin!(pipe(client_read, server_write));
    let mut down = std::pin::pin!(pipe(server_read, client_write));
    let rest = tokio::select! {
        () = &mut up => tokio::time::timeout(LINGER_TIMEOUT, down).await,
        () = &mut down => tokio::time::timeout(LINGER_TIMEOUT, up).await,
    };
    if rest.is_err() {
        tracing::debug!("one direction of an upgraded connection outlived the other; closed");
    }
}

/// Copies until the end and passes it on. Errors end the connection like an orderly end: both sides see it close.
async fn pipe(reader: impl AsyncRead, writer: impl AsyncWrite) {
    let mut reader = std::pin::pin!(tokio::io::BufReader::with_capacity(BUFFER, reader));
    let mut writer = std::pin::pin!(writer);
    if let Err(error) = copy_buf(&mut reader, &mut writer).await {
        tracing::debug!(%error, "upgraded connection");
    }
    if let Err(error) = writer.shutdown().await {
        tracing::debug!(%error, "closing an upgraded connection");
    }
}
