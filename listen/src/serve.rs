//! The accept loop.

use crate::activity::End;
use crate::connection;
use crate::limits::Limits;
use crate::places::Places;
use axum::body::Body;
use http::{Request, Response};
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// After an accept error, which is mostly a lack of file descriptors. Somebody was told to give one back meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who answers what comes in.
pub trait Front: Clone + Send + Sync + 'static {
    /// Who is at the other end of a connection.
    type Peer: Clone + Send + Sync + 'static;

    /// Once a connection, after its handshake; `chain` are the client's certificates, its own first.
    fn peer(&self, address: SocketAddr, chain: Option<&[CertificateDer<'static>]>) -> Self::Peer;

    /// One request. Its extensions hold the connection's `Arc<Place>`, which wants to be told when somebody has
    /// authenticated.
    fn answer(
        self,
        peer: Self::Peer,
        request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static;

    /// A client did not finish its TLS handshake.
    fn handshake_failed(&self) {}

    /// A connection was ended from this side.
    fn ended(&self, _why: End) {}
}

/// How a listener treats its connections.
#[derive(Clone)]
pub struct Settings {
    pub limits: Limits,
    /// May be shared by several listeners.
    pub places: Arc<Places>,
    /// Clear text without it.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// What requests that are under way at the end get.
    pub drain: Duration,
}

/// What the connections of one listener have in common.
pub(crate) struct Shared {
    pub settings: Settings,
    /// Turns for the costly part of TLS handshakes; half the processors are left to others.
    pub handshakes: Semaphore,
}

/// Serves connections until `stop`, and then those requests that are under way.
pub async fn serve<F: Front>(front: F, settings: Settings, listener: TcpListener, stop: CancellationToken) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let drain = settings.drain;
    let shared = Arc::new(Shared { settings, handshakes: Semaphore::new((processors / 2).max(1)) });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let run = connection::run(front.clone(), shared.clone(), stream, address, stop.clone());
                    connections.spawn(run);
                }
                Err(error) => {
                    shared.settings.places.give_way();
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain, drained).await.is_err() {
        tracing::debug!("connections were still open at the end");
    }
}
