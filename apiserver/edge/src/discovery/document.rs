//! A finished answer.

use bytes::Bytes;
use coracle_api::encode::InOrder;
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

    /// With the members of objects in this order, that of upstream's structs.
    pub fn json(value: &Value, order: &[&str]) -> Self {
        let mut body = serde_json::to_vec(&InOrder { value, order }).unwrap_or_default();
        body.push(b'\n');
        Self::new("application/json", body)
    }

    /// As [`json`](Self::json), for people to read.
    pub fn indented(value: &Value, order: &[&str]) -> Self {
        let body = serde_json::to_vec_pretty(&InOrder { value, order }).unwrap_or_default();
        Self::new("application/json", body)
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
