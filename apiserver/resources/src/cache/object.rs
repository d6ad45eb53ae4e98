//! One object as the watch cache keeps it: its stored bytes, and only what selectors need beside them.

use super::index::Index;
use bytes::{BufMut, Bytes, BytesMut};
use coracle_api::{Object, encode};
use coracle_store::{KeyValue, Revision, Value as Stored};
use coracle_strategy::SelectableFields;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// `Revision` at its place in `metadata`.
const VERSION_MEMBER: &str = "\"resourceVersion\":\"";

pub struct CachedObject {
    /// `<plural>.<group>/<namespace>/<name>`
    pub key: Arc<str>,
    pub revision: Revision,
    /// As stored, without `metadata.resourceVersion`.
    pub raw: Stored,
    index: Index,
    /// Offset in `raw` just behind `"metadata":{`; 0 where the value is no object of the API.
    metadata: u32,
    /// Offset in `raw` of the resourceVersion.
    splice: u32,
    decoded: Mutex<Weak<Object>>,
    /// Length as a protobuf message, 0 while unknown: lists have to say their length first. Of custom resources, which
    /// have no such form, the schema by which the bytes were looked at, with [`UNSETTLED`] if they are not in order.
    protobuf_len: AtomicU32,
}

/// The schema's id takes the lower bits.
const UNSETTLED: u32 = 1 << 31;

impl CachedObject {
    /// `fields` names the selectable fields; without one only labels are indexed.
    pub fn new(stored: &KeyValue, fields: Option<&dyn SelectableFields>) -> Self {
        let offset = |at: usize| u32::try_from(at).ok();
        let read =
            |value: &[u8]| (encode::version_place(value).unwrap_or_default(), Index::new(value, fields));
        let ((begin, place), index) = stored.value.read(read);
        let (metadata, splice) = offset(begin).zip(offset(place)).unwrap_or_default();
        Self {
            key: stored.key.clone(),
            revision: stored.modified,
            metadata,
            splice,
            raw: stored.value.clone(),
            index,
            decoded: Mutex::new(Weak::new()),
            protobuf_len: AtomicU32::new(0),
        }
    }

    pub fn namespace(&self) -> &str {
        self.key.split('/').nth(1).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.key.splitn(3, '/').nth(2).unwrap_or_default()
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.index.label(key)
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.index.labels()
    }

    /// How many selectable fields are indexed.
    pub(super) fn selectable(&self) -> usize {
        self.index.field_count()
    }

    /// A selectable field; `None` if the resource has no such field.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => self.index.field(name),
        }
    }

    /// The object with its resourceVersion, decoded. Whoever holds the result shares it with others who ask.
    pub fn decode(&self) -> Arc<Object> {
        let mut slot = self.decoded.lock();
        if let Some(object) = slot.upgrade() {
            return object;
        }
        let object = Arc::new(self.decode_at(self.revision));
        *slot = Arc::downgrade(&object);
        object
    }

    /// The object as of an event: a deletion carries the revision of the deletion.
    pub fn decode_at(&self, revision: Revision) -> Object {
        let mut object: Object = self.raw.read(|raw| serde_json::from_slice(raw)).unwrap_or(Value::Null);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), revision.0.to_string().into());
        }
        object
    }

    /// Bytes that this object keeps alive, about.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.raw.len() + self.index.weight()
    }

    /// Where the members of `metadata` begin, and where the resourceVersion belongs.
    fn splice(&self) -> (usize, usize) {
        // 32 bits are never too many for `usize` here.
        (self.metadata as usize, self.splice as usize)
    }

    /// Room that [`write`](Self::write) takes at most.
    pub fn encoded_len(&self) -> usize {
        self.raw.len() + VERSION_MEMBER.len() + 24
    }

    /// Appends the object as JSON with `revision` as its resourceVersion. Items of lists leave out `kind` and
    /// `apiVersion`, as upstream's do.
    pub fn write(&self, out: &mut impl BufMut, revision: Revision, as_item: bool) {
        self.raw.read(|raw| self.write_of(raw, out, revision, as_item));
    }

    fn write_of(&self, raw: &[u8], out: &mut impl BufMut, revision: Revision, as_item: bool) {
        let (metadata, splice) = self.splice();
        if splice == 0 {
            out.put_slice(raw);
            return;
        }
        if as_item {
            out.put_slice(b"{\"metadata\":{");
            out.put_slice(&raw[metadata..splice]);
        } else {
            out.put_slice(&raw[..splice]);
        }
        write_version(out, revision);
        if raw.get(splice) != Some(&b'}') {
            out.put_u8(b',');
        }
        out.put_slice(&raw[splice..]);
    }

    /// The object as [`write`](Self::write) makes it, in two pieces after what stands in `out`: what is new, and what is
    /// kept here anyway. `None` where the value is no object of the API.
    pub fn split(&self, mut out: BytesMut, revision: Revision) -> Option<(Bytes, Bytes)> {
        let (raw, (_, splice)) = (self.raw.bytes(), self.splice());
        if splice == 0 {
            return None;
        }
        out.put_slice(&raw[..splice]);
        write_version(&mut out, revision);
        if raw.get(splice) != Some(&b'}') {
            out.put_u8(b',');
        }
        Some((out.freeze(), raw.slice(splice..)))
    }

    /// Appends the value of `metadata` as JSON, with `revision` as its resourceVersion, in the order of its struct.
    pub fn write_metadata(&self, out: &mut impl BufMut, revision: Revision) {
        let (metadata, splice) = self.splice();
        if splice == 0 || splice > metadata {
            self.write_kept_metadata(out, revision);
            return;
        }
        // That of custom kinds is kept by name.
        let mut kept = Vec::new();
        self.write_kept_metadata(&mut kept, revision);
        let ordered = serde_json::from_slice(&kept).ok().and_then(|value| encode::metadata(&value));
        out.put_slice(&ordered.unwrap_or(kept));
    }

    fn write_kept_metadata(&self, out: &mut impl BufMut, revision: Revision) {
        let (metadata, splice) = self.splice();
        if splice == 0 {
            out.put_slice(b"{}");
            return;
        }
        let raw = self.raw.bytes();
        let rest = &raw[splice..];
        out.put_u8(b'{');
        out.put_slice(&raw[metadata..splice]);
        write_version(out, revision);
        if rest.first() != Some(&b'}') {
            out.put_u8(b',');
        }
        out.put_slice(&rest[..object_end(rest)]);
    }

    /// Length of the object as a protobuf message in the version it is stored in, if [`set_protobuf_len`] said it.
    ///
    /// [`set_protobuf_len`]: Self::set_protobuf_len
    pub fn protobuf_len(&self) -> Option<usize> {
        match self.protobuf_len.load(Ordering::Relaxed) {
            0 => None,
            length => Some(length as usize),
        }
    }

    pub fn set_protobuf_len(&self, length: usize) {
        self.protobuf_len.store(u32::try_from(length).unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether the bytes are the object as the schema with this id shows it; `None` while nobody has looked.
    pub fn is_settled(&self, schema: u32) -> Option<bool> {
        let known = self.protobuf_len.load(Ordering::Relaxed);
        (known & !UNSETTLED == schema).then_some(known & UNSETTLED == 0)
    }

    pub fn set_settled(&self, schema: u32, settled: bool) {
        let flag = if settled { 0 } else { UNSETTLED };
        self.protobuf_len.store(schema | flag, Ordering::Relaxed);
    }

    /// The whole object as JSON.
    pub fn to_json(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.write(&mut out, self.revision, false);
        out.freeze()
    }
}

fn write_version(out: &mut impl BufMut, revision: Revision) {
    out.put_slice(VERSION_MEMBER.as_bytes());
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = revision.0;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(&digits[at..]);
    out.put_u8(b'"');
}

/// Behind the brace that closes an object whose opening one is not there any more.
fn object_end(rest: &[u8]) -> usize {
    let (mut depth, mut in_string, mut escaped) = (1, false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cached(object: &Object) -> CachedObject {
        let value = coracle_api::encode::to_storage_bytes(object, "v1", "Pod").into();
        let stored =
            KeyValue { key: "pods./ns/web".into(), value, created: Revision(3), modified: Revision(120) };
        CachedObject::new(&stored, None)
    }

    #[test]
    fn splices_the_version_into_stored_bytes() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "data": {"metadata": {}},
            "metadata": {"name": "web", "resourceVersion": "7", "labels": {"b": "2", "a": "1"}}});
        let cached = cached(&object);
        assert_eq!(
            std::str::from_utf8(&cached.to_json()).unwrap(),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","resourceVersion":"120","labels":{"a":"1","b":"2"}},"data":{"metadata":{}}}"#
        );
        let (head, rest) = cached.split(BytesMut::new(), Revision(120)).unwrap();
        assert_eq!([head, rest.clone()].concat(), cached.to_json());
        assert_eq!(rest.as_ptr_range().end, cached.raw.bytes().as_ptr_range().end);
        let mut item = BytesMut::new();
        cached.write(&mut item, Revision(10), true);
        assert!(item.starts_with(br#"{"metadata":{"name":"web","resourceVersion":"10","labels""#));
        assert_eq!(cached.label("b"), Some("2"));
        assert_eq!((cached.namespace(), cached.name()), ("ns", "web"));
        assert_eq!(cached.decode()["metadata"]["resourceVersion"], "120");
    }

    #[test]
    fn metadata_alone() {
        let object =
            json!({"metadata": {"name": "we}b\"{", "labels": {"a": "\\"}}, "spec": {"metadata": {}}});
        let cached = cached(&object);
        let mut out = Vec::new();
        cached.write_metadata(&mut out, Revision(7));
        let parsed: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(parsed, json!({"name": "we}b\"{", "labels": {"a": "\\"}, "resourceVersion": "7"}));
        let custom = json!({"metadata": {"uid": "u", "name": "n", "generation": 1}});
        let value = coracle_api::encode::to_storage_bytes(&custom, "example.com/v1", "Widget").into();
        let stored = KeyValue {
            key: "widgets.example.com//n".into(),
            value,
            created: Revision(3),
            modified: Revision(4),
        };
        let mut out = Vec::new();
        CachedObject::new(&stored, None).write_metadata(&mut out, Revision(7));
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            r#"{"name":"n","uid":"u","resourceVersion":"7","generation":1}"#
        );
    }

    #[test]
    fn empty_metadata_stays_valid_json() {
        let cached = cached(&json!({"kind": "Pod", "metadata": {}}));
        let parsed: Value = serde_json::from_slice(&cached.to_json()).unwrap();
        assert_eq!(parsed["metadata"]["resourceVersion"], "120");
    }
}
