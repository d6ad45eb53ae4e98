//! Which sockets there are, and which of them are registered.

use super::kind::Kind;
use super::register::{self, RegisterError, Registered};
use crate::blocking;
use crate::metrics::{Metric, Metrics};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// First and longest pause after a plugin could not be registered. It may be listening only a moment after its socket is
/// there.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Directories below the registry that are looked into, one in the other.
const MAX_DEPTH: usize = 4;

/// One life of a socket: a plugin that was started anew makes another.
type Identity = (u64, i64, i64);
type Outcome = (PathBuf, Identity, Result<Registered, RegisterError>);

struct Failure {
    identity: Identity,
    times: u32,
    again: Instant,
}

pub(super) struct Registrar {
    kinds: Arc<[Arc<dyn Kind>]>,
    dir: PathBuf,
    registered: HashMap<PathBuf, (Identity, Registered)>,
    failed: HashMap<PathBuf, Failure>,
    /// Sockets that were there at the last look.
    offered: HashSet<PathBuf>,
    metrics: Metrics,
    /// One that hangs keeps no other waiting.
    under_way: HashSet<PathBuf>,
    tasks: JoinSet<Outcome>,
}

impl Registrar {
    pub fn new(kinds: Arc<[Arc<dyn Kind>]>, dir: PathBuf, metrics: Metrics) -> Self {
        Self {
            kinds,
            dir,
            registered: HashMap::new(),
            failed: HashMap::new(),
            offered: HashSet::new(),
            metrics,
            under_way: HashSet::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Begins to register what is new, and forgets what is gone.
    pub async fn look(&mut self) {
        let dir = self.dir.clone();
        let Some(found) = blocking::reading("sockets of plugins", move || sockets(&dir)).await else {
            return;
        };
        let gone: Vec<PathBuf> =
            self.registered.keys().filter(|path| !found.contains_key(*path)).cloned().collect();
        for path in gone {
            if let Some((_, plugin)) = self.registered.remove(&path) {
                plugin.kind.forget(&plugin.offer).await;
            }
        }
        self.offered = found.keys().cloned().collect();
        self.show();
        self.failed.retain(|path, failure| found.get(path) == Some(&failure.identity));
        for (path, identity) in found {
            let known = self.registered.get(&path).is_some_and(|(registered, _)| *registered == identity);
            let resting = self.failed.get(&path).is_some_and(|failure| failure.again > Instant::now());
            if known || resting || !self.under_way.insert(path.clone()) {
                continue;
            }
            let kinds = self.kinds.clone();
            self.tasks.spawn(async move {
                let outcome = register::register(&kinds, &path).await;
                (path, identity, outcome)
            });
        }
    }

    /// Tells which sockets there are, and which of them are registered.
    fn show(&self) {
        let offered = self.offered.iter().map(|path| (path.to_string_lossy(), "desired_state_of_world"));
        let registered = self.registered.keys().map(|path| (path.to_string_lossy(), "actual_state_of_world"));
        let all: Vec<_> = offered.chain(registered).collect();
        let samples = all.iter().map(|(path, state)| (vec![path.as_ref(), *state], 1));
        self.metrics.replace(Metric::Plugins, samples);
    }

    /// Until something that failed is to be tried again.
    pub fn pause(&self) -> Duration {
        let waiting = self.failed.values().map(|f| f.again.saturating_duration_since(Instant::now()));
        waiting.min().unwrap_or(Duration::MAX)
    }

    /// Returns when a registration has ended; never while there is none. Cancel-safe.
    pub async fn finish_one(&mut self) {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(Ok(outcome)) => {
                self.note(outcome);
                self.show();
            }
            Some(Err(error)) => tracing::error!(%error, "registering a plugin"),
        }
    }

    fn note(&mut self, (path, identity, outcome): Outcome) {
        self.under_way.remove(&path);
        match outcome {
            Ok(plugin) => {
                self.failed.remove(&path);
                tracing::info!(plugin = plugin.offer.name, socket = %path.display(), "plugin registered");
                self.registered.insert(path, (identity, plugin));
            }
            Err(error) => {
                let times = self.failed.get(&path).map_or(0, |failure| failure.times);
                let pause = RETRY_INTERVAL.saturating_mul(1 << times.min(10)).min(MAX_RETRY_INTERVAL);
                let again_ms = pause.as_millis();
                tracing::warn!(socket = %path.display(), %error, again_ms, "plugin not registered");
                self.failed
                    .insert(path, Failure { identity, times: times + 1, again: Instant::now() + pause });
            }
        }
    }
}

/// The sockets in the directory and below; names that begin with a dot are nobody's yet.
fn sockets(dir: &Path) -> HashMap<PathBuf, Identity> {
    let mut found = HashMap::new();
    let mut open = vec![(dir.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            // Of a link, the link itself: it leads to no socket of this directory.
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if hidden {
                continue;
            }
            if meta.file_type().is_socket() {
                found.insert(entry.path(), (meta.ino(), meta.ctime(), meta.ctime_nsec()));
            } else if meta.is_dir() && depth < MAX_DEPTH {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn what_offers_itself_is_counted_until_its_socket_goes() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = Metrics::default();
        let mut registrar = Registrar::new(Arc::new([]), dir.path().to_owned(), metrics.clone());
        let shown = || {
            let mut page = coracle_metrics::Text::default();
            metrics.render(&mut page);
            page.finish()
        };
        let socket = dir.path().join("a.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        registrar.look().await;
        let offered = format!(
            "plugin_manager_total_plugins{{socket_path=\"{}\",state=\"desired_state_of_world\"}} 1\n",
            socket.display()
        );
        assert!(shown().contains(&offered), "{}", shown());
        assert!(!shown().contains("actual_state_of_world"), "nobody has answered there");
        drop(listener);
        fs::remove_file(&socket).unwrap();
        registrar.look().await;
        assert!(!shown().contains(&offered), "{}", shown());
    }

    #[test]
    fn sockets_are_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("file.sock"), "").unwrap();
        let make = |name: &str| UnixListener::bind(dir.path().join(name)).unwrap();
        let _listeners = [make("a.sock"), make("below/b.sock"), make(".hidden.sock")];
        std::os::unix::fs::symlink(dir.path().join("a.sock"), dir.path().join("link.sock")).unwrap();
        let found = sockets(dir.path());
        let mut names: Vec<_> =
            found.keys().map(|path| path.strip_prefix(dir.path()).unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(names, [Path::new("a.sock"), Path::new("below/b.sock")]);
        fs::remove_file(dir.path().join("a.sock")).unwrap();
        let _again = make("a.sock");
        let path = dir.path().join("a.sock");
        assert_ne!(sockets(dir.path())[&path], found[&path], "another life of the socket");
    }
}
