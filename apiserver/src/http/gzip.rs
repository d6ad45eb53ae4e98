//! Bodies that were packed for the client, for those who look into them.

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::Read;

/// The body as it was before it was packed; nothing if it cannot be unpacked.
pub fn unpacked(headers: &HeaderMap, bytes: &Bytes) -> Bytes {
    if headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding != "gzip") {
        return bytes.clone();
    }
    let mut plain = Vec::new();
    match GzDecoder::new(&bytes[..]).read_to_end(&mut plain) {
        Ok(_) => plain.into(),
        Err(_) => Bytes::new(),
    }
}
