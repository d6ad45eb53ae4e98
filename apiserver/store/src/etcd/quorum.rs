//! etcd's newest revision, asked once for all who wait for it.

use crate::StoreError;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tokio::sync::Mutex;

/// A read answers those who came before it began; who comes while one is under way shares the next.
#[derive(Default)]
pub(super) struct Quorum {
    begun: AtomicU64,
    last: Mutex<(u64, Option<Result<i64, String>>)>,
}

impl Quorum {
    pub async fn revision<F>(&self, read: impl FnOnce() -> F) -> Result<i64, StoreError>
    where
        F: Future<Output = Result<i64, StoreError>>,
    {
        let arrived = self.begun.load(SeqCst);
        let mut last = self.last.lock().await;
        if let (number, Some(answer)) = &*last
            && *number > arrived
        {
            return answer.clone().map_err(StoreError::Unavailable);
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let answer = read().await;
        let told = match &answer {
            Ok(revision) => Ok(*revision),
            Err(StoreError::Unavailable(why)) => Err(why.clone()),
            Err(error) => Err(error.to_string()),
        };
        *last = (number, Some(told));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;

    #[tokio::test]
    async fn who_waits_shares_a_read_that_begins_after_they_came() {
        let (quorum, reads) = (Arc::new(Quorum::default()), Arc::new(AtomicI64::new(0)));
        let read = |reads: Arc<AtomicI64>| async move {
            tokio::task::yield_now().await;
            Ok(reads.fetch_add(1, SeqCst))
        };
        let all = (0..10).map(|_| quorum.revision(|| read(reads.clone())));
        let seen: Vec<i64> = futures::future::try_join_all(all).await.unwrap();
        assert_eq!(
            seen.iter().filter(|seen| **seen == 0).count(),
            1,
            "only the first saw the first: {seen:?}"
        );
        assert_eq!(reads.load(SeqCst), 2);
        assert_eq!(quorum.revision(|| read(reads.clone())).await.unwrap(), 2, "no answer is kept");
    }
}
