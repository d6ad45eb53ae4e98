//! The levels and schemas in force, and the clock they share.

use super::Asker;
use super::config::{Distinguisher, Level, Schema};
use super::limits::{self, ADJUST_INTERVAL, Need, Seats};
use super::measure::Stats;
use super::queueset::{Mode, QueueSet};
use coracle_api::{Object, UserInfo};
use coracle_requests::RequestInfo;
use coracle_strategy::flowcontrol::defaults;
use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seats of all levels together: upstream's `--max-requests-inflight` and `--max-mutating-requests-inflight`.
    /// Each seat bounds memory and CPU: a request holds up to 3 MiB of body.
    pub total_seats: u32,
    /// How long a request may wait in its queue: a quarter of the request timeout, as upstream.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { total_seats: 400 + 200, patience: Duration::from_secs(15) }
    }
}

/// A waiting request: how it is told that it may run, and who it is.
pub(super) struct Waiter {
    tell: oneshot::Sender<()>,
    pub(super) schema: Arc<SchemaState>,
    pub(super) arrived: jiff::Timestamp,
    pub(super) user: String,
    pub(super) info: RequestInfo,
}

impl Waiter {
    pub(super) fn new(tell: oneshot::Sender<()>, flow: &Flow, asker: &Asker<'_>) -> Self {
        Self {
            tell,
            schema: flow.schema.clone(),
            arrived: jiff::Timestamp::now(),
            user: asker.user.to_owned(),
            info: asker.info.clone(),
        }
    }

    pub(super) fn distinguisher(&self) -> &str {
        distinguisher(&self.schema.config, &self.user, &self.info)
    }
}

fn distinguisher<'a>(schema: &Schema, user: &'a str, info: &'a RequestInfo) -> &'a str {
    match schema.distinguisher {
        Distinguisher::None => "",
        Distinguisher::User => user,
        Distinguisher::Namespace => &info.namespace,
    }
}

/// One priority level at work.
pub(super) struct LevelState {
    pub(super) name: String,
    born: Instant,
    pub(super) now: Mutex<Now>,
    set: Mutex<QueueSet<Waiter>>,
}

/// What the configuration and the last adjustment say of a level.
#[derive(Clone)]
pub(super) struct Now {
    pub(super) seats: Seats,
    pub(super) limit: u32,
    pub(super) high: u32,
    pub(super) need: f64,
    header: Option<HeaderValue>,
}

impl LevelState {
    /// Works on the queues at the present time; the last argument tells owners to run.
    pub(super) fn with<R>(
        &self,
        work: impl FnOnce(&mut QueueSet<Waiter>, Duration, &mut dyn FnMut(Waiter, usize)) -> R,
    ) -> R {
        let now = self.born.elapsed();
        // A receiver that is gone takes its request out of the running ones itself.
        work(&mut self.set.lock(), now, &mut |waiter, _| {
            let _ = waiter.tell.send(());
        })
    }

    pub(super) fn is_exempt(&self) -> bool {
        self.set.lock().mode() == Mode::Exempt
    }
}

const CATCH_ALL: &str = "catch-all";

/// Where a request belongs. Cloning shares.
#[derive(Clone)]
pub struct Flow {
    pub(super) schema: Arc<SchemaState>,
    pub(super) level: Arc<LevelState>,
    pub(super) stats: Arc<Stats>,
    pub(super) hash: u64,
}

impl Flow {
    pub fn schema(&self) -> &str {
        &self.schema.config.name
    }

    pub fn level(&self) -> &str {
        &self.level.name
    }

    pub fn is_exempt(&self) -> bool {
        self.level.is_exempt()
    }

    /// Values of `X-Kubernetes-PF-FlowSchema-UID` and `X-Kubernetes-PF-PriorityLevel-UID`.
    pub fn uids(&self) -> (Option<HeaderValue>, Option<HeaderValue>) {
        (self.schema.header.clone(), self.level.now.lock().header.clone())
    }

    /// Widest request of the level: 15 percent of its nominal seats, as upstream, at least one.
    pub fn max_seats(&self) -> u32 {
        self.level.now.lock().seats.nominal.saturating_mul(15).div_ceil(100).max(1)
    }
}

pub(super) struct SchemaState {
    pub(super) config: Schema,
    level: Arc<LevelState>,
    stats: Arc<Stats>,
    header: Option<HeaderValue>,
}

#[derive(Default)]
pub(super) struct State {
    /// In matching order; only those whose level exists.
    pub(super) schemas: Vec<Arc<SchemaState>>,
    pub(super) levels: BTreeMap<String, Arc<LevelState>>,
}

/// The filter of one server.
pub struct FlowControl {
    born: Instant,
    options: Options,
    state: RwLock<Arc<State>>,
    /// By level and schema; they outlive changes of either.
    pub(super) stats: Mutex<BTreeMap<(String, String), Arc<Stats>>>,
    /// Milliseconds since `born` at which limits are adjusted next.
    adjust_at: AtomicU64,
    hasher: RandomState,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl FlowControl {
    /// With the default configuration until [`configure`](Self::configure) is called.
    pub fn new(options: Options) -> Arc<Self> {
        let control = Arc::new(Self {
            born: Instant::now(),
            options,
            state: RwLock::default(),
            stats: Mutex::default(),
            adjust_at: AtomicU64::new(millis(ADJUST_INTERVAL)),
            hasher: RandomState::new(),
        });
        control.configure(&defaults::schemas(), &defaults::levels());
        control
    }

    pub fn options(&self) -> Options {
        self.options
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.state.read().clone()
    }

    /// Puts these objects in force. Mandatory ones that are missing are taken from the defaults.
    pub fn configure(&self, schemas: &[Object], levels: &[Object]) {
        let mut wanted: Vec<Level> = levels.iter().map(Level::parse).collect();
        let missing = |level: &Level| defaults::MANDATORY.contains(&&*level.name);
        for level in defaults::levels().iter().map(Level::parse).filter(missing) {
            if !wanted.iter().any(|l| l.name == level.name) {
                wanted.push(level);
            }
        }
        let mut state = State { levels: self.levels(wanted), ..State::default() };
        let mut parsed: Vec<Schema> = schemas.iter().map(Schema::parse).collect();
        for schema in defaults::schemas().iter().map(Schema::parse) {
            if defaults::MANDATORY.contains(&&*schema.name) && !parsed.iter().any(|s| s.name == schema.name) {
                parsed.push(schema);
            }
        }
        parsed.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        for config in parsed {
            let Some(level) = state.levels.get(&config.level).cloned() else { continue };
            let stats = self.stats_of(&config.level, &config.name);
            let header = HeaderValue::from_str(&config.uid).ok();
            state.schemas.push(Arc::new(SchemaState { config, level, stats, header }));
        }
        *self.state.write() = Arc::new(state);
    }

    fn stats_of(&self, level: &str, schema: &str) -> Arc<Stats> {
        self.stats.lock().entry((level.to_owned(), schema.to_owned())).or_default().clone()
    }

    /// Levels keep their queues over a change.
    fn levels(&self, wanted: Vec<Level>) -> BTreeMap<String, Arc<LevelState>> {
        let old = self.state();
        let seats = limits::nominal(self.options.total_seats, &wanted.iter().collect::<Vec<_>>());
        let one = |(config, seats): (Level, Seats)| {
            let header = HeaderValue::from_str(&config.uid).ok();
            let Level { name, mode, .. } = config;
            let now = Now { seats, limit: seats.nominal, high: 0, need: 0.0, header };
            let level = match old.levels.get(&name) {
                Some(level) => {
                    *level.now.lock() = now;
                    level.with(|set, now, wake| {
                        set.set_mode(mode);
                        set.set_limit(now, seats.nominal);
                        set.dispatch(now, wake);
                    });
                    level.clone()
                }
                None => Arc::new(LevelState {
                    name: name.clone(),
                    born: self.born,
                    now: Mutex::new(now),
                    set: Mutex::new(QueueSet::new(mode, seats.nominal)),
                }),
            };
            (name, level)
        };
        wanted.into_iter().zip(seats).map(one).collect()
    }

    /// The first schema that matches, else `catch-all`, which always exists.
    pub fn classify(&self, user: &UserInfo, info: &RequestInfo) -> Option<Flow> {
        let state = self.state.read().clone();
        let matching = state.schemas.iter().find(|schema| schema.config.matches(user, info));
        // A user without any group matches no default schema.
        let schema = matching.or_else(|| state.schemas.iter().find(|s| s.config.name == CATCH_ALL))?;
        let distinguisher = distinguisher(&schema.config, &user.name, info);
        let hash = self.hasher.hash_one((&schema.config.name, distinguisher));
        let (level, stats) = (schema.level.clone(), schema.stats.clone());
        Some(Flow { schema: schema.clone(), level, stats, hash })
    }

    /// Lends and takes back seats, at most once in ten seconds.
    pub(super) fn adjust_if_due(&self) {
        let now = self.born.elapsed();
        let due = self.adjust_at.load(Relaxed);
        let next = millis(now + ADJUST_INTERVAL);
        if millis(now) >= due && self.adjust_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            self.adjust();
        }
    }

    fn adjust(&self) {
        let state = self.state();
        let (mut left, mut needs) = (self.options.total_seats, Vec::new());
        for level in state.levels.values() {
            let (exempt, high, smoothed) = level.with(|set, now, _| {
                let high = set.demand.close(now, set.seats_in_use + set.seats_waiting);
                (set.mode() == Mode::Exempt, high, set.demand.smoothed)
            });
            let mut about = level.now.lock();
            (about.high, about.need) = (high, smoothed);
            if exempt {
                // Nothing holds them back, so the others have to make do with the rest.
                about.limit = about.seats.min.max(high);
                left = left.saturating_sub(about.limit);
            } else {
                needs.push((level, Need { seats: about.seats, high, smoothed }));
            }
        }
        let limits = limits::share(left, &needs.iter().map(|(_, need)| *need).collect::<Vec<_>>());
        for ((level, _), limit) in needs.iter().zip(limits) {
            level.now.lock().limit = limit;
            level.with(|set, now, wake| {
                set.set_limit(now, limit);
                set.dispatch(now, wake);
            });
        }
    }
}
