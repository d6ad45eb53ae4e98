//! The end of a definition: its instances first, then its finalizer.

use super::FINALIZER;
use super::conditions::{self, Condition};
use super::instances::Instances;
use super::write::Writer;
use crate::cache::Filter;
use coracle_api::{Object, catalogue};
use coracle_requests::value::{name, str_at};
use coracle_store::Store;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// After which the condition says that instances remain (upstream's time); waiting goes on.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// After a failure, doubled up to the longest.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the definition waits for its instances to be removed.
pub fn is_due(definition: &Object) -> bool {
    !str_at(definition, "metadata.deletionTimestamp").is_empty()
        && definition["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| list.iter().any(|f| f == FINALIZER))
}

pub struct Finalizer {
    pub writer: Writer,
    pub store: Arc<dyn Store>,
    pub definition: String,
    pub uid: String,
}

impl Finalizer {
    /// Runs until the definition is free to go, or gone.
    pub async fn run(self, definition: Arc<Object>) {
        let mut pause = RETRY_INTERVAL;
        while let Err(error) = self.once(&definition).await {
            tracing::warn!(definition = name(&definition), %error, "instances of a deleted definition");
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.8..1.2))).await;
            pause = (pause * 2).min(MAX_RETRY_INTERVAL);
        }
    }

    async fn once(&self, definition: &Object) -> Result<(), String> {
        let resource =
            format!("{}.{}", str_at(definition, "spec.names.plural"), str_at(definition, "spec.group"));
        let last = if catalogue::by_storage_key(&resource).is_some() {
            terminating(
                false,
                "OverlappingBuiltInResource",
                "instances overlap with built-in resources in storage",
            )
        } else if !conditions::holds(definition, "Established") {
            terminating(false, "NeverEstablished", "resource was never established")
        } else {
            self.say(&terminating(
                true,
                "InstanceDeletionInProgress",
                "CustomResource deletion is in progress",
            ))
            .await?;
            self.remove_instances(resource).await?;
            terminating(false, "InstanceDeletionCompleted", "removed all instances")
        };
        let now = Timestamp::now();
        self.change(move |object| {
            conditions::set(object, &last, now);
            if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
                list.retain(|f| f != FINALIZER);
            }
        })
        .await
    }

    async fn change(&self, change: impl Fn(&mut Object) + Send + Sync) -> Result<(), String> {
        self.writer.change(&self.definition, &self.uid, change).await.map(drop)
    }

    async fn say(&self, condition: &Condition) -> Result<(), String> {
        let now = Timestamp::now();
        self.change(|object| conditions::set(object, condition, now)).await
    }

    /// Returns when there are none left, however long their finalizers take.
    async fn remove_instances(&self, resource: String) -> Result<(), String> {
        let cache = self.writer.cache.clone();
        let (_, mut events) = cache.watch(&resource, Filter::default());
        let instances = Instances { store: self.store.clone(), cache, resource };
        let mut told = false;
        loop {
            if let Err(error) = instances.delete_all(Timestamp::now()).await {
                let message = format!("could not issue all deletes: {error}");
                self.say(&terminating(true, "InstanceDeletionFailed", &message)).await?;
                return Err(message);
            }
            if instances.count() == 0 {
                return Ok(());
            }
            match tokio::time::timeout(WAIT_TIMEOUT, events.next()).await {
                Ok(Some(_)) => while events.try_next().is_some() {},
                Ok(None) => return Err("the watch of the instances ended".to_owned()),
                Err(_) if told => {}
                Err(_) => {
                    told = true;
                    let message = "could not confirm zero CustomResources remaining: timed out waiting for the condition";
                    self.say(&terminating(true, "InstanceDeletionCheck", message)).await?;
                }
            }
        }
    }
}

fn terminating(goes_on: bool, reason: &'static str, message: &str) -> Condition {
    Condition::new("Terminating", goes_on, reason, message)
}
