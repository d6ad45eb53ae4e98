//! What built-in resources contribute to OpenAPI v2. No definition changes it, it takes tens of milliseconds to make and
//! is megabytes long: it is kept while documents are asked for, so that the next one after a change costs only what has
//! been changed, and dropped after.

use super::gnostic::{put, put_named};
use super::v2::{all_paths, definitions, path_item};
use super::v2_protobuf::encode;
use super::v2_protobuf_paths::put_path;
use crate::wire::gzip::Packed;
use bytes::Bytes;
use coracle_api::Resource;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long after its last use: a chart's definitions come within seconds, and so do the clients that look at them.
const DOCUMENT_TTL: Duration = Duration::from_secs(30);

/// A form of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Protobuf,
}

/// The two maps that a document consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    Definitions,
    Paths,
}

impl Form {
    /// Adds one member of a map.
    pub fn member(self, out: &mut Vec<u8>, map: Map, name: &str, value: &Value) {
        match (self, map) {
            (Self::Json, _) => {
                let comma = if out.is_empty() { "" } else { "," };
                out.extend_from_slice(format!("{comma}{}:", Value::from(name)).as_bytes());
                // Writing a Value to memory cannot fail: its keys are strings and its numbers finite.
                let written = serde_json::to_writer(&mut *out, value);
                debug_assert!(written.is_ok());
            }
            (Self::Protobuf, Map::Definitions) => put_named(out, 1, name, &encode(value)),
            (Self::Protobuf, Map::Paths) => put_path(out, name, value),
        }
    }

    /// Members as they stand behind others of their map. Of protobuf a map may come in pieces, which readers put together.
    pub fn behind(self, map: Map, members: &[u8]) -> Bytes {
        if members.is_empty() {
            return Bytes::new();
        }
        let mut out = Vec::with_capacity(members.len() + 8);
        match (self, map) {
            (Self::Json, _) => {
                out.push(b',');
                out.extend_from_slice(members);
            }
            (Self::Protobuf, Map::Definitions) => put(&mut out, 9, members),
            (Self::Protobuf, Map::Paths) => put(&mut out, 8, members),
        }
        out.into()
    }
}

/// The share of built-in resources.
pub struct Share {
    /// As [`Form::behind`] takes them.
    pub definitions: Bytes,
    pub paths: Bytes,
    /// Names of the definitions and of the paths.
    pub names: BTreeSet<String>,
    pub templates: BTreeSet<String>,
    /// The definitions and the paths for those who take gzip, who are most: packed when the first of them asks.
    packed: OnceLock<(Packed, Packed)>,
}

impl Share {
    pub fn of(resources: &[Arc<Resource>], form: Form) -> Self {
        let (mut names, mut templates) = (BTreeSet::new(), BTreeSet::new());
        let (mut of_definitions, mut of_paths) = (Vec::new(), Vec::new());
        definitions(resources, &mut |name, schema| {
            form.member(&mut of_definitions, Map::Definitions, name, schema);
            names.insert(name.to_owned());
        });
        all_paths(resources, &mut |path| {
            form.member(&mut of_paths, Map::Paths, &path.template, &path_item(path));
            templates.insert(path.template.clone());
        });
        let (definitions, paths, packed) = (of_definitions.into(), of_paths.into(), OnceLock::new());
        Self { definitions, paths, names, templates, packed }
    }

    pub fn plain(&self, map: Map) -> &Bytes {
        match map {
            Map::Definitions => &self.definitions,
            Map::Paths => &self.paths,
        }
    }

    pub fn packed(&self, map: Map) -> &Packed {
        let pack = || (Packed::of(&self.definitions), Packed::of(&self.paths));
        let (definitions, paths) = self.packed.get_or_init(pack);
        match map {
            Map::Definitions => definitions,
            Map::Paths => paths,
        }
    }
}

/// The shares that were lately asked for.
#[derive(Default)]
pub struct Shares {
    json: Mutex<Slot>,
    protobuf: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    share: Option<Arc<Share>>,
    uses: u64,
}

impl Shares {
    fn slot(&self, form: Form) -> &Mutex<Slot> {
        match form {
            Form::Json => &self.json,
            Form::Protobuf => &self.protobuf,
        }
    }

    /// Whoever comes while it is being made waits for it. Outside of a runtime nothing is kept.
    pub fn get(self: &Arc<Self>, form: Form, make: impl FnOnce() -> Share) -> Arc<Share> {
        let mut slot = self.slot(form).lock();
        slot.uses += 1;
        if let Some(share) = &slot.share {
            return share.clone();
        }
        let share = Arc::new(make());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            slot.share = Some(share.clone());
            runtime.spawn(forget(Arc::downgrade(self), form));
        }
        share
    }
}

/// Drops a share that nobody has used for a while.
async fn forget(shares: Weak<Shares>, form: Form) {
    let mut seen = None;
    loop {
        let Some(shares) = shares.upgrade() else { return };
        {
            let mut slot = shares.slot(form).lock();
            if seen == Some(slot.uses) {
                slot.share = None;
                return;
            }
            seen = Some(slot.uses);
        }
        drop(shares);
        tokio::time::sleep(DOCUMENT_TTL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::catalogue::catalogue;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn shares_are_made_once_and_dropped_when_nobody_asks() {
        let (shares, made) = (Arc::new(Shares::default()), Cell::new(0));
        let get = || {
            shares.get(Form::Json, || {
                made.set(made.get() + 1);
                Share::of(&catalogue()[..1], Form::Json)
            })
        };
        let first = get();
        for _ in 0..5 {
            tokio::time::sleep(DOCUMENT_TTL / 2).await;
            assert!(Arc::ptr_eq(&first, &get()));
        }
        let weak = Arc::downgrade(&first);
        drop(first);
        tokio::time::sleep(DOCUMENT_TTL * 2).await;
        assert!(weak.upgrade().is_none(), "still in memory");
        get();
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn nothing_is_kept_where_nobody_could_drop_it() {
        let shares = Arc::new(Shares::default());
        shares.get(Form::Json, || Share::of(&catalogue()[..1], Form::Json));
        assert!(shares.json.lock().share.is_none());
    }
}
