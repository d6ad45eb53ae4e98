//! How many requests may be worked on at a time.

use coracle_api::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Upstream's `--max-requests-inflight` and `--max-mutating-requests-inflight`. Each bounds memory: a request holds
/// up to 3 MiB of body.
const READING: usize = 400;
const MUTATING: usize = 200;

#[derive(Clone)]
pub struct Limits {
    reading: Arc<Semaphore>,
    mutating: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reading: Arc::new(Semaphore::new(READING)), mutating: Arc::new(Semaphore::new(MUTATING)) }
    }
}

impl Limits {
    /// A place among the running requests, or 429. Watches and streams need none.
    pub fn enter(&self, verb: &str) -> Result<OwnedSemaphorePermit, ApiError> {
        let places = match verb {
            "get" | "list" | "head" => &self.reading,
            _ => &self.mutating,
        };
        places.clone().try_acquire_owned().map_err(|_| {
            ApiError::too_many_requests(
                "the server has received too many requests and has asked us to try again later",
                1,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_house_is_told_so() {
        let limits = Limits::default();
        let places: Vec<_> = (0..MUTATING).map(|_| limits.enter("create").unwrap()).collect();
        let error = limits.enter("patch").unwrap_err();
        assert_eq!((error.code, error.retry_after), (429, Some(1)));
        assert!(limits.enter("list").is_ok());
        drop(places);
        assert!(limits.enter("patch").is_ok());
    }
}
