//! One change of one object, shared by reference with every watcher of its resource.

use super::object::CachedObject;
use crate::store::Revision;
use bytes::{BufMut, Bytes, BytesMut};
use std::sync::{Arc, OnceLock};

/// What a watcher is told about a change. A selector can turn an update into an addition or a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Added,
    Modified,
    Deleted,
}

impl Seen {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Encodings beside whole objects in JSON, whose frames are kept too once somebody has asked for them.
pub const OTHER_ENCODINGS: usize = 3;

pub struct Event {
    pub revision: Revision,
    /// The object after the change; `None` when it was deleted.
    pub current: Option<Arc<CachedObject>>,
    pub previous: Option<Arc<CachedObject>>,
    frames: [OnceLock<Bytes>; 3],
    others: OnceLock<Box<[[OnceLock<Bytes>; 3]; OTHER_ENCODINGS]>>,
}

impl Event {
    pub fn new(
        revision: Revision,
        current: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> Self {
        Self { revision, current, previous, frames: Default::default(), others: OnceLock::new() }
    }

    /// The object to show: the last state of a deleted one.
    pub fn object(&self, seen: Seen) -> Option<&Arc<CachedObject>> {
        match seen {
            Seen::Deleted => self.previous.as_ref().or(self.current.as_ref()),
            _ => self.current.as_ref(),
        }
    }

    /// The event as one line of JSON, serialized at the first call only.
    pub fn frame(&self, seen: Seen) -> Bytes {
        self.frames[seen as usize]
            .get_or_init(|| self.object(seen).map(|o| frame(seen, o, self.revision)).unwrap_or_default())
            .clone()
    }

    /// The event in another encoding, made at the first call only. `encoding` is below [`OTHER_ENCODINGS`].
    pub fn frame_in(&self, encoding: usize, seen: Seen, make: impl FnOnce() -> Bytes) -> Bytes {
        let others = self.others.get_or_init(Box::default);
        others[encoding][seen as usize].get_or_init(make).clone()
    }

    /// Bytes that this event keeps alive in the history.
    pub fn weight(&self) -> usize {
        self.current.as_ref().or(self.previous.as_ref()).map_or(0, |o| o.raw.len())
    }
}

/// A watch event in JSON, with its newline.
pub fn frame(seen: Seen, object: &CachedObject, revision: Revision) -> Bytes {
    let mut out = BytesMut::with_capacity(object.encoded_len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(seen.as_str().as_bytes());
    out.put_slice(b"\",\"object\":");
    object.write(&mut out, revision, false);
    out.put_slice(b"}\n");
    out.freeze()
}
