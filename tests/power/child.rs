//! The process that dies: opens the store on the disk as the server does, tells what is in it, and writes until it is ended.

use crate::Error;
use crate::lines::{Found, Kind, Line, Part, Seen};
use crate::values::{self, Values};
use coracle_apiserver::store::sled::{IncidentKind, Options, SledStore};
use coracle_apiserver::store::{
    Commit, Durability, KeyValue, Op, Precondition, Range, Revision, Store, StoreError, Txn,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// While the store refuses writes.
const PAUSE: Duration = Duration::from_millis(5);
/// Lines are told in pieces of this size.
const PIECE: usize = 64 << 10;

/// What a life's children have in common, and what differs from one to the next.
#[derive(Clone, Debug)]
pub struct Task {
    pub dir: PathBuf,
    pub seed: u64,
    pub writers: u64,
    /// Keys of each class, shared out among the writers.
    pub slots: u64,
    /// The longest value; they are spread evenly over the orders of magnitude from 100 on.
    pub longest: u64,
    /// Checkpoints and snapshots after little, instead of the server's own limits.
    pub busy: bool,
    /// Numbers of writes begin after it.
    pub number: u64,
}

impl Task {
    pub fn arguments(&self) -> Vec<String> {
        let numbers = [self.seed, self.slots, u64::from(self.busy), self.number];
        let dir = [self.dir.display().to_string()];
        dir.into_iter().chain(numbers.iter().map(u64::to_string)).collect()
    }

    pub fn from(arguments: &[String]) -> Option<Self> {
        let [dir, numbers @ ..] = arguments else { return None };
        let numbers: Vec<u64> = numbers.iter().map_while(|text| text.parse().ok()).collect();
        let [seed, slots, busy, number] = numbers[..] else { return None };
        Some(Self { dir: dir.into(), seed, writers: 0, slots, longest: 0, busy: busy == 1, number })
    }

    fn writing(self, how: &str) -> Option<Self> {
        let (writers, longest) = how.split_once(' ')?;
        Some(Self { writers: writers.parse().ok()?, longest: longest.parse().ok()?, ..self })
    }

    fn options(&self) -> Options {
        if !self.busy {
            return Options::default();
        }
        Options {
            checkpoint_bytes: 512 << 10,
            snapshot_bytes: 3 << 20,
            tree_bytes: 4 << 20,
            reserve_block: 50,
            batch_delay: Duration::from_millis(300),
            ..Options::default()
        }
    }
}

pub fn run(arguments: &[String]) -> Result<ExitCode, Error> {
    // Whoever started it must not leave it behind on a disk that nobody serves.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let task = Task::from(arguments).ok_or("child: DIR and four numbers")?;
    let begun = Instant::now();
    let store = match SledStore::open(&task.dir, task.options()) {
        Ok(store) => store,
        Err(error) => {
            tell(&[Line::NotOpened(chain(&error))]);
            return Ok(ExitCode::from(3));
        }
    };
    let micros = u64::try_from(begun.elapsed().as_micros())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(task, store, micros))
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn tell(lines: &[Line]) {
    let mut text = String::new();
    let mut out = std::io::stdout().lock();
    for line in lines {
        text.push_str(&format!("{line}\n"));
        if text.len() > PIECE {
            // Who does not listen any more ends this process anyway.
            let _ = out.write_all(text.as_bytes());
            text.clear();
        }
    }
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

async fn serve(task: Task, store: Arc<SledStore>, micros: u64) -> Result<ExitCode, Error> {
    let told = store.report().incidents.len();
    report(&task, &store, micros, told).await?;
    let incidents = tokio::spawn(incidents(store.clone(), told));
    let (said, mut hear) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).try_for_each(|word| said.send(word))
    });
    let stopping = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    while let Some(word) = hear.recv().await {
        if let Some(how) = word.strip_prefix("go ") {
            tokio::spawn(watch(store.clone()));
            let task = task.clone().writing(how).ok_or("go WRITERS LONGEST")?;
            let writers_of = task.writers;
            let shared = Arc::new(Writing::new(task, store.clone(), stopping.clone()));
            (0..writers_of).for_each(|writer| drop(writers.spawn(write(shared.clone(), writer))));
            continue;
        }
        stopping.store(true, SeqCst);
        while writers.join_next().await.is_some() {}
        incidents.abort();
        if let Err(error) = store.close().await {
            tell(&[Line::Bad(format!("the store did not close: {}", chain(&error)))]);
        }
        tell(&[Line::Closed]);
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::SUCCESS)
}

// ---- what the store holds

async fn report(task: &Task, store: &SledStore, micros: u64, told: usize) -> Result<(), Error> {
    let (revision, oldest) = (store.revision(), store.oldest());
    let mut lines = vec![Line::Ready { micros, revision: revision.0, oldest: oldest.0 }];
    let incidents = store
        .report()
        .incidents
        .into_iter()
        .take(told)
        .filter(|incident| incident.kind != IncidentKind::Writable);
    lines.extend(incidents.map(|incident| Line::Incident(format!("{:?} {}", incident.kind, incident.text))));
    replay(store, oldest, &mut lines);
    let listing = store.range(Range::default()).await?;
    lines.extend(listing.items.iter().map(|item| Line::Object(found(item))));
    lines.push(Line::Listed(listing.revision.0));
    let mut rng = SmallRng::seed_from_u64(task.seed ^ task.number);
    let then = Revision(rng.random_range(oldest.0..=revision.0));
    let listing = store.range(Range { at: Some(then), ..Range::default() }).await?;
    lines.extend(listing.items.iter().map(|item| {
        let found = found(item);
        Line::Then { key: found.key, modified: found.modified, number: found.held.number }
    }));
    lines.push(Line::ListedThen(then.0));
    too_old(store, oldest, then, &mut lines).await;
    lines.push(Line::Checked);
    tell(&lines);
    Ok(())
}

fn found(item: &KeyValue) -> Found {
    Found {
        key: item.key.to_string(),
        created: item.created.0,
        modified: item.modified.0,
        held: values::held(&item.key, &item.value.bytes()),
    }
}

fn seen(commit: &Commit) -> Vec<Seen> {
    let change = |change: &coracle_apiserver::store::Change| {
        let number = change.value.as_ref().map(|value| values::head(&change.key, &value.bytes()).0);
        (change.key.to_string(), number)
    };
    commit.changes.iter().map(change).collect()
}

fn replayed(store: &SledStore, after: Revision) -> Result<Vec<Arc<Commit>>, StoreError> {
    let mut events = store.watch("", after)?;
    Ok(std::iter::from_fn(|| events.try_recv().ok()).collect())
}

fn replay(store: &SledStore, oldest: Revision, lines: &mut Vec<Line>) {
    match replayed(store, oldest) {
        Ok(commits) => {
            lines.extend(commits.iter().map(|c| Line::Replayed { revision: c.revision.0, changes: seen(c) }))
        }
        Err(error) => lines.push(Line::Bad(format!("no watch from the oldest revision: {}", chain(&error)))),
    }
}

/// A watch from some revision on gets the same as one from the oldest does from there on; before that is "410 Gone".
async fn too_old(store: &SledStore, oldest: Revision, then: Revision, lines: &mut Vec<Line>) {
    let revisions =
        |after| replayed(store, after).map(|all| all.iter().map(|c| c.revision).collect::<Vec<_>>());
    match (revisions(oldest), revisions(then)) {
        (Ok(all), Ok(part)) if all.iter().filter(|r| **r > then).eq(part.iter()) => {}
        (all, part) => {
            lines.push(Line::Bad(format!("a watch from {then:?} tells {part:?}, from {oldest:?} {all:?}")));
        }
    }
    let Some(before) = oldest.0.checked_sub(1).map(Revision) else { return };
    if !matches!(revisions(before), Err(StoreError::Compacted { .. })) {
        lines.push(Line::Bad(format!("a watch from {before:?} works, and the oldest is {oldest:?}")));
    }
    let listed = store.range(Range { at: Some(before), ..Range::default() }).await;
    if !matches!(listed, Err(StoreError::Compacted { .. })) {
        lines.push(Line::Bad(format!("a list at {before:?} works, and the oldest is {oldest:?}")));
    }
}

// ---- while it runs

/// Tells those that come after the first `told`.
async fn incidents(store: Arc<SledStore>, told: usize) {
    let mut incidents = store.incidents();
    for count in 1.. {
        let incident = incidents.next().await;
        if count > told && incident.kind != IncidentKind::Writable {
            tell(&[Line::Incident(format!("{:?} {}", incident.kind, incident.text))]);
        }
    }
}

async fn watch(store: Arc<SledStore>) {
    let Ok(mut events) = store.watch("", store.revision()) else { return };
    while let Some(commit) = events.recv().await {
        let mut lines = vec![Line::Saw { revision: commit.revision.0, changes: seen(&commit) }];
        lines.extend(std::iter::from_fn(|| {
            events
                .try_recv()
                .ok()
                .map(|commit| Line::Saw { revision: commit.revision.0, changes: seen(&commit) })
        }));
        tell(&lines);
    }
}

struct Writing {
    task: Task,
    store: Arc<SledStore>,
    stopping: Arc<AtomicBool>,
    number: AtomicU64,
    values: Values,
}

impl Writing {
    fn new(task: Task, store: Arc<SledStore>, stopping: Arc<AtomicBool>) -> Self {
        let number = AtomicU64::new(task.number);
        Self { task, store, stopping, number, values: Values::new() }
    }
}

async fn write(shared: Arc<Writing>, writer: u64) {
    let mut rng = SmallRng::seed_from_u64(shared.task.seed ^ shared.task.number ^ (writer << 48));
    while !shared.stopping.load(SeqCst) {
        let number = shared.number.fetch_add(1, SeqCst) + 1;
        let (kind, keys) = choose(&shared, writer, &mut rng).await;
        let (txn, parts) = match plan(&shared, kind, &keys, number, &mut rng).await {
            Ok(planned) => planned,
            Err(error) => {
                tell(&[Line::Bad(format!("get: {}", chain(&error)))]);
                return;
            }
        };
        tell(&[Line::Begin { number, kind, parts }]);
        match shared.store.commit(txn).await {
            Ok(revision) => tell(&[Line::Acked { number, revision: revision.0 }]),
            Err(StoreError::Closed) => return,
            Err(error @ StoreError::Conflict { .. }) => tell(&[Line::Bad(chain(&error))]),
            Err(error) => {
                tell(&[Line::Refused { number, why: chain(&error) }]);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Keys come in classes: `k` are synced, `e` batched, `v` volatile as nodes' Leases are, and `h` synced with volatile updates,
/// as nodes are. A writer has its own, so that what a key holds does not depend on who was quicker.
async fn choose(shared: &Writing, writer: u64, rng: &mut SmallRng) -> (Kind, Vec<String>) {
    let (kind, class, count) = match rng.random_range(0..100) {
        0..8 => (Kind::Batched, "e", 1),
        8..12 => (Kind::Volatile, "v", 1),
        12..18 => (Kind::Volatile, "h", 1),
        18..24 => (Kind::Synced, "h", 1),
        24..36 => (Kind::Synced, "k", 4),
        _ => (Kind::Synced, "k", 1),
    };
    let task = &shared.task;
    let own = (task.slots / task.writers).max(1);
    let mut key = || format!("{class}./{}", writer + task.writers * rng.random_range(0..own));
    let mut keys: Vec<String> = (0..count).map(|_| key()).collect();
    keys.sort();
    keys.dedup();
    let fresh = class == "h" && !matches!(shared.store.get(&keys[0]).await, Ok(Some(_)));
    (if fresh { Kind::Synced } else { kind }, keys)
}

async fn plan(
    shared: &Writing,
    kind: Kind,
    keys: &[String],
    number: u64,
    rng: &mut SmallRng,
) -> Result<(Txn, Vec<Part>), StoreError> {
    let durability = match kind {
        Kind::Synced => Durability::Synced,
        Kind::Batched => Durability::Batched,
        Kind::Volatile => Durability::Volatile,
    };
    let mut txn = Txn { durability, ..Txn::default() };
    let mut parts = Vec::new();
    for key in keys {
        let name: Arc<str> = key.as_str().into();
        let now = shared.store.get(key).await?;
        txn.guards.push(Precondition { key: name.clone(), expect: now.as_ref().map(|item| item.modified) });
        if now.is_some() && kind != Kind::Volatile && rng.random_bool(0.15) {
            txn.ops.push(Op::Delete { key: name });
            parts.push(Part { key: key.clone(), put: None });
            continue;
        }
        let uid = now.map_or(number, |item| values::head(key, &item.value.bytes()).1);
        let len = length(shared.task.longest, rng);
        let (value, held) = shared.values.make(key, number, uid, len, rng);
        txn.ops.push(Op::Put { key: name, value });
        parts.push(Part { key: key.clone(), put: Some(held) });
    }
    Ok((txn, parts))
}

/// Every order of magnitude is as likely as the others.
fn length(longest: u64, rng: &mut SmallRng) -> usize {
    let mut most = 200;
    while most < longest && rng.random_bool(0.75) {
        most *= 3;
    }
    crate::disk::small(rng.random_range(100..=most.min(longest)))
}
