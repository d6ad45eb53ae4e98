//! Leader election by Lease, as client-go does it: one holder at a time, judged by the observer's own clock.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
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

struct Observed {
    spec: LeaseSpec,
    at: Instant,
}

impl Candidate {
    /// Waits until the Lease is ours. The token that is returned is cancelled when leadership is lost or `stop` is
    /// cancelled; whoever leads must then stop acting.
    pub async fn lead(self, stop: CancellationToken) -> Option<CancellationToken> {
        let mut observed = None;
        loop {
            match self.try_acquire(&mut observed).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => tracing::warn!(lease = %self.lease, %error, "leader election failed"),
            }
            stop.run_until_cancelled(tokio::time::sleep(self.times.retry)).await?;
        }
        let leading = stop.child_token();
        let guard = leading.clone();
        tokio::spawn(async move { self.renew(guard, observed).await });
        Some(leading)
    }

    async fn renew(self, leading: CancellationToken, mut observed: Option<Observed>) {
        let mut renewed = Instant::now();
        while leading.run_until_cancelled(tokio::time::sleep(self.times.retry)).await.is_some() {
            match self.try_acquire(&mut observed).await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => break,
                Err(error) => tracing::warn!(lease = %self.lease, %error, "lease not renewed"),
            }
            if renewed.elapsed() > self.times.renew {
                break;
            }
        }
        leading.cancel();
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
    async fn try_acquire(&self, observed: &mut Option<Observed>) -> Result<bool, kube::Error> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(mut lease) = api.get_opt(&self.lease).await? else {
            let metadata = ObjectMeta { name: Some(self.lease.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return match api.create(&PostParams::default(), &lease).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
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
            return Ok(false);
        }
        lease.spec = Some(self.spec(Some(&spec)));
        match api.replace(&self.lease, &PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
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
