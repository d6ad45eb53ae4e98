//! A whole state on its way into an etcd, and out of one.
//!
//! ```text
//! into:  mark -> objects, page by page -> revisions beyond the old ones -> read again and compared -> compacted -> unmarked
//! ```
//! While the mark stands no server begins on what is there, and the next attempt begins with nothing.

use super::layout::Layout;
use super::leases::Leases;
use super::members::{Kind, Members};
use super::mirror::{self, signed, unsigned};
use super::{EtcdOptions, compactor, encoding};
use crate::{KeyValue, Revision, StoreError};
use etcd_client::{Client, Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp};
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use std::collections::BTreeMap;

/// etcd takes 128 operations and 1.5 MiB in a request unless it is told otherwise.
const OPS: usize = 100;
const BYTES: usize = 1 << 20;
/// Writes under way while revisions are used up: etcd makes one durable group of them.
const AT_ONCE: usize = 256;
/// Revisions between two compactions meanwhile: each keeps some hundred bytes until then.
const COMPACT_EVERY: i64 = 200_000;
/// So many keys are named where objects differ.
const NAMED: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("there are {0} keys under {1} already: another prefix, or another etcd, or etcdctl del --prefix")]
    NotEmpty(usize, String),
    /// After an attempt that has not ended; `coracle migrate` begins it anew.
    #[error("a state was being moved here, and that has not ended")]
    Unfinished,
    #[error("{key} has {bytes} bytes, which etcd does not take")]
    TooLarge { key: String, bytes: usize },
    #[error("{count} objects are not in etcd as they were, such as {keys}")]
    Different { count: usize, keys: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub objects: usize,
    /// etcd's newest; history begins there.
    pub revision: Revision,
}

struct Place {
    members: Members,
    layout: Layout,
    leases: Leases,
}

impl Place {
    async fn at(options: &EtcdOptions) -> Result<Self, StoreError> {
        let layout = Layout::new(&options.prefix);
        Ok(Self {
            members: Members::new(&options.servers, &options.tls, layout.mark()).await?,
            layout,
            leases: Leases::new(options.event_ttl),
        })
    }

    async fn now(&self) -> Result<i64, StoreError> {
        mirror::revision(&self.members, &self.layout.mark()).await
    }

    async fn list(&self) -> Result<(i64, Vec<etcd_client::KeyValue>), StoreError> {
        let now = self.now().await?;
        Ok((now, mirror::list(&self.members, &self.layout, now).await?))
    }

    async fn write(&self, txn: Txn) -> Result<bool, StoreError> {
        let call = |client: Client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        };
        self.members.call(Kind::Write, call).await.map(|answer| answer.succeeded())
    }

    /// Leaves the mark, where nothing else is, or only what an attempt that has not ended left.
    async fn begin(&self) -> Result<(), MoveError> {
        let (_, found) = self.list().await?;
        let (mark, moving) = (self.layout.mark(), self.layout.moving());
        let unfinished = found.iter().any(|kv| kv.key() == moving.as_bytes());
        let others = found.iter().filter(|kv| kv.key() != mark.as_bytes()).count();
        let (first, end) = self.layout.range();
        if others > 0 && !unfinished {
            return Err(MoveError::NotEmpty(others, first.trim_end_matches('/').to_owned()));
        }
        let cleared = TxnOp::delete(first, Some(DeleteOptions::new().with_range(end)));
        self.write(Txn::new().and_then([cleared])).await?;
        let absent = Compare::create_revision(moving.as_str(), CompareOp::Equal, 0);
        let marked = self.write(Txn::new().when([absent]).and_then([TxnOp::put(moving, "", None)])).await?;
        if marked { Ok(()) } else { Err(MoveError::Unfinished) }
    }

    async fn put(&self, items: &[KeyValue]) -> Result<(), MoveError> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for item in items {
            let value = encoding::to_etcd(&item.key, &item.value.peek());
            let size = item.key.len() + value.len();
            if page.len() == OPS || bytes + size > BYTES {
                self.put_page(std::mem::take(&mut page)).await?;
                bytes = 0;
            }
            bytes += size;
            page.push((item, value));
        }
        self.put_page(page).await
    }

    async fn put_page(&self, page: Vec<(&KeyValue, Vec<u8>)>) -> Result<(), MoveError> {
        // What is too large is alone on its page.
        let Some((first, bytes)) = page.first().map(|(item, value)| (item.key.clone(), value.len())) else {
            return Ok(());
        };
        let (mut absent, mut puts) = (Vec::with_capacity(page.len()), Vec::with_capacity(page.len()));
        for (item, value) in page {
            let path = self.layout.path(&item.key);
            let lease = if super::transaction::expires(&item.key) {
                self.leases.one(&self.members).await?
            } else {
                0
            };
            absent.push(Compare::create_revision(path.as_str(), CompareOp::Equal, 0));
            puts.push(TxnOp::put(path, value, Some(PutOptions::new().with_lease(lease))));
        }
        match self.write(Txn::new().when(absent).and_then(puts)).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(StoreError::Unavailable("somebody else writes under this prefix".to_owned()).into())
            }
            Err(StoreError::TooLarge(_)) => Err(MoveError::TooLarge { key: first.to_string(), bytes }),
            Err(error) => Err(error.into()),
        }
    }

    /// Uses up revisions until etcd is past `beyond`: what a client has seen must never mean something else.
    async fn pass(&self, beyond: Revision, told: &(dyn Fn(String) + Sync)) -> Result<(), StoreError> {
        let (mark, beyond) = (self.layout.mark(), signed(beyond));
        loop {
            let now = self.now().await?;
            if now > beyond {
                return Ok(());
            }
            told(format!("etcd is at revision {now}, and goes on to {beyond}"));
            let count = (beyond - now + 1).min(COMPACT_EVERY);
            let one = |_| {
                let put = |client: Client| {
                    let mark = mark.clone();
                    async move { client.kv_client().put(mark, "", None).await }
                };
                // Done twice it does no harm.
                self.members.call(Kind::Read, put)
            };
            let puts = futures::stream::iter(0..count).map(one).buffer_unordered(AT_ONCE);
            puts.try_for_each(|_| std::future::ready(Ok(()))).await?;
            compactor::compact(&self.members, unsigned(now)).await?;
        }
    }

    async fn end(&self) -> Result<Revision, StoreError> {
        let gone = [self.layout.moving(), self.layout.mark()].map(|key| TxnOp::delete(key, None));
        self.write(Txn::new().and_then(gone)).await?;
        let now = self.now().await?;
        compactor::compact(&self.members, unsigned(now)).await?;
        Ok(unsigned(now))
    }
}

/// Whether the mark stands.
pub(super) async fn is_under_way(members: &Members, layout: &Layout) -> Result<bool, StoreError> {
    let key = layout.moving();
    let read = |client: Client| {
        let key = key.clone();
        async move { client.kv_client().get(key, None).await }
    };
    members.call(Kind::Read, read).await.map(|answer| !answer.kvs().is_empty())
}

/// Puts a state under the prefix, where nothing may be; etcd's revisions go on beyond `beyond`. Every object is read again
/// and compared. Objects keep what they are but for their resourceVersion.
pub async fn fill(
    options: &EtcdOptions,
    items: &[KeyValue],
    beyond: Revision,
    told: &(dyn Fn(String) + Sync),
) -> Result<Moved, MoveError> {
    let place = Place::at(options).await?;
    place.begin().await?;
    place.put(items).await?;
    told(format!("{} objects are written", items.len()));
    place.pass(beyond, told).await?;
    let (_, found) = place.list().await?;
    compare(items, &mirror::loaded(&place.layout, &found))?;
    told(format!("{} objects were read again, and are as they were", items.len()));
    let revision = place.end().await?;
    Ok(Moved { objects: items.len(), revision })
}

/// Everything under the prefix as of etcd's newest revision.
///
/// # Errors
/// `Unfinished` where a state was being moved there.
pub async fn read(options: &EtcdOptions) -> Result<(Revision, Vec<KeyValue>), MoveError> {
    let place = Place::at(options).await?;
    let (now, found) = place.list().await?;
    if found.iter().any(|kv| kv.key() == place.layout.moving().as_bytes()) {
        return Err(MoveError::Unfinished);
    }
    Ok((unsigned(now), mirror::loaded(&place.layout, &found)))
}

/// Whether every object of `before` is in `after`, and no other.
pub fn compare(before: &[KeyValue], after: &[KeyValue]) -> Result<(), MoveError> {
    let there: BTreeMap<&str, &KeyValue> = after.iter().map(|kv| (&*kv.key, kv)).collect();
    let known: BTreeMap<&str, &KeyValue> = before.iter().map(|kv| (&*kv.key, kv)).collect();
    let is_same = |kv: &&KeyValue| there.get(&*kv.key).is_some_and(|other| are_same(kv, other));
    let lost = before.iter().filter(|kv| !is_same(kv)).map(|kv| &*kv.key);
    let foreign = there.keys().copied().filter(|key| !known.contains_key(key));
    let different: Vec<&str> = lost.chain(foreign).collect();
    if different.is_empty() {
        return Ok(());
    }
    let keys = different.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    Err(MoveError::Different { count: different.len(), keys })
}

fn are_same(one: &KeyValue, other: &KeyValue) -> bool {
    let (one, other) = (one.value.peek(), other.value.peek());
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    one == other || parse(&one).zip(parse(&other)).is_some_and(|(one, other)| means_the_same(&one, &other))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A field that is absent, null, an empty list, text or map, or a map of such fields is one and the same in what Kubernetes
/// holds by value, and protobuf cannot tell them apart.
fn means_the_same(one: &Value, other: &Value) -> bool {
    if is_nothing(one) && is_nothing(other) {
        return true;
    }
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let of = |map: &serde_json::Map<String, Value>, key: &String| {
                map.get(key).cloned().unwrap_or_default()
            };
            a.keys().chain(b.keys()).all(|key| means_the_same(&of(a, key), &of(b, key)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means_the_same(a, b))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: value.as_bytes().to_vec().into(),
            created: Revision(1),
            modified: Revision(1),
        }
    }

    #[test]
    fn what_is_lost_changed_or_foreign_is_named() {
        let before = [item("a./n/1", r#"{"a":1,"b":null,"c":[]}"#), item("a./n/2", "sealed")];
        assert!(compare(&before, &[item("a./n/1", r#"{"a":1}"#), item("a./n/2", "sealed")]).is_ok());
        for after in [
            vec![item("a./n/1", r#"{"a":1}"#)],
            vec![item("a./n/1", r#"{"a":1}"#), item("a./n/2", "Sealed")],
            vec![item("a./n/1", r#"{"a":1}"#), item("a./n/2", "sealed"), item("a./n/3", "{}")],
        ] {
            let why = compare(&before, &after).expect_err("different").to_string();
            assert!(why.starts_with("1 objects are not") && why.contains("a./n/"), "{why}");
        }
        for changed in
            [r#"{"a":2}"#, r#"{"a":1,"d":{"e":false}}"#, r#"{"a":1,"c":[null]}"#, r#"{"a":1,"b":0}"#]
        {
            assert!(compare(&before[..1], &[item("a./n/1", changed)]).is_err(), "{changed}");
        }
    }
}
