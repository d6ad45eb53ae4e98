//! Locks by name, which are there as long as somebody holds them or waits.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

#[derive(Default)]
pub(super) struct Locks(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

impl Locks {
    /// Waits until nobody else holds the lock of this name. Cancel-safe.
    pub async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = self.0.lock();
            known.retain(|_, lock| Arc::strong_count(lock) > 1);
            known.entry(name.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}
