//! Follows the definitions and keeps their status.

use super::DEFINITIONS;
use super::conditions;
use super::finalize::{self, Finalizer};
use super::names::Taken;
use super::status::{desired, is_settled};
use super::write::{Writer, Wrote};
use crate::cache::{Cache, CachedObject, Filter, Item, Watcher};
use axum::Router;
use coracle_api::Object;
use coracle_requests::value::{at, name, str_at};
use coracle_store::Store;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// After a failed write, doubled up to the longest.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Before a watch that was lost begins again.
const RESUME_INTERVAL: Duration = Duration::from_millis(100);

/// What is remembered of a definition, so that the others need not be read when one changes.
struct Known {
    group: String,
    accepted: Value,
    /// Whether it has all the names it asked for.
    content: bool,
}

/// The state of the task.
struct DefinitionController {
    writer: Writer,
    store: Arc<dyn Store>,
    known: BTreeMap<String, Known>,
    /// Names of definitions to look at, in the order in which they changed: the first to ask for a name gets it.
    due: VecDeque<String>,
    /// By uid: those whose instances are being removed.
    ending: HashSet<String>,
    tasks: JoinSet<String>,
}

/// Runs until `stop`. `service` is the server's own.
pub async fn maintain(cache: Arc<Cache>, store: Arc<dyn Store>, service: Router, stop: CancellationToken) {
    let keeper = DefinitionController {
        writer: Writer { cache, service },
        store,
        known: BTreeMap::new(),
        due: VecDeque::new(),
        ending: HashSet::new(),
        tasks: JoinSet::new(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = keeper.run() => {}
    }
}

impl DefinitionController {
    async fn run(mut self) {
        let mut pause = RETRY_INTERVAL;
        let mut watcher = self.begin();
        loop {
            let settled = self.work().await;
            pause = if settled { RETRY_INTERVAL } else { (pause * 2).min(MAX_RETRY_INTERVAL) };
            tokio::select! {
                item = watcher.next() => match item {
                    Some(item) => {
                        self.note(&item);
                        while let Some(item) = watcher.try_next() {
                            self.note(&item);
                        }
                    }
                    None => {
                        tokio::time::sleep(RESUME_INTERVAL).await;
                        watcher = self.begin();
                    }
                },
                Some(done) = self.tasks.join_next() => match done {
                    Ok(uid) => drop(self.ending.remove(&uid)),
                    // Whose task panicked is not known; two tasks of one definition do no harm.
                    Err(_) => {
                        self.ending.clear();
                        watcher = self.begin();
                    }
                },
                () = tokio::time::sleep(pause.mul_f64(rand::random_range(0.8..1.2))), if !settled => {}
            }
        }
    }

    fn begin(&mut self) -> Watcher {
        let (snapshot, watcher) = self.writer.cache.watch(DEFINITIONS, Filter::default());
        self.known.clear();
        self.due.clear();
        let mut all: Vec<&Arc<CachedObject>> = snapshot.objects.values().collect();
        all.sort_by_key(|object| object.revision);
        for object in all {
            let definition = object.decode();
            self.remember(&definition);
            if !is_settled(&definition) {
                self.due.push_back(object.name().to_owned());
            }
        }
        watcher
    }

    fn remember(&mut self, definition: &Object) {
        let known = Known {
            group: str_at(definition, "spec.group").to_owned(),
            accepted: at(definition, "status.acceptedNames").clone(),
            content: conditions::holds(definition, "NamesAccepted"),
        };
        let name = name(definition).to_owned();
        let freed = self.known.get(&name).is_some_and(|old| old.accepted != known.accepted);
        let group = known.group.clone();
        self.known.insert(name, known);
        if freed {
            self.reconsider(&group);
        }
    }

    /// Names of the group may be free now: those who wait for some are looked at again.
    fn reconsider(&mut self, group: &str) {
        let waiting = self.known.iter().filter(|(_, known)| known.group == group && !known.content);
        let waiting: Vec<String> = waiting.map(|(name, _)| name.clone()).collect();
        waiting.into_iter().for_each(|name| self.put(name));
    }

    fn put(&mut self, name: String) {
        if !self.due.contains(&name) {
            self.due.push_back(name);
        }
    }

    fn note(&mut self, (_, event): &Item) {
        if let Some(current) = &event.current {
            self.remember(&current.decode());
            self.put(current.name().to_owned());
        } else if let Some(gone) = &event.previous
            && let Some(known) = self.known.remove(gone.name())
        {
            self.reconsider(&known.group);
        }
    }

    /// Looks at all that is due; false if something has to be tried again.
    async fn work(&mut self) -> bool {
        let mut failed = Vec::new();
        while let Some(name) = self.due.pop_front() {
            if let Err(error) = self.look_at(&name).await {
                tracing::warn!(definition = %name, %error, "status of a definition");
                failed.push(name);
            }
        }
        let settled = failed.is_empty();
        self.due.extend(failed);
        settled
    }

    async fn look_at(&mut self, name: &str) -> Result<(), String> {
        let Some(cached) = self.writer.cache.find(DEFINITIONS, "", name) else { return Ok(()) };
        let definition = cached.decode();
        let new =
            desired(&definition, &self.taken(name, str_at(&definition, "spec.group")), Timestamp::now());
        if let Some(new) = new
            && self.writer.status(&new).await? == Wrote::Done
        {
            // Before the event of it comes: the next in line must see what is taken.
            self.remember(&new);
        }
        if finalize::is_due(&definition) {
            self.end(definition);
        }
        Ok(())
    }

    fn taken(&self, name: &str, group: &str) -> Taken {
        let mut taken = Taken::default();
        let others = self.known.iter().filter(|(other, known)| *other != name && known.group == group);
        others.for_each(|(_, known)| taken.add(&known.accepted));
        taken
    }

    fn end(&mut self, definition: Arc<Object>) {
        let uid = str_at(&definition, "metadata.uid").to_owned();
        if !self.ending.insert(uid.clone()) {
            return;
        }
        let finalizer = Finalizer {
            writer: self.writer.clone(),
            store: self.store.clone(),
            definition: name(&definition).to_owned(),
            uid: uid.clone(),
        };
        self.tasks.spawn(async move {
            finalizer.run(definition).await;
            uid
        });
    }
}
