//! When the volumes of a pod are brought up to date, and when they are given up.

use super::execute::{MAX_RETRY, RETRY};
use super::termination::Termination;
use super::worker::Worker;
use tokio::time::Instant;

impl Worker {
    /// What is due of the pod's volumes at this moment. A driver may not answer for minutes: a pod that has to go meanwhile
    /// goes.
    pub(super) async fn look_after_volumes(&mut self, ending: Option<&Termination>) {
        let inbox = self.inbox.clone();
        tokio::select! {
            () = self.bring_volumes_up_to_date(ending.is_none()) => {}
            () = inbox.overtaken(None) => {}
        }
    }

    async fn bring_volumes_up_to_date(&mut self, lives: bool) {
        self.release_volumes_when_over().await;
        if lives && self.volumes_due() {
            self.set_up_volumes().await;
        }
    }

    /// Whether the volumes of a pod that runs are to be brought up to date. Those of one that does not run yet are
    /// set up with its sandbox.
    fn volumes_due(&self) -> bool {
        let now = Instant::now();
        !self.volumes_ready
            && !self.has_ended()
            && self.observed.sandbox().is_some()
            && self.volumes_refresh.is_none_or(|at| at <= now)
    }

    /// A pod that has ended for good keeps nobody from its claims' volumes, though it may stay for long.
    async fn release_volumes_when_over(&mut self) {
        let runs = self.observed.running().next().is_some();
        let later = self.volumes_refresh.is_some_and(|at| at > Instant::now());
        if !self.has_ended() || runs || self.volumes_released || (later && self.volume_failures > 0) {
            return;
        }
        let released = self.kubelet.volumes.release(&self.uid).await;
        self.volumes_released = released.is_ok();
        (self.volumes_refresh, self.volume_failures) = match released {
            Ok(()) => (None, 0),
            Err(error) => {
                let pause = RETRY.saturating_mul(1 << self.volume_failures.min(10)).min(MAX_RETRY);
                tracing::warn!(pod = %self.full_name(), %error, "volumes not released, trying again");
                (Some(Instant::now() + pause), self.volume_failures.saturating_add(1))
            }
        };
    }
}
