//! Bodies packed for the client, piece by piece, and unpacked again for those who look into them.

use bytes::Bytes;
use flate2::read::GzDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::Read;

/// Shorter pieces wait for the next one.
const PIECE_BYTES: usize = 16 * 1024;

/// The head of a gzip member: deflate, no name, no time, unknown system (RFC 1952).
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A text that is packed once and put between others again and again.
pub struct Packed {
    /// Whole blocks that refer to nothing before them.
    pub blocks: Bytes,
    crc: Crc,
}

impl Packed {
    pub fn of(plain: &[u8]) -> Self {
        let mut packer = Packer::bare();
        packer.add(plain);
        packer.flush(FlushCompress::Full);
        Self { blocks: packer.out.into(), crc: packer.crc }
    }
}

/// One gzip member, from its head to its end.
pub struct Packer {
    deflate: Compress,
    crc: Crc,
    out: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Self { out: HEAD.to_vec(), ..Self::bare() }
    }
}

impl Packer {
    fn bare() -> Self {
        Self { deflate: Compress::new(Compression::fast(), false), crc: Crc::new(), out: Vec::new() }
    }

    pub fn add(&mut self, plain: &[u8]) {
        self.crc.update(plain);
        self.deflate(plain, FlushCompress::None);
    }

    /// What was packed so far is to be sent, and then the blocks of `packed`.
    pub fn add_packed(&mut self, packed: &Packed) -> Bytes {
        self.flush(FlushCompress::Full);
        self.crc.combine(&packed.crc);
        self.take()
    }

    /// What there is to send, if it is worth it.
    pub fn ready(&mut self) -> Option<Bytes> {
        (self.out.len() >= PIECE_BYTES).then(|| self.take())
    }

    /// The end of the member.
    pub fn finish(mut self) -> Bytes {
        self.flush(FlushCompress::Finish);
        self.out.extend_from_slice(&self.crc.sum().to_le_bytes());
        self.out.extend_from_slice(&self.crc.amount().to_le_bytes());
        self.take()
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.out).into()
    }

    fn flush(&mut self, how: FlushCompress) {
        self.deflate(&[], how);
    }

    fn deflate(&mut self, mut plain: &[u8], how: FlushCompress) {
        loop {
            self.out.reserve(PIECE_BYTES);
            let before = self.deflate.total_in();
            // Packing fails only for who calls it wrongly; the client would see a body that was cut off.
            let Ok(status) = self.deflate.compress_vec(plain, &mut self.out, how) else { return };
            let taken = usize::try_from(self.deflate.total_in() - before).unwrap_or(plain.len());
            plain = &plain[taken.min(plain.len())..];
            let has_room = self.out.len() < self.out.capacity();
            if plain.is_empty() && (has_room || status == Status::StreamEnd) {
                return;
            }
        }
    }
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

    fn noise(n: u32) -> Bytes {
        (0..2_000_u32).flat_map(|i| (n ^ i).wrapping_mul(2_654_435_761).to_le_bytes()).collect()
    }

    fn is_unpacked(packed: &[Bytes], plain: &[u8]) {
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        assert_eq!(unpacked(&headers, &packed.concat().into()), plain);
    }

    #[test]
    fn what_is_packed_in_pieces_is_unpacked_whole() {
        let pieces: Vec<Bytes> = (0..50).map(noise).collect();
        let (mut packer, mut sent) = (Packer::default(), Vec::new());
        for piece in &pieces {
            packer.add(piece);
            sent.extend(packer.ready());
        }
        assert!(sent.len() > 10, "{} pieces", sent.len());
        sent.push(packer.finish());
        is_unpacked(&sent, &pieces.concat());
    }

    #[test]
    fn what_was_packed_before_stands_between_the_others() {
        let text = "a text that says itself again and again, ".repeat(5_000);
        let packed = [Packed::of(text.as_bytes()), Packed::of(b""), Packed::of(&noise(7))];
        let (mut packer, mut sent, mut plain) = (Packer::default(), Vec::new(), Vec::new());
        for (packed, whole) in packed.iter().zip([text.as_bytes(), b"", &noise(7)]) {
            packer.add(b"a text that says itself again");
            sent.push(packer.add_packed(packed));
            sent.push(packed.blocks.clone());
            plain.extend_from_slice(b"a text that says itself again");
            plain.extend_from_slice(whole);
        }
        packer.add(text.as_bytes());
        plain.extend_from_slice(text.as_bytes());
        sent.push(packer.finish());
        is_unpacked(&sent, &plain);
        is_unpacked(&[Packer::default().finish()], b"");
    }
}
