//! The store: one ordered key space under one 64-bit revision, in etcd's language.
//!
//! Keys are `<plural>.<group>/<namespace>/<name>`; the group of core resources is empty (`pods./default/web`) and
//! so is the namespace of cluster-scoped ones (`nodes.//n1`). Values are the JSON of the object without its
//! `metadata.resourceVersion`, which is the revision of its last change.

mod encrypting;
pub mod encryption;
pub mod etcd;
mod history;
mod item;
mod keyspace;
pub mod memory;
pub mod metrics;
mod pack;
pub mod sled;
#[cfg(feature = "testing")]
pub mod suite;
mod value;

pub use self::sled::SledStore;
pub use encrypting::Encrypting;
pub use etcd::{EtcdOptions, EtcdStore};
pub use history::Limits;
pub use memory::MemoryStore;
pub use pack::Packer;
pub use value::Value;

use crate::encryption::{OpenError, SealError, path};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// The store's clock: every committed transaction gets the next value; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A key with its present (or, in a list at an older revision, its then present) value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Arc<str>,
    pub value: Value,
    /// Of the transaction that created the key.
    pub created: Revision,
    /// Of the transaction that last wrote it.
    pub modified: Revision,
}

/// A condition of a transaction: the key was last written at `expect`, or is absent where that is `None`.
#[derive(Clone, Debug)]
pub struct Precondition {
    pub key: Arc<str>,
    pub expect: Option<Revision>,
}

#[derive(Clone, Debug)]
pub enum Op {
    Put { key: Arc<str>, value: Bytes },
    Delete { key: Arc<str> },
}

/// When a transaction counts as committed. It is visible to readers and watchers at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage before it is acknowledged.
    #[default]
    Synced,
    /// Acknowledged at once, on stable storage within ten seconds (Events).
    Batched,
    /// Never on stable storage (Leases of nodes, heartbeats of node status). A key written so and `Synced` before
    /// comes back after a restart with its last synced value.
    Volatile,
}

/// All or nothing: the operations happen, under one new revision, if every guard holds.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub guards: Vec<Precondition>,
    pub ops: Vec<Op>,
    pub durability: Durability,
}

/// What one operation did.
#[derive(Clone, Debug)]
pub struct Change {
    pub key: Arc<str>,
    /// `None`: deleted.
    pub value: Option<Value>,
    /// Revision of the key's creation (for a deletion: of the value that went).
    pub created: Revision,
    /// The value before, if there was one.
    pub previous: Option<KeyValue>,
}

/// One committed transaction, as watchers see it.
#[derive(Clone, Debug)]
pub struct Commit {
    pub revision: Revision,
    pub changes: Vec<Change>,
    /// The store keeps it beyond the process; not so where it was [`Durability::Volatile`].
    pub durable: bool,
}

/// Which keys a list returns, in key order.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub prefix: String,
    /// Only keys greater than this one.
    pub after: Option<String>,
    /// At most so many; 0 is no limit.
    pub limit: usize,
    /// As of this revision; `None` is now.
    pub at: Option<Revision>,
}

#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub items: Vec<KeyValue>,
    /// More keys of the range exist beyond the limit.
    pub more: bool,
    pub revision: Revision,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A guard failed; `actual` is what the key holds.
    #[error("guard failed on {key}")]
    Conflict { key: Arc<str>, actual: Option<KeyValue> },
    /// History before `oldest` is gone.
    #[error("revision {asked:?} is compacted, the oldest is {oldest:?}")]
    Compacted { asked: Revision, oldest: Revision },
    /// A revision that has not happened yet.
    #[error("revision {asked:?} is in the future, the newest is {newest:?}")]
    Future { asked: Revision, newest: Revision },
    /// No write is possible now: the disk is full or failing. Reads go on.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    #[error("the store is closed")]
    Closed,
    /// A server of the store is away, or refuses: nothing was changed.
    #[error("the store is away: {0}")]
    Unavailable(String),
    /// A write was sent, and nobody knows whether it was done.
    #[error("whether it was written is unknown: {0}")]
    Unknown(String),
    /// More than the store takes in one transaction; nothing was changed.
    #[error("the store takes no transaction of this size: {0}")]
    TooLarge(String),
    #[error("store {path}")]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("store damaged: {0}")]
    Damaged(String),
    /// A value is encrypted, and cannot be decrypted.
    #[error(transparent)]
    Unreadable(Unreadable),
    /// A value cannot be encrypted, so it was not written.
    #[error("unable to transform key {:?} for the store", path(key))]
    Seal {
        key: Arc<str>,
        #[source]
        source: SealError,
    },
}

/// A value that the store holds and cannot read, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("unable to transform key {:?}", path(key))]
pub struct Unreadable {
    pub key: Arc<str>,
    #[source]
    pub source: Arc<OpenError>,
}

/// Is told of commits, in order. False when it wants no more; it is dropped then, and when the store closes.
pub type Follower = Box<dyn FnMut(&[Arc<Commit>]) -> bool + Send>;

/// A backend. All of them pass the one suite in `store::suite`.
///
/// Every committed transaction is visible to `get`, `range` and watchers before `commit` returns.
#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// Newest committed revision.
    fn revision(&self) -> Revision;

    /// Oldest revision that `range` and `watch` can still start from.
    fn oldest(&self) -> Revision;

    /// Revisions before it are too old to be asked for, even where [`range`](Self::range) could tell.
    fn compaction_floor(&self) -> Revision;

    /// Waits until everything that was acknowledged anywhere before the call is visible here: several servers may share a
    /// store. Returned is a revision that is visible.
    async fn sync(&self) -> Result<Revision, StoreError> {
        Ok(self.revision())
    }

    /// Whether the store answers: it did, after the call. Nothing is written for it, and nobody waits for what others do.
    async fn reach(&self) -> Result<(), StoreError> {
        self.sync().await.map(drop)
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError>;

    async fn range(&self, range: Range) -> Result<Listing, StoreError>;

    /// Commits, and returns the transaction's revision. Deleting an absent key is no error and no change.
    async fn commit(&self, txn: Txn) -> Result<Revision, StoreError>;

    /// Every commit after `after`, in order, without gaps, whose changes touch `prefix` (other changes of such a
    /// commit are left out). The channel closes when the store does.
    fn watch(&self, prefix: &str, after: Revision) -> Result<UnboundedReceiver<Arc<Commit>>, StoreError>;

    /// Tells `follower` every commit after `after`: those that have happened now, later ones in the groups in which they
    /// become visible, before they are acknowledged. It runs where commits are made and holds them up, so it must be
    /// quick, and must not ask the store for anything.
    fn follow(&self, after: Revision, follower: Follower) -> Result<(), StoreError>;

    /// Forgets history up to and including `at`; the present stays.
    async fn compact(&self, at: Revision) -> Result<(), StoreError>;

    /// Packs values that only history holds and nobody has read for a while.
    fn pack_history(&self, _packer: &mut Packer) {}

    /// Why writes are refused at the moment, if they are.
    fn read_only(&self) -> Option<String>;

    /// The first key under `prefix` whose value cannot be read. Ranges leave it out.
    fn unreadable(&self, _prefix: &str) -> Option<Unreadable> {
        None
    }

    /// Whether the key's value would be stored differently if it were written again.
    async fn is_stale(&self, _key: &str) -> bool {
        false
    }

    /// Takes away every trace of values that were written over or deleted, history included, and remembers `mark` when
    /// that is done. Commits go on meanwhile.
    async fn scrub(&self, _mark: &str) -> Result<(), StoreError> {
        self.compact(self.revision()).await
    }

    /// The mark of the last scrubbing that was done; `None` where nothing outlives the process.
    fn scrubbed(&self) -> Option<String> {
        None
    }

    /// Makes everything durable and stops. Idempotent.
    async fn close(&self) -> Result<(), StoreError>;
}
