//! An object's JSON as a watch brought it.

use bytes::Bytes;
use std::borrow::Cow;

/// In one piece, or in two where the server is in this process and shares the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    head: Bytes,
    rest: Bytes,
    /// Whether `rest` is memory that the server keeps anyway.
    shared: bool,
}

impl From<Bytes> for Document {
    fn from(whole: Bytes) -> Self {
        Self { head: Bytes::new(), rest: whole, shared: false }
    }
}

impl Document {
    /// `head` and `rest` put together are the object.
    pub(crate) fn shared(head: Bytes, rest: Bytes) -> Self {
        Self { head, rest, shared: true }
    }

    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The beginning of the object, at least as far as its resourceVersion if our own server sent it.
    pub(crate) fn beginning(&self) -> &[u8] {
        if self.head.is_empty() { &self.rest } else { &self.head }
    }

    /// The object in one piece.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.head.is_empty() {
            return Cow::Borrowed(&self.rest);
        }
        Cow::Owned([&*self.head, &*self.rest].concat())
    }

    /// As [`bytes`](Self::bytes); no copy where there is one piece.
    pub fn into_bytes(self) -> Bytes {
        if self.head.is_empty() { self.rest } else { self.bytes().into_owned().into() }
    }

    /// To be kept for long: holds on to no memory but its own bytes and what the server shares.
    #[must_use]
    pub fn kept(self) -> Self {
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let rest = if self.shared { self.rest } else { own(&self.rest) };
        Self { head: own(&self.head), rest, shared: self.shared }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.rest.as_ptr() == other.rest.as_ptr() && self.head.as_ptr() == other.head.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_are_one_object() {
        let rest = Bytes::from_static(b"\"name\":\"a\"}}");
        let document = Document::shared(Bytes::from_static(b"{\"metadata\":{"), rest.clone());
        assert_eq!(document.bytes(), &b"{\"metadata\":{\"name\":\"a\"}}"[..]);
        let kept = document.kept();
        assert_eq!(kept.rest.as_ptr(), rest.as_ptr(), "what is shared is not copied");
        assert_eq!(kept.into_bytes(), &b"{\"metadata\":{\"name\":\"a\"}}"[..]);
    }

    #[test]
    fn what_is_kept_holds_no_other_memory() {
        let line = Bytes::from(b"xx{}yy".to_vec());
        let document = Document::from(line.slice(2..4));
        assert_eq!(document.clone().into_bytes().as_ptr(), line[2..].as_ptr());
        assert_ne!(document.clone().kept().into_bytes().as_ptr(), line[2..].as_ptr());
        assert_eq!(document.bytes(), &b"{}"[..]);
    }
}
