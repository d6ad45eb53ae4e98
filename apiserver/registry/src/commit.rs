//! Transactions of one object and what is written with it, made visible before they are acknowledged.

use super::{ATTEMPTS, Scope, VISIBLE_TIMEOUT, store_error};
use bytes::Bytes;
use coracle_api::encode::{to_storage_bytes, with_resource_version};
use coracle_api::{ApiError, Object, Resource};
use coracle_resources::cache::CachedObject;
use coracle_store::{Durability, Op, Precondition, Revision, StoreError, Txn};
use coracle_strategy::{TransactionOps, WriteKind};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// The guard on the object's own key failed: somebody else was quicker.
pub(super) struct Raced;

/// An object that was written, or with a dry run would have been.
pub struct Written {
    pub object: Object,
    /// Its bytes in the store, where they are the form that clients are shown.
    stored: Option<(Bytes, Revision)>,
}

impl Written {
    /// The object as a line of JSON, from the bytes that were stored; `None` where it has to be written out.
    pub fn json(&self) -> Option<Bytes> {
        let (raw, revision) = self.stored.as_ref()?;
        let mut json = with_resource_version(raw, revision.0);
        json.push(b'\n');
        Some(json.into())
    }
}

impl From<Object> for Written {
    fn from(object: Object) -> Self {
        Self { object, stored: None }
    }
}

/// What is replaced: as it is kept, and decoded for a strategy that looks at it.
type Old<'a> = Option<(&'a CachedObject, Option<&'a Object>)>;

/// How one attempt of a write has ended.
enum Attempt<T> {
    Done(T),
    Raced,
    /// A companion's guard failed: others may be found.
    Lost,
}

impl Scope<'_> {
    /// Writes `object`, which replaces `old`. With `dry_run` everything but the commit happens.
    pub(super) async fn put(
        &self,
        name: &str,
        object: Object,
        old: Old<'_>,
        dry_run: bool,
    ) -> Result<Result<Written, Raced>, ApiError> {
        let blind = old.is_some_and(|(_, object)| object.is_none());
        debug_assert!(
            !blind || !self.strategy.has_transaction_ops(),
            "operations are made of the old object"
        );
        if !self.strategy.has_transaction_ops() {
            let attempt = self.put_with(name, object, TransactionOps::default(), old, dry_run).await?;
            return Ok(if let Attempt::Done(written) = attempt { Ok(written) } else { Err(Raced) });
        }
        let write = if old.is_some() { WriteKind::Update } else { WriteKind::Create };
        for _ in 0..ATTEMPTS {
            let mut object = object.clone();
            let transaction_ops =
                self.strategy.transaction_ops(write, &mut object, old.and_then(|(_, o)| o), &self.env())?;
            match self.put_with(name, object, transaction_ops, old, dry_run).await? {
                Attempt::Done(written) => return Ok(Ok(written)),
                Attempt::Raced => return Ok(Err(Raced)),
                Attempt::Lost => {}
            }
        }
        Err(ApiError::new(500, "ServerTimeout", "could not allocate what the object needs, please retry"))
    }

    async fn put_with(
        &self,
        name: &str,
        object: Object,
        transaction_ops: TransactionOps,
        old: Old<'_>,
        dry_run: bool,
    ) -> Result<Attempt<Written>, ApiError> {
        let (raw, shown) = self.bytes_of(&object).await?;
        // A write that changes nothing is written all the same where it is stored by a key that is to go.
        if let Some((cached, _)) = old
            && raw == cached.raw.bytes()
            && transaction_ops.ops.is_empty()
            && (dry_run || !self.registry.store.is_stale(&cached.key).await)
        {
            return Ok(Attempt::Done(self.written(shown.unwrap_or(object), raw, cached.revision)));
        }
        let mut object = object;
        if dry_run {
            set_version(&mut object, old.map_or(Revision(0), |(cached, _)| cached.revision));
            return Ok(Attempt::Done(object.into()));
        }
        let key = self.key(name);
        let guard = Precondition { key: key.clone(), expect: old.map(|(cached, _)| cached.revision) };
        let durability = self.strategy.durability(Some(&object), old.and_then(|(_, o)| o));
        let put = Op::Put { key: key.clone(), value: raw.clone() };
        Ok(match self.attempt(&key, self.commit(guard, put, transaction_ops, durability).await)? {
            Attempt::Done(revision) => {
                self.settle_cached(name, revision);
                Attempt::Done(self.written(shown.unwrap_or(object), raw, revision))
            }
            Attempt::Raced => Attempt::Raced,
            Attempt::Lost => Attempt::Lost,
        })
    }

    /// The object as the store keeps it, and as it is read back where that is something else.
    ///
    /// # Errors
    /// A conversion webhook's.
    async fn bytes_of(&self, object: &Object) -> Result<(Bytes, Option<Object>), ApiError> {
        let api_version = self.resource.storage_api_version();
        let kind = &self.resource.storage.kind;
        let Some(custom) = self.strategy.custom().filter(|_| self.resource.needs_conversion()) else {
            return Ok((to_storage_bytes(object, &api_version, kind).into(), None));
        };
        let stored = custom.to_storage(object.clone()).await?;
        let shown = custom.read_back(&stored).await?;
        Ok((to_storage_bytes(&stored, &api_version, kind).into(), shown))
    }

    fn written(&self, object: Object, raw: Bytes, revision: Revision) -> Written {
        let mut object = object;
        set_version(&mut object, revision);
        let stored = (!self.resource.needs_conversion()).then_some((raw, revision));
        Written { object, stored }
    }

    fn attempt(
        &self,
        key: &Arc<str>,
        outcome: Result<Revision, StoreError>,
    ) -> Result<Attempt<Revision>, ApiError> {
        match outcome {
            Ok(revision) => Ok(Attempt::Done(revision)),
            Err(StoreError::Conflict { key: lost, .. }) if lost == *key => Ok(Attempt::Raced),
            Err(StoreError::Conflict { .. }) => Ok(Attempt::Lost),
            Err(other) => Err(store_error(other)),
        }
    }

    /// A custom resource as it was just written is in order: who reads it need not look again.
    fn settle_cached(&self, name: &str, revision: Revision) {
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
        let guard = Precondition { key: key.clone(), expect: Some(old.revision) };
        let durability = self.strategy.durability(None, Some(last));
        for _ in 0..ATTEMPTS {
            let transaction_ops = match self.strategy.has_transaction_ops() {
                true => self.strategy.transaction_ops(
                    WriteKind::Delete,
                    &mut last.clone(),
                    Some(last),
                    &self.env(),
                )?,
                false => TransactionOps::default(),
            };
            if dry_run {
                return Ok(Ok(old.revision));
            }
            let delete = Op::Delete { key: key.clone() };
            match self.attempt(&key, self.commit(guard.clone(), delete, transaction_ops, durability).await)? {
                Attempt::Done(revision) => return Ok(Ok(revision)),
                Attempt::Raced => return Ok(Err(Raced)),
                Attempt::Lost => {}
            }
        }
        Err(ApiError::new(500, "ServerTimeout", "could not release what the object holds, please retry"))
    }

    async fn commit(
        &self,
        guard: Precondition,
        op: Op,
        transaction_ops: TransactionOps,
        durability: Durability,
    ) -> Result<Revision, StoreError> {
        let mut guards = vec![guard];
        guards.extend(transaction_ops.guards);
        let mut ops = vec![op];
        ops.extend(transaction_ops.ops);
        let begun = Instant::now();
        let operation = match (&guards[0].expect, &ops[0]) {
            (_, Op::Delete { .. }) => "delete",
            (None, Op::Put { .. }) => "create",
            (Some(_), Op::Put { .. }) => "update",
        };
        let committed = self.registry.store.commit(Txn { guards, ops, durability }).await;
        let Resource { group, plural, .. } = &**self.resource;
        self.registry.cache.metrics().store_request(operation, group, plural, begun.elapsed());
        let revision = committed?;
        if !self.registry.cache.wait_for(revision, VISIBLE_TIMEOUT).await {
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
