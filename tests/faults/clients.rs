//! Who writes, reads and watches meanwhile.

use crate::Error;
use crate::history::{Event, History, Outcome, Read, Write};
use crate::world::World;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Few, so that writers meet.
const KEYS: usize = 6;
const WRITERS: usize = 8;
/// A server that is silent for so long is left for another one.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two operations of a client: faults are looked for, not load.
const PAUSE: Duration = Duration::from_millis(15);
const LABEL: &str = "counter=true";

struct Shared {
    clients: Vec<kube::Client>,
    begun: Instant,
    operations: AtomicU64,
    history: Mutex<History>,
    /// When writes were acknowledged.
    written: Mutex<Vec<Instant>>,
    stop: AtomicBool,
    /// How far each watch is, by the server.
    seen: Vec<AtomicU64>,
    watching: AtomicBool,
}

pub struct Clients {
    shared: Arc<Shared>,
    writers: JoinSet<()>,
    watches: JoinSet<()>,
}

impl Clients {
    pub async fn start(world: &World) -> Result<Self, Error> {
        let mut clients = Vec::new();
        for index in 0..world.servers.len() {
            clients.push(world.client(index, PATIENCE).await?);
        }
        let shared = Arc::new(Shared {
            seen: clients.iter().map(|_| AtomicU64::new(0)).collect(),
            clients,
            begun: Instant::now(),
            operations: AtomicU64::new(0),
            history: Mutex::default(),
            written: Mutex::default(),
            stop: AtomicBool::new(false),
            watching: AtomicBool::new(true),
        });
        let mut from = String::new();
        for n in 0..KEYS {
            from = shared
                .maps(0)
                .create(&PostParams::default(), &counter(n))
                .await?
                .resource_version()
                .unwrap_or_default();
        }
        let (mut writers, mut watches) = (JoinSet::new(), JoinSet::new());
        for index in 0..WRITERS {
            writers.spawn(shared.clone().write(index));
        }
        for server in 0..shared.clients.len() {
            watches.spawn(shared.clone().watch(server, from.clone()));
        }
        Ok(Self { shared, writers, watches })
    }

    /// Waits for a write that any server acknowledges after `since`.
    pub async fn written_since(&self, since: Instant, limit: Duration) -> Result<(), String> {
        while self.shared.written.lock().last().is_none_or(|last| *last <= since) {
            if since.elapsed() > limit {
                return Err(format!("nothing could be written for {} s", limit.as_secs()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Between two acknowledged writes, the second of which came after `since`.
    pub fn longest_gap(&self, since: Instant) -> Duration {
        let written = self.shared.written.lock();
        let pairs = written.windows(2).filter(|pair| pair[1] > since);
        pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Ends the writers, waits until every watch has come to the last state, and returns what was seen.
    pub async fn stop(mut self, limit: Duration) -> Result<History, String> {
        self.shared.stop.store(true, SeqCst);
        while self.writers.join_next().await.is_some() {}
        let begun = Instant::now();
        let last = loop {
            match self.shared.last().await {
                Ok(last) => break last,
                Err(error) if begun.elapsed() > limit => return Err(format!("nothing can be read: {error}")),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        let newest = last.values().map(|(revision, _)| *revision).max().unwrap_or_default();
        while self.shared.seen.iter().any(|seen| seen.load(SeqCst) < newest) {
            if begun.elapsed() > limit {
                let seen: Vec<u64> = self.shared.seen.iter().map(|seen| seen.load(SeqCst)).collect();
                return Err(format!("the watches came to {seen:?}, the store is at {newest}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.shared.watching.store(false, SeqCst);
        self.watches.shutdown().await;
        let mut history = std::mem::take(&mut *self.shared.history.lock());
        history.last = last.into_iter().map(|(key, (_, value))| (key, value)).collect();
        Ok(history)
    }
}

fn counter(n: usize) -> ConfigMap {
    let labels = BTreeMap::from([("counter".to_owned(), "true".to_owned())]);
    let data = BTreeMap::from([("value".to_owned(), "0".to_owned()), ("by".to_owned(), String::new())]);
    let metadata =
        ObjectMeta { name: Some(format!("counter{n}")), labels: Some(labels), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

fn entry<'m>(map: &'m ConfigMap, key: &str) -> &'m str {
    map.data.as_ref().and_then(|data| data.get(key)).map_or("", String::as_str)
}

fn value(map: &ConfigMap) -> u64 {
    entry(map, "value").parse().unwrap_or_default()
}

fn revision(map: &ConfigMap) -> u64 {
    map.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Shared {
    fn maps(&self, server: usize) -> Api<ConfigMap> {
        Api::namespaced(self.clients[server].clone(), "default")
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Reads and raises counters of chance, for as long as a server answers at that server.
    async fn write(self: Arc<Self>, index: usize) {
        let mut server = index % self.clients.len();
        while !self.stop.load(SeqCst) {
            let key = rand::rng().random_range(0..KEYS);
            if !self.raise(server, &format!("counter{key}")).await {
                server = (server + 1) % self.clients.len();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the server answered.
    async fn raise(&self, server: usize, key: &str) -> bool {
        let begun = self.now();
        let Ok(Ok(mut map)) = tokio::time::timeout(PATIENCE, self.maps(server).get(key)).await else {
            return false;
        };
        let read = Read { begun, ended: self.now(), key: key.to_owned(), value: value(&map) };
        self.history.lock().reads.push(read);
        let id = self.operations.fetch_add(1, SeqCst).to_string();
        let next = value(&map) + 1;
        map.data =
            Some(BTreeMap::from([("value".to_owned(), next.to_string()), ("by".to_owned(), id.clone())]));
        let begun = self.now();
        let maps = self.maps(server);
        let sent = tokio::time::timeout(PATIENCE, maps.replace(key, &PostParams::default(), &map)).await;
        let (outcome, answered) = match sent {
            Ok(Ok(done)) => (Outcome::Done(revision(&done)), true),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                409 => (Outcome::Refused, true),
                // It says so: nothing was written.
                429 | 503 => (Outcome::Refused, false),
                _ => (Outcome::Unknown, false),
            },
            _ => (Outcome::Unknown, false),
        };
        if matches!(outcome, Outcome::Done(_)) {
            self.written.lock().push(Instant::now());
        }
        let write = Write { begun, ended: self.now(), key: key.to_owned(), value: next, id, outcome };
        self.history.lock().writes.push(write);
        answered
    }

    /// Follows one server from the same revision on, over all interruptions.
    async fn watch(self: Arc<Self>, server: usize, mut from: String) {
        while self.watching.load(SeqCst) {
            let params = WatchParams::default().labels(LABEL);
            let maps = self.maps(server);
            if let Ok(events) = maps.watch(&params, &from).await {
                let mut events = std::pin::pin!(events);
                loop {
                    // A server that was stopped sends no end.
                    match tokio::time::timeout(PATIENCE, events.try_next()).await {
                        Ok(Ok(Some(WatchEvent::Modified(map)))) => {
                            from = map.resource_version().unwrap_or_default();
                            self.saw(server, &map);
                        }
                        Ok(Ok(Some(WatchEvent::Error(status)))) => {
                            self.history
                                .lock()
                                .refusals
                                .push(format!("watch at server {server}: {}", status.message));
                            break;
                        }
                        Ok(Ok(Some(_))) => {}
                        _ => break,
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn saw(&self, server: usize, map: &ConfigMap) {
        let event = Event {
            key: map.name_any(),
            value: value(map),
            id: entry(map, "by").to_owned(),
            revision: revision(map),
        };
        self.seen[server].fetch_max(event.revision, SeqCst);
        self.history.lock().watches.entry(server).or_default().push(event);
    }

    async fn last(&self) -> Result<BTreeMap<String, (u64, u64)>, Error> {
        let mut found = Err("nobody was asked".into());
        for server in 0..self.clients.len() {
            let list = self.maps(server).list(&ListParams::default().labels(LABEL)).await;
            match list {
                Ok(list) => {
                    let of = |map: &ConfigMap| (map.name_any(), (revision(map), value(map)));
                    return Ok(list.items.iter().map(of).collect());
                }
                Err(error) => found = Err(error.into()),
            }
        }
        found
    }
}
