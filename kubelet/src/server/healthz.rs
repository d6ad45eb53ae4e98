//! Port 10248: whether the kubelet is well, for anybody on this machine; systemd, node problem detectors and people ask it.

use super::routes::text;
use crate::metrics::Metrics;
use axum::body::Body;
use coracle_listen::{Front, Limits, Places, Settings};
use http::{Request, Response, StatusCode};
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Between attempts to get the port; upstream's.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Connections at a time; whoever asks is gone at once.
const MOST: usize = 64;

/// Serves until `stop`, and counts in `metrics` what is asked. A port that somebody else has is waited for.
pub async fn healthz(address: SocketAddr, metrics: Metrics, stop: CancellationToken) {
    let mut told = false;
    let bound = stop.run_until_cancelled(async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) if !told => {
                    tracing::warn!(%address, %error, "healthz is not served yet");
                    told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    });
    let Some(listener) = bound.await else { return };
    serve(listener, metrics, stop).await;
}

async fn serve(listener: TcpListener, metrics: Metrics, stop: CancellationToken) {
    let settings = Settings {
        limits: Limits::default(),
        places: Places::new(MOST, MOST),
        tls: None,
        drain: Duration::ZERO,
    };
    coracle_listen::serve(Well(metrics), settings, listener, stop).await;
}

#[derive(Clone)]
struct Well(Metrics);

impl Front for Well {
    type Peer = ();

    fn peer(&self, _: SocketAddr, _: Option<&[CertificateDer<'static>]>) {}

    async fn answer(self, (): (), request: Request<Body>) -> Response<Body> {
        match request.uri().path() {
            path @ ("/healthz" | "/healthz/ping" | "/healthz/log" | "/healthz/syncloop") => {
                self.0.health_checks.asked(&path[1..].split('/').collect::<Vec<_>>());
                text("ok")
            }
            _ => {
                let mut response = text("404 page not found\n");
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn anybody_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let served = tokio::spawn(serve(listener, Metrics::default(), stop.clone()));
        for (path, status, body) in
            [("/healthz", "200 OK", "ok"), ("/metrics", "404 Not Found", "404 page not found\n")]
        {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.ends_with(body), "{answer}");
        }
        stop.cancel();
        served.await.unwrap();
    }
}
