//! What every backend does alike. A backend's tests call [`store_suite!`](crate::store_suite) with a way to make an
//! empty store.
//!
//! Each case gets a store of its own and panics with what it saw.

use super::{Commit, Durability, Op, Packer, Precondition, Range, Revision, Store, StoreError, Txn, Value};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// Long enough for any machine; a test that waits so long has failed.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// One test for every case, on stores that the expression makes: an `Arc<dyn Store>` and whatever must outlive it.
#[macro_export]
macro_rules! store_suite {
    ($make:expr) => {
        $crate::store_suite!(@ $make; guards, atomicity, same_key_twice, ordering, watch_resumes, watch_prefix,
            watch_errors, followers, compaction, old_revisions, pagination, large_values, packing, close, races, model);
    };
    (@ $make:expr; $($case:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let (store, _keep) = $make;
            $crate::suite::$case(store).await;
        })*
    };
}

type Shared = Arc<dyn Store>;

pub fn put(key: &str, value: impl Into<Bytes>) -> Op {
    Op::Put { key: key.into(), value: value.into() }
}

pub fn delete(key: &str) -> Op {
    Op::Delete { key: key.into() }
}

pub fn txn(ops: Vec<Op>) -> Txn {
    Txn { ops, ..Txn::default() }
}

fn expecting(key: &str, expect: Option<Revision>, ops: Vec<Op>) -> Txn {
    Txn { guards: vec![Precondition { key: key.into(), expect }], ops, ..Txn::default() }
}

async fn commit(store: &Shared, ops: Vec<Op>) -> Revision {
    store.commit(txn(ops)).await.expect("commit")
}

pub async fn value(store: &dyn Store, key: &str) -> Option<Bytes> {
    store.get(key).await.expect("get").map(|kv| kv.value.bytes())
}

async fn keys(store: &Shared, range: Range) -> Vec<String> {
    store.range(range).await.expect("range").items.iter().map(|kv| kv.key.to_string()).collect()
}

async fn next(events: &mut UnboundedReceiver<Arc<Commit>>) -> Arc<Commit> {
    tokio::time::timeout(WAIT_TIMEOUT, events.recv()).await.expect("an event in time").expect("an open watch")
}

pub async fn guards(store: Shared) {
    let absent = expecting("pods./a/x", None, vec![put("pods./a/x", "1")]);
    let created = store.commit(absent.clone()).await.expect("create");
    match store.commit(absent).await {
        Err(StoreError::Conflict { key, actual: Some(actual) }) => {
            assert_eq!((&*key, actual.modified), ("pods./a/x", created));
            assert_eq!(actual.value.bytes(), "1");
        }
        other => panic!("creating twice: {other:?}"),
    }
    let update = expecting("pods./a/x", Some(created), vec![put("pods./a/x", "2")]);
    let updated = store.commit(update.clone()).await.expect("update");
    assert!(updated > created);
    assert!(matches!(store.commit(update).await, Err(StoreError::Conflict { actual: Some(_), .. })));
    let kv = store.get("pods./a/x").await.expect("get").expect("present");
    assert_eq!((kv.created, kv.modified, &*kv.value.bytes()), (created, updated, &b"2"[..]));
    let gone = expecting("pods./a/y", Some(created), vec![put("pods./a/x", "3")]);
    assert!(matches!(store.commit(gone).await, Err(StoreError::Conflict { actual: None, .. })));
    assert_eq!(store.revision(), updated, "a failed guard uses no revision");
}

pub async fn atomicity(store: Shared) {
    let mut events = store.watch("", store.revision()).expect("watch");
    let first = commit(&store, vec![put("a./n/1", "x"), put("b./n/2", "y")]).await;
    let failing = Txn {
        guards: vec![
            Precondition { key: "a./n/1".into(), expect: Some(first) },
            Precondition { key: "b./n/2".into(), expect: None },
        ],
        ops: vec![delete("a./n/1"), put("c./n/3", "z")],
        ..Txn::default()
    };
    assert!(matches!(store.commit(failing).await, Err(StoreError::Conflict { .. })));
    assert_eq!(keys(&store, Range::default()).await, ["a./n/1", "b./n/2"]);
    let second = commit(&store, vec![delete("a./n/1"), put("c./n/3", "z")]).await;
    assert_eq!(keys(&store, Range::default()).await, ["b./n/2", "c./n/3"]);
    assert_eq!(next(&mut events).await.changes.len(), 2);
    let event = next(&mut events).await;
    assert_eq!((event.revision, event.changes.len()), (second, 2));
    let gone = &event.changes[0];
    assert_eq!((&*gone.key, &gone.value, gone.created), ("a./n/1", &None, first));
    assert_eq!(
        gone.previous.as_ref().map(|kv| (kv.value.bytes(), kv.modified)),
        Some((Bytes::from("x"), first))
    );
    assert_eq!(commit(&store, vec![delete("a./n/1")]).await, second, "deleting nothing changes nothing");
}

pub async fn same_key_twice(store: Shared) {
    let mut events = store.watch("", store.revision()).expect("watch");
    let revision = commit(&store, vec![put("a./n/1", "x"), put("a./n/1", "y"), put("b./n/1", "x")]).await;
    let event = next(&mut events).await;
    assert_eq!(event.changes.len(), 2, "one change a key: {event:?}");
    assert_eq!(event.changes[0].value.as_ref().map(Value::bytes), Some(Bytes::from("y")));
    assert!(event.changes[0].previous.is_none());
    assert_eq!(commit(&store, vec![put("c./n/1", "x"), delete("c./n/1")]).await, revision);
    commit(&store, vec![delete("a./n/1"), put("a./n/1", "z")]).await;
    let event = next(&mut events).await;
    assert_eq!(event.changes.len(), 1);
    assert_eq!(event.changes[0].previous.as_ref().map(|kv| kv.value.bytes()), Some(Bytes::from("y")));
}

pub async fn ordering(store: Shared) {
    let mut events = store.watch("", Revision(0)).expect("watch");
    let mut last = store.revision();
    for durability in
        [Durability::Synced, Durability::Batched, Durability::Volatile].into_iter().cycle().take(30)
    {
        let ops = vec![put("a./n/1", "x")];
        let revision = store.commit(Txn { ops, durability, ..Txn::default() }).await.expect("commit");
        assert_eq!(revision, Revision(last.0 + 1), "no revision is skipped");
        assert_eq!(store.revision(), revision, "committed is visible");
        assert_eq!(store.get("a./n/1").await.expect("get").expect("present").modified, revision);
        assert_eq!(events.try_recv().expect("visible to watchers").revision, revision);
        last = revision;
    }
}

pub async fn watch_resumes(store: Shared) {
    let mut revisions = Vec::new();
    for index in 0..20 {
        revisions.push(commit(&store, vec![put("a./n/1", index.to_string())]).await);
    }
    for (seen, after) in revisions.iter().enumerate() {
        let mut events = store.watch("a.", *after).expect("watch");
        for expected in &revisions[seen + 1..] {
            assert_eq!(next(&mut events).await.revision, *expected);
        }
        assert!(events.try_recv().is_err(), "nothing beyond the present");
    }
    let mut events = store.watch("a.", revisions[10]).expect("watch");
    let live = commit(&store, vec![put("a./n/2", "x")]).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&live) {
        seen.push(next(&mut events).await.revision);
    }
    assert_eq!(seen[..9], revisions[11..]);
}

pub async fn watch_prefix(store: Shared) {
    let mut pods = store.watch("pods./a/", Revision(0)).expect("watch");
    let mut gone = store.watch("pods.", Revision(0)).expect("watch");
    gone.close();
    commit(&store, vec![put("pods./b/1", "x"), put("nodes.//n", "x")]).await;
    let mixed =
        commit(&store, vec![put("pods./a/1", "x"), put("pods./ab/1", "x"), put("pods./a/2", "x")]).await;
    commit(&store, vec![put("podsx./a/1", "x")]).await;
    let last = commit(&store, vec![delete("pods./a/1")]).await;
    let event = next(&mut pods).await;
    let touched: Vec<&str> = event.changes.iter().map(|change| &*change.key).collect();
    assert_eq!((event.revision, touched), (mixed, vec!["pods./a/1", "pods./a/2"]));
    assert_eq!(next(&mut pods).await.revision, last);
    assert_eq!(keys(&store, Range { prefix: "pods./a/".into(), ..Range::default() }).await, ["pods./a/2"]);
}

pub async fn watch_errors(store: Shared) {
    let revision = commit(&store, vec![put("a./n/1", "x")]).await;
    let ahead = Revision(revision.0 + 1);
    match store.watch("", ahead) {
        Err(StoreError::Future { asked, newest }) => assert_eq!((asked, newest), (ahead, revision)),
        other => panic!("watching the future: {:?}", other.map(|_| ())),
    }
    let range = Range { at: Some(ahead), ..Range::default() };
    assert!(matches!(store.range(range).await, Err(StoreError::Future { .. })));
    assert!(store.watch("", revision).is_ok());
}

/// Followers have heard of a commit when its writer is answered, and let go when the store closes.
pub async fn followers(store: Shared) {
    struct Told(Arc<Mutex<Vec<Revision>>>, Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.1.store(true, SeqCst);
        }
    }
    let first = commit(&store, vec![put("a./n/1", "x")]).await;
    let missed = commit(&store, vec![put("a./n/2", "x")]).await;
    let (heard, ended) = (Arc::<Mutex<Vec<Revision>>>::default(), Arc::<AtomicBool>::default());
    let told = Told(heard.clone(), ended.clone());
    let follower = move |commits: &[Arc<Commit>]| {
        told.0.lock().extend(commits.iter().map(|commit| commit.revision));
        true
    };
    store.follow(first, Box::new(follower)).expect("follow");
    let calls = Arc::new(Mutex::new(0));
    let once = calls.clone();
    let seldom = move |_: &[Arc<Commit>]| {
        *once.lock() += 1;
        false
    };
    store.follow(store.revision(), Box::new(seldom)).expect("follow");
    let mut expected = vec![missed];
    for durability in [Durability::Synced, Durability::Batched, Durability::Volatile] {
        let txn = Txn { durability, ..txn(vec![put("a./n/3", format!("{durability:?}"))]) };
        expected.push(store.commit(txn).await.expect("commit"));
        assert_eq!(*heard.lock(), expected);
    }
    assert_eq!(*calls.lock(), 1, "whoever wants no more is not told");
    let future = Revision(store.revision().0 + 1);
    assert!(matches!(store.follow(future, Box::new(|_| true)), Err(StoreError::Future { .. })));
    assert!(!ended.load(SeqCst));
    store.close().await.expect("close");
    assert!(ended.load(SeqCst), "a closed store keeps no follower");
    assert!(matches!(store.follow(first, Box::new(|_| true)), Err(StoreError::Closed)));
}

pub async fn compaction(store: Shared) {
    let first = commit(&store, vec![put("a./n/1", "1")]).await;
    let second = commit(&store, vec![put("a./n/1", "2")]).await;
    let third = commit(&store, vec![put("a./n/2", "3")]).await;
    assert!(store.oldest() <= first);
    store.compact(second).await.expect("compact");
    assert_eq!(store.oldest(), second);
    match store.watch("", first) {
        Err(StoreError::Compacted { asked, oldest }) => assert_eq!((asked, oldest), (first, second)),
        other => panic!("watching the past: {:?}", other.map(|_| ())),
    }
    let range = |at| Range { at: Some(at), ..Range::default() };
    assert!(matches!(store.range(range(first)).await, Err(StoreError::Compacted { .. })));
    assert_eq!(keys(&store, range(second)).await, ["a./n/1"]);
    let mut events = store.watch("", second).expect("watch from the oldest");
    assert_eq!(next(&mut events).await.revision, third);
    assert!(matches!(store.compact(first).await, Err(StoreError::Compacted { .. })));
    assert!(matches!(store.compact(Revision(third.0 + 1)).await, Err(StoreError::Future { .. })));
    assert_eq!(keys(&store, Range::default()).await, ["a./n/1", "a./n/2"], "the present stays");
}

pub async fn old_revisions(store: Shared) {
    let first = commit(&store, vec![put("a./n/1", "1"), put("b./n/1", "1")]).await;
    let second = commit(&store, vec![put("a./n/1", "2"), put("a./n/2", "2")]).await;
    let third = commit(&store, vec![delete("a./n/1"), delete("a./n/2")]).await;
    commit(&store, vec![put("a./n/2", "4")]).await;
    let at = async |at| {
        let range = Range { prefix: "a.".into(), at: Some(at), ..Range::default() };
        let listing = store.range(range).await.expect("range");
        assert_eq!(listing.revision, at);
        let pairs = listing.items.into_iter();
        pairs.map(|kv| (kv.key.to_string(), kv.value, kv.created, kv.modified)).collect::<Vec<_>>()
    };
    assert_eq!(at(Revision(first.0 - 1)).await, []);
    assert_eq!(at(first).await, [("a./n/1".to_owned(), "1".into(), first, first)]);
    let both =
        [("a./n/1".to_owned(), "2".into(), first, second), ("a./n/2".to_owned(), "2".into(), second, second)];
    assert_eq!(at(second).await, both);
    assert_eq!(at(third).await, []);
    assert_eq!(at(store.revision()).await.len(), 1);
}

pub async fn pagination(store: Shared) {
    for index in 0..25 {
        commit(&store, vec![put(&format!("a./n/{index:02}"), "x"), put("b./n/x", "x")]).await;
    }
    let at = store.revision();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let range = Range { prefix: "a.".into(), after: after.clone(), limit: 10, at: Some(at) };
        let page = store.range(range).await.expect("page");
        assert_eq!(page.revision, at);
        assert!(page.items.len() <= 10);
        all.extend(page.items.iter().map(|kv| kv.key.to_string()));
        // What happens between the pages does not show.
        commit(&store, vec![put(&format!("a./n/{:02}x", all.len()), "x"), delete("a./n/24")]).await;
        if !page.more {
            break;
        }
        after = page.items.last().map(|kv| kv.key.to_string());
    }
    assert_eq!(all, (0..25).map(|index| format!("a./n/{index:02}")).collect::<Vec<_>>());
    let exact = Range { prefix: "b.".into(), limit: 1, ..Range::default() };
    assert!(!store.range(exact).await.expect("range").more, "exactly the limit is all");
    let before = Range { prefix: "b.".into(), after: Some("a./zzz".into()), ..Range::default() };
    assert_eq!(keys(&store, before).await, ["b./n/x"], "a start before the prefix is the prefix");
}

/// What history may have packed is told as it was.
pub async fn packing(store: Shared) {
    let text = |n: usize| Bytes::from(format!("{n} ").repeat(500));
    let begun = store.revision();
    for n in 0..10 {
        commit(&store, vec![put("a./n/1", text(n))]).await;
    }
    let mut packer = Packer::default();
    for _ in 0..2 {
        packer.begin();
        store.pack_history(&mut packer);
    }
    let mut watch = store.watch("", begun).expect("watch");
    for n in 0..10 {
        let event = watch.recv().await.expect("an event");
        let change = &event.changes[0];
        assert_eq!(change.value.as_ref().map(Value::bytes), Some(text(n)));
    }
    for n in 0..10 {
        let at = Some(Revision(begun.0 + 1 + n as u64));
        let range = Range { prefix: "a./".into(), at, ..Range::default() };
        let listing = store.range(range).await.expect("range");
        assert_eq!(listing.items[0].value.bytes(), text(n));
    }
}

pub async fn large_values(store: Shared) {
    for (key, len) in [("a./n/0", 0), ("a./n/4k", 4096), ("a./n/200k", 200_000), ("a./n/1m5", 1_500_000)] {
        commit(&store, vec![put(key, bytes_of(len))]).await;
        assert_eq!(value(&*store, key).await, Some(bytes_of(len)));
    }
}

/// `len` bytes that do not compress and differ by length.
pub fn bytes_of(len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(len as u64).fill(&mut bytes[..]);
    Bytes::from(bytes)
}

pub async fn close(store: Shared) {
    commit(&store, vec![put("a./n/1", "x")]).await;
    let mut events = store.watch("", store.revision()).expect("watch");
    store.close().await.expect("close");
    store.close().await.expect("closing twice is harmless");
    assert!(next_or_end(&mut events).await.is_none(), "a watch ends with its store");
    assert!(matches!(store.commit(txn(vec![put("a./n/1", "y")])).await, Err(StoreError::Closed)));
    assert!(matches!(store.watch("", Revision(0)), Err(StoreError::Closed)));
    assert!(matches!(store.get("a./n/1").await, Err(StoreError::Closed)));
}

async fn next_or_end(events: &mut UnboundedReceiver<Arc<Commit>>) -> Option<Arc<Commit>> {
    tokio::time::timeout(WAIT_TIMEOUT, events.recv()).await.expect("an end in time")
}

/// Many writers increment one counter under guards; every increment counts once and watchers see them in order.
pub async fn races(store: Shared) {
    const WRITERS: u64 = 8;
    const TIMES: u64 = 20;
    commit(&store, vec![put("a./n/counter", "0")]).await;
    let mut events = store.watch("a.", store.revision()).expect("watch");
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..TIMES {
                increment(&*store).await;
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.expect("writer");
    }
    let mut last = Revision(0);
    for expected in 1..=WRITERS * TIMES {
        let event = next(&mut events).await;
        assert!(event.revision > last);
        last = event.revision;
        assert_eq!(event.changes[0].value.as_ref().map(Value::bytes), Some(expected.to_string().into()));
    }
}

async fn increment(store: &dyn Store) {
    loop {
        let kv = store.get("a./n/counter").await.expect("get").expect("counter");
        let count: u64 = std::str::from_utf8(&kv.value.bytes()).expect("text").parse().expect("number");
        let next =
            expecting("a./n/counter", Some(kv.modified), vec![put("a./n/counter", (count + 1).to_string())]);
        match store.commit(next).await {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

type State = BTreeMap<String, (Bytes, Revision)>;

/// Random transactions against a map: present, past, watches and conflicts agree. The seed is in every message.
pub async fn model(store: Shared) {
    let seed = rand::rng().random();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut events = store.watch("", Revision(0)).expect("watch");
    let mut now = State::new();
    let mut past = vec![(store.revision(), now.clone())];
    for step in 0..300 {
        let name = |rng: &mut StdRng| {
            format!("{}./n/{}", ["a", "b"][rng.random_range(0..2)], rng.random_range(0..8))
        };
        let guard = name(&mut rng);
        let held = now.get(&guard).map(|(_, revision)| *revision);
        let stale = rng.random_bool(0.2);
        let expect = if stale { Some(Revision(u64::MAX)) } else { held };
        let ops =
            (0..rng.random_range(0..4)).map(|_| random_op(&name(&mut rng), &mut rng)).collect::<Vec<_>>();
        let durability =
            [Durability::Synced, Durability::Batched, Durability::Volatile][rng.random_range(0..3)];
        let guards = vec![Precondition { key: guard.as_str().into(), expect }];
        let result = store.commit(Txn { guards, ops: ops.clone(), durability }).await;
        if stale {
            assert!(
                matches!(result, Err(StoreError::Conflict { .. })),
                "seed {seed} step {step}: {result:?}"
            );
            continue;
        }
        let revision = result.unwrap_or_else(|error| panic!("seed {seed} step {step}: {error}"));
        for op in &ops {
            apply(&mut now, op, revision);
        }
        past.push((revision, now.clone()));
    }
    for (revision, state) in &past {
        let listing = store.range(Range { at: Some(*revision), ..Range::default() }).await.expect("range");
        let seen: State = listing
            .items
            .into_iter()
            .map(|kv| (kv.key.to_string(), (kv.value.bytes(), kv.modified)))
            .collect();
        assert_eq!(&seen, state, "seed {seed} at {revision:?}");
    }
    let mut replica = State::new();
    while let Ok(event) = events.try_recv() {
        for change in &event.changes {
            let before = change.previous.as_ref().map(|kv| (kv.value.bytes(), kv.modified));
            assert_eq!(replica.get(&*change.key), before.as_ref(), "seed {seed} at {:?}", event.revision);
            match &change.value {
                Some(value) => replica.insert(change.key.to_string(), (value.bytes(), event.revision)),
                None => replica.remove(&*change.key),
            };
        }
    }
    assert_eq!(replica, now, "seed {seed}: what a watcher knows");
}

fn random_op(key: &str, rng: &mut StdRng) -> Op {
    if rng.random_bool(0.3) { delete(key) } else { put(key, rng.random::<u64>().to_string()) }
}

fn apply(state: &mut State, op: &Op, revision: Revision) {
    match op {
        Op::Put { key, value } => drop(state.insert(key.to_string(), (value.clone(), revision))),
        Op::Delete { key } => drop(state.remove(&**key)),
    }
}
