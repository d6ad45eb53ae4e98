//! One change of one object, shared by reference with every watcher of its resource.

use super::Objects;
use super::object::CachedObject;
use bytes::{BufMut, Bytes, BytesMut};
use coracle_store::Revision;
use parking_lot::Mutex;
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

/// How many encodings beside JSON of whole objects are kept with an event, each made once.
pub const OTHER_ENCODINGS: usize = 3;

pub struct Event {
    pub revision: Revision,
    /// The object after the change; `None` when it was deleted.
    pub current: Option<Arc<CachedObject>>,
    pub previous: Option<Arc<CachedObject>>,
    frames: [OnceLock<Bytes>; 3],
    /// Few events are asked for in these, so they take no room before.
    others: Mutex<Vec<(usize, Seen, Bytes)>>,
}

impl Event {
    pub fn new(
        revision: Revision,
        current: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> Self {
        Self { revision, current, previous, frames: Default::default(), others: Mutex::default() }
    }

    /// Makes of the objects before the change those after it; returns the one that was there.
    pub(super) fn apply_to(&self, objects: &mut Objects) -> Option<Arc<CachedObject>> {
        match (&self.current, &self.previous) {
            (Some(object), _) => objects.insert(object.key.clone(), object.clone()),
            (None, Some(gone)) => objects.remove(&gone.key),
            (None, None) => None,
        }
    }

    /// The object to show: the last state of a deleted one, or of one that a selector no longer matches.
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

    /// The event in another encoding, numbered below [`OTHER_ENCODINGS`], made by whoever asks first. `make` must depend
    /// on nothing but the event and the two numbers.
    pub fn frame_in(&self, encoding: usize, seen: Seen, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut others = self.others.lock();
        if let Some((.., known)) = others.iter().find(|(e, s, _)| *e == encoding && *s == seen) {
            return known.clone();
        }
        let bytes = make();
        others.push((encoding, seen, bytes.clone()));
        bytes
    }

    /// Bytes that this event keeps alive in the history, about; the present state shares none of them but the
    /// newest's.
    pub fn weight(&self) -> usize {
        let of = |object: &Option<Arc<CachedObject>>| object.as_ref().map_or(0, |o| o.weight());
        size_of::<Self>() + of(&self.current) + of(&self.previous)
    }
}

/// A watch event in JSON, with its newline.
pub fn frame(seen: Seen, object: &CachedObject, revision: Revision) -> Bytes {
    let mut out = BytesMut::with_capacity(object.encoded_len() + 40);
    begin(&mut out, seen);
    object.write(&mut out, revision, false);
    out.put_slice(END);
    out.freeze()
}

/// What [`frame`] makes, in the pieces of [`coracle_api::Pieces`]; `None` where it cannot be taken apart.
pub fn pieces(seen: Seen, object: &CachedObject, revision: Revision) -> Option<[Bytes; 3]> {
    let mut out = BytesMut::with_capacity(192);
    begin(&mut out, seen);
    let (head, rest) = object.split(out, revision)?;
    Some([head, rest, Bytes::from_static(END)])
}

const END: &[u8] = b"}\n";

fn begin(out: &mut BytesMut, seen: Seen) {
    out.put_slice(b"{\"type\":\"");
    out.put_slice(seen.as_str().as_bytes());
    out.put_slice(b"\",\"object\":");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encoding_is_made_once() {
        let event = Event::new(Revision(1), None, None);
        let mut made = 0;
        for encoding in [1, 1, 2] {
            let bytes = event.frame_in(encoding, Seen::Added, || {
                made += 1;
                Bytes::from(vec![u8::try_from(encoding).unwrap()])
            });
            assert_eq!(bytes[0], u8::try_from(encoding).unwrap());
        }
        event.frame_in(1, Seen::Deleted, || {
            made += 1;
            Bytes::new()
        });
        assert_eq!(made, 3);
    }
}
