//! A transaction in etcd's words, and what became of it.

use super::members::Kind;
use super::mirror::{signed, unsigned};
use super::{Shared, encoding};
use crate::{KeyValue, Op, Precondition, Revision, StoreError, Txn};
use etcd_client::{Client, Compare, CompareOp, PutOptions, TxnOp, TxnOpResponse, TxnResponse};

/// Of these etcd takes what is older than the time that the options say.
const EVENTS: &str = "events./";

pub(super) async fn commit(shared: &Shared, txn: &Txn) -> Result<Revision, StoreError> {
    let request = request(shared, txn).await?;
    let call = |client: Client| {
        let request = request.clone();
        async move { client.kv_client().txn(request).await }
    };
    let answer = shared.members.call(Kind::Write, call).await?;
    let revision = answer.header().map_or(0, |header| header.revision());
    if !answer.succeeded() {
        return Err(conflict(shared, txn, &answer).await);
    }
    if !changed(&answer) {
        return Ok(shared.space.revision());
    }
    let seen = shared.caught_up(unsigned(revision)).await;
    seen.map_err(|error| match error {
        StoreError::Unavailable(why) => {
            StoreError::Unknown(format!("it was written, and is not to be seen: {why}"))
        }
        other => other,
    })?;
    Ok(unsigned(revision))
}

/// Whether etcd takes it away after a time.
pub(super) fn expires(key: &str) -> bool {
    key.starts_with(EVENTS)
}

async fn request(shared: &Shared, txn: &Txn) -> Result<etcd_client::Txn, StoreError> {
    let compares: Vec<Compare> = txn.guards.iter().map(|guard| compare(shared, guard)).collect();
    let mut ops = Vec::with_capacity(txn.ops.len());
    for (index, op) in txn.ops.iter().enumerate() {
        // etcd takes one operation for a key, and the last one is what counts.
        if txn.ops[index + 1..].iter().any(|later| key_of(later) == key_of(op)) {
            continue;
        }
        ops.push(match op {
            Op::Delete { key } => TxnOp::delete(shared.layout.path(key), None),
            Op::Put { key, value } => {
                let lease = if expires(key) { shared.leases.one(&shared.members).await? } else { 0 };
                let options = PutOptions::new().with_lease(lease);
                TxnOp::put(shared.layout.path(key), encoding::to_etcd(key, value), Some(options))
            }
        });
    }
    let held: Vec<TxnOp> =
        txn.guards.iter().map(|guard| TxnOp::get(shared.layout.path(&guard.key), None)).collect();
    Ok(etcd_client::Txn::new().when(compares).and_then(ops).or_else(held))
}

fn key_of(op: &Op) -> &str {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => key,
    }
}

fn compare(shared: &Shared, guard: &Precondition) -> Compare {
    let expected = guard.expect.map_or(0, signed);
    Compare::mod_revision(shared.layout.path(&guard.key), CompareOp::Equal, expected)
}

fn changed(answer: &TxnResponse) -> bool {
    answer.op_responses().iter().any(|response| match response {
        TxnOpResponse::Put(_) => true,
        TxnOpResponse::Delete(delete) => delete.deleted() > 0,
        _ => false,
    })
}

/// The first guard that does not hold. What it saw is visible here when the caller is told, so that it does not try the
/// same again.
async fn conflict(shared: &Shared, txn: &Txn, answer: &TxnResponse) -> StoreError {
    let at = unsigned(answer.header().map_or(0, |header| header.revision()));
    if let Err(error) = shared.caught_up(at).await {
        return error;
    }
    for (guard, response) in txn.guards.iter().zip(answer.op_responses()) {
        let TxnOpResponse::Get(get) = response else { continue };
        let actual = get.kvs().first().map(|kv| KeyValue {
            key: guard.key.clone(),
            value: encoding::from_etcd(kv.value()).into(),
            created: unsigned(kv.create_revision()),
            modified: unsigned(kv.mod_revision()),
        });
        if actual.as_ref().map(|kv| kv.modified) != guard.expect {
            return StoreError::Conflict { key: guard.key.clone(), actual };
        }
    }
    StoreError::Unavailable("etcd refused a transaction whose guards hold".to_owned())
}
