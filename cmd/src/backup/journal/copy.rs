//! Copies of the journal's files in the bucket. Nobody who archives waits for them.

use super::{Piece, pieces};
use crate::backup::Told;
use crate::backup::file::explain;
use crate::scheduled::Places;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// Between attempts at what failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

pub struct Copies {
    pub places: Places,
    pub node: String,
    pub told: Told,
}

impl Copies {
    /// Copies what is not there, whenever something new was written. Ends only where there is no bucket.
    pub async fn run(self, written: Arc<Notify>, failures: Arc<AtomicU64>) {
        if self.places.bucket.is_none() {
            return;
        }
        let (mut sent, mut failed) = (None, false);
        loop {
            match self.copy(&mut sent).await {
                Ok(()) => {
                    if std::mem::take(&mut failed) {
                        self.told.event("Normal", "BackupJournalCopied", "to the bucket".to_owned());
                    }
                    written.notified().await;
                }
                Err(why) => {
                    failures.fetch_add(1, Relaxed);
                    tracing::error!(why, "the journal of the backups is not copied");
                    if !std::mem::replace(&mut failed, true) {
                        self.told.event("Warning", "BackupJournalFailed", why);
                    }
                    sent = None;
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// `sent` is what the bucket has; `None`: it has to be asked.
    async fn copy(&self, sent: &mut Option<HashSet<String>>) -> Result<(), String> {
        let Some(bucket) = &self.places.bucket else { return Ok(()) };
        let (directory, node) = (self.places.directory.clone(), self.node.clone());
        let here = tokio::task::spawn_blocking(move || {
            pieces(&directory, Some(&node)).map_err(|error| explain(&directory, &error))
        });
        let here: Vec<String> = match here.await {
            Ok(found) => found?.into_iter().map(|Piece { name, .. }| name).collect(),
            Err(error) => return Err(error.to_string()),
        };
        if sent.is_none() {
            *sent = Some(bucket.list().await?.into_iter().map(|stored| stored.name).collect());
        }
        let Some(there) = sent else { return Ok(()) };
        for name in here.iter().filter(|name| !there.contains(*name)).cloned().collect::<Vec<_>>() {
            match bucket.put(&self.places.directory.join(&name), &name).await {
                Ok(()) => drop(there.insert(name)),
                // Nobody needs it any more.
                Err(_) if !self.places.directory.join(&name).exists() => {}
                Err(why) => return Err(why),
            }
        }
        let here: HashSet<String> = here.into_iter().collect();
        there.retain(|name| here.contains(name));
        Ok(())
    }
}
