//! When the claims of a pod are prepared, and when they are given back.

use super::execute::{MAX_RETRY, RETRY};
use super::termination::{Termination, is_terminal};
use super::worker::Worker;
use crate::dra::{self, DraError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest pause before claims that were not given back are tried again: whoever waits for a device waits for it.
const MAX_RELEASE_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Attempts in a row that went wrong, and when the next one is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    prepare_failures: u32,
    release_failures: u32,
    pub release_at: Option<Instant>,
}

fn pause(failures: u32, most: Duration) -> Duration {
    RETRY.saturating_mul(1 << failures.min(16)).min(most)
}

impl Worker {
    /// Whether all claims of the pod are prepared; a failure delays the next attempt. `anew`: for a new sandbox.
    pub(super) async fn need_claims(&mut self, anew: bool) -> bool {
        if !dra::has_any(&self.wanted) {
            return true;
        }
        // The newest object says which claims there are.
        let dra = self.kubelet.dra.clone();
        if !anew && dra.is_prepared(&self.wanted) {
            return true;
        }
        let Err(error) = dra.prepare(&self.wanted).await else {
            self.claims.prepare_failures = 0;
            return true;
        };
        let text = format!("Failed to prepare dynamic resources: prepare dynamic resources: {error}");
        self.event(None, "Warning", "FailedPrepareDynamicResources", text);
        self.memory.pod_retry_at = Some(Instant::now() + pause(self.claims.prepare_failures, MAX_RETRY));
        self.claims.prepare_failures += 1;
        false
    }

    /// Gives the claims of a pod back that has ended, before its status says so: then they may be given to others.
    pub(super) async fn release_claims_when_over(&mut self, ending: Option<&Termination>) {
        let later = self.claims.release_at.is_some_and(|at| at > Instant::now());
        if later || !self.kubelet.dra.holds(&self.uid) || !self.observed.is_stopped() {
            return;
        }
        if !is_terminal(&self.status(ending, false)) {
            return;
        }
        let inbox = self.inbox.clone();
        tokio::select! {
            released = self.release_claims() => {
                if let Err(error) = released {
                    tracing::warn!(pod = %self.full_name(), %error, "claims not given back, trying again");
                }
            }
            () = inbox.overtaken(None) => {}
        }
    }

    /// What fails is due again after a pause.
    pub(super) async fn release_claims(&mut self) -> Result<(), DraError> {
        let dra = self.kubelet.dra.clone();
        let released = dra.unprepare(&self.uid).await;
        self.claims = match &released {
            Ok(()) => Claims::default(),
            Err(_) => Claims {
                release_at: Some(
                    Instant::now() + pause(self.claims.release_failures, MAX_RELEASE_RETRY_INTERVAL),
                ),
                release_failures: self.claims.release_failures + 1,
                ..self.claims
            },
        };
        released
    }
}
