//! A finished answer.

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A body with what its headers have to say.
#[derive(Clone, Debug)]
pub struct Document {
    pub content_type: &'static str,
    pub body: Bytes,
    /// Strong and quoted, as it goes into the header.
    pub etag: String,
}

impl Document {
    pub fn new(content_type: &'static str, body: Vec<u8>) -> Self {
        let etag = format!("\"{}\"", hex(&Sha256::digest(&body)));
        Self { content_type, body: body.into(), etag }
    }

    pub fn json(value: &Value) -> Self {
        Self::new("application/json", value.to_string().into_bytes())
    }

    /// One that is not made, because the client has it already or is sent elsewhere.
    pub fn unmade(content_type: &'static str, etag: &str) -> Self {
        Self { content_type, body: Bytes::new(), etag: etag.to_owned() }
    }

    /// Whether the header `If-None-Match` lets the server answer 304.
    pub fn matches(&self, if_none_match: &str) -> bool {
        let tags = if_none_match.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.into_iter().any(|tag| tag == "*" || tag == self.etag)
    }
}

/// Upper case, as upstream writes the hashes of discovery and OpenAPI.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect()
}
