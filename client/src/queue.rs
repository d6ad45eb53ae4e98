//! A work queue with upstream's guarantees: a key waits at most once, is worked on by one worker at a time, comes
//! back if it was added meanwhile, and is retried with exponential back-off.

use crate::clock;
use crate::metrics::{self, Load, QueueMetrics};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// First delay of a failing key; client-go's default.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest delay of a failing key; client-go's default of 1,000 s is too patient for a node that people watch.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Keys that an emptied queue keeps room for; a flood leaves no more behind.
const KEPT: usize = 1024;

struct State<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when its worker is done; since when.
    dirty: HashMap<K, Instant>,
    /// Since when each is worked on.
    processing: HashMap<K, Instant>,
    delayed: BTreeMap<(Instant, u64), K>,
    /// When each delayed key is due, so that the earliest wish wins.
    due: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    sequence: u64,
    /// Steps of the wall clock that the delays take into account.
    steps: u64,
    /// Queues without a name are not counted.
    metrics: Option<QueueMetrics>,
}

/// Cloning shares the queue.
pub struct WorkQueue<K> {
    state: Arc<Mutex<State<K>>>,
    changed: Arc<Notify>,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), changed: self.changed.clone() }
    }
}

/// A queue that whoever feeds it does not keep alive: an informer outlives the controllers that listen to it.
pub struct WeakWorkQueue<K> {
    state: Weak<Mutex<State<K>>>,
    changed: Weak<Notify>,
}

impl<K> WeakWorkQueue<K> {
    /// The queue, while its controller lives.
    pub fn upgrade(&self) -> Option<WorkQueue<K>> {
        Some(WorkQueue { state: self.state.upgrade()?, changed: self.changed.upgrade()? })
    }
}

impl<K> WorkQueue<K> {
    pub fn downgrade(&self) -> WeakWorkQueue<K> {
        WeakWorkQueue { state: Arc::downgrade(&self.state), changed: Arc::downgrade(&self.changed) }
    }
}

impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashMap::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
            steps: clock::count(),
            metrics: None,
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::new(Notify::new()) }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K) {
        if self.dirty.contains_key(&key) {
            return;
        }
        self.dirty.insert(key.clone(), Instant::now());
        if let Some(metrics) = &self.metrics {
            metrics.added();
        }
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        let now = Instant::now();
        let added = self.dirty.remove(&key);
        if let (Some(metrics), Some(added)) = (&self.metrics, added) {
            metrics.taken(now.duration_since(added));
        }
        self.processing.insert(key.clone(), now);
        if self.ready.is_empty() && self.ready.capacity() > KEPT {
            self.ready = VecDeque::new();
            self.dirty.shrink_to(KEPT);
            self.due.shrink_to(KEPT);
            self.failures.shrink_to(KEPT);
        }
        Some(key)
    }

    fn load(&self) -> Load {
        let now = Instant::now();
        let times = self.processing.values().map(|since| now.duration_since(*since));
        Load {
            depth: self.ready.len(),
            unfinished: times.clone().sum(),
            longest: times.max().unwrap_or_default(),
        }
    }

    /// After a step of the wall clock every delay may be wrong, so all keys are due.
    fn release_due(&mut self, now: Instant, steps: u64) {
        let stepped = std::mem::replace(&mut self.steps, steps) != steps;
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now && !stepped {
                break;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    pub fn new() -> Self {
        Self::default()
    }

    /// A queue that is counted under this name ([`crate::metrics`]).
    pub fn named(name: &'static str) -> Self
    where
        K: Send + 'static,
    {
        let queue = Self::new();
        queue.set_name(name);
        queue
    }

    /// Counts the queue under this name from now on.
    pub fn set_name(&self, name: &'static str)
    where
        K: Send + 'static,
    {
        let state = Arc::downgrade(&self.state);
        let load = move || state.upgrade().map(|state| state.lock().load()).unwrap_or_default();
        let metrics = metrics::queue(name, load);
        self.state.lock().metrics = Some(metrics);
    }

    pub fn add(&self, key: K) {
        self.state.lock().add(key);
        self.changed.notify_one();
    }

    /// Adds the key after `delay`, or earlier if an earlier wish is pending.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state.lock();
        let at = Instant::now() + delay;
        if let Some(pending) = state.due.get(&key).copied() {
            if pending.0 <= at {
                return;
            }
            state.delayed.remove(&pending);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.due.insert(key.clone(), slot);
        state.delayed.insert(slot, key);
        drop(state);
        self.changed.notify_one();
    }

    /// Adds the key after its back-off: 5 ms, doubled with every failure, 60 s at most.
    pub fn retry(&self, key: K) {
        let delay = {
            let mut state = self.state.lock();
            if let Some(metrics) = &state.metrics {
                metrics.retried();
            }
            let failures = state.failures.entry(key.clone()).or_insert(0);
            let delay = BASE_DELAY.saturating_mul(1 << (*failures).min(20)).min(MAX_DELAY);
            *failures += 1;
            delay
        };
        self.add_after(key, delay);
    }

    /// Resets the key's back-off, after a success.
    pub fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// How often the key failed in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Waits for the next key. The caller says [`done`](Self::done) when it has worked on it. Cancel-safe.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let mut steps = clock::steps();
            let wake_at = {
                let mut state = self.state.lock();
                state.release_due(Instant::now(), *steps.borrow_and_update());
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.delayed.first_key_value().map(|(slot, _)| slot.0)
            };
            match wake_at {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                        // The sender lives as long as the process.
                        _ = steps.changed() => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        let since = state.processing.remove(key);
        if let (Some(metrics), Some(since)) = (&state.metrics, since) {
            metrics.done(since.elapsed());
        }
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Keys that wait now, without those whose delay runs.
    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_worked_on_comes_back_once() {
        let queue = WorkQueue::new();
        queue.add(1);
        queue.add(1);
        assert_eq!(queue.next().await, 1);
        queue.add(1);
        queue.add(1);
        assert!(queue.is_empty());
        queue.done(&1);
        assert_eq!(queue.next().await, 1);
        queue.done(&1);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_delays_wins() {
        let queue = WorkQueue::new();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(2));
        queue.add_after("a", Duration::from_secs(5));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 2);
        queue.done(&"a");
        assert!(tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_clock_ends_every_delay() {
        let queue = WorkQueue::new();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(86_400));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        clock::announce();
        assert_eq!(waiting.await.unwrap(), "a");
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_until_forgotten() {
        let queue = WorkQueue::new();
        let mut waited = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            queue.retry(7);
            queue.next().await;
            queue.done(&7);
            waited.push(start.elapsed().as_millis());
        }
        assert_eq!(waited, [5, 10, 20]);
        queue.forget(&7);
        assert_eq!(queue.failures(&7), 0);
    }
}
