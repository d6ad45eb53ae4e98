//! Leader election by Lease, as client-go does it: one holder at a time, judged by the observer's own clock.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How patient candidates are; all candidates of one Lease should agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A Lease that was not renewed for so long may be taken over.
    pub lease: Duration,
    /// A leader that could not renew for so long steps down. Less than `lease`, or two may lead at once.
    pub renew: Duration,
    /// Between two attempts.
    pub retry: Duration,
}

impl Times {
    /// How long an answer may take, as client-go's: so that there is time for another attempt.
    fn answer(&self) -> Duration {
        self.renew / 2
    }
}

impl Default for Times {
    /// client-go's defaults for controllers.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew: seconds(10), retry: seconds(2) }
    }
}

/// A candidate for one Lease.
#[derive(Clone)]
pub struct Candidate {
    pub client: kube::Client,
    pub namespace: String,
    pub lease: String,
    /// Unique among the candidates, for example `host_uuid`.
    pub identity: String,
    pub times: Times,
}

/// Why a leader is none any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("lease {lease} is held by {holder} now")]
    Taken { lease: String, holder: String },
    #[error("lease {lease} could not be renewed for {}s", .after.as_secs())]
    NotRenewed { lease: String, after: Duration, source: RenewError },
}

/// Why an attempt to renew did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    #[error("the API refused")]
    Refused(#[from] kube::Error),
    #[error("the API did not answer in time")]
    Silent,
    #[error("somebody else writes it, too")]
    Conflict,
}

/// That a candidate leads.
pub struct Leadership {
    /// Cancelled when leadership is lost, or when the candidate was told to end; whoever leads must then stop acting.
    pub ended: CancellationToken,
    lost: Arc<OnceLock<Lost>>,
}

impl Leadership {
    /// Why it was lost; `None` while it lasts, and where the candidate was told to end.
    pub fn lost(&self) -> Option<&Lost> {
        self.lost.get()
    }
}

struct Observed {
    spec: LeaseSpec,
    at: Instant,
}

/// What one attempt came to.
enum Attempt {
    Ours,
    Anothers(String),
    /// Somebody wrote the Lease meanwhile.
    Conflict,
}

impl Candidate {
    /// Waits until the Lease is ours; `None` when `stop` is cancelled before.
    pub async fn lead(self, stop: CancellationToken) -> Option<Leadership> {
        let mut observed = None;
        loop {
            match tokio::time::timeout(self.times.answer(), self.try_acquire(&mut observed)).await {
                Ok(Ok(Attempt::Ours)) => break,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.lease, error = &error as &dyn std::error::Error, "leader election failed, trying again");
                }
                Err(_) => {
                    tracing::warn!(lease = %self.lease, "leader election: the API does not answer, trying again");
                }
            }
            stop.run_until_cancelled(tokio::time::sleep(self.times.retry)).await?;
        }
        let leadership = Leadership { ended: stop.child_token(), lost: Arc::default() };
        let (ended, lost) = (leadership.ended.clone(), leadership.lost.clone());
        tokio::spawn(async move {
            let Some(why) = ended.run_until_cancelled(self.renew(observed)).await else { return };
            // Nobody else sets it.
            let _ = lost.set(why);
            ended.cancel();
        });
        Some(leadership)
    }

    /// Returns when the Lease is lost: somebody else has it, or an answer did not come in time, however long the API
    /// would have taken.
    async fn renew(self, mut observed: Option<Observed>) -> Lost {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.times.retry).await;
            let until = renewed + self.times.renew;
            let patience = until.min(Instant::now() + self.times.answer());
            let failed = match tokio::time::timeout_at(patience, self.try_acquire(&mut observed)).await {
                Ok(Ok(Attempt::Ours)) => {
                    renewed = Instant::now();
                    continue;
                }
                Ok(Ok(Attempt::Anothers(holder))) => return Lost::Taken { lease: self.name(), holder },
                Ok(Ok(Attempt::Conflict)) => RenewError::Conflict,
                Ok(Err(error)) => error.into(),
                Err(_) => RenewError::Silent,
            };
            if Instant::now() + self.times.retry >= until {
                return Lost::NotRenewed { lease: self.name(), after: self.times.renew, source: failed };
            }
            tracing::warn!(lease = %self.lease, error = &failed as &dyn std::error::Error, "lease not renewed, trying again");
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.lease)
    }

    /// Gives the Lease up, so that the next leader need not wait until it has run out. For who led and was told to end,
    /// when everything that only a leader may do is over; without effect for others.
    ///
    /// # Errors
    /// Of the API; a conflict is tried again, since a renewal may be under way.
    pub async fn release(&self) -> Result<(), kube::Error> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        loop {
            let Some(mut lease) = api.get_opt(&self.lease).await? else { return Ok(()) };
            let spec = lease.spec.take().unwrap_or_default();
            if spec.holder_identity.as_ref() != Some(&self.identity) {
                return Ok(());
            }
            lease.spec = Some(released(&spec));
            match api.replace(&self.lease, &PostParams::default(), &lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => return other.map(|_| ()),
            }
        }
    }

    /// One attempt to take or keep the Lease.
    async fn try_acquire(&self, observed: &mut Option<Observed>) -> Result<Attempt, kube::Error> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(mut lease) = api.get_opt(&self.lease).await? else {
            let metadata = ObjectMeta { name: Some(self.lease.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return match api.create(&PostParams::default(), &lease).await {
                Ok(_) => Ok(Attempt::Ours),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Conflict),
                Err(error) => Err(error),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if observed.as_ref().is_none_or(|o| o.spec != spec) {
            *observed = Some(Observed { spec: spec.clone(), at: Instant::now() });
        }
        let fresh = observed.as_ref().is_some_and(|o| o.at.elapsed() < self.times.lease);
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if !holder.is_empty() && holder != self.identity && fresh {
            return Ok(Attempt::Anothers(holder.to_owned()));
        }
        lease.spec = Some(self.spec(Some(&spec)));
        match api.replace(&self.lease, &PostParams::default(), &lease).await {
            Ok(_) => Ok(Attempt::Ours),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Conflict),
            Err(error) => Err(error),
        }
    }

    fn spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = old.is_some_and(|o| o.holder_identity.as_ref() == Some(&self.identity));
        let transitions = old.and_then(|o| o.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.times.lease.as_secs()).ok(),
            acquire_time: if ours { old.and_then(|o| o.acquire_time.clone()) } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if ours || old.is_none() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}

/// What client-go leaves behind: nobody's, and out of date within a second.
fn released(spec: &LeaseSpec) -> LeaseSpec {
    let now = MicroTime(Timestamp::now());
    LeaseSpec {
        lease_duration_seconds: Some(1),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        lease_transitions: spec.lease_transitions,
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests;
