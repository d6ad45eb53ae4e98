//! Configuration files that are followed while the server runs: a good document takes effect at once, a broken one
//! leaves the last good one in effect and is told by the log and by metrics
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration>).

use crate::metrics::{Metrics, Text};
use futures::future::BoxFuture;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::unix::pipe;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Between looks at a file whose changes were not told, as upstream: a link's target is in another directory.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Bytes for the events of one wake-up; one event takes at most 272 (inotify(7)).
const EVENTS: usize = 4096;
/// Far more than any such document has; what is larger is a mistake that must not fill the memory.
const MOST_BYTES: u64 = 4 << 20;

/// The group of documents of the API server's own configuration.
pub const GROUP: &str = "apiserver.config.k8s.io";

/// Why there is no usable document.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path}: {why}")]
    Invalid { path: PathBuf, why: String },
}

/// Reloads that may wait for whoever tells of them; more at once are in the log only.
const WAITING: usize = 16;

/// What became of a configuration file that changed.
#[derive(Clone, Debug)]
pub struct Reload {
    pub path: PathBuf,
    /// Why it did not take effect, if it did not.
    pub outcome: Result<(), String>,
}

static RELOADED: LazyLock<broadcast::Sender<Reload>> = LazyLock::new(|| broadcast::Sender::new(WAITING));

/// The reloads from here on of all files that this process follows.
pub fn reloaded() -> broadcast::Receiver<Reload> {
    RELOADED.subscribe()
}

/// The text of a file, of at most 4 MiB.
///
/// # Errors
/// [`FileError::Read`]
pub fn read(path: &Path) -> Result<String, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MOST_BYTES {
        return Err(FileError::Invalid {
            path: path.to_owned(),
            why: format!("more than {MOST_BYTES} bytes"),
        });
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// What a document says it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// A YAML or JSON document of this kind in one of these versions of [`GROUP`]. `T` has the fields `apiVersion` and
/// `kind` too, and should refuse unknown ones.
///
/// # Errors
/// What is wrong, with its place in the text.
pub fn parse<T: DeserializeOwned>(text: &str, kind: &str, versions: &[&str]) -> Result<T, String> {
    let head: Head = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let known = |version: &&str| head.api_version == format!("{GROUP}/{version}");
    if head.kind != kind || !versions.iter().any(known) {
        return Err(format!(
            "expected a {kind} in {GROUP}/{}, got {:?} {:?}",
            versions.join(" or "),
            head.api_version,
            head.kind
        ));
    }
    serde_saphyr::from_str(text).map_err(|e| e.to_string())
}

/// Tells of changes in the directory of a file.
struct Told(Option<pipe::Receiver>);

impl Told {
    /// Inside the tokio runtime. An inotify descriptor is read like a pipe.
    fn of(path: &Path) -> Self {
        let watch = || -> io::Result<pipe::Receiver> {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            // Not IN_CREATE: a file that was just made is still empty.
            let changes =
                AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            inotify.add_watch(parent.unwrap_or(Path::new(".")), changes)?;
            pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify))
        };
        let made = watch();
        if let Err(error) = &made {
            tracing::warn!(path = %path.display(), %error, "changes of the file are seen once a minute only");
        }
        Self(made.ok())
    }

    /// Cancel-safe.
    async fn changed(&self) {
        let Some(inotify) = &self.0 else { return std::future::pending().await };
        loop {
            if inotify.readable().await.is_err() {
                return std::future::pending().await;
            }
            match inotify.try_read(&mut [0; EVENTS]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
                Ok(_) => return,
            }
        }
    }
}

/// `sha256:` and 64 hexadecimal digits: how metrics tell one text from another.
pub fn digest(text: &str) -> String {
    format!("sha256:{}", coracle_api::hex::text(&Sha256::digest(text)))
}

#[derive(Default)]
struct Counts {
    successes: u64,
    failures: u64,
    /// Seconds since 1970; `None` before the first one.
    last_success: Option<u64>,
    last_failure: Option<u64>,
    /// Of the document in effect.
    hash: String,
}

/// What became of the documents of one kind, under upstream's names of metrics.
pub struct Reloads {
    /// `apiserver_authentication_config_controller`
    prefix: &'static str,
    server: String,
    counts: Mutex<Counts>,
}

impl Reloads {
    /// `prefix` is that of the metrics; `text` is the document in effect. They are on the page of `metrics` from here on.
    pub fn begin(prefix: &'static str, text: &str, metrics: &Metrics) -> Arc<Self> {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let server = digest(&format!("apiserver-{}", host.unwrap_or_default()));
        let counts = Mutex::new(Counts { hash: digest(text), ..Counts::default() });
        let reloads = Arc::new(Self { prefix, server, counts });
        let shown = Arc::downgrade(&reloads);
        metrics.collect_as(prefix, move |text| {
            if let Some(reloads) = shown.upgrade() {
                reloads.render(text);
            }
        });
        reloads
    }

    fn succeeded(&self, text: &str) {
        let mut counts = self.counts.lock();
        counts.successes += 1;
        counts.last_success = Some(now());
        counts.hash = digest(text);
    }

    fn failed(&self) {
        let mut counts = self.counts.lock();
        counts.failures += 1;
        counts.last_failure = Some(now());
    }

    fn render(&self, text: &mut Text) {
        let counts = self.counts.lock();
        let name = format!("{}_automatic_reloads_total", self.prefix);
        text.head(&name, "Changes of the configuration file, by whether they took effect.", "counter");
        for (status, count) in [("failure", counts.failures), ("success", counts.successes)] {
            text.sample(&name, &[("apiserver_id_hash", &self.server), ("status", status)], count);
        }
        let name = format!("{}_automatic_reload_last_timestamp_seconds", self.prefix);
        text.head(&name, "When the configuration file last changed, by whether that took effect.", "gauge");
        for (status, at) in [("failure", counts.last_failure), ("success", counts.last_success)] {
            if let Some(at) = at {
                text.sample(&name, &[("apiserver_id_hash", &self.server), ("status", status)], at);
            }
        }
        let name = format!("{}_last_config_info", self.prefix);
        text.head(&name, "1 with the hash of the configuration that is in effect.", "gauge");
        text.sample(&name, &[("apiserver_id_hash", &self.server), ("hash", &counts.hash)], 1);
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Puts a document into effect, or says why it cannot be.
pub type Apply = dyn FnMut(String) -> BoxFuture<'static, Result<(), String>> + Send;

/// Follows a file until `stop`: every text that differs from the one before is given to `apply`, within a moment where
/// the system tells of changes, else within a minute. `text` is what is in effect at the beginning. A file that is gone
/// or cannot be read counts as a broken document, once.
pub async fn follow(
    path: PathBuf,
    text: String,
    reloads: Arc<Reloads>,
    mut apply: Box<Apply>,
    stop: CancellationToken,
) {
    let told = Told::of(&path);
    let mut seen = Ok(text);
    loop {
        // The first look sees what changed before it was told of.
        let found = read(&path).map_err(|error| coracle_api::error::chain(&error));
        if found != seen {
            seen = found.clone();
            take(&path, found, &reloads, &mut apply).await;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = told.changed() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

async fn take(path: &Path, found: Result<String, String>, reloads: &Reloads, apply: &mut Box<Apply>) {
    let outcome = match &found {
        Ok(text) => apply(text.clone()).await,
        Err(why) => Err(why.clone()),
    };
    let outcome = match (outcome, found) {
        (Ok(()), Ok(text)) => {
            reloads.succeeded(&text);
            tracing::info!(path = %path.display(), "configuration reloaded");
            Ok(())
        }
        (Err(why), _) | (Ok(()), Err(why)) => {
            reloads.failed();
            tracing::error!(path = %path.display(), why, "configuration not reloaded, the last one stays in effect");
            Err(why)
        }
    };
    // Nobody need listen.
    let _ = RELOADED.send(Reload { path: path.to_owned(), outcome });
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::Value;
    use tokio::sync::mpsc;

    #[test]
    fn a_document_is_of_its_kind() {
        let good = "apiVersion: apiserver.config.k8s.io/v1\nkind: Some\nx: 1\n";
        assert_eq!(parse::<Value>(good, "Some", &["v1"]).unwrap()["x"], 1);
        let wrong = parse::<Value>(good, "Other", &["v1", "v1beta1"]).unwrap_err();
        assert_eq!(
            wrong,
            "expected a Other in apiserver.config.k8s.io/v1 or v1beta1, got \"apiserver.config.k8s.io/v1\" \"Some\""
        );
        assert!(parse::<Value>("a: [", "Some", &["v1"]).is_err());
    }

    #[tokio::test]
    async fn each_text_is_applied_once_and_what_is_broken_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "good 1").unwrap();
        let reloads = Reloads::begin("apiserver_test_config_controller", "good 1", &Metrics::default());
        let (sender, mut seen) = mpsc::unbounded_channel();
        let apply: Box<Apply> = Box::new(move |text| {
            sender.send(text.clone()).unwrap();
            async move { if text.starts_with("good") { Ok(()) } else { Err("bad".to_owned()) } }.boxed()
        });
        let stop = CancellationToken::new();
        let task =
            tokio::spawn(follow(path.clone(), "good 1".to_owned(), reloads.clone(), apply, stop.clone()));
        for text in ["bad", "good 2"] {
            // As editors and kubelets do: another file takes its place.
            let other = dir.path().join("other");
            std::fs::write(&other, text).unwrap();
            std::fs::rename(&other, &path).unwrap();
            assert_eq!(seen.recv().await.as_deref(), Some(text));
        }
        std::fs::remove_file(&path).unwrap();
        let counts = || {
            let counts = reloads.counts.lock();
            (counts.successes, counts.failures, counts.hash.clone())
        };
        let wanted = (1, 2, digest("good 2"));
        while counts() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        task.await.unwrap();
        let mut text = Text::default();
        reloads.render(&mut text);
        let page = text.finish();
        assert!(page.contains("status=\"failure\"} 2"), "{page}");
        assert!(
            page.contains(&format!(
                "last_config_info{{apiserver_id_hash=\"{}\",hash=\"{}\"}} 1",
                reloads.server, wanted.2
            )),
            "{page}"
        );
    }
}
