//! Which clients are thinned out in the kernel ([`crate::socket_filter`]), and to what share: a flood that were read and
//! then dropped would keep the socket's queue full, and what others ask would be lost with it.

use crate::socket_filter::ALL;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// What a client is thinned to when its flood is noticed, until its rate is known.
const FIRST_SHARE: u32 = ALL / 64;
/// By how much a share grows at most from one measurement to the next.
const GROWTH: u32 = 4;
/// Clients that are thinned at once; beyond them a flood is still answered at its pace alone.
pub const MAX_CLIENTS: usize = 128;

/// The clients that ask more than they may.
pub struct Thinning {
    clients: HashMap<IpAddr, Client>,
    measured: Instant,
}

struct Client {
    /// Of [`ALL`].
    share: u32,
    /// Questions since the last measurement.
    came: u32,
}

impl Thinning {
    pub fn new(now: Instant) -> Self {
        Self { clients: HashMap::new(), measured: now }
    }

    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Counts a question; whether the shares have changed, because the client was found to ask too much.
    pub fn count(&mut self, client: IpAddr, too_much: bool, now: Instant) -> bool {
        if let Some(known) = self.clients.get_mut(&client) {
            known.came = known.came.saturating_add(1);
            return false;
        }
        if !too_much || self.clients.len() >= MAX_CLIENTS {
            return false;
        }
        if self.clients.is_empty() {
            self.measured = now;
        }
        self.clients.insert(client, Client { share: FIRST_SHARE, came: 0 });
        true
    }

    /// Leaves each client so many questions a second, by what came since the last time; who asks no more goes.
    pub fn measure(&mut self, a_second: u32, now: Instant) {
        let passed =
            u64::try_from(now.saturating_duration_since(self.measured).as_millis()).unwrap_or(u64::MAX);
        let may = u64::from(a_second).saturating_mul(passed) / 1000;
        self.measured = now;
        self.clients.retain(|_, client| {
            let asked = u64::from(client.came) * u64::from(ALL) / u64::from(client.share);
            let right = may.saturating_mul(ALL.into()).checked_div(asked).unwrap_or(u64::MAX);
            let right = u32::try_from(right).unwrap_or(u32::MAX).max(1);
            (client.share, client.came) = (right.min(client.share.saturating_mul(GROWTH)), 0);
            client.share < ALL
        });
    }

    pub fn shares(&self) -> Vec<(IpAddr, u32)> {
        self.clients.iter().map(|(client, known)| (*client, known.share)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_share_follows_the_rate_and_ends_with_the_flood() {
        let (client, began) = (IpAddr::from([10, 42, 0, 1]), Instant::now());
        let mut thinning = Thinning::new(began);
        assert!(!thinning.count(client, false, began) && thinning.is_empty());
        assert!(thinning.count(client, true, began));
        assert!(!thinning.count(client, true, began));
        // 100,000 a second, of which it may ask a thousand.
        let mut now = began;
        for _ in 0..5 {
            let came = 10_000 * thinning.shares()[0].1 / ALL;
            (0..came).for_each(|_| assert!(!thinning.count(client, false, now)));
            now += Duration::from_millis(100);
            thinning.measure(1_000, now);
        }
        let share = thinning.shares()[0].1;
        assert!((ALL / 110..ALL / 90).contains(&share), "{share}");
        // It is silent: the share grows until nothing is held back.
        for _ in 0..4 {
            now += Duration::from_millis(100);
            thinning.measure(1_000, now);
        }
        assert!(thinning.is_empty());
    }
}
