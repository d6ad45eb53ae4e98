//! Objects from the bytes they are stored in, without decoding them: JSON with a resourceVersion spliced in,
//! metadata cut out, or protobuf transcoded.

use crate::wire::negotiation::{Format, Shape, Wanted};
use bytes::Bytes;
use coracle_api::encode::Ordered;
use coracle_api::protobuf::{self, Encoder, ProtobufError, Type, put};
use coracle_api::{ApiError, Object, Resource};
use coracle_resources::cache::{CachedObject, Event, OTHER_ENCODINGS, Seen, frame, pieces};
use coracle_store::Revision;

/// Objects sized between two chances for other tasks to run: about half a millisecond.
const SIZED_AT_ONCE: usize = 64;

/// How the objects of one resource are written for one client.
pub struct ObjectForm {
    format: Format,
    metadata_only: bool,
    api_version: String,
    kind: String,
    ty: Option<Type>,
    encoder: Encoder,
    scratch: Vec<u8>,
}

impl ObjectForm {
    /// `None` where objects have to be decoded: tables, YAML, and resources that are stored in another version.
    pub fn new(wanted: Wanted, resource: &Resource) -> Option<Self> {
        if wanted.shape == Shape::Table || wanted.format == Format::Yaml || resource.needs_conversion() {
            return None;
        }
        let metadata_only = wanted.shape == Shape::Metadata;
        let (api_version, kind) = if metadata_only {
            (wanted.meta_version().to_owned(), "PartialObjectMetadata".to_owned())
        } else {
            (resource.api_version(), resource.kind.to_string())
        };
        let ty = Type::find(&api_version, &kind);
        if wanted.format == Format::Protobuf && ty.is_none() {
            return None;
        }
        let encoder = Encoder::default();
        Some(Self {
            format: wanted.format,
            metadata_only,
            api_version,
            kind,
            ty,
            encoder,
            scratch: Vec::new(),
        })
    }

    /// Appends the JSON, or the protobuf message without an envelope.
    pub fn append(
        &mut self,
        object: &CachedObject,
        revision: Revision,
        as_item: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtobufError> {
        let Some(ty) = self.ty.filter(|_| self.format == Format::Protobuf) else {
            self.append_json(object, revision, as_item, out);
            return Ok(());
        };
        if !self.metadata_only {
            return self.encoder.message(ty, &object.raw.bytes(), Some(revision.0), out);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(b"{\"metadata\":");
        object.write_metadata(&mut self.scratch, revision);
        self.scratch.push(b'}');
        self.encoder.message(ty, &self.scratch, None, out)
    }

    fn append_json(&self, object: &CachedObject, revision: Revision, as_item: bool, out: &mut Vec<u8>) {
        if !self.metadata_only {
            object.write(out, revision, as_item);
            return;
        }
        let head =
            format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":", self.kind, self.api_version);
        out.extend_from_slice(head.as_bytes());
        object.write_metadata(out, revision);
        out.push(b'}');
    }

    /// A whole body with one object.
    pub fn body(&mut self, object: &CachedObject) -> Result<Bytes, ProtobufError> {
        let mut out = Vec::with_capacity(object.encoded_len() + 64);
        self.append(object, object.revision, false, &mut out)?;
        Ok(self.enveloped(out).into())
    }

    fn enveloped(&self, message: Vec<u8>) -> Vec<u8> {
        if self.format != Format::Protobuf {
            return message;
        }
        let mut out = protobuf::envelope_head(&self.api_version, &self.kind, message.len());
        out.extend_from_slice(&message);
        out.extend_from_slice(protobuf::envelope_tail());
        out
    }

    /// A watch event, serialized once for all who want the same.
    pub fn event(&mut self, seen: Seen, event: &Event) -> Bytes {
        let Some(object) = event.object(seen) else { return Bytes::new() };
        match self.encoding() {
            None => event.frame(seen),
            Some(encoding) if encoding < OTHER_ENCODINGS => {
                event.frame_in(encoding, seen, || self.frame(seen, object, event.revision))
            }
            Some(_) => self.frame(seen, object, event.revision),
        }
    }

    /// Which of an event's kept frames this form's are; `None` for JSON of whole objects.
    fn encoding(&self) -> Option<usize> {
        match (self.format, self.metadata_only) {
            (Format::Protobuf, false) => Some(0),
            (_, false) => None,
            _ if self.api_version.ends_with("beta1") => Some(OTHER_ENCODINGS),
            (Format::Protobuf, true) => Some(1),
            (_, true) => Some(2),
        }
    }

    /// A watch event of an object as of `revision`.
    pub fn frame(&mut self, seen: Seen, object: &CachedObject, revision: Revision) -> Bytes {
        if self.encoding().is_none() {
            return frame(seen, object, revision);
        }
        let mut out = Vec::with_capacity(object.encoded_len());
        if self.format == Format::Protobuf {
            if let Err(error) = self.append(object, revision, false, &mut out) {
                tracing::error!(key = &*object.key, %error, "an object cannot be written as protobuf");
                return Bytes::new();
            }
            return protobuf_frame(seen.as_str(), &self.enveloped(out));
        }
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(seen.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.append_json(object, revision, false, &mut out);
        out.extend_from_slice(b"}\n");
        out.into()
    }

    /// As [`frame`](Self::frame), in pieces that share the object's own bytes; `None` where they are written otherwise.
    pub fn pieces(&self, seen: Seen, object: &CachedObject, revision: Revision) -> Option<[Bytes; 3]> {
        self.encoding().is_none().then(|| pieces(seen, object, revision)).flatten()
    }

    /// The length of each object's message, for the head of a list.
    pub async fn sizes<'a>(
        &mut self,
        objects: impl ExactSizeIterator<Item = &'a CachedObject>,
    ) -> Result<Vec<u32>, ApiError> {
        let mut sizes = Vec::with_capacity(objects.len());
        let mut scratch = Vec::new();
        let mut fresh = 0;
        for object in objects {
            let known = if self.metadata_only { None } else { object.protobuf_len() };
            let length = match known {
                Some(length) => length,
                None => {
                    scratch.clear();
                    self.append(object, object.revision, true, &mut scratch).map_err(ApiError::internal)?;
                    fresh += 1;
                    if fresh % SIZED_AT_ONCE == 0 {
                        tokio::task::yield_now().await;
                    }
                    scratch.len()
                }
            };
            if !self.metadata_only {
                object.set_protobuf_len(length);
            }
            sizes.push(u32::try_from(length).map_err(ApiError::internal)?);
        }
        Ok(sizes)
    }
}

/// An event in JSON, with its line break, or in protobuf, with its length.
pub fn event_of(format: Format, kind: &str, object: &Object) -> Bytes {
    if format == Format::Protobuf {
        return match protobuf::encode(object) {
            Ok(body) => protobuf_frame(kind, &body),
            Err(error) => {
                tracing::error!(%error, "an event cannot be written as protobuf");
                Bytes::new()
            }
        };
    }
    let mut bytes = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    // Writing a Value to memory cannot fail: its keys are strings and its numbers finite.
    let written = serde_json::to_writer(&mut bytes, &Ordered::of(object));
    debug_assert!(written.is_ok());
    bytes.extend_from_slice(b"}\n");
    bytes.into()
}

/// A `WatchEvent`: its type (1) and its object (2), whole with envelope, in a RawExtension (1). In front stands the
/// length in four bytes, the largest first.
fn protobuf_frame(kind: &str, body: &[u8]) -> Bytes {
    let mut extension = Vec::with_capacity(body.len() + 8);
    put::bytes(&mut extension, 1, body);
    let mut out = vec![0; 4];
    out.reserve_exact(extension.len() + kind.len() + 16);
    put::bytes(&mut out, 1, kind.as_bytes());
    put::bytes(&mut out, 2, &extension);
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.into()
}
