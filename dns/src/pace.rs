//! How many questions one client may ask in a second. All pods of another node come under that node's address, so a client
//! is up to a node.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Clients whose pace is remembered, 40 bytes each. A client whose pace was forgotten has a whole one again.
const REMEMBERED: usize = 65_536;

/// Questions of each client by a token bucket: so many a second, and as many at once.
pub struct Pace {
    a_second: f64,
    left: HashMap<IpAddr, (Instant, f64)>,
}

impl Pace {
    pub fn new(a_second: u32) -> Self {
        Self { a_second: a_second.into(), left: HashMap::new() }
    }

    /// From now on so many.
    pub fn set(&mut self, a_second: u32) {
        self.a_second = a_second.into();
    }

    /// Whether the client may ask something now that costs so many questions.
    pub fn allows(&mut self, client: IpAddr, cost: u32, now: Instant) -> bool {
        if self.left.len() >= REMEMBERED {
            self.left.clear();
        }
        let (at, left) = self.left.entry(client).or_insert((now, self.a_second));
        let passed = now.saturating_duration_since(*at).as_secs_f64();
        (*at, *left) = (now, (*left + passed * self.a_second).min(self.a_second));
        let cost = f64::from(cost);
        let allowed = *left >= cost;
        if allowed {
            *left -= cost;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn client(n: u8) -> IpAddr {
        IpAddr::from([10, 42, 0, n])
    }

    #[test]
    fn a_flood_has_its_pace_and_others_theirs() {
        let mut pace = Pace::new(100);
        let now = Instant::now();
        assert_eq!((0..1000).filter(|_| pace.allows(client(1), 1, now)).count(), 100);
        assert!(pace.allows(client(2), 50, now) && pace.allows(client(2), 50, now));
        assert!(!pace.allows(client(2), 1, now));
        let later = now + Duration::from_millis(500);
        assert_eq!((0..1000).filter(|_| pace.allows(client(1), 1, later)).count(), 50);
    }
}
