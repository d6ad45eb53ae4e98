//! Leases by which etcd itself takes away what lives for a time: Events.

use super::members::{Kind, Members};
use crate::StoreError;
use etcd_client::Client;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// As upstream's `lease-reuse-duration-seconds`: a lease for each Event would cost etcd more than the Event.
const REUSE_WINDOW: Duration = Duration::from_secs(60);
/// As upstream's `lease-max-object-count`.
const REUSED_TIMES: u32 = 1_000;

pub(super) struct Leases {
    ttl: Duration,
    present: Mutex<Option<Lease>>,
}

struct Lease {
    id: i64,
    granted: Instant,
    left: u32,
}

impl Leases {
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, present: Mutex::default() }
    }

    /// One that lives for the time at least, and for a minute more at most.
    pub async fn one(&self, members: &Members) -> Result<i64, StoreError> {
        let mut present = self.present.lock().await;
        if let Some(lease) = present.as_mut().filter(|l| l.left > 0 && l.granted.elapsed() < REUSE_WINDOW) {
            lease.left -= 1;
            return Ok(lease.id);
        }
        let seconds = i64::try_from((self.ttl + REUSE_WINDOW).as_secs()).unwrap_or(i64::MAX);
        let grant = |client: Client| async move { client.lease_client().grant(seconds, None).await };
        // A lease too many harms nobody, so this may be tried again as a read is.
        let id = members.call(Kind::Read, grant).await?.id();
        *present = Some(Lease { id, granted: Instant::now(), left: REUSED_TIMES - 1 });
        Ok(id)
    }
}
