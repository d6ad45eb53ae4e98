//! Port 10256: what load balancers ask to know whether this node serves Services.

use coracle_listen::page::{next, respond};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// When the rules were last written, in milliseconds since the epoch (0: never), and why what is asked for is not what is
/// in force.
#[derive(Clone, Default)]
pub struct LastSync(Arc<AtomicI64>, Arc<Mutex<Option<String>>>);

impl LastSync {
    pub fn now(&self) {
        self.0.store(jiff::Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }

    pub fn is_in_force(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn healthy(&self, at: i64) -> String {
        match &*self.1.lock() {
            None => format!("{{\"lastUpdatedMillis\":{at}}}"),
            Some(why) => {
                serde_json::json!({"lastUpdatedMillis": at, "configurationRefused": why}).to_string()
            }
        }
    }

    /// Says why a configuration is not in force, beside the last good one that is; `None`: it is.
    pub fn refused(&self, why: Option<String>) {
        *self.1.lock() = why;
    }

    /// Rules are not in force (any more): answers turn to 503.
    pub fn failed(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, last: LastSync, stop: CancellationToken) {
    while let Some(stream) = stop.run_until_cancelled(next(|| listener.accept())).await {
        tokio::spawn(answer(stream, last.clone()));
    }
}

async fn answer(stream: TcpStream, last: LastSync) {
    let say = move |path: &str| match (path, last.0.load(Ordering::Relaxed)) {
        ("/healthz" | "/livez", 0) => {
            ("503 Service Unavailable", String::new(), "{\"error\":\"rules are not in force\"}".to_owned())
        }
        ("/healthz" | "/livez", at) => ("200 OK", String::new(), last.healthy(at)),
        _ => ("404 Not Found", String::new(), String::new()),
    };
    respond(stream, say).await;
}
