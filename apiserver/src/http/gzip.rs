//! Bodies packed for the client, piece by piece, and unpacked again for those who look into them.

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::{Read, Write};

/// Shorter pieces wait for the next one.
const PIECE_BYTES: usize = 16 * 1024;

/// The pieces of a body, packed as they are asked for.
pub fn packed(mut pieces: impl Iterator<Item = Bytes>) -> impl Iterator<Item = Bytes> {
    let mut packer = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    std::iter::from_fn(move || {
        for piece in pieces.by_ref() {
            // Writing to memory cannot fail; if it did, the client would see a body that was cut off.
            let into = packer.as_mut()?;
            into.write_all(&piece).ok()?;
            if into.get_ref().len() >= PIECE_BYTES {
                return Some(std::mem::take(into.get_mut()).into());
            }
        }
        Some(packer.take()?.finish().ok()?.into())
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_is_packed_in_pieces_is_unpacked_whole() {
        let pieces: Vec<Bytes> = (0..50_u32)
            .map(|n| (0..2_000_u32).flat_map(|i| (n ^ i).wrapping_mul(2_654_435_761).to_le_bytes()).collect())
            .collect();
        let packed: Vec<Bytes> = packed(pieces.clone().into_iter()).collect();
        assert!(packed.len() > 10, "{} pieces", packed.len());
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        assert_eq!(unpacked(&headers, &packed.concat().into()), pieces.concat());
    }
}
