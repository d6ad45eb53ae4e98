//! The backend of throw-away clusters: nothing outlives the process.

use super::history::{History, Limits};
use super::item::Present;
use super::keyspace::KeySpace;
use super::{Commit, Follower, KeyValue, Listing, Packer, Range, Revision, Store, StoreError, Txn};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// Durability classes make no difference here: every commit is acknowledged at once and lost with the process.
pub struct MemoryStore {
    space: KeySpace,
    /// Held from staging to publishing, so that commits happen one after the other.
    writer: Mutex<()>,
}

impl MemoryStore {
    pub fn new() -> Arc<Self> {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Arc<Self> {
        let space = KeySpace::new(Present::new(), Revision(0), History::default(), limits);
        Arc::new(Self { space, writer: Mutex::new(()) })
    }
}

#[async_trait::async_trait]
impl Store for MemoryStore {
    fn revision(&self) -> Revision {
        self.space.revision()
    }

    fn oldest(&self) -> Revision {
        self.space.oldest()
    }

    fn compaction_floor(&self) -> Revision {
        self.space.compaction_floor()
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.space.get(key)
    }

    async fn range(&self, range: Range) -> Result<Listing, StoreError> {
        self.space.range(&range)
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, StoreError> {
        let _writer = self.writer.lock();
        if self.space.is_closed() {
            return Err(StoreError::Closed);
        }
        let mut draft = self.space.draft();
        draft.stage(&txn, false)?;
        let revision = draft.revision;
        self.space.publish(draft);
        Ok(revision)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<UnboundedReceiver<Arc<Commit>>, StoreError> {
        self.space.watch(prefix, after)
    }

    fn follow(&self, after: Revision, follower: Follower) -> Result<(), StoreError> {
        self.space.follow(after, follower)
    }

    async fn compact(&self, at: Revision) -> Result<(), StoreError> {
        self.space.compact(at)
    }

    fn pack_history(&self, packer: &mut Packer) {
        self.space.pack_history(packer);
    }

    fn read_only(&self) -> Option<String> {
        None
    }

    async fn close(&self) -> Result<(), StoreError> {
        let _writer = self.writer.lock();
        self.space.close();
        Ok(())
    }
}
