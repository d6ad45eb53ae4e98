//! The body of a list: stored bytes, with a resourceVersion spliced into each, made piece by piece while it is
//! sent. Nothing is decoded, and no more than a piece is in memory.

use crate::cache::CachedObject;
use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Large enough to cost few system calls, small enough for many lists at a time.
const PIECE_BYTES: usize = 64 * 1024;

pub struct ListBody {
    head: Option<Bytes>,
    items: std::vec::IntoIter<Arc<CachedObject>>,
    first: bool,
    done: bool,
    packer: Option<GzEncoder<Vec<u8>>>,
}

/// What stands in a list beside its items.
pub struct ListHead<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
    pub revision: u64,
    pub next: Option<String>,
    pub remaining: Option<usize>,
}

impl ListHead<'_> {
    /// The `ListMeta`.
    pub fn metadata(&self) -> serde_json::Value {
        let mut metadata = serde_json::json!({ "resourceVersion": self.revision.to_string() });
        if let Some(token) = &self.next {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }

    fn to_bytes(&self) -> Bytes {
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
            self.kind,
            self.api_version,
            self.metadata()
        );
        Bytes::from(head)
    }
}

impl ListBody {
    pub fn new(head: &ListHead, items: Vec<Arc<CachedObject>>, gzip: bool) -> Self {
        let packer = gzip.then(|| GzEncoder::new(Vec::with_capacity(PIECE_BYTES / 4), Compression::fast()));
        Self { head: Some(head.to_bytes()), items: items.into_iter(), first: true, done: false, packer }
    }

    /// The next plain piece; empty at the end.
    fn piece(&mut self) -> BytesMut {
        if self.done {
            return BytesMut::new();
        }
        let mut out = BytesMut::with_capacity(PIECE_BYTES + 8 * 1024);
        if let Some(head) = self.head.take() {
            out.put_slice(&head);
        }
        for item in self.items.by_ref() {
            if !self.first {
                out.put_u8(b',');
            }
            self.first = false;
            item.write(&mut out, item.revision, true);
            if out.len() >= PIECE_BYTES {
                return out;
            }
        }
        out.put_slice(b"]}\n");
        self.done = true;
        out
    }

    /// The whole body at once.
    pub fn to_bytes(mut self) -> Bytes {
        let mut whole = self.piece();
        while !self.done {
            let piece = self.piece();
            whole.unsplit(piece);
        }
        whole.freeze()
    }

    fn packed_piece(&mut self) -> Option<Bytes> {
        loop {
            let plain = self.piece();
            let packer = self.packer.as_mut()?;
            if plain.is_empty() {
                let last = self.packer.take()?.finish().ok()?;
                return Some(last.into());
            }
            packer.write_all(&plain).ok()?;
            if packer.get_ref().len() >= PIECE_BYTES {
                return Some(std::mem::take(packer.get_mut()).into());
            }
        }
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = if self.packer.is_some() {
            self.packed_piece()
        } else if self.done {
            None
        } else {
            Some(self.piece().freeze())
        };
        Poll::Ready(piece.map(|p| Ok(Frame::data(p))))
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.packer.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
