//! Port 10256: what load balancers ask to know whether this node serves Services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Longest request line and headers that are read; no probe sends more.
const REQUEST_LIMIT: usize = 4096;

/// When the rules were last written, in milliseconds since the epoch; 0: never.
#[derive(Clone, Default)]
pub struct LastSync(Arc<AtomicI64>);

impl LastSync {
    pub fn now(&self) {
        self.0.store(jiff::Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }

    pub fn is_in_force(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Rules are not in force (any more): answers turn to 503.
    pub fn failed(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Serves until `stop`. Failing to bind is reported, and no reason for the proxy to stop.
pub async fn serve(address: SocketAddr, last: LastSync, stop: CancellationToken) {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%address, %error, "proxy health port not served"),
    };
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        if let Ok((stream, _)) = accepted {
            tokio::spawn(answer(stream, last.0.load(Ordering::Relaxed)));
        }
    }
}

async fn answer(stream: TcpStream, last_millis: i64) {
    let say = move |path: &str| match (path, last_millis) {
        ("/healthz" | "/livez", 0) => {
            ("503 Service Unavailable", String::new(), "{\"error\":\"rules are not in force\"}".to_owned())
        }
        ("/healthz" | "/livez", at) => ("200 OK", String::new(), format!("{{\"lastUpdatedMillis\":{at}}}")),
        _ => ("404 Not Found", String::new(), String::new()),
    };
    respond(stream, say).await;
}

/// Answers one HTTP request by its path with status, further headers (a line each) and a body of JSON.
pub async fn respond(
    mut stream: TcpStream,
    say: impl FnOnce(&str) -> (&'static str, String, String) + Send + 'static,
) {
    let mut request = vec![0; REQUEST_LIMIT];
    let Ok(read) = stream.read(&mut request).await else { return };
    let line = String::from_utf8_lossy(&request[..read]);
    let (status, more, body) = say(line.split(' ').nth(1).unwrap_or_default());
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The prober may be gone; there is nobody to tell.
    let _ = stream.write_all((head + &body).as_bytes()).await;
}
