//! Protobuf's wire format, for reading: <https://protobuf.dev/programming-guides/encoding/>.

use super::{ProtobufError, Result};

/// One value as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Wire<'a> {
    pub fn bytes(self) -> Result<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(ProtobufError::Malformed) }
    }

    /// An absent value of a map entry is read as empty bytes, and is zero.
    pub fn varint(self) -> Result<u64> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Bytes([]) => Ok(0),
            _ => Err(ProtobufError::Malformed),
        }
    }

    pub fn double(self) -> Result<f64> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            Self::Fixed32(bits) => Ok(f64::from(f32::from_bits(bits))),
            _ => Err(ProtobufError::Malformed),
        }
    }
}

/// The fields of a message, in their order. Ends after an error.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(ProtobufError::Malformed)?;
        self.rest = tail;
        Ok(head)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed)
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>)> {
        let key = self.varint()?;
        let tag = u32::try_from(key >> 3).map_err(|_| ProtobufError::Malformed)?;
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Malformed)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtobufError::Malformed),
        };
        Ok((tag, wire))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| ProtobufError::Malformed)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// A packed list of varints.
pub fn packed(bytes: &[u8]) -> Result<Vec<u64>> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while !reader.rest.is_empty() {
        found.push(reader.varint()?);
    }
    Ok(found)
}

/// Appends fields.
pub mod put {
    pub fn varint(out: &mut Vec<u8>, mut number: u64) {
        while number >= 0x80 {
            out.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        out.push((number & 0x7f) as u8);
    }

    pub fn key(out: &mut Vec<u8>, tag: u32, wire: u32) {
        varint(out, u64::from(tag << 3 | wire));
    }

    pub fn number(out: &mut Vec<u8>, tag: u32, number: i64) {
        key(out, tag, 0);
        varint(out, number.cast_unsigned());
    }

    pub fn double(out: &mut Vec<u8>, tag: u32, number: f64) {
        key(out, tag, 1);
        out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn bytes(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
        key(out, tag, 2);
        varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    /// Bytes that [`varint`] takes.
    pub fn varint_len(number: u64) -> usize {
        (70 - (number | 1).leading_zeros() as usize) / 7
    }

    /// Writes the length of what follows the one byte that was left for it at `start`.
    pub fn close(out: &mut Vec<u8>, start: usize) {
        let length = (out.len() - start - 1) as u64;
        let more = varint_len(length) - 1;
        if more > 0 {
            let end = out.len();
            out.resize(end + more, 0);
            out.copy_within(start + 1..end, start + 1 + more);
        }
        for at in 0..=more {
            let bits = (length >> (7 * at) & 0x7f) as u8;
            out[start + at] = if at < more { bits | 0x80 } else { bits };
        }
    }
}
