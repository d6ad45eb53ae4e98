//! How many connections a listener has room for, and who goes when it is full.

use crate::activity::{Activity, End};
use crate::limits::descriptors;
use crate::unsent::{Memory, Unsent};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Strangers at a time. Each costs some 25 KiB with TLS, so that all together stay near 50 MiB; a client is one for
/// some milliseconds.
const MOST_STRANGERS: usize = 2048;

/// Of the connections that nobody waits for, one in so many goes at once when all places are taken by clients that are
/// known: looking for them costs time in proportion to all.
const IDLE_SHARE: usize = 16;

/// Bytes of answers that nobody has taken, of all connections; beyond it a connection gets more only when it holds none. Some
/// hundred lists at a time on slow lines.
const MOST_UNSENT: usize = 64 << 20;

/// Connections that were told to end and have not closed their sockets yet. With more of them the next is accepted after
/// [`LEAVE_INTERVAL`], so that a flood takes few descriptors beyond the places.
const MAX_LEAVING: usize = 64;
const LEAVE_INTERVAL: Duration = Duration::from_millis(1);

/// From one connection that goes because it takes nothing to the next: looking for it costs time in proportion to all.
const RELIEF_INTERVAL: Duration = Duration::from_millis(10);

/// The places of one listener.
pub struct Places {
    most: usize,
    most_strangers: usize,
    most_unsent: usize,
    /// Bytes that nobody has taken.
    pub(crate) held: AtomicUsize,
    /// Connections that wait for memory, by their place.
    waiting: Mutex<HashMap<u64, Arc<Unsent>>>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Of the next connection; earlier ones are older.
    next: u64,
    all: HashMap<u64, Entry>,
    strangers: usize,
    /// They were ended from here, and their sockets are open still.
    leaving: usize,
    /// The strangers of each source.
    by_source: HashMap<IpAddr, BTreeSet<u64>>,
    /// The same by their number, so that the largest is found.
    sizes: BTreeSet<(usize, IpAddr)>,
    /// When a connection was ended last for want of memory.
    relieved: Option<Instant>,
}

struct Entry {
    source: IpAddr,
    known: bool,
    activity: Arc<Activity>,
    unsent: Arc<Unsent>,
}

/// A connection's place, given back when it is dropped. It goes where the socket goes.
pub struct Place {
    id: u64,
    places: Arc<Places>,
    unsent: Arc<Unsent>,
    known: AtomicBool,
}

impl Places {
    /// So many eighths of the descriptors that the process may have, a quarter of them for strangers.
    pub fn eighths(share: usize) -> Arc<Self> {
        let most = descriptors() / 8 * share;
        Self::new(most, (most / 4).min(MOST_STRANGERS))
    }

    /// `most` connections, of which `most_strangers` have not authenticated.
    pub fn new(most: usize, most_strangers: usize) -> Arc<Self> {
        Self::with_memory(most, most_strangers, MOST_UNSENT)
    }

    /// Likewise, with so many bytes of answers that nobody takes.
    pub(crate) fn with_memory(most: usize, most_strangers: usize, most_unsent: usize) -> Arc<Self> {
        let (held, waiting, table) = (AtomicUsize::new(0), Mutex::default(), Mutex::default());
        Arc::new(Self { most, most_strangers, most_unsent, held, waiting, table })
    }

    /// A place for a connection from `source`. Another goes for it if need be: the oldest stranger of the source that has
    /// most of them, else clients that wait for nothing. `None` if everybody is busy.
    pub fn take(self: &Arc<Self>, source: IpAddr, activity: &Arc<Activity>) -> Option<Place> {
        let source = network(source);
        let mut table = self.table.lock();
        if table.strangers >= self.most_strangers || table.all.len() >= self.most {
            table.evict_stranger();
        }
        if table.all.len() >= self.most {
            table.evict_idle();
        }
        if table.all.len() >= self.most {
            return None;
        }
        let id = table.next;
        table.next += 1;
        let unsent = Unsent::new(id, activity.limits().unsent_bytes, self.clone());
        let entry = Entry { source, known: false, activity: activity.clone(), unsent: unsent.clone() };
        table.all.insert(id, entry);
        table.add_stranger(source, id);
        Some(Place { id, places: self.clone(), unsent, known: AtomicBool::new(false) })
    }

    /// Waits a little if many who were told to end have not gone yet.
    pub(crate) async fn let_leave(&self) {
        if self.table.lock().leaving > MAX_LEAVING {
            tokio::time::sleep(LEAVE_INTERVAL).await;
        }
    }

    /// Lets the oldest stranger go: descriptors have run out.
    pub fn give_way(&self) {
        let mut table = self.table.lock();
        if !table.evict_stranger() {
            table.evict_idle();
        }
    }

    /// Connections, and how many of them have not authenticated.
    pub fn taken(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.all.len(), table.strangers)
    }

    /// Ends the connection that holds most and takes nothing.
    fn relieve(&self) {
        let mut table = self.table.lock();
        let now = Instant::now();
        if table.relieved.is_some_and(|last| now - last < RELIEF_INTERVAL) {
            return;
        }
        table.relieved = Some(now);
        let holding = table.all.iter().map(|(id, entry)| (entry.unsent.untaken(now), *id));
        if let Some((1.., id)) = holding.max() {
            table.end(id, End::Stuck);
        }
    }
}

impl Memory for Places {
    fn unsent(&self, bytes: usize) {
        if self.held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most_unsent {
            self.relieve();
        }
    }

    fn sent(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        if before > self.most_unsent && before - bytes <= self.most_unsent {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            waiting.into_values().for_each(|unsent| unsent.wake());
        }
    }

    fn has_memory(&self) -> bool {
        self.held.load(Ordering::Relaxed) <= self.most_unsent
    }

    fn waits_for_memory(&self, id: u64, unsent: &Arc<Unsent>) -> bool {
        self.waiting.lock().insert(id, unsent.clone());
        if self.has_memory() {
            return false;
        }
        self.relieve();
        true
    }
}

impl Table {
    fn resize(&mut self, source: IpAddr, from: usize, to: usize) {
        self.sizes.remove(&(from, source));
        if to > 0 {
            self.sizes.insert((to, source));
        }
    }

    fn add_stranger(&mut self, source: IpAddr, id: u64) {
        let ids = self.by_source.entry(source).or_default();
        ids.insert(id);
        let size = ids.len();
        self.strangers += 1;
        self.resize(source, size - 1, size);
    }

    fn remove_stranger(&mut self, source: IpAddr, id: u64) {
        let Some(ids) = self.by_source.get_mut(&source) else { return };
        if !ids.remove(&id) {
            return;
        }
        let size = ids.len();
        if size == 0 {
            self.by_source.remove(&source);
        }
        self.strangers -= 1;
        self.resize(source, size + 1, size);
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        self.remove_stranger(entry.source, id);
        Some(entry)
    }

    fn evict(&mut self, id: u64) {
        self.end(id, End::Evicted);
    }

    fn end(&mut self, id: u64, why: End) {
        if let Some(entry) = self.remove(id) {
            self.leaving += 1;
            entry.activity.end(why);
        }
    }

    fn evict_stranger(&mut self) -> bool {
        let largest = self.sizes.last().and_then(|(_, source)| self.by_source.get(source)?.first().copied());
        largest.is_some_and(|oldest| {
            self.evict(oldest);
            true
        })
    }

    fn evict_idle(&mut self) {
        let idle = self.all.iter().filter(|(_, entry)| entry.activity.is_idle());
        let mut idle: Vec<u64> = idle.map(|(id, _)| *id).collect();
        idle.sort_unstable();
        let go = idle.len().div_ceil(IDLE_SHARE);
        idle.into_iter().take(go).for_each(|id| self.evict(id));
    }
}

impl Place {
    pub(crate) fn unsent(&self) -> &Arc<Unsent> {
        &self.unsent
    }

    /// Somebody authenticated on this connection. Every request says so; only the first costs anything.
    pub fn known(&self) {
        if self.known.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut table = self.places.table.lock();
        let Some(entry) = table.all.get_mut(&self.id).filter(|entry| !entry.known) else { return };
        entry.known = true;
        let source = entry.source;
        table.remove_stranger(source, self.id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table.lock();
        if table.remove(self.id).is_none() {
            table.leaving -= 1;
        }
        drop(table);
        self.places.waiting.lock().remove(&self.id);
    }
}

/// What one host may have many of: an IPv6 network of 64 bits counts as one source.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    struct Guest {
        activity: Arc<Activity>,
        place: Option<Place>,
    }

    impl Guest {
        fn new(places: &Arc<Places>, source: &str) -> Self {
            let activity = Arc::new(Activity::new(Limits::default()));
            let place = places.take(source.parse().expect("an address"), &activity);
            Self { activity, place }
        }

        async fn is_gone(&self) -> bool {
            let wait = std::time::Duration::from_millis(1);
            tokio::time::timeout(wait, self.activity.ended()).await == Ok(End::Evicted)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_of_the_largest_source_goes() {
        let places = Places::new(10, 3);
        let honest = Guest::new(&places, "192.0.2.1");
        let crowd: Vec<Guest> = (0..4).map(|_| Guest::new(&places, "198.51.100.1")).collect();
        assert!(!honest.is_gone().await);
        assert!(crowd[0].is_gone().await && crowd[1].is_gone().await);
        assert!(!crowd[2].is_gone().await && !crowd[3].is_gone().await);
        assert_eq!((places.taken(), places.table.lock().leaving), ((3, 3), 2));
        drop(crowd);
        drop(honest);
        assert_eq!((places.taken(), places.table.lock().leaving), ((0, 0), 0));
        assert!(places.table.lock().sizes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_have_not_left_keep_the_next_waiting() {
        let places = Places::new(10, 1);
        let mut crowd: Vec<Guest> = (0..66).map(|_| Guest::new(&places, "192.0.2.1")).collect();
        let began = Instant::now();
        places.let_leave().await;
        assert_eq!(began.elapsed(), LEAVE_INTERVAL);
        crowd.remove(0);
        places.let_leave().await;
        assert_eq!(began.elapsed(), LEAVE_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn one_ipv6_network_is_one_source() {
        let places = Places::new(10, 2);
        let honest = Guest::new(&places, "2001:db8:1::1");
        let one = Guest::new(&places, "2001:db8:2::1");
        let _two = Guest::new(&places, "2001:db8:2::2");
        // The sources are of one size then, and the last network goes first.
        assert!(one.is_gone().await);
        assert!(!honest.is_gone().await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_known_go_only_when_idle_and_nobody_else_can() {
        let places = Places::new(3, 2);
        let guests: Vec<Guest> = (0..3).map(|_| Guest::new(&places, "192.0.2.1")).collect();
        // Two strangers at the most.
        assert!(guests[0].is_gone().await);
        for guest in &guests[1..] {
            guest.place.as_ref().expect("a place").known();
        }
        guests[1].activity.asked(true);
        assert_eq!(places.taken(), (2, 0));
        let third = Guest::new(&places, "192.0.2.2");
        third.place.as_ref().expect("a place").known();
        third.activity.asked(true);
        let fourth = Guest::new(&places, "192.0.2.3");
        assert!(fourth.place.is_some() && guests[2].is_gone().await);
        assert!(!guests[1].is_gone().await && !third.is_gone().await);
        fourth.place.as_ref().expect("a place").known();
        fourth.activity.asked(true);
        assert!(Guest::new(&places, "192.0.2.4").place.is_none());
    }
}
