//! Waits for changes of the directory, and has them carried out.

use crate::charts::Helm;
use crate::cluster::Cluster;
use crate::documents::Id;
use crate::files::{self, Found};
use crate::inotify::Watch;
use crate::memory::Memory;
use crate::outcome::Outcome;
use crate::plan::{self, Manifest, Plan, Wrong};
use crate::told::{Said, State, Teller};
use coracle_client::Context;
use coracle_client::beat::{self, Patience};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// How often the directory is looked at without word of a change: file systems of other machines give none.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Changes this close together are one: many files are copied at once.
const GATHER_DEBOUNCE: Duration = Duration::from_millis(100);
/// What is gone must have been gone for so long: programs replace files by deleting them first, or write them piece by
/// piece.
const SETTLE_DELAY: Duration = Duration::from_secs(2);
/// First pause before what failed or waits is tried again; doubled each time.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Config {
    pub directory: PathBuf,
    /// Where it is remembered what was applied.
    pub memory: PathBuf,
    /// The cluster as an administrator's kubeconfig, for helm.
    pub kubeconfig: PathBuf,
    /// Where helm keeps what it fetched.
    pub helm_home: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("manifests directory {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("what was applied is not remembered")]
    Memory(#[from] io::Error),
}

/// Applies what lies in the directory until the context is stopped.
///
/// # Errors
/// The directory cannot be made, or what is applied cannot be remembered: then nothing is applied.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let memory = Memory::open(&config.memory)?;
    if memory.applied().is_empty() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.directory);
        made.map_err(|source| Error::Directory { path: config.directory.clone(), source })?;
    }
    let helm = Helm {
        program: "helm".into(),
        kubeconfig: config.kubeconfig.clone(),
        home: config.helm_home.clone(),
    };
    let mut work = Work {
        cluster: Cluster::new(context.client.clone(), helm),
        teller: Teller::new(context.client.clone()),
        config,
        memory,
        done: HashMap::new(),
        going: None,
        retry: FIRST_RETRY_INTERVAL,
        told_of: None,
    };
    context.stop.run_until_cancelled(work.follow()).await.unwrap_or(Ok(()))
}

struct Work {
    config: Config,
    cluster: Cluster,
    teller: Teller,
    memory: Memory,
    /// What was applied whole by this process: the hash of each file.
    done: HashMap<String, String>,
    /// What is to go, and since when.
    going: Option<(Instant, Vec<Id>)>,
    retry: Duration,
    /// The paths that states were written for last.
    told_of: Option<Vec<String>>,
}

impl Work {
    async fn follow(&mut self) -> Result<(), Error> {
        let mut folders = vec![self.config.directory.clone()];
        loop {
            // Before it is read, so that nothing happens in between.
            let watch = Watch::of(&folders);
            let directory = self.config.directory.clone();
            let read = tokio::task::spawn_blocking(move || files::read(&directory)).await;
            let read = read.unwrap_or_else(|ended| Err(io::Error::other(ended)));
            let pause = match read {
                Ok(found) if found.folders != folders => {
                    folders = found.folders;
                    continue;
                }
                Ok(found) => beat::working(Patience::Long, self.round(&found)).await?,
                Err(error) => {
                    let directory = self.config.directory.display();
                    tracing::warn!(%error, %directory, "manifests cannot be read; what they made stays");
                    LOOK_INTERVAL
                }
            };
            let _ = tokio::time::timeout(pause, watch.changed()).await;
            tokio::time::sleep(GATHER_DEBOUNCE).await;
        }
    }

    /// After which pause to look again.
    async fn round(&mut self, found: &Found) -> Result<Duration, Error> {
        let manifests = plan::manifests(found);
        for file in plan::left_with(&manifests, self.memory.applied()) {
            self.done.remove(file);
        }
        let changed = |file: &str, manifest: &Manifest| self.done.get(file) != Some(&manifest.hash);
        let mut plan = plan::plan(&manifests, self.memory.applied(), changed);
        self.memory.replace(std::mem::take(&mut plan.remember))?;
        self.done.retain(|file, hash| manifests.get(file).is_some_and(|manifest| manifest.hash == *hash));
        let well = self.apply(&manifests, &plan).await;
        let settling = self.prune(&manifests, plan.prune).await?;
        let paths: Vec<String> = manifests.keys().cloned().collect();
        if self.told_of.as_ref() != Some(&paths) {
            self.teller.forget(|file| manifests.contains_key(file)).await;
            self.told_of = Some(paths);
        }
        let again = if well { LOOK_INTERVAL } else { self.retry };
        self.retry = if well { FIRST_RETRY_INTERVAL } else { (self.retry * 2).min(MAX_RETRY_INTERVAL) };
        Ok(settling.map_or(again, |settling| again.min(settling)))
    }

    /// Whether nothing is left to be tried again.
    async fn apply(&mut self, manifests: &BTreeMap<String, Manifest>, plan: &Plan<'_>) -> bool {
        let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        for step in &plan.apply {
            let outcome = self.cluster.apply(step.file, step.document).await;
            outcomes.entry(step.file).or_default().push(outcome);
        }
        let mut well = true;
        for (file, manifest) in manifests {
            if self.done.get(file) == Some(&manifest.hash) {
                continue;
            }
            let said = said(manifest, outcomes.get(file.as_str()).map(Vec::as_slice).unwrap_or_default());
            match said.state {
                State::Waiting | State::Failed => well = false,
                State::Applied | State::Broken | State::Refused => {
                    self.done.insert(file.clone(), manifest.hash.clone());
                }
            }
            self.teller.say(file, said).await;
        }
        well
    }

    /// Deletes what has been gone for long enough. `Some` is when to look again for the rest.
    async fn prune(
        &mut self,
        manifests: &BTreeMap<String, Manifest>,
        gone: Vec<Id>,
    ) -> Result<Option<Duration>, Error> {
        let mut deleted = Vec::new();
        let mut left = None;
        if !gone.is_empty() {
            let since = match self.going.take() {
                Some((since, before)) if before == gone => since,
                _ => Instant::now(),
            };
            let waited = since.elapsed();
            left = Some(SETTLE_DELAY.saturating_sub(waited).max(GATHER_DEBOUNCE));
            if waited >= SETTLE_DELAY {
                left = None;
                for id in &gone {
                    match self.cluster.prune(id).await {
                        Ok(true) => {
                            tracing::info!(object = %id, "deleted, as no manifest holds it any more");
                            deleted.push(id.clone());
                        }
                        Ok(false) => left = Some(FIRST_RETRY_INTERVAL),
                        Err(why) => {
                            tracing::warn!(object = %id, %why, "it is no manifest any more, and cannot be deleted");
                            left = Some(MAX_RETRY_INTERVAL / 6);
                        }
                    }
                }
            }
            self.going = Some((since, gone));
        }
        let remembered = plan::forget(self.memory.applied(), manifests, &deleted);
        self.memory.replace(remembered)?;
        if let Some((_, going)) = &mut self.going {
            going.retain(|id| !deleted.iter().any(|one| one.is_same(id)));
        }
        Ok(left)
    }
}

/// How it went with a file, by how it went with its documents.
fn said(manifest: &Manifest, outcomes: &[Outcome]) -> Said {
    let (objects, hash) = (Vec::new(), manifest.hash.clone());
    let documents = match &manifest.documents {
        Err(Wrong::Refused(why)) => {
            return Said { state: State::Refused, message: why.clone(), hash, objects };
        }
        Err(Wrong::Broken(why)) => return Said { state: State::Broken, message: why.clone(), hash, objects },
        Ok(documents) => documents,
    };
    let first = |of: fn(&Outcome) -> Option<&String>| outcomes.iter().find_map(of).cloned();
    let failed = first(|outcome| if let Outcome::Failed(why) = outcome { Some(why) } else { None });
    let waiting = first(|outcome| if let Outcome::Waiting(why) = outcome { Some(why) } else { None });
    let (state, message) = match (failed, waiting) {
        (Some(why), _) => (State::Failed, why),
        (None, Some(why)) => (State::Waiting, why),
        (None, None) => (State::Applied, String::new()),
    };
    Said { state, message, hash, objects: documents.iter().map(|document| document.id.to_string()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents;

    #[test]
    fn the_worst_of_a_file_is_told() {
        let read = |text: &str| Manifest {
            hash: "h".into(),
            documents: documents::read(text).map_err(Wrong::Broken),
        };
        let good = read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
        let told = |outcomes: &[Outcome]| {
            let said = said(&good, outcomes);
            (said.state, said.message)
        };
        let (waits, fails) = (Outcome::Waiting("w".into()), Outcome::Failed("f".into()));
        assert_eq!(told(&[Outcome::Applied]), (State::Applied, String::new()));
        assert_eq!(told(&[waits.clone(), Outcome::Applied]), (State::Waiting, "w".into()));
        assert_eq!(told(&[waits, fails]), (State::Failed, "f".into()));
        assert_eq!(said(&read("kind: ["), &[]).state, State::Broken);
    }
}
