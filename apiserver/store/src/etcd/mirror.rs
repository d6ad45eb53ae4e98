//! What etcd holds under the prefix, followed by one watch.
//!
//! ```text
//!            load                 watch ends: next member, from the next revision on
//! (nothing) ------> following ------------------------------------------------------+
//!                     ^   ^                                                         |
//!                     |   +---------------------------------------------------------+
//!                     +--- relist: what was to come next has been compacted
//! ```
//! Revisions are etcd's. Nobody else changes the key space, so what it shows is what etcd held at its revision.

use super::layout::Layout;
use super::members::{Kind, Members};
use super::{Shared, encoding};
use crate::keyspace::Absorbed;
use crate::{Revision, StoreError};
use etcd_client::{Client, Error, EventType, GetOptions, KeyValue, WatchOptions, WatchResponse};
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Keys in one answer: with objects of a few KiB that is a megabyte or two.
const PAGE: i64 = 500;
/// Revisions before the present that are asked for at the start, so that watches of clients that were with another
/// server, or with this one before, find what they missed.
const PAST: i64 = 2_000;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// A watch answer holds as much as changed while it was away; etcd itself splits it at some megabytes.
const LARGEST: usize = 1 << 30;

/// Why a watch has ended.
enum End {
    Closed,
    Compacted,
    Failed(String),
}

/// The present revision of etcd, after everything that was acknowledged before.
pub(super) async fn revision(members: &Members, mark: &str) -> Result<i64, StoreError> {
    members.call(Kind::Read, |client| read_revision(client, mark)).await
}

/// Whether a majority answers, by whichever member.
pub(super) async fn reach(members: &Members, mark: &str) -> Result<(), StoreError> {
    members.any(|client| read_revision(client, mark)).await.map(drop)
}

async fn read_revision(client: Client, mark: &str) -> Result<i64, Error> {
    let answer = client.kv_client().get(mark, Some(GetOptions::new().with_keys_only())).await?;
    let header = answer.header();
    header.map(|h| h.revision()).ok_or_else(|| Error::Internal("an answer without a header".to_owned()))
}

/// Where to begin, and what there was then.
pub(super) async fn load(shared: &Shared) -> Result<(Revision, Vec<KeyValue>), StoreError> {
    let now = revision(&shared.members, &shared.layout.mark()).await?;
    let begin = oldest_available(shared, (now - PAST).max(0), now).await?;
    let items = if begin == 0 { Vec::new() } else { list(&shared.members, &shared.layout, begin).await? };
    Ok((unsigned(begin), items))
}

/// The oldest revision from `low` on that is not compacted.
async fn oldest_available(shared: &Shared, low: i64, now: i64) -> Result<i64, StoreError> {
    if is_available(shared, low.max(1)).await? {
        return Ok(low);
    }
    let (mut gone, mut there) = (low, now);
    while gone + 1 < there {
        let middle = gone + (there - gone) / 2;
        if is_available(shared, middle).await? { there = middle } else { gone = middle }
    }
    Ok(there)
}

async fn is_available(shared: &Shared, at: i64) -> Result<bool, StoreError> {
    let options = GetOptions::new().with_revision(at).with_keys_only();
    let mark = shared.layout.mark();
    let read = |client: Client| {
        let (mark, options) = (mark.clone(), options.clone());
        async move { client.kv_client().get(mark, Some(options)).await }
    };
    match shared.members.call(Kind::Read, read).await {
        Ok(_) => Ok(true),
        Err(StoreError::Compacted { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Everything under the prefix as of one revision, page by page.
pub(super) async fn list(members: &Members, layout: &Layout, at: i64) -> Result<Vec<KeyValue>, StoreError> {
    let (first, end) = layout.range();
    let (mut items, mut start) = (Vec::new(), first.into_bytes());
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_revision(at);
        let read = |client: Client| {
            let (start, options) = (start.clone(), options.clone());
            let mut kv = client.kv_client().max_decoding_message_size(LARGEST);
            async move { kv.get(start, Some(options)).await }
        };
        let mut page = members.call(Kind::Read, read).await?;
        let more = page.more();
        items.extend(page.take_kvs());
        match items.last().filter(|_| more) {
            Some(last) => start = [last.key(), b"\0"].concat(),
            None => return Ok(items),
        }
    }
}

pub(super) fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

pub(super) fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// Follows etcd until the store closes.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut pause = RETRY_INTERVAL;
    while !shared.stop.is_cancelled() {
        let before = shared.space.revision();
        let now = revision(&shared.members, &shared.layout.mark()).await;
        // The one that has just answered.
        let (index, endpoint, client) = shared.members.present();
        let ended = match now {
            Ok(now) => follow(&shared, client, unsigned(now)).await,
            Err(error) => Err(End::Failed(coracle_api::error::chain(&error))),
        };
        let why = match ended {
            Err(End::Closed) => return,
            Err(End::Compacted) => match relist(&shared).await {
                Ok(()) => continue,
                Err(error) => coracle_api::error::chain(&error),
            },
            Err(End::Failed(why)) => why,
            Ok(never) => match never {},
        };
        tracing::warn!(endpoint, why, "the watch of etcd has ended, another one follows");
        shared.members.leave(index);
        pause = if shared.space.revision() > before {
            RETRY_INTERVAL
        } else {
            (pause * 2).min(MAX_RETRY_INTERVAL)
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

async fn follow(shared: &Shared, client: Client, now: Revision) -> Result<Infallible, End> {
    let failed = |text: String| End::Failed(text);
    let known = shared.space.revision();
    if now < known {
        let text = format!(
            "etcd went back from revision {} to {}: restart the servers after a restore",
            known.0, now.0
        );
        return Err(failed(text));
    }
    let (first, end) = shared.layout.range();
    let options =
        WatchOptions::new().with_range(end).with_start_revision(signed(known) + 1).with_progress_notify();
    let mut watching = client.watch_client().max_decoding_message_size(LARGEST);
    let mut stream = watching.watch(first, Some(options)).await.map_err(|e| failed(e.to_string()))?;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return Err(End::Closed),
            () = shared.ask.notified() => {
                if shared.progress_is_true(&client).await {
                    stream.request_progress().await.map_err(|e| failed(e.to_string()))?;
                } else {
                    shared.write_mark().await;
                }
            }
            message = stream.message() => match message {
                Ok(Some(message)) => take(shared, &message)?,
                Ok(None) => return Err(failed("it was closed".to_owned())),
                Err(error) => return Err(failed(error.to_string())),
            },
        }
    }
}

fn take(shared: &Shared, message: &WatchResponse) -> Result<(), End> {
    if message.compact_revision() > 0 {
        return Err(End::Compacted);
    }
    if message.canceled() {
        return Err(End::Failed(message.cancel_reason().to_owned()));
    }
    if message.created() {
        return Ok(());
    }
    let mut commits: BTreeMap<u64, Vec<Absorbed>> = BTreeMap::new();
    for event in message.events() {
        let Some(kv) = event.kv() else { continue };
        let changes = commits.entry(unsigned(kv.mod_revision()).0).or_default();
        match event.event_type() {
            EventType::Put => changes.extend(absorbed(shared, kv)),
            EventType::Delete => changes.extend(key_of(shared, kv).map(|key| Absorbed { key, put: None })),
        }
    }
    if let (true, Some(header)) = (commits.is_empty(), message.header()) {
        commits.insert(unsigned(header.revision()).0, Vec::new());
    }
    shared.absorb(commits);
    Ok(())
}

fn key_of(shared: &Shared, kv: &KeyValue) -> Option<Arc<str>> {
    shared.layout.key(std::str::from_utf8(kv.key()).ok()?)
}

fn absorbed(shared: &Shared, kv: &KeyValue) -> Option<Absorbed> {
    let value = encoding::from_etcd(kv.value()).into();
    Some(Absorbed { key: key_of(shared, kv)?, put: Some((unsigned(kv.create_revision()), value)) })
}

/// What a first list makes of the key space.
pub(super) fn loaded(layout: &Layout, items: &[KeyValue]) -> Vec<crate::KeyValue> {
    let object = |kv: &KeyValue| {
        Some(crate::KeyValue {
            key: layout.key(std::str::from_utf8(kv.key()).ok()?)?,
            value: encoding::from_etcd(kv.value()).into(),
            created: unsigned(kv.create_revision()),
            modified: unsigned(kv.mod_revision()),
        })
    };
    items.iter().filter_map(object).collect()
}

/// History has been compacted beyond what is known here: the difference is told, and older watches cannot resume.
async fn relist(shared: &Shared) -> Result<(), StoreError> {
    let now = revision(&shared.members, &shared.layout.mark()).await?;
    let items = list(&shared.members, &shared.layout, now).await?;
    let (present, known) = shared.space.present();
    let mut commits: BTreeMap<u64, Vec<Absorbed>> = BTreeMap::new();
    let mut there = HashSet::with_capacity(items.len());
    for kv in &items {
        let Some(key) = key_of(shared, kv) else { continue };
        if unsigned(kv.mod_revision()) > known {
            let changes = commits.entry(unsigned(kv.mod_revision()).0).or_default();
            changes.extend(absorbed(shared, kv));
        }
        there.insert(key);
    }
    let gone = present.keys().filter(|key| !there.contains(*key));
    let last = commits.entry(unsigned(now).0).or_default();
    last.extend(gone.map(|key| Absorbed { key: key.clone(), put: None }));
    shared.absorb(commits);
    tracing::warn!(revision = now, "etcd was compacted while it was away: the present was listed anew");
    shared.space.compact(unsigned(now))
}
