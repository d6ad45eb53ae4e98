//! The objects of a definition that is being deleted.
//!
//! They are removed in the store, as upstream removes them: without admission, whose webhooks often belong to what is
//! being uninstalled, and without conversion. Their own finalizers are honoured.

use crate::cache::{Cache, CachedObject};
use bytes::Bytes;
use coracle_api::Object;
use coracle_api::encode::to_storage_bytes;
use coracle_requests::value::{list_at, object_at, str_at};
use coracle_store::{Durability, Op, Precondition, Store, StoreError, Txn};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Objects removed in one transaction: bounds the size of a record of the store's journal.
const BATCH: usize = 100;
/// Rounds against writers that get in between.
const ROUNDS: usize = 20;
/// As the registry waits for its own writes.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Instances {
    pub store: Arc<dyn Store>,
    pub cache: Arc<Cache>,
    /// `<plural>.<group>`
    pub resource: String,
}

impl Instances {
    pub fn count(&self) -> usize {
        self.cache.snapshot(&self.resource).objects.len()
    }

    /// Removes every object, or marks it as being deleted while it has finalizers.
    pub async fn delete_all(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut last = StoreError::Closed;
        for _ in 0..ROUNDS {
            match self.round(now).await {
                Ok(()) => return Ok(()),
                Err(conflict @ StoreError::Conflict { .. }) => last = conflict,
                Err(other) => return Err(other),
            }
        }
        Err(last)
    }

    async fn round(&self, now: Timestamp) -> Result<(), StoreError> {
        let objects = self.cache.snapshot(&self.resource).objects;
        let planned = objects.values().filter_map(|cached| Some((cached, plan(cached, now)?)));
        let mut newest = None;
        let mut txn = empty();
        for (cached, op) in planned {
            txn.guards.push(Precondition { key: cached.key.clone(), expect: Some(cached.revision) });
            txn.ops.push(op);
            if txn.ops.len() >= BATCH {
                newest = Some(self.store.commit(std::mem::replace(&mut txn, empty())).await?);
            }
        }
        if !txn.ops.is_empty() {
            newest = Some(self.store.commit(txn).await?);
        }
        if let Some(revision) = newest {
            self.cache.wait_for(revision, VISIBLE_TIMEOUT).await;
        }
        Ok(())
    }
}

fn empty() -> Txn {
    Txn { guards: Vec::new(), ops: Vec::new(), durability: Durability::Synced }
}

/// `None` for objects that only wait for their finalizers.
fn plan(cached: &CachedObject, now: Timestamp) -> Option<Op> {
    let object = cached.decode();
    let finalizers = list_at(&object, "metadata.finalizers");
    if finalizers.is_empty() {
        return Some(Op::Delete { key: cached.key.clone() });
    }
    if !str_at(&object, "metadata.deletionTimestamp").is_empty() {
        return None;
    }
    let mut marked: Object = (*object).clone();
    let metadata = object_at(&mut marked, "metadata")?;
    metadata["deletionTimestamp"] = coracle_api::meta::time::format_seconds(now).into();
    metadata["deletionGracePeriodSeconds"] = 0.into();
    if let Some(generation) = metadata["generation"].as_i64() {
        metadata["generation"] = (generation + 1).into();
    }
    let (api_version, kind) = (str_at(&object, "apiVersion"), str_at(&object, "kind"));
    let value = Bytes::from(to_storage_bytes(&marked, api_version, kind));
    Some(Op::Put { key: cached.key.clone(), value })
}
