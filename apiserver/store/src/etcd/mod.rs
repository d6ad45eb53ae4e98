//! etcd v3 as the store, which several servers share.
//!
//! ```text
//! commit:  guards and operations -> one etcd transaction -> wait until the mirror shows it
//! reads:   from the mirror; `sync` first asks etcd for its revision and waits for it
//! others' commits:  the watch -> mirror -> followers, watchers
//! ```
//! Keys and values lie where and as upstream's API server has them (`layout`, `encoding`).

mod compactor;
pub(crate) mod encoding;
mod layout;
mod leases;
mod members;
mod mirror;
pub mod moving;
mod quorum;
mod transaction;

use crate::history::{History, Limits};
use crate::item::Item;
use crate::keyspace::{Absorbed, KeySpace};
use crate::{Commit, Follower, KeyValue, Listing, Packer, Range, Revision, Store, StoreError, Txn};
use layout::Layout;
use leases::Leases;
pub use members::Tls;
use members::{Kind, Members};
use quorum::Quorum;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// How long the mirror may take to show what etcd has acknowledged. With a member that fails in between it takes three
/// seconds until that is noticed, and as much again for the next.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Events arrive in less; after it somebody else's keys are why the revision is not reached.
const SOON_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// URLs, of one cluster.
    pub servers: Vec<String>,
    pub tls: Tls,
    /// `/registry`
    pub prefix: String,
    /// How long Events live.
    pub event_ttl: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: Tls::default(),
            prefix: "/registry".to_owned(),
            // As upstream's `event-ttl`.
            event_ttl: Duration::from_secs(3600),
        }
    }
}

struct Shared {
    members: Members,
    layout: Layout,
    space: KeySpace,
    leases: Leases,
    quorum: Quorum,
    /// What the mirror has shown to everybody.
    shown: watch::Sender<Revision>,
    /// Asks the watch how far it is.
    ask: Notify,
    /// Whether progress that etcd tells when asked is true.
    truthful: OnceLock<bool>,
    stop: CancellationToken,
}

pub struct EtcdStore(Arc<Shared>);

impl EtcdStore {
    /// Reads all there is. Within a runtime.
    ///
    /// # Errors
    /// `Unavailable`, with what each server said.
    pub async fn open(options: &EtcdOptions) -> Result<Arc<Self>, StoreError> {
        let layout = Layout::new(&options.prefix);
        let members = Members::new(&options.servers, &options.tls, layout.mark()).await?;
        let mut shared = Shared {
            members,
            space: KeySpace::new(Default::default(), Revision(0), History::default(), Limits::default()),
            leases: Leases::new(options.event_ttl),
            quorum: Quorum::default(),
            shown: watch::Sender::new(Revision(0)),
            ask: Notify::new(),
            truthful: OnceLock::new(),
            stop: CancellationToken::new(),
            layout,
        };
        if moving::is_under_way(&shared.members, &shared.layout).await? {
            return Err(StoreError::Unavailable(moving::MoveError::Unfinished.to_string()));
        }
        let (begin, items) = mirror::load(&shared).await?;
        let items = mirror::loaded(&shared.layout, &items);
        let present = items.iter().map(|kv| (kv.key.clone(), Item::from(kv))).collect();
        shared.space = KeySpace::new(present, begin, History::new(begin), Limits::default());
        shared.shown.send_replace(begin);
        let shared = Arc::new(shared);
        tokio::spawn(mirror::run(shared.clone()));
        tokio::spawn(compactor::run(shared.clone()));
        let store = Self(shared);
        store.sync().await?;
        Ok(Arc::new(store))
    }
}

impl Shared {
    fn absorb(&self, commits: BTreeMap<u64, Vec<Absorbed>>) {
        let commits = commits.into_iter().map(|(revision, changes)| (Revision(revision), changes));
        self.space.absorb(commits);
        self.shown.send_replace(self.space.revision());
    }

    /// The revision of etcd itself, by a read that a majority has confirmed; calls at a time share one.
    async fn present(&self) -> Result<Revision, StoreError> {
        if self.space.is_closed() {
            return Err(StoreError::Closed);
        }
        let mark = self.layout.mark();
        let now = self.quorum.revision(|| mirror::revision(&self.members, &mark)).await?;
        Ok(mirror::unsigned(now))
    }

    /// Waits until the mirror shows everything up to `revision`.
    async fn caught_up(&self, revision: Revision) -> Result<(), StoreError> {
        let mut shown = self.shown.subscribe();
        let there = *shown.borrow_and_update() >= revision;
        if there || self.shows(&mut shown, revision, SOON_INTERVAL).await {
            return Ok(());
        }
        self.ask.notify_one();
        if self.shows(&mut shown, revision, VISIBLE_TIMEOUT).await {
            return Ok(());
        }
        if self.stop.is_cancelled() {
            return Err(StoreError::Closed);
        }
        let shown = self.space.revision().0;
        Err(StoreError::Unavailable(format!("etcd is at revision {}, its watch at {shown}", revision.0)))
    }

    async fn shows(&self, shown: &mut watch::Receiver<Revision>, at: Revision, patience: Duration) -> bool {
        let mut wait = Box::pin(tokio::time::timeout(patience, shown.wait_for(move |now| *now >= at)));
        tokio::select! {
            reached = &mut wait => matches!(reached, Ok(Ok(_))),
            () = self.stop.cancelled() => false,
        }
    }

    /// Before 3.4.31 and 3.5.13 etcd may tell progress before events.
    async fn progress_is_true(&self, client: &etcd_client::Client) -> bool {
        if let Some(known) = self.truthful.get() {
            return *known;
        }
        let Ok(status) = client.maintenance_client().status().await else { return false };
        *self.truthful.get_or_init(|| tells_true_progress(status.version()))
    }

    /// An event that nobody but the mirror sees.
    async fn write_mark(&self) {
        let mark = self.layout.mark();
        let put = |client: etcd_client::Client| {
            let mark = mark.clone();
            async move { client.kv_client().put(mark, "", None).await }
        };
        if let Err(error) = self.members.call(Kind::Read, put).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "no mark in etcd");
        }
    }
}

fn tells_true_progress(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) > (3, 5),
    }
}

#[async_trait::async_trait]
impl Store for EtcdStore {
    fn revision(&self) -> Revision {
        self.0.space.revision()
    }

    fn oldest(&self) -> Revision {
        self.0.space.oldest()
    }

    fn compaction_floor(&self) -> Revision {
        self.0.space.compaction_floor()
    }

    async fn sync(&self) -> Result<Revision, StoreError> {
        let now = self.0.present().await?;
        self.0.caught_up(now).await?;
        Ok(now)
    }

    async fn reach(&self) -> Result<(), StoreError> {
        if self.0.space.is_closed() {
            return Err(StoreError::Closed);
        }
        mirror::reach(&self.0.members, &self.0.layout.mark()).await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.0.space.get(key)
    }

    async fn range(&self, range: Range) -> Result<Listing, StoreError> {
        self.0.space.range(&range)
    }

    async fn commit(&self, txn: Txn) -> Result<Revision, StoreError> {
        if self.0.space.is_closed() {
            return Err(StoreError::Closed);
        }
        transaction::commit(&self.0, &txn).await
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<UnboundedReceiver<Arc<Commit>>, StoreError> {
        self.0.space.watch(prefix, after)
    }

    fn follow(&self, after: Revision, follower: Follower) -> Result<(), StoreError> {
        self.0.space.follow(after, follower)
    }

    async fn compact(&self, at: Revision) -> Result<(), StoreError> {
        self.0.space.compact(at)?;
        compactor::compact(&self.0.members, at).await
    }

    fn pack_history(&self, packer: &mut Packer) {
        self.0.space.pack_history(packer);
    }

    fn read_only(&self) -> Option<String> {
        None
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.stop.cancel();
        self.0.space.close();
        Ok(())
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::tells_true_progress;

    #[test]
    fn progress_is_believed_from_the_versions_on_that_upstream_believes() {
        for (version, is_true) in [
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("3.3.9", false),
        ] {
            assert_eq!(tells_true_progress(version), is_true, "{version}");
        }
    }
}
