//! Who answers what comes in, and how connections are treated.

use crate::activity::End;
use crate::limits::Limits;
use crate::places::Places;
use axum::body::Body;
use http::{Request, Response};
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

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
