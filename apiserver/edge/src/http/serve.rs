//! The API's side of a connection: who its client is, and what its requests carry.

use super::service;
use crate::http::ServerState;
use axum::body::Body;
use axum::extract::ConnectInfo;
use coracle_access::authn::{Authenticator, PeerIdentity};
use coracle_api::UserInfo;
use coracle_listen::{End, Limits, Places, Settings};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Requests that are under way when the server stops get this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Of the process's descriptors, in eighths. The rest is for the kubelet's port, files and connections to others.
const SHARE: usize = 5;

/// Who is at the other end of a connection. In the extensions of every request that came over a socket.
#[derive(Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// What the client's certificate says; `None` without one.
    pub identity: Option<Arc<PeerIdentity>>,
}

/// What every connection needs.
#[derive(Clone)]
struct Front {
    server: Arc<ServerState>,
    /// Judges client certificates, once a connection.
    authenticator: Option<Arc<Authenticator>>,
}

impl coracle_listen::Front for Front {
    type Peer = Peer;

    fn peer(&self, address: SocketAddr, chain: Option<&[CertificateDer<'static>]>) -> Peer {
        let identity = self.authenticator.as_ref().and_then(|a| a.peer(chain)).map(Arc::new);
        Peer { address, identity }
    }

    fn answer(
        self,
        peer: Peer,
        mut request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static {
        // Only the in-process transport may say who the user is.
        request.extensions_mut().remove::<UserInfo>();
        request.extensions_mut().insert(ConnectInfo(peer.address));
        request.extensions_mut().insert(peer);
        let is_head = request.method() == Method::HEAD;
        let reads = is_head || request.method() == Method::GET;
        let page = self.server.pages.filter(|_| reads).and_then(|pages| pages(request.uri().path()));
        async move {
            let answer = match page {
                Some(page) => page,
                None => service::handle(self.server, request).await,
            };
            if is_head { without_body(answer) } else { answer }
        }
    }

    fn handshake_failed(&self) {
        self.server.metrics().handshake_failed();
    }

    fn ended(&self, why: End) {
        self.server.metrics().connection_ended(why.reason());
    }
}

/// Serves connections until `stop`; in clear text without `tls`. `authenticator` judges client certificates.
pub async fn serve(
    server: Arc<ServerState>,
    authenticator: Option<Arc<Authenticator>>,
    tls: Option<Arc<rustls::ServerConfig>>,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let settings =
        Settings { limits: Limits::default(), places: Places::eighths(SHARE), tls, drain: DRAIN_TIMEOUT };
    coracle_listen::serve(Front { server, authenticator }, settings, listener, stop).await;
}

/// The answer to a HEAD: it says how long the body would have been.
fn without_body(answer: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Body::empty())
}
