//! Archives commits while the server runs.
//!
//! ```text
//! store -> tap -> gathered for the interval, or until there is much -> a file beside the backups -> copied into the bucket
//!           \-> more waits than memory is for: given up, told by an event, begun anew with a backup
//! ```

use super::copy::Copies;
use super::tap::{MOST, Tap};
use super::{Summary, pieces, spans, write};
use crate::backup::Told;
use crate::backup::automatic::newest;
use crate::backup::contents::{KUBE_SYSTEM, identity, sealing};
use crate::backup::file::{NewFile, explain};
use crate::backup::key::Key;
use crate::config::Config;
use crate::scheduled::Plan;
use coracle_apiserver::metrics::{Metrics, Text};
use coracle_apiserver::store::sled::StoredCommit;
use coracle_apiserver::store::{Revision, SledStore, Store};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Between attempts at what failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// That a backup is wanted at once, because commits before it are not archived.
#[derive(Default)]
pub struct Due {
    wanted: AtomicBool,
    notify: Notify,
}

impl Due {
    pub fn ask(&self) {
        self.wanted.store(true, Relaxed);
        self.notify.notify_one();
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Returns when one is wanted.
    pub async fn wanted(&self) {
        while !self.is_wanted() {
            self.notify.notified().await;
        }
    }

    /// Before one is begun; says whether it was wanted.
    pub fn begin(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }
}

#[derive(Default)]
struct Figures {
    upto: AtomicU64,
    failures: Arc<AtomicU64>,
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

/// What is known of the archive so far.
#[derive(Default)]
struct State {
    failed: bool,
    cluster: Option<String>,
    /// How values were sealed when the last file was written, if one was.
    sealing: Option<Option<String>>,
}

impl Archive {
    /// Archives what the tap gives until the store closes, and counts it on the page of `metrics` from the call on.
    pub fn run(self, tap: Tap, metrics: &Metrics) -> impl Future<Output = ()> + use<> {
        let figures = Arc::<Figures>::default();
        let shown = figures.clone();
        metrics.collect_as("backup journal", move |text| shown.render(text));
        let written = Arc::<Notify>::default();
        let (places, node) = (self.plan.places.clone(), self.config.node_name.clone());
        let copies = Copies { places, node, told: self.told.clone() };
        let copies = copies.run(written.clone(), figures.failures.clone());
        async move {
            let copying = async {
                copies.await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = self.repeat(tap, &figures, &written) => {}
                () = copying => {}
            }
        }
    }

    async fn repeat(&self, mut tap: Tap, figures: &Figures, written: &Notify) {
        let mut state = State { cluster: self.cluster().await, ..State::default() };
        if !tap.continues || !self.has_base(tap.after).await {
            self.due.ask();
        }
        loop {
            if !tap.continues {
                let from =
                    format!("commits after revision {} are archived, and a backup is written", tap.after.0);
                self.told.event("Normal", "BackupJournalBegun", from);
            }
            self.until_closed(&mut tap, figures, &mut state, written).await;
            if !tap.has_overflowed() {
                return;
            }
            let why = format!(
                "commits after revision {} are not archived: more than {} MiB waited, or a file was lost; a backup is written as soon as one can be",
                tap.after.0,
                MOST >> 20
            );
            tracing::error!(why, "the journal of the backups is broken off");
            self.told.event("Warning", "BackupJournalBroken", why);
            tokio::time::sleep(RETRY_INTERVAL).await;
            tap = Tap::fresh(&self.sled);
            self.due.ask();
        }
    }

    /// Whether the files that lead up to a revision without a gap begin before the newest backup, which opens their values.
    async fn has_base(&self, upto: Revision) -> bool {
        let (plan, config) = (self.plan.clone(), self.config.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let found = pieces(&plan.places.directory, Some(&config.node_name)).unwrap_or_default();
            let span = spans(found).into_iter().find(|span| span.upto == upto.0);
            span.zip(newest(&plan, &config.node_name)).is_some_and(|(span, newest)| {
                newest.revision >= span.after && newest.sealing == sealing(&config.data_dir, Some(&config))
            })
        });
        looked.await.unwrap_or(false)
    }

    /// Until the tap gives nothing more.
    async fn until_closed(&self, tap: &mut Tap, figures: &Figures, state: &mut State, written: &Notify) {
        let mut pending = std::mem::take(&mut tap.missed);
        let mut retry = None;
        loop {
            let open = tap.gather(&mut pending, self.interval, retry).await;
            retry = None;
            if tap.has_overflowed() {
                return;
            }
            match self.save(tap, &mut pending, state).await {
                Ok(()) => {
                    figures.upto.store(tap.after.0, Relaxed);
                    written.notify_one();
                }
                Err(why) => {
                    figures.failures.fetch_add(1, Relaxed);
                    retry = Some(Instant::now() + RETRY_INTERVAL);
                    tracing::error!(why, "commits are not archived");
                    if !std::mem::replace(&mut state.failed, true) {
                        self.told.event("Warning", "BackupJournalFailed", why);
                    }
                }
            }
            if !open || tap.has_overflowed() {
                return;
            }
        }
    }

    /// Writes one file of what is pending and on stable storage: what is not yet, a crash may still take away. On an error all of
    /// it still is pending.
    async fn save(
        &self,
        tap: &mut Tap,
        pending: &mut Vec<StoredCommit>,
        state: &mut State,
    ) -> Result<(), String> {
        let (sled, plan, node) = (self.sled.clone(), self.plan.clone(), self.config.node_name.clone());
        let (config, after, cluster) = (self.config.clone(), tap.after, state.cluster.clone());
        let (commits, again) = (std::mem::take(pending), state.failed);
        let work = tokio::task::spawn_blocking(move || {
            let durable = sled.durable();
            let upto = commits.partition_point(|commit| commit.revision <= durable);
            let Some(summary) = Summary::of(&node, after, &commits[..upto]) else {
                return (commits, 0, Ok(None));
            };
            let summary = Summary { cluster, sealing: sealing(&config.data_dir, Some(&config)), ..summary };
            let done = file(&plan, &summary, &commits[..upto]);
            // An attempt that failed at its very end may have left a part of this one.
            let done = done.and_then(|()| if again { remove_parts(&plan, &summary) } else { Ok(()) });
            (commits, upto, done.map(|()| Some(summary)))
        });
        let Ok((mut commits, upto, done)) = work.await else {
            tap.give_up();
            return Err("a file of the journal was not written to its end".to_owned());
        };
        if matches!(done, Ok(Some(_))) {
            drop(commits.drain(..upto));
        }
        *pending = commits;
        if let Some(summary) = done? {
            tap.after = Revision(summary.upto);
            self.note(summary, state);
        }
        Ok(())
    }

    fn note(&self, summary: Summary, state: &mut State) {
        if std::mem::take(&mut state.failed) {
            self.told.event("Normal", "BackupJournalWritten", format!("up to revision {}", summary.upto));
        }
        // A backup holds the keys that open the values after it.
        let before = state.sealing.replace(summary.sealing.clone());
        if before.is_some_and(|before| before != summary.sealing) {
            self.due.ask();
        }
    }

    async fn cluster(&self) -> Option<String> {
        let found = self.sled.get(KUBE_SYSTEM).await.ok().flatten()?;
        identity(&found.value.peek())
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
    file.finish().map(drop).map_err(failed)
}

/// Those of the same beginning that reach less far.
fn remove_parts(plan: &Plan, whole: &Summary) -> Result<(), String> {
    let directory: &Path = &plan.places.directory;
    let failed = |error: std::io::Error| explain(directory, &error);
    let found = pieces(directory, Some(&whole.node_name)).map_err(failed)?;
    let part = found.iter().filter(|piece| piece.after == whole.after && piece.upto < whole.upto);
    part.map(|piece| &piece.name)
        .try_for_each(|name| std::fs::remove_file(directory.join(name)).map_err(failed))
}
