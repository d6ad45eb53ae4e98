//! Transactions of one object and its companions, made visible before they are acknowledged.

use super::{ATTEMPTS, Scope, VISIBLE_WITHIN, store_error};
use crate::cache::CachedObject;
use crate::metrics;
use crate::store::{Durability, Guard, Op, Revision, StoreError, Txn};
use crate::strategy::{Companions, Write};
use bytes::Bytes;
use coracle_api::encode::to_storage_bytes;
use coracle_api::{ApiError, Object, Resource};
use serde_json::Value;
use std::time::Instant;

/// The guard on the object's own key failed: somebody else was quicker.
pub(super) struct Raced;

impl Scope<'_> {
    /// Writes `object`, which replaces `old`. With `dry_run` everything but the commit happens.
    pub(super) async fn put(
        &self,
        name: &str,
        object: Object,
        old: Option<(&CachedObject, &Object)>,
        dry_run: bool,
    ) -> Result<Result<Object, Raced>, ApiError> {
        let write = if old.is_some() { Write::Update } else { Write::Create };
        let key = self.key(name);
        let guard = Guard { key: key.clone(), expect: old.map(|(cached, _)| cached.revision) };
        let durability = self.strategy.durability(Some(&object), old.map(|(_, o)| o));
        let storage = &self.resource.storage;
        let api_version = self.resource.storage_api_version();
        for _ in 0..ATTEMPTS {
            let mut object = object.clone();
            let companions =
                self.strategy.companions(write, &mut object, old.map(|(_, o)| o), &self.env())?;
            let raw = match self.strategy.custom().filter(|_| self.resource.needs_conversion()) {
                None => to_storage_bytes(&object, &api_version, &storage.kind),
                Some(custom) => {
                    let stored = custom.to_storage(object.clone()).await?;
                    to_storage_bytes(&stored, &api_version, &storage.kind)
                }
            };
            let raw = Bytes::from(raw);
            if let Some((cached, _)) = old
                && raw == cached.raw
                && companions.ops.is_empty()
            {
                set_version(&mut object, cached.revision);
                return Ok(Ok(object));
            }
            if dry_run {
                set_version(&mut object, old.map_or(Revision(0), |(cached, _)| cached.revision));
                return Ok(Ok(object));
            }
            let put = Op::Put { key: key.clone(), value: raw };
            match self.commit(guard.clone(), put, companions, durability).await {
                Ok(revision) => {
                    self.settle(name, revision);
                    set_version(&mut object, revision);
                    return Ok(Ok(object));
                }
                Err(StoreError::Conflict { key: lost, .. }) if lost == key => return Ok(Err(Raced)),
                Err(StoreError::Conflict { .. }) => {}
                Err(other) => return Err(store_error(other)),
            }
        }
        Err(ApiError::new(500, "ServerTimeout", "could not allocate what the object needs, please retry"))
    }

    /// A custom resource as it was just written is in order: who reads it need not look again.
    fn settle(&self, name: &str, revision: Revision) {
        let Some(custom) = self.strategy.custom().filter(|_| !self.resource.needs_conversion()) else {
            return;
        };
        let schema = custom.schema();
        let cached = self.registry.cache.find(&self.resource.storage.key, self.namespace, name);
        if let Some(cached) =
            cached.filter(|cached| cached.revision == revision && schema.is_settled_by_writes())
        {
            cached.set_settled(schema.id, true);
        }
    }

    /// Removes the object. `last` is its last state, for the watchers' sake written before if it differs.
    pub(super) async fn remove(
        &self,
        name: &str,
        old: &CachedObject,
        last: &Object,
        dry_run: bool,
    ) -> Result<Result<Revision, Raced>, ApiError> {
        let key = self.key(name);
        let guard = Guard { key: key.clone(), expect: Some(old.revision) };
        let durability = self.strategy.durability(None, Some(last));
        for _ in 0..ATTEMPTS {
            let mut object = last.clone();
            let companions = self.strategy.companions(Write::Delete, &mut object, Some(last), &self.env())?;
            if dry_run {
                return Ok(Ok(old.revision));
            }
            match self.commit(guard.clone(), Op::Delete { key: key.clone() }, companions, durability).await {
                Ok(revision) => return Ok(Ok(revision)),
                Err(StoreError::Conflict { key: lost, .. }) if lost == key => return Ok(Err(Raced)),
                Err(StoreError::Conflict { .. }) => {}
                Err(other) => return Err(store_error(other)),
            }
        }
        Err(ApiError::new(500, "ServerTimeout", "could not release what the object holds, please retry"))
    }

    async fn commit(
        &self,
        guard: Guard,
        op: Op,
        companions: Companions,
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let mut guards = vec![guard];
        guards.extend(companions.guards);
        let mut ops = vec![op];
        ops.extend(companions.ops);
        let begun = Instant::now();
        let operation = match (&guards[0].expect, &ops[0]) {
            (_, Op::Delete { .. }) => "delete",
            (None, Op::Put { .. }) => "create",
            (Some(_), Op::Put { .. }) => "update",
        };
        let committed = self.registry.store.commit(Txn { guards, ops, durability }).await;
        let Resource { group, plural, .. } = &**self.resource;
        metrics::global().store_request(operation, group, plural, begun.elapsed());
        let revision = committed?;
        if !self.registry.cache.wait_for(revision, VISIBLE_WITHIN).await {
            tracing::warn!(revision = revision.0, "the watch cache lags behind the store");
        }
        Ok(revision)
    }
}

/// `resourceVersion` of a decoded object; revision 0 (a dry-run creation) leaves it out.
pub(super) fn set_version(object: &mut Object, revision: Revision) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if revision.0 == 0 {
        metadata.remove("resourceVersion");
    } else {
        metadata.insert("resourceVersion".into(), revision.0.to_string().into());
    }
}
