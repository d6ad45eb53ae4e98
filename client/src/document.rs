//! An object's JSON as a watch brought it.

use bytes::Bytes;
use std::borrow::Cow;
use std::ops::Range;

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

    /// The object's resourceVersion, where it stands first in the metadata as our own server writes it.
    pub(crate) fn first_version(&self) -> Option<&str> {
        const FIRST: &[u8] = br#""metadata":{"resourceVersion":""#;
        let object = if self.head.is_empty() { &self.rest } else { &self.head };
        let beginning = &object[..object.len().min(160)];
        let at = beginning.windows(FIRST.len()).position(|window| window == FIRST)?;
        let rest = &beginning[at + FIRST.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits > 0 && rest.get(digits) == Some(&b'"');
        std::str::from_utf8(&rest[..digits]).ok().filter(|_| whole)
    }

    /// The object in one piece.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.head.is_empty() {
            return Cow::Borrowed(&self.rest);
        }
        Cow::Owned([&*self.head, &*self.rest].concat())
    }

    /// The object in one piece, to be decoded by who keeps no managedFields: they are half of many objects, and where
    /// our own server sent it they are left out unread.
    pub(crate) fn unmanaged(&self) -> Cow<'_, [u8]> {
        match managed_fields(&self.rest).filter(|_| !self.head.is_empty()) {
            Some(Range { start, end }) => {
                Cow::Owned([&*self.head, &self.rest[..start], &self.rest[end..]].concat())
            }
            None => self.bytes(),
        }
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

/// Where `managedFields` stands, with the comma behind it, in text that begins inside of `metadata`.
fn managed_fields(text: &[u8]) -> Option<Range<usize>> {
    const KEY: &[u8] = b"managedFields\"";
    let (mut at, mut depth, mut start) = (0, 0, None);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                if depth == 0 && start.is_none() && text[at + 1..].starts_with(KEY) {
                    start = Some(at);
                }
                at = string_end(text, at + 1)?;
            }
            b'{' | b'[' => depth += 1,
            // The end of the metadata.
            b'}' if depth == 0 => return None,
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 && start.is_some() => return start.map(|start| start..at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The quote that ends the string whose first byte is at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
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

    #[test]
    fn versions_are_found_where_our_own_server_puts_them() {
        let version = |object: &'static [u8]| {
            let document = Document::from(Bytes::from_static(object));
            document.first_version().map(str::to_owned)
        };
        let ours = br#"{"kind":"Pod","metadata":{"resourceVersion":"12","name":"a"}}"#;
        assert_eq!(version(ours).as_deref(), Some("12"));
        assert_eq!(version(br#"{"metadata":{"name":"a","resourceVersion":"13"}}"#), None);
    }

    #[test]
    fn only_the_managed_fields_are_left_out() {
        let head = Bytes::from_static(b"{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"7\",");
        let shown = |rest: &'static str| {
            let document = Document::shared(head.clone(), Bytes::from_static(rest.as_bytes()));
            serde_json::from_slice::<serde_json::Value>(&document.unmanaged()).unwrap()
        };
        let metadata = |more: serde_json::Value| {
            let mut metadata = serde_json::json!({ "resourceVersion": "7" });
            metadata.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
            serde_json::json!({ "kind": "Pod", "metadata": metadata })
        };
        let managed = r#""managedFields":[{"fieldsV1":{"f:a":{"}\\\"]":{}}},"manager":"m"}]"#;
        let rest = format!(r#""labels":{{"managedFields":"x"}},{managed},"name":"a"}}}}"#);
        let expected = metadata(serde_json::json!({ "labels": { "managedFields": "x" }, "name": "a" }));
        assert_eq!(shown(rest.leak()), expected);
        // Nothing else is touched: what has the name elsewhere, and what stands last.
        let elsewhere = shown(r#""name":"a"},"data":{"managedFields":[1],"z":2}}"#);
        assert_eq!(elsewhere["data"]["managedFields"], serde_json::json!([1]));
        assert!(shown(r#""managedFields":[]}}"#)["metadata"]["managedFields"].is_array());
    }
}
