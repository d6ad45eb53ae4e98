//! Leader election of the parts of which one may work at a time.

use coracle_api::error::chain;
use coracle_client::leader::{Candidate, Leadership};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longer than the server needs; one that is gone must not hold the process up.
const RELEASED_TIMEOUT: Duration = Duration::from_secs(2);

/// Works while this process leads, from when it does (at once without an election) until `stop`, and then gives the lease
/// to whoever is next. `work` ends when its token is cancelled.
///
/// # Errors
/// Of the work, or that leadership was lost and why: whoever starts the process again lets it queue up anew.
pub async fn work_while_leading<R>(
    candidate: Option<Candidate>,
    leading: &AtomicBool,
    stop: &CancellationToken,
    work: impl FnOnce(CancellationToken) -> R,
) -> Result<(), String>
where
    R: Future<Output = Result<(), String>>,
{
    let Some(candidate) = candidate else {
        leading.store(true, Ordering::Relaxed);
        return work(stop.child_token()).await;
    };
    tracing::info!(lease = candidate.lease, "waiting to lead");
    let Some(leadership) = candidate.clone().lead(stop.clone()).await else { return Ok(()) };
    leading.store(true, Ordering::Relaxed);
    tracing::info!(lease = candidate.lease, "leading");
    let done = work(leadership.ended.clone()).await;
    if !stop.is_cancelled() {
        // The work fails for want of the same rights, or of the same server, at times; then the lease is the reason.
        return Err(
            lost(&leadership).unwrap_or_else(|| done.err().unwrap_or("it ended by itself".to_owned()))
        );
    }
    release(&candidate).await;
    done
}

fn lost(leadership: &Leadership) -> Option<String> {
    leadership.lost().map(|why| format!("leadership was lost: {}", chain(why)))
}

/// Whoever comes next waits a little longer otherwise.
async fn release(candidate: &Candidate) {
    let released = tokio::time::timeout(RELEASED_TIMEOUT, candidate.release()).await;
    if let Ok(Err(error)) = released {
        tracing::warn!(%error, "lease not released");
    }
}

/// Unique among the candidates, and readable: the host, and a number of this process.
pub fn identity() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{}_{}", host.unwrap_or_default(), uuid::Uuid::new_v4())
}
