//! Webhooks that a kubeconfig file names, as flags and configuration files do: where the server is, whom it must prove
//! to be, and who asks it (<https://kubernetes.io/docs/reference/access-authn-authz/webhook/#configuration-file-format>).
//!
//! A [`Remote`] looks at the file, and at the files it names, when it is asked; a change of any is taken up by the next
//! call, so certificates and tokens may be renewed while the server runs. A change that cannot be used is logged and what
//! was there stays.

mod document;

use super::target::Target;
use super::{ANSWER_BYTES, Call, CallError};
use bytes::Bytes;
use document::Parts;
use parking_lot::Mutex;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long files are believed to be unchanged: looking is one `stat` for each, and a second late nobody minds.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How a call is repeated, as upstream: five attempts, each pause half as long again, spread by a fifth.
const ATTEMPTS: u32 = 5;
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// The first pause where nothing else is configured, as upstream.
pub const RETRY_BACKOFF: Duration = Duration::from_millis(500);

/// Why a kubeconfig leads nowhere: every mistake in it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}: {}", path.display(), mistakes.join("; "))]
pub struct KubeconfigError {
    pub path: PathBuf,
    /// Each begins with the field.
    pub mistakes: Vec<String>,
}

/// The server of a kubeconfig's current context.
pub struct Remote {
    path: PathBuf,
    /// As the server names itself to the webhook.
    agent: &'static str,
    state: Mutex<State>,
}

struct State {
    target: Arc<Target>,
    stamps: Vec<(PathBuf, Stamp)>,
    looked: Instant,
}

/// What changes with a file's content; `None` for a file that is not there.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Remote {
    /// Reads the file and makes ready to connect; nobody is asked yet. `agent` is the User-Agent of the calls.
    ///
    /// # Errors
    /// Everything that is wrong with the file, and what it names that this server does not do: proxies, credential
    /// plugins, impersonation, plain HTTP and unverified TLS.
    pub fn load(path: &Path, agent: &'static str) -> Result<Self, KubeconfigError> {
        let state = State::read(path, agent)?;
        Ok(Self { path: path.to_owned(), agent, state: Mutex::new(state) })
    }

    /// The address as messages show it.
    pub fn url(&self) -> String {
        self.state.lock().target.url().to_owned()
    }

    /// Posts JSON once and reads JSON; `timeout` is for all of it.
    ///
    /// # Errors
    /// Every failure, also an answer with another status than 2xx.
    pub async fn post(&self, timeout: Duration, body: Bytes) -> Result<Value, CallError> {
        let target = self.current();
        target.post_directly(Call { timeout, most_bytes: ANSWER_BYTES, body }).await
    }

    /// As [`post`](Self::post), repeated as upstream while the failure may pass by itself; each attempt has `timeout`,
    /// the first pause is `backoff`. `watch` is shown every attempt with its time.
    ///
    /// # Errors
    /// The last attempt's.
    pub async fn post_repeatedly(
        &self,
        timeout: Duration,
        backoff: Duration,
        body: Bytes,
        watch: impl FnMut(&Result<Value, CallError>, Duration),
    ) -> Result<Value, CallError> {
        let (mut pause, mut watch, mut left) = (backoff, watch, ATTEMPTS);
        loop {
            let began = Instant::now();
            let answer = self.post(timeout, body.clone()).await;
            watch(&answer, began.elapsed());
            left -= 1;
            match answer {
                Err(error) if left > 0 && error.may_pass() => {
                    tracing::debug!(%error, "asking a webhook again");
                }
                answered => return answered,
            }
            tokio::time::sleep(pause.mul_f64(1.0 + rand::random::<f64>() * JITTER)).await;
            pause = pause.mul_f64(GROWTH);
        }
    }

    fn current(&self) -> Arc<Target> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK_INTERVAL {
            state.looked = Instant::now();
            if state.stamps.iter().any(|(file, known)| stamp(file) != *known) {
                self.renew(&mut state);
            }
        }
        state.target.clone()
    }

    fn renew(&self, state: &mut State) {
        match State::read(&self.path, self.agent) {
            Ok(renewed) => *state = renewed,
            Err(error) => {
                // Told once for each change.
                for (file, known) in &mut state.stamps {
                    *known = stamp(file);
                }
                tracing::error!(%error, "a webhook's changed kubeconfig cannot be used");
            }
        }
    }
}

impl State {
    fn read(path: &Path, agent: &'static str) -> Result<Self, KubeconfigError> {
        // Before the content, so that a change in between is seen.
        let own = (path.to_owned(), stamp(path));
        let failed = |mistakes| KubeconfigError { path: path.to_owned(), mistakes };
        let Parts { target, files } = document::read(path, agent).map_err(failed)?;
        let stamps = std::iter::once(own).chain(files).collect();
        Ok(Self { target: Arc::new(target), stamps, looked: Instant::now() })
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

#[cfg(test)]
mod tests;
