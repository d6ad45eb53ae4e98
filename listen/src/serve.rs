//! The accept loop.

use crate::activity::{Activity, End};
use crate::connection::{self, Accepted};
use crate::front::{Front, Settings, Shared};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// After an accept error, which is mostly a lack of file descriptors. Somebody was told to give one back meanwhile.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

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
                    let activity = Arc::new(Activity::new(shared.settings.limits));
                    match shared.settings.places.take(address.ip(), &activity) {
                        Some(place) => {
                            let accepted = Accepted { stream, address, activity, place };
                            connections.spawn(connection::run(front.clone(), shared.clone(), accepted, stop.clone()));
                        }
                        None => front.ended(End::Full),
                    }
                    shared.settings.places.let_leave().await;
                }
                Err(error) => {
                    shared.settings.places.give_way();
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
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
