//! What the node says of its container runtime, which may be slow, gone for a moment, or gone.

use super::status::{RuntimeFacts, trouble};
use crate::cri::{self, Runtime, RuntimeError, api};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long one look may take. A runtime that hangs takes longer for ever; the rest of the node's status does not wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells a runtime that is down from one that is started anew or busy: only after some time without an answer it is. As
/// upstream's, so that an update of the runtime takes no pod out of service.
#[derive(Debug)]
struct Silence {
    patience: Duration,
    heard: Option<Instant>,
}

impl Silence {
    /// Whether a runtime that does not answer is down. One that never answered is.
    fn is_down(&self, now: Instant) -> bool {
        self.heard.is_none_or(|heard| now.saturating_duration_since(heard) >= self.patience)
    }
}

pub struct RuntimeWatch {
    runtime: Arc<dyn Runtime>,
    silence: Silence,
    known: RuntimeFacts,
    /// It may come back as another version.
    version_known: bool,
    /// The last look had no answer.
    silent: bool,
}

impl RuntimeWatch {
    pub fn new(runtime: Arc<dyn Runtime>, patience: Duration) -> Self {
        let known = RuntimeFacts { version: "containerd://unknown".to_owned(), ..RuntimeFacts::default() };
        let silence = Silence { patience, heard: None };
        Self { runtime, silence, known, version_known: false, silent: false }
    }

    /// Whether the last look found all well; if not, the next should come soon.
    pub fn is_well(&self) -> bool {
        !self.silent && self.known.trouble.is_none()
    }

    /// Takes about ten seconds at the most.
    pub async fn look(&mut self) -> RuntimeFacts {
        let answer = within("Status", self.runtime.status()).await;
        self.silent = answer.is_err();
        if self.silent {
            self.version_known = false;
            if self.silence.is_down(Instant::now()) {
                self.known.trouble = trouble(&answer);
            }
        } else {
            self.silence.heard = Some(Instant::now());
            self.known.trouble = trouble(&answer);
            self.read_more().await;
        }
        if let Ok(api::StatusResponse { runtime_handlers, features, .. }) = answer {
            self.known.handlers = runtime_handlers;
            self.known.features = features;
        }
        self.known.clone()
    }

    /// What is not told stays as it was.
    async fn read_more(&mut self) {
        if !self.version_known
            && let Ok(version) = within("Version", self.runtime.version()).await
        {
            self.known.version = format!("{}://{}", version.runtime_name, version.runtime_version);
            self.version_known = true;
        }
        if let Ok(images) = within("ListImages", self.runtime.list_images()).await {
            self.known.images = images;
        }
    }
}

async fn within<T>(method: &'static str, call: impl Future<Output = cri::Result<T>>) -> cri::Result<T> {
    let late = |_| Err(RuntimeError::Timeout { method, limit: ANSWER_TIMEOUT });
    tokio::time::timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_runtime_is_down_once_it_was_silent_for_long() {
        let patience = Duration::from_secs(30);
        let mut silence = Silence { patience, heard: None };
        let start = Instant::now();
        assert!(silence.is_down(start), "it was never there");
        silence.heard = Some(start);
        assert!(!silence.is_down(start + Duration::from_secs(29)));
        assert!(silence.is_down(start + patience));
    }
}
