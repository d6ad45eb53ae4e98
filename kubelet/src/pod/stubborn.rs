//! A pod that does not end: when its end is tried again, and when the runtime is helped.

use crate::cgroup::processes::CgroupError;
use crate::cri::RuntimeError;
use crate::dra::DraError;
use coracle_storage::volumes::VolumeError;
use std::time::Duration;

/// Pause after the first failure, doubled from one to the next; upstream's for operations of a pod.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The longest pause. Whoever has mended what stood in the way waits for it.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// So many refusals of the runtime are accidents: half a second, one and two seconds lie between them.
const ACCIDENTS: u32 = 3;
/// How long the runtime may take for one call beyond the grace period before it counts as one that hangs. Ending two hundred
/// pods at once takes a machine of two cores most of it, and CRI's own limit is two minutes.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Why a pod has not ended.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("cannot tear down volumes: {0}")]
    Volumes(#[from] VolumeError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("unprepare dynamic resources: {0}")]
    Claims(#[from] DraError),
    #[error("deletion not confirmed: {0}")]
    Confirmation(Box<kube::Error>),
}

/// How often one pod's end has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stubborn {
    failures: u32,
    /// Of these, those that the runtime answers for.
    refusals: u32,
}

impl Stubborn {
    /// The pause before the next try.
    pub fn failed(&mut self, error: &EndError) -> Duration {
        let pause = RETRY_INTERVAL.saturating_mul(1 << self.failures.min(16)).min(MAX_RETRY_INTERVAL);
        self.failures += 1;
        self.refusals += match error {
            EndError::Runtime(RuntimeError::Failed { .. }) | EndError::Cgroup(_) => 1,
            // It has had its time.
            EndError::Runtime(RuntimeError::Timeout { .. }) => ACCIDENTS,
            // Whoever is not there refuses nothing.
            EndError::Runtime(RuntimeError::Unreachable { .. })
            | EndError::Volumes(_)
            | EndError::Claims(_)
            | EndError::Confirmation(_) => 0,
        };
        pause
    }

    /// Whether what holds the pod is to be killed before the next try.
    pub fn wants_force(&self) -> bool {
        self.refusals >= ACCIDENTS
    }

    pub fn done(&mut self) {
        *self = Self::default();
    }
}

/// The result of a call to the runtime that may take `grace` and some time more.
pub async fn patiently<T>(
    method: &'static str,
    grace: Duration,
    call: impl Future<Output = crate::cri::Result<T>>,
) -> crate::cri::Result<T> {
    let limit = grace.saturating_add(PATIENCE);
    tokio::time::timeout(limit, call).await.unwrap_or(Err(RuntimeError::Timeout { method, limit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> EndError {
        let message = "cannot delete running task".to_owned();
        RuntimeError::Failed { method: "RemoveContainer", code: tonic::Code::FailedPrecondition, message }
            .into()
    }

    #[test]
    fn pauses_double_up_to_a_cap() {
        let mut stubborn = Stubborn::default();
        let pauses: Vec<u64> = (0..9)
            .map(|_| u64::try_from(stubborn.failed(&refused()).as_millis()).expect("a short pause"))
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        stubborn.done();
        assert_eq!(stubborn.failed(&refused()), RETRY_INTERVAL);
    }

    #[test]
    fn only_a_runtime_that_refuses_or_hangs_is_helped() {
        let unreachable = || RuntimeError::Unreachable { endpoint: String::new(), message: String::new() };
        let hangs = || RuntimeError::Timeout { method: "StopContainer", limit: PATIENCE };
        let after = |errors: Vec<EndError>| {
            let mut stubborn = Stubborn::default();
            for error in &errors {
                stubborn.failed(error);
            }
            stubborn.wants_force()
        };
        assert!(!after(vec![refused(), refused()]));
        assert!(after(vec![refused(), refused(), refused()]));
        assert!(after(vec![hangs().into()]));
        assert!(!after((0..50).map(|_| unreachable().into()).collect()));
    }
}
