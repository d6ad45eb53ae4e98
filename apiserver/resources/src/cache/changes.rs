//! That something has changed, for those who then look at everything again.

use super::{Cache, Filter, Watcher};
use futures::FutureExt;
use futures::future::select_all;
use std::sync::Arc;
use std::time::Duration;

/// Before a watch that has ended is begun again: the store closes shortly before the process ends, and one that was too slow
/// shall not become a loop.
const RESUME_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the first event of any of these; true if one has ended instead. At least one watcher is given. Safe to cancel.
pub async fn any_changed(watchers: &mut [Watcher]) -> bool {
    let next = watchers.iter_mut().map(|watcher| watcher.next().boxed());
    select_all(next).await.0.is_none()
}

/// Follows whole resources. An event only wakes; whoever waits reads the cache.
pub struct Changes {
    cache: Arc<Cache>,
    resources: &'static [&'static str],
    watchers: Vec<Watcher>,
}

impl Changes {
    /// From now on; there is at least one resource, by its storage name.
    pub fn of(cache: &Arc<Cache>, resources: &'static [&'static str]) -> Self {
        let mut changes = Self { cache: cache.clone(), resources, watchers: Vec::new() };
        changes.subscribe();
        changes
    }

    fn subscribe(&mut self) {
        let watch = |resource: &&str| self.cache.watch(resource, Filter::default()).1;
        self.watchers = self.resources.iter().map(watch).collect();
    }

    /// Returns when something has changed since the last call, or may have. Many changes may be one. Safe to cancel.
    pub async fn next(&mut self) {
        if any_changed(&mut self.watchers).await {
            tokio::time::sleep(RESUME_INTERVAL).await;
            self.subscribe();
        }
        self.watchers.iter_mut().for_each(|watcher| while watcher.try_next().is_some() {});
    }
}
