//! Compaction every five minutes, of what was five minutes old, by one of all servers.
//!
//! The agreement is upstream's own, so that its API servers on the same etcd take part in it: who sees the key
//! `compact_rev_key` unchanged since the last time writes it, and compacts.

use super::Shared;
use super::members::{Kind, Members};
use super::mirror::signed;
use crate::{Revision, StoreError};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use std::time::Duration;

const COMPACTION_INTERVAL: Duration = Duration::from_secs(300);
const KEY: &str = "compact_rev_key";

pub(super) async fn run(shared: Arc<Shared>) {
    let (mut version, mut at) = (0, Revision(0));
    loop {
        tokio::select! {
            () = tokio::time::sleep(COMPACTION_INTERVAL) => {}
            () = shared.stop.cancelled() => return,
        }
        let now = shared.space.revision();
        match round(&shared, version, at, now).await {
            Ok(seen) => (version, at) = (seen, now),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "etcd was not compacted"),
        }
    }
}

/// The version of the key afterwards.
async fn round(shared: &Shared, version: i64, at: Revision, now: Revision) -> Result<i64, StoreError> {
    let txn = Txn::new()
        .when([Compare::version(KEY, CompareOp::Equal, version)])
        .and_then([TxnOp::put(KEY, now.0.to_string(), None)])
        .or_else([TxnOp::get(KEY, None)]);
    let call = |client: Client| {
        let txn = txn.clone();
        async move { client.kv_client().txn(txn).await }
    };
    let answer = shared.members.call(Kind::Write, call).await?;
    if !answer.succeeded() {
        let held = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(get) => get.kvs().first().map(|kv| kv.version()),
            _ => None,
        });
        return Ok(held.unwrap_or(0));
    }
    if at > Revision(0) {
        compact(&shared.members, at).await?;
    }
    Ok(version + 1)
}

/// What somebody else compacted further is no error.
pub(super) async fn compact(members: &Members, at: Revision) -> Result<(), StoreError> {
    let call = |client: Client| async move { client.kv_client().compact(signed(at), None).await };
    match members.call(Kind::Read, call).await {
        Ok(_) | Err(StoreError::Compacted { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
