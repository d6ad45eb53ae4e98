//! How long the request that is admitted may still take.

use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

tokio::task_local! {
    static END: Instant;
}

/// Runs a request that is given up at `end`, so that those whom it asks can be told how much time they have.
pub async fn until<F: Future>(end: Instant, request: F) -> F::Output {
    END.scope(end, request).await
}

/// `None` outside of [`until`]: requests of the server's own last as long as they like.
pub(super) fn remaining() -> Option<Duration> {
    END.try_with(|end| end.saturating_duration_since(Instant::now())).ok()
}
