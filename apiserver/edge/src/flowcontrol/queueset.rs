//! Fair queuing of one priority level: who runs now, who waits, who is next.
//!
//! A plain state machine over given times: it knows no clock, lock or task. Fairness is that of fair queuing for
//! packets, carried over to requests that hold seats for an unknown time: every queue has a virtual time at which its
//! next request may begin, and the earliest (virtual) end is served first. See KEP-1040.

use super::config::Queuing;
use super::shuffle::Hand;
use std::collections::VecDeque;
use std::time::Duration;

/// What a request is taken to need until it has ended, as upstream: its real time replaces the guess afterwards.
const DEFAULT_DURATION: Duration = Duration::from_millis(3);
pub const GUESS_SECONDS: f64 = 0.003;

/// Seats times nanoseconds times [`FINE`]. 128 bits never overflow: 600 seats use up 2^60 a year.
type Work = u128;
/// Parts of a nanosecond, so that dividing short times by many queues loses nothing.
const FINE: u128 = 1024;

fn work(seats: u32, time: Duration) -> Work {
    u128::from(seats) * time.as_nanos() * FINE
}

/// A request in a queue. `T` is how its owner is told.
pub struct Waiting<T> {
    pub id: u64,
    pub seats: u32,
    arrived: Work,
    pub owner: T,
}

pub struct Queue<T> {
    /// Virtual time at which the next request begins.
    next: Work,
    pub waiting: VecDeque<Waiting<T>>,
    pub seats_waiting: u32,
    pub executing: u32,
    pub seats_in_use: u32,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { next: 0, waiting: VecDeque::new(), seats_waiting: 0, executing: 0, seats_in_use: 0 }
    }
}

impl<T> Queue<T> {
    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// Virtual time of the next dispatch, in seat seconds.
    pub fn next_seat_seconds(&self) -> f64 {
        seat_seconds(self.next)
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn seat_seconds(work: Work) -> f64 {
    (work / FINE) as f64 / 1e9
}

/// Where a running request is accounted; `None` outside of all queues.
pub type Place = Option<usize>;

#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    Run(Place),
    /// Its owner is told later.
    Wait {
        queue: usize,
        id: u64,
    },
    Rejected(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
    Cancelled,
}

impl Refusal {
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::ConcurrencyLimit, Self::TimeOut, Self::Cancelled];

    /// Upstream's label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How many requests met each fate, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub dispatched: u64,
    pub rejected: u64,
    pub timed_out: u64,
    pub cancelled: u64,
}

/// How the level treats those who find no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Exempt,
    Reject,
    Queue(Queuing),
}

pub struct QueueSet<T> {
    mode: Mode,
    /// Seats that may be taken now.
    limit: u32,
    pub queues: Vec<Queue<T>>,
    active: u32,
    progress: Work,
    progressed_at: Duration,
    pub executing: u32,
    pub waiting: u32,
    pub seats_in_use: u32,
    pub seats_waiting: u32,
    robin: usize,
    next_id: u64,
    pub totals: Totals,
    pub demand: super::limits::Demand,
}

impl<T> QueueSet<T> {
    pub fn new(mode: Mode, limit: u32) -> Self {
        let mut set = Self {
            mode,
            limit,
            queues: Vec::new(),
            active: 0,
            progress: 0,
            progressed_at: Duration::ZERO,
            executing: 0,
            waiting: 0,
            seats_in_use: 0,
            seats_waiting: 0,
            robin: 0,
            next_id: 0,
            totals: Totals::default(),
            demand: super::limits::Demand::default(),
        };
        set.set_mode(mode);
        set
    }

    /// Queues beyond a smaller number stay until they are empty; nothing is put into them any more.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        let wanted = match mode {
            Mode::Queue(queuing) => queuing.queues as usize,
            _ => 0,
        };
        if wanted > self.queues.len() {
            self.queues.resize_with(wanted, Queue::default);
        }
        while self.queues.len() > wanted && self.queues.last().is_some_and(|q| !q.is_active()) {
            self.queues.pop();
        }
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The caller dispatches afterwards.
    pub fn set_limit(&mut self, now: Duration, limit: u32) {
        self.advance(now);
        self.limit = limit;
    }

    pub fn is_idle(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }

    /// Moves virtual time on: each active queue is due its part of the seats in use.
    ///
    /// Upstream counts all seats of the level here. Where requests are too wide for the last of them, virtual time then
    /// runs ahead of the busy queues, and whoever comes anew waits for all of them to catch up.
    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.progressed_at);
        self.progressed_at = self.progressed_at.max(now);
        self.demand.advance(now, self.seats_in_use + self.seats_waiting);
        if self.active > 0 {
            let used = self.limit.min(self.seats_in_use);
            self.progress += work(used, passed) / u128::from(self.active);
        }
    }

    /// A request too wide for the level runs alone.
    fn fits(&self, seats: u32) -> bool {
        if seats > self.limit { self.executing == 0 } else { self.seats_in_use + seats <= self.limit }
    }

    /// `owner` is kept only if the request has to wait.
    pub fn arrive(&mut self, now: Duration, hash: u64, seats: u32, owner: impl FnOnce() -> T) -> Arrival {
        self.advance(now);
        let Mode::Queue(queuing) = self.mode else {
            if self.mode == Mode::Reject && !self.fits(seats) {
                self.totals.rejected += 1;
                return Arrival::Rejected(Refusal::ConcurrencyLimit);
            }
            self.run(seats);
            return Arrival::Run(None);
        };
        let queue = self.choose(hash, queuing);
        let full = self.queues[queue].waiting.len() >= queuing.queue_length_limit as usize;
        if full && self.seats_in_use >= self.limit {
            self.totals.rejected += 1;
            return Arrival::Rejected(Refusal::QueueFull);
        }
        if !self.queues[queue].is_active() {
            self.queues[queue].next = self.progress;
            self.active += 1;
        }
        if self.waiting == 0 && self.fits(seats) {
            self.start(queue, seats);
            return Arrival::Run(Some(queue));
        }
        self.next_id += 1;
        let (id, arrived) = (self.next_id, self.progress);
        let chosen = &mut self.queues[queue];
        chosen.waiting.push_back(Waiting { id, seats, arrived, owner: owner() });
        chosen.seats_waiting += seats;
        self.waiting += 1;
        self.seats_waiting += seats;
        self.demand.saw(self.seats_in_use + self.seats_waiting);
        Arrival::Wait { queue, id }
    }

    /// Of the flow's hand, the queue with the least work ahead.
    fn choose(&self, hash: u64, queuing: Queuing) -> usize {
        let hand = Hand::deal(hash, queuing.queues, queuing.hand_size);
        let load = |at: &usize| self.queues[*at].seats_in_use + self.queues[*at].seats_waiting;
        hand.iter().min_by_key(load).unwrap_or(0)
    }

    fn run(&mut self, seats: u32) {
        self.executing += 1;
        self.seats_in_use += seats;
        self.totals.dispatched += 1;
        self.demand.saw(self.seats_in_use + self.seats_waiting);
    }

    fn start(&mut self, queue: usize, seats: u32) {
        let chosen = &mut self.queues[queue];
        chosen.next += work(seats, DEFAULT_DURATION);
        chosen.executing += 1;
        chosen.seats_in_use += seats;
        self.run(seats);
    }

    /// Starts everything that has a seat, in fair order, and hands the owners out with their queues.
    pub fn dispatch(&mut self, now: Duration, mut tell: impl FnMut(T, usize)) {
        self.advance(now);
        while self.waiting > 0 {
            let Some(queue) = self.next_queue() else { return };
            // The head of the line waits for its seats: narrower requests behind it may not starve it.
            let Some(head) = self.queues[queue].waiting.front() else { return };
            if !self.fits(head.seats) {
                return;
            }
            let Some(begun) = self.queues[queue].waiting.pop_front() else { return };
            // What the queue did not use while nobody waited in it is no credit.
            self.queues[queue].next = self.queues[queue].next.max(begun.arrived);
            self.forget_waiting(queue, begun.seats);
            self.start(queue, begun.seats);
            self.robin = queue;
            tell(begun.owner, queue);
        }
    }

    /// The queue whose first request would end first; the one after the last served among equals.
    fn next_queue(&self) -> Option<usize> {
        let count = self.queues.len();
        let in_turn = (1..=count).map(|step| (self.robin + step) % count);
        in_turn
            .filter_map(|at| {
                let queue = &self.queues[at];
                let head = queue.waiting.front()?;
                Some((queue.next.max(head.arrived) + work(head.seats, DEFAULT_DURATION), at))
            })
            .min_by_key(|(end, _)| *end)
            .map(|(_, at)| at)
    }

    fn forget_waiting(&mut self, queue: usize, seats: u32) {
        self.queues[queue].seats_waiting -= seats;
        self.waiting -= 1;
        self.seats_waiting -= seats;
    }

    /// Takes a waiting request out; false if it runs already. The caller dispatches afterwards.
    pub fn give_up(&mut self, now: Duration, queue: usize, id: u64, why: Refusal) -> bool {
        self.advance(now);
        let Some(waiting) = self.queues.get_mut(queue).map(|q| &mut q.waiting) else { return false };
        let Some(at) = waiting.iter().position(|w| w.id == id) else { return false };
        let Some(gone) = waiting.remove(at) else { return false };
        self.forget_waiting(queue, gone.seats);
        match why {
            Refusal::TimeOut => self.totals.timed_out += 1,
            Refusal::Cancelled => self.totals.cancelled += 1,
            _ => self.totals.rejected += 1,
        }
        self.rest(queue);
        true
    }

    /// A running request ended after `took`. The caller dispatches afterwards.
    pub fn finish(&mut self, now: Duration, place: Place, seats: u32, took: Duration) {
        self.advance(now);
        self.executing -= 1;
        self.seats_in_use -= seats;
        let Some(queue) = place else { return };
        let chosen = &mut self.queues[queue];
        chosen.executing -= 1;
        chosen.seats_in_use -= seats;
        chosen.next = (chosen.next + work(seats, took)).saturating_sub(work(seats, DEFAULT_DURATION));
        self.rest(queue);
    }

    fn rest(&mut self, queue: usize) {
        if !self.queues[queue].is_active() {
            self.active -= 1;
            if let Mode::Queue(queuing) = self.mode
                && self.queues.len() > queuing.queues as usize
            {
                self.set_mode(self.mode);
            }
        }
    }
}
