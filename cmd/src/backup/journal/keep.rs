//! Archives commits while the server runs.
//!
//! ```text
//! store -> tap -> gathered for the interval, or until there is much -> a file beside the backups -> copied into the bucket
//!           \-> more waits than memory is for: given up, told by an event, begun anew with a backup
//! ```

use super::{Piece, Summary, pieces, write};
use crate::backup::Told;
use crate::backup::contents::{KUBE_SYSTEM, identity};
use crate::backup::file::{NewFile, explain};
use crate::backup::key::Key;
use crate::config::Config;
use crate::scheduled::Plan;
use coracle_apiserver::metrics::{Metrics, Text};
use coracle_apiserver::store::sled::StoredCommit;
use coracle_apiserver::store::{Commit, Revision, SledStore, Store};
use std::collections::HashSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// Bytes of keys and values that are not kept waiting for the interval's end.
const LARGE: usize = 8 << 20;
/// Bytes that may wait while nothing can be written.
const MOST: usize = 64 << 20;
/// Between attempts at what failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// That a backup is wanted at once, because commits before it are not archived.
#[derive(Default)]
pub struct Due {
    wanted: AtomicBool,
    notify: Notify,
}

impl Due {
    fn ask(&self) {
        self.wanted.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Returns when one is wanted.
    pub async fn wanted(&self) {
        while !self.wanted.load(Relaxed) {
            self.notify.notified().await;
        }
    }

    /// Before one is begun.
    pub fn begin(&self) {
        self.wanted.store(false, Relaxed);
    }
}

/// All durable commits of a store from its opening on, and those before it that were not archived.
pub struct Tap {
    /// Everything after this revision is here.
    after: Revision,
    /// What was archived before reaches up to there.
    continues: bool,
    missed: Vec<StoredCommit>,
    commits: UnboundedReceiver<StoredCommit>,
    limit: Arc<Limit>,
}

/// Of what waits.
#[derive(Default)]
struct Limit {
    /// Bytes in the channel.
    waiting: AtomicUsize,
    /// There was more; what came after that is not known.
    exceeded: AtomicBool,
}

impl Limit {
    /// Whether one more of so many bytes may wait.
    fn admits(&self, bytes: usize) -> bool {
        let admitted = self.waiting.fetch_add(bytes, Relaxed) <= MOST;
        if !admitted {
            self.exceeded.store(true, Relaxed);
        }
        admitted
    }
}

impl Tap {
    /// Up to which revision the newest file of this node reaches.
    pub fn since(plan: &Plan, node: &str) -> Option<Revision> {
        let found = pieces(&plan.places.directory, Some(node)).unwrap_or_default();
        // By time: a machine that was set up anew may have left larger revisions there.
        found.iter().max_by_key(|piece| (piece.until, piece.upto)).map(|piece| Revision(piece.upto))
    }

    /// Has to be opened before the store takes its first commit. `since` is what the store was opened with.
    pub fn open(store: &SledStore, since: Option<Revision>) -> Self {
        let tap = Self::fresh(store);
        match (since, store.take_missed()) {
            (Some(after), Some(missed)) if after <= store.revision() => {
                Self { after, continues: true, missed, ..tap }
            }
            _ => tap,
        }
    }

    /// From now on.
    fn fresh(store: &SledStore) -> Self {
        let (send, commits) = unbounded_channel();
        let limit = Arc::<Limit>::default();
        let (after, limiting) = (store.revision(), limit.clone());
        let follower = move |commits: &[Arc<Commit>]| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            let told = commits.iter().filter(|commit| commit.durable && !commit.changes.is_empty());
            for commit in told.map(|commit| StoredCommit::of(commit, millis)) {
                if !limiting.admits(commit.held_len()) || send.send(commit).is_err() {
                    return false;
                }
            }
            true
        };
        if let Err(error) = store.follow(after, Box::new(follower)) {
            // The channel is closed then: whoever reads it tries again, or the store has closed.
            tracing::warn!(error = &error as &dyn std::error::Error, "commits cannot be followed");
        }
        Self { after, continues: false, missed: Vec::new(), commits, limit }
    }

    fn has_overflowed(&self) -> bool {
        self.limit.exceeded.load(Relaxed)
    }

    /// Waits for commits: until so long after the first that waits, or there is much of them. False when no more will come.
    async fn gather(
        &mut self,
        pending: &mut Vec<StoredCommit>,
        interval: Duration,
        retry: Option<Instant>,
    ) -> bool {
        let mut deadline = retry.or_else(|| (!pending.is_empty()).then(|| Instant::now() + interval));
        let mut bytes: usize = pending.iter().map(StoredCommit::held_len).sum();
        while retry.is_some() || bytes < LARGE {
            let next = match deadline {
                None => self.commits.recv().await,
                Some(at) => match timeout_at(at, self.commits.recv()).await {
                    Ok(next) => next,
                    Err(_) => return true,
                },
            };
            let Some(commit) = next else { return false };
            deadline.get_or_insert_with(|| Instant::now() + interval);
            let len = commit.held_len();
            self.limit.waiting.fetch_sub(len, Relaxed);
            bytes += len;
            pending.push(commit);
            if bytes > MOST {
                self.limit.exceeded.store(true, Relaxed);
                return true;
            }
        }
        true
    }
}

#[derive(Default)]
struct Figures {
    upto: AtomicU64,
    failures: AtomicU64,
}

impl Figures {
    fn render(&self, text: &mut Text) {
        let help = "Up to which revision commits are archived beside the backups.";
        text.single("coracle_backup_journal_revision", help, "gauge", self.upto.load(Relaxed));
        let help = "Attempts at archiving commits that failed.";
        text.single("coracle_backup_journal_failures_total", help, "counter", self.failures.load(Relaxed));
    }
}

/// Where commits go.
pub struct Archive {
    pub sled: Arc<SledStore>,
    pub config: Arc<Config>,
    pub plan: Plan,
    pub interval: Duration,
    pub told: Told,
    pub due: Arc<Due>,
}

/// Whether something went wrong, and what is in the bucket.
#[derive(Default)]
struct State {
    failed: bool,
    /// Names that the bucket has; `None`: it was not asked, or something failed since.
    sent: Option<HashSet<String>>,
}

impl Archive {
    /// Archives what the tap gives until the store closes, and counts it on the page of `metrics` from the call on.
    pub fn run(self, tap: Tap, metrics: &Metrics) -> impl Future<Output = ()> + use<> {
        let figures = Arc::<Figures>::default();
        let shown = figures.clone();
        metrics.collect_as("backup journal", move |text| shown.render(text));
        self.repeat(tap, figures)
    }

    async fn repeat(self, mut tap: Tap, figures: Arc<Figures>) {
        let mut state = State::default();
        loop {
            if !tap.continues {
                self.due.ask();
            }
            self.until_closed(&mut tap, &figures, &mut state).await;
            if !tap.has_overflowed() {
                return;
            }
            let why = format!(
                "commits after revision {} are not archived: more than {} MiB wait; a backup is written as soon as one can be",
                tap.after.0,
                MOST >> 20
            );
            tracing::error!(why, "the journal of the backups is broken off");
            self.told.event("Warning", "BackupJournalBroken", why);
            tokio::time::sleep(RETRY_INTERVAL).await;
            tap = Tap::fresh(&self.sled);
        }
    }

    /// Until the tap gives nothing more.
    async fn until_closed(&self, tap: &mut Tap, figures: &Figures, state: &mut State) {
        let mut pending = std::mem::take(&mut tap.missed);
        let mut retry = None;
        loop {
            let open = tap.gather(&mut pending, self.interval, retry).await;
            retry = None;
            if tap.has_overflowed() {
                return;
            }
            match self.save(tap.after, &mut pending, state).await {
                Ok(upto) => {
                    tap.after = upto.unwrap_or(tap.after);
                    figures.upto.store(tap.after.0, Relaxed);
                }
                Err(why) => {
                    figures.failures.fetch_add(1, Relaxed);
                    retry = Some(Instant::now() + RETRY_INTERVAL);
                    self.failure(why, state);
                }
            }
            self.send(state, figures).await;
            if !open {
                return;
            }
        }
    }

    /// Said once, until it is over.
    fn failure(&self, why: String, state: &mut State) {
        tracing::error!(why, "commits are not archived");
        if !std::mem::replace(&mut state.failed, true) {
            self.told.event("Warning", "BackupJournalFailed", why);
        }
    }

    /// Writes one file of what is pending, if that is anything; says up to which revision. On an error it still is pending.
    async fn save(
        &self,
        after: Revision,
        pending: &mut Vec<StoredCommit>,
        state: &mut State,
    ) -> Result<Option<Revision>, String> {
        let Some(summary) = Summary::of(&self.config.node_name, after, pending) else { return Ok(None) };
        let summary = Summary { cluster: self.cluster().await, ..summary };
        let upto = Revision(summary.upto);
        let (plan, commits) = (self.plan.clone(), std::mem::take(pending));
        let written = tokio::task::spawn_blocking(move || {
            let done = file(&plan, &summary, &commits);
            (commits, done)
        });
        let (commits, done) = written.await.map_err(|error| error.to_string())?;
        if let Err(why) = done {
            *pending = commits;
            return Err(why);
        }
        if std::mem::take(&mut state.failed) {
            self.told.event("Normal", "BackupJournalWritten", format!("up to revision {}", upto.0));
        }
        Ok(Some(upto))
    }

    async fn cluster(&self) -> Option<String> {
        let found = self.sled.get(KUBE_SYSTEM).await.ok().flatten()?;
        identity(&found.value.peek())
    }

    /// Copies into the bucket what is not there.
    async fn send(&self, state: &mut State, figures: &Figures) {
        if let Err(why) = self.copy(&mut state.sent).await {
            figures.failures.fetch_add(1, Relaxed);
            state.sent = None;
            self.failure(why, state);
        }
    }

    async fn copy(&self, sent: &mut Option<HashSet<String>>) -> Result<(), String> {
        let Some(bucket) = &self.plan.places.bucket else { return Ok(()) };
        let directory = &self.plan.places.directory;
        let here =
            pieces(directory, Some(&self.config.node_name)).map_err(|error| explain(directory, &error))?;
        if sent.is_none() {
            *sent = Some(bucket.list().await?.into_iter().map(|stored| stored.name).collect());
        }
        let Some(there) = sent else { return Ok(()) };
        for Piece { name, .. } in here {
            if !there.contains(&name) {
                bucket.put(&directory.join(&name), &name).await?;
                there.insert(name);
            }
        }
        Ok(())
    }
}

fn file(plan: &Plan, summary: &Summary, commits: &[StoredCommit]) -> Result<(), String> {
    let directory: &Path = &plan.places.directory;
    let path = directory.join(summary.name());
    let failed = |error: std::io::Error| explain(&path, &error);
    let key = plan.key_file.as_deref().map(Key::read).transpose()?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let mut file = NewFile::create(&path).map_err(failed)?;
    write(&mut file, key.as_ref(), summary, commits).map_err(failed)?;
    file.finish().map_err(failed).map(drop)
}
