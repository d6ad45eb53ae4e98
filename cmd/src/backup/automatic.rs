//! Backups that the server writes by itself.
//!
//! ```text
//! due -> written into the directory -> copied into the bucket -> what is superfluous goes -> due
//!   \-> failed: told by an event, counted, tried again
//! ```

use super::bucket::Stored;
use super::contents::{Manifest, Site, write};
use super::file::{NewFile, explain};
use super::journal::{self, Due};
use super::keeping::{made_at, name, superfluous};
use super::key::Key;
use super::read::manifest_of;
use crate::config::Config;
use crate::scheduled::Plan;
use coracle_apiserver::metrics::{Metrics, Text};
use coracle_apiserver::store::{Revision, SledStore};
use coracle_client::Recorder;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Between attempts at one that failed: a line that is away for a moment costs no backup, and a full disk is not beaten.
const RETRY_INTERVAL: Duration = Duration::from_secs(600);
/// The longest sleep before the clock is looked at again: it may have been set.
const LOOK_INTERVAL: Duration = Duration::from_secs(600);

/// What is shown of them.
#[derive(Default)]
struct Figures {
    last_success: AtomicI64,
    successes: AtomicU64,
    failures: AtomicU64,
}

impl Figures {
    fn render(&self, text: &mut Text) {
        let name = "coracle_backup_last_success_timestamp_seconds";
        let help = "When the last backup was written by schedule and copied everywhere; 0 if none is known.";
        text.single(name, help, "gauge", self.last_success.load(Ordering::Relaxed));
        let counters = [
            ("coracle_backups_total", "Backups written by schedule.", &self.successes),
            (
                "coracle_backup_failures_total",
                "Attempts at a backup by schedule that failed.",
                &self.failures,
            ),
        ];
        for (name, help, value) in counters {
            text.single(name, help, "counter", value.load(Ordering::Relaxed));
        }
    }
}

/// Whom it is told to, and about which object.
#[derive(Clone)]
pub struct Told {
    pub recorder: Recorder,
    pub regarding: ObjectReference,
}

impl Told {
    pub fn event(&self, type_: &'static str, reason: &str, text: String) {
        self.recorder.event(self.regarding.clone(), type_, reason, text);
    }
}

/// What a backup is made of and where it goes.
struct Work {
    sled: Arc<SledStore>,
    config: Arc<Config>,
    plan: Plan,
    due: Arc<Due>,
}

/// Writes backups when they are due by the plan or by the journal, for ever, and counts them on the page of `metrics` from the call on.
pub fn run(
    sled: Arc<SledStore>,
    config: Arc<Config>,
    plan: Plan,
    due: Arc<Due>,
    told: Told,
    metrics: &Metrics,
) -> impl Future<Output = ()> + use<> {
    let figures = Arc::<Figures>::default();
    let shown = figures.clone();
    metrics.collect_as("backups", move |text| shown.render(text));
    repeat(Work { sled, config, plan, due }, told, figures)
}

async fn repeat(work: Work, told: Told, figures: Arc<Figures>) {
    let since = Timestamp::now();
    let mut last = work.newest();
    // What an earlier process has written may not be in the bucket yet.
    let mut unsent = last.filter(|_| work.plan.places.bucket.is_some());
    if unsent.is_none() {
        figures.last_success.store(last.map_or(0, Timestamp::as_second), Ordering::Relaxed);
    }
    let mut failed_before = false;
    loop {
        // One that somebody has taken away meanwhile cannot be sent any more.
        unsent = unsent.filter(|at| work.path(*at).exists() && !work.due.is_wanted());
        let done = match unsent {
            Some(at) => work.send(at).await.map(|text| (at, text)),
            None => {
                let Some(next) = work.plan.when.next(last, since) else { return };
                tokio::select! {
                    () = until(next) => {}
                    () = work.due.wanted() => {}
                }
                let was_wanted = work.due.begin();
                let at = Timestamp::now();
                let written = work.write(at).await;
                if was_wanted && written.is_err() {
                    work.due.ask();
                }
                unsent = written.is_ok().then_some(at);
                match written {
                    Ok(()) => work.send(at).await.map(|text| (at, text)),
                    Err(why) => Err(why),
                }
            }
        };
        match done {
            Ok((at, text)) => {
                tracing::info!(backup = text, "backup written");
                figures.last_success.store(at.as_second(), Ordering::Relaxed);
                figures.successes.fetch_add(1, Ordering::Relaxed);
                if failed_before {
                    told.event("Normal", "BackupWritten", text);
                }
                (last, unsent, failed_before) = (Some(at), None, false);
            }
            Err(why) => {
                tracing::error!(why, "no backup");
                figures.failures.fetch_add(1, Ordering::Relaxed);
                told.event("Warning", "BackupFailed", why);
                failed_before = true;
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

/// By the clock of the moment, which may be set meanwhile.
async fn until(time: Timestamp) {
    while let Ok(left) = Duration::try_from(time.duration_since(Timestamp::now())) {
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
    }
}

impl Work {
    /// When the newest one of this node in the directory was made.
    fn newest(&self) -> Option<Timestamp> {
        let names = names(&self.plan.places.directory).unwrap_or_default();
        names.iter().filter_map(|name| made_at(name, Some(&self.config.node_name))).max()
    }

    fn path(&self, at: Timestamp) -> PathBuf {
        self.plan.places.directory.join(name(&self.config.node_name, at))
    }

    /// Copies the one of this time into the bucket, where there is one, and takes away there what is superfluous.
    async fn send(&self, at: Timestamp) -> Result<String, String> {
        let name = name(&self.config.node_name, at);
        let path = self.path(at);
        let bytes = std::fs::metadata(&path).map_err(|error| explain(&path, &error))?.len();
        if let Some(bucket) = &self.plan.places.bucket {
            let mut there = bucket.list().await?;
            let sent = Stored { name: name.clone(), bytes };
            if !there.contains(&sent) {
                bucket.put(&path, &name).await?;
                there.push(sent);
            }
            let there: Vec<String> = there.into_iter().map(|stored| stored.name).collect();
            let node = &self.config.node_name;
            let mut gone = superfluous(&there, node, self.plan.keeping, at);
            if let Some(oldest) = self.oldest().await {
                // Backups that are there alone need theirs.
                let left = there.iter().filter(|name| !gone.contains(name));
                let first = left.filter_map(|name| made_at(name, Some(node))).min();
                let pieces = journal::superfluous(&there, node, oldest).into_iter();
                gone.extend(pieces.filter(|name| {
                    let until = journal::Piece::parse(name).map(|piece| piece.until);
                    first.zip(until).is_some_and(|(first, until)| until < first)
                }));
            }
            for gone in gone {
                bucket.delete(&gone).await?;
            }
        }
        Ok(format!("{}: {bytes} bytes", path.display()))
    }

    /// The least revision of the backups that are there; `None` if one of them cannot be read.
    async fn oldest(&self) -> Option<Revision> {
        let (plan, node) = (self.plan.clone(), self.config.node_name.clone());
        tokio::task::spawn_blocking(move || oldest(&plan, &node)).await.ok().flatten()
    }

    /// Writes one into the directory, and takes away there what is superfluous.
    async fn write(&self, at: Timestamp) -> Result<(), String> {
        let (sled, config, plan) = (self.sled.clone(), self.config.clone(), self.plan.clone());
        let written = tokio::task::spawn_blocking(move || {
            let directory = &plan.places.directory;
            let path = directory.join(name(&config.node_name, at));
            let failed = |error: std::io::Error| explain(&path, &error);
            let key = plan.key_file.as_deref().map(Key::read).transpose()?;
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
            let mut file = NewFile::create(&path).map_err(failed)?;
            let site = Site { data_dir: &config.data_dir, config: Some(&config) };
            write(&mut file, key.as_ref(), &sled.picture(), site).map_err(failed)?;
            file.finish().map_err(failed)?;
            let there = names(directory).map_err(failed)?;
            let remove = |gone: &String| std::fs::remove_file(directory.join(gone)).map_err(failed);
            superfluous(&there, &config.node_name, plan.keeping, at).iter().try_for_each(remove)?;
            let Some(oldest) = oldest(&plan, &config.node_name) else { return Ok(()) };
            journal::superfluous(&there, &config.node_name, oldest).iter().try_for_each(remove)
        });
        written.await.map_err(|error| error.to_string())?
    }
}

/// What the newest backup of this node in the directory says of itself, if it can be read.
pub fn newest(plan: &Plan, node: &str) -> Option<Manifest> {
    let key = plan.key_file.as_deref().map(Key::read).transpose().ok()?;
    let directory = &plan.places.directory;
    let there =
        names(directory).ok()?.into_iter().filter_map(|name| Some((made_at(&name, Some(node))?, name)));
    let (_, newest) = there.max()?;
    manifest_of(&directory.join(newest), key.as_ref()).ok()
}

fn oldest(plan: &Plan, node: &str) -> Option<Revision> {
    let key = plan.key_file.as_deref().map(Key::read).transpose().ok()?;
    let directory = &plan.places.directory;
    let there = names(directory).ok()?.into_iter().filter(|name| made_at(name, Some(node)).is_some());
    let of = |name: String| {
        manifest_of(&directory.join(name), key.as_ref()).ok().map(|found| Revision(found.revision))
    };
    there.map(of).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Of a directory; none where there is no directory.
pub fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
