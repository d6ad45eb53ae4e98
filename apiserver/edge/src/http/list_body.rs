//! The body of a list: stored bytes, brought into the client's form, made piece by piece while it is sent. Nothing is
//! decoded, and no more than a piece is in memory.

use super::object_form::ObjectForm;
use bytes::Bytes;
use coracle_api::encode::InOrder;
use coracle_api::protobuf::{self, Encoder, Type, put};
use coracle_api::{ApiError, Object};
use coracle_resources::cache::CachedObject;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame, SizeHint};
use serde_json::json;
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Large enough to cost few system calls, small enough for many lists at a time; others wait no longer for a processor than
/// it takes to make one.
const PIECE_BYTES: usize = 64 * 1024;

pub struct ListBody {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<CachedObject>>,
    form: ObjectForm,
    /// Items say what they are, as upstream's without structs do; others do not.
    named: bool,
    /// Of each item as a protobuf message, the last one first; `None` for JSON.
    sizes: Option<Vec<u32>>,
    first: bool,
    done: bool,
    packer: Option<GzEncoder<Vec<u8>>>,
    /// A piece was made, and before the next one it is the turn of others: sockets on the same machine take whole lists
    /// without ever making their writer wait, and whoever asks for many would have all processors for long.
    others_turn: bool,
}

/// What stands in a list beside its items.
pub struct ListHead<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
    pub revision: u64,
    pub next: Option<String>,
    pub remaining: Option<usize>,
    /// Of custom resources, which upstream writes without structs: by name, with a `continue` in any case, and items that
    /// say what they are.
    pub custom: bool,
}

impl ListHead<'_> {
    /// The `ListMeta`.
    pub fn metadata(&self) -> Object {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if let Some(token) = &self.next {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }

    /// The items of a list that is made of objects: those of built-in kinds do not say what they are.
    pub fn items(&self, objects: Vec<Object>) -> Vec<Object> {
        let mut items = objects;
        let built_in = items.iter_mut().filter(|_| !self.custom).filter_map(Object::as_object_mut);
        for item in built_in {
            item.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
        }
        items
    }

    fn metadata_text(&self) -> String {
        let mut metadata = self.metadata();
        if self.custom && self.next.is_none() {
            metadata["continue"] = "".into();
        }
        let order: &[&str] = if self.custom { &[] } else { &["resourceVersion", "continue"] };
        serde_json::to_string(&InOrder { value: &metadata, order }).unwrap_or_default()
    }

    fn json(&self) -> Vec<u8> {
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
            self.kind,
            self.api_version,
            self.metadata_text()
        )
        .into_bytes()
    }

    /// The envelope and the metadata of a message whose items take `items` bytes.
    fn protobuf(&self, items: usize) -> Result<Vec<u8>, ApiError> {
        let unknown =
            || ApiError::internal(format!("no protobuf form of {} {}", self.api_version, self.kind));
        let ty = Type::find(self.api_version, self.kind).ok_or_else(unknown)?;
        let text = json!({ "metadata": self.metadata() }).to_string();
        let mut metadata = Vec::new();
        Encoder::default().message(ty, text.as_bytes(), None, &mut metadata).map_err(ApiError::internal)?;
        let mut out = protobuf::envelope_head(self.api_version, self.kind, metadata.len() + items);
        out.extend_from_slice(&metadata);
        Ok(out)
    }
}

impl ListBody {
    pub fn json(head: &ListHead<'_>, items: Vec<Arc<CachedObject>>, form: ObjectForm, gzip: bool) -> Self {
        Self { named: head.custom, ..Self::new(head.json(), items, form, None, gzip) }
    }

    pub async fn protobuf(
        head: &ListHead<'_>,
        items: Vec<Arc<CachedObject>>,
        form: ObjectForm,
        gzip: bool,
    ) -> Result<Self, ApiError> {
        let mut form = form;
        let mut sizes = form.sizes(items.iter().map(|item| &**item)).await?;
        let framed = |size: &u32| *size as usize + 1 + put::varint_len(u64::from(*size));
        let head = head.protobuf(sizes.iter().map(framed).sum())?;
        sizes.reverse();
        Ok(Self::new(head, items, form, Some(sizes), gzip))
    }

    fn new(
        head: Vec<u8>,
        items: Vec<Arc<CachedObject>>,
        form: ObjectForm,
        sizes: Option<Vec<u32>>,
        gzip: bool,
    ) -> Self {
        let packer = gzip.then(|| GzEncoder::new(Vec::with_capacity(PIECE_BYTES / 4), Compression::fast()));
        let items = items.into_iter();
        Self {
            head: Some(head),
            items,
            form,
            named: false,
            sizes,
            first: true,
            done: false,
            packer,
            others_turn: false,
        }
    }

    /// The next plain piece; empty at the end.
    fn piece(&mut self) -> Vec<u8> {
        if self.done {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(PIECE_BYTES + 8 * 1024);
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        while let Some(item) = self.items.next() {
            self.put(&item, &mut out);
            if out.len() >= PIECE_BYTES {
                return out;
            }
        }
        out.extend_from_slice(if self.sizes.is_some() { protobuf::envelope_tail() } else { b"]}\n" });
        self.done = true;
        out
    }

    fn put(&mut self, item: &CachedObject, out: &mut Vec<u8>) {
        match &mut self.sizes {
            Some(sizes) => {
                put::key(out, 2, 2);
                put::varint(out, u64::from(sizes.pop().unwrap_or_default()));
            }
            None if self.first => self.first = false,
            None => out.push(b','),
        }
        if let Err(error) = self.form.append(item, item.revision, !self.named, out) {
            // It went well when the sizes were taken, from the same bytes.
            tracing::error!(key = &*item.key, %error, "an item of a list cannot be written");
        }
    }

    /// The whole body at once.
    pub fn to_bytes(mut self) -> Bytes {
        let mut whole = self.piece();
        while !self.done {
            whole.append(&mut self.piece());
        }
        whole.into()
    }

    /// Packs a piece: something to send, nothing yet (an empty one), or the end.
    fn packed_piece(&mut self) -> Option<Bytes> {
        let plain = self.piece();
        let packer = self.packer.as_mut()?;
        if plain.is_empty() {
            let last = self.packer.take()?.finish().ok()?;
            return Some(last.into());
        }
        packer.write_all(&plain).ok()?;
        let is_enough = packer.get_ref().len() >= PIECE_BYTES;
        Some(if is_enough { std::mem::take(packer.get_mut()).into() } else { Bytes::new() })
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::take(&mut self.others_turn) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.others_turn = true;
        let piece = if self.packer.is_some() {
            self.packed_piece()
        } else if self.done {
            None
        } else {
            Some(self.piece().into())
        };
        if piece.as_ref().is_some_and(Bytes::is_empty) {
            return self.poll_frame(cx);
        }
        Poll::Ready(piece.map(|p| Ok(Frame::data(p))))
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.packer.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
