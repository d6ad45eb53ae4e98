//! A state in one stream: snapshots, backups, and what history needs from before a checkpoint.
//!
//! A plain header with its own checksum, then one deflate stream of entries, ended by their count and the CRC32C of
//! everything before it. Nothing of a dump counts unless all of it is intact.

use super::record::Input;
use crate::item::Item;
use crate::{Revision, Value};
use flate2::{Compression, bufread::DeflateDecoder, write::DeflateEncoder};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"COROBJ01";
const HEADER: usize = 8 + 3 * 8 + 4;
/// The store refuses larger keys and values long before; a length beyond it is damage.
const LONGEST: usize = 64 << 20;

pub(super) const END: u8 = 0;
const HELD: u8 = 1;
const ABSENT: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The state is as of this revision.
    pub revision: Revision,
    /// Snapshots: the newest revision that may have been handed out when it was made. History: its floor.
    pub other: Revision,
    /// A restored backup, which needs no journal to be whole.
    pub standalone: bool,
}

pub(super) type Entry = (Arc<str>, Option<Item>);

/// Writes a dump; returns the bytes of keys and values in it.
pub(super) fn write<'a>(
    out: impl Write,
    head: Head,
    entries: impl Iterator<Item = (&'a Arc<str>, Option<&'a Item>)>,
) -> io::Result<u64> {
    let mut out = BufWriter::new(out);
    out.write_all(&encode_head(head))?;
    let mut body = Body::new(out);
    let mut count = 0u64;
    for (key, item) in entries {
        count += 1;
        body.entry(key, item)?;
    }
    let bytes = body.bytes;
    body.close(count)?.flush()?;
    Ok(bytes)
}

/// A deflate stream of entries, on its way out.
pub(super) struct Body<W: Write> {
    out: DeflateEncoder<W>,
    crc: u32,
    bytes: u64,
}

impl<W: Write> Body<W> {
    pub fn new(out: W) -> Self {
        Self { out: DeflateEncoder::new(out, Compression::fast()), crc: 0, bytes: 0 }
    }

    /// Ends it with the count of what it holds, and its checksum.
    pub fn close(mut self, count: u64) -> io::Result<W> {
        self.write(&[END])?;
        self.write(&count.to_le_bytes())?;
        let crc = self.crc;
        self.write(&crc.to_le_bytes())?;
        self.out.finish()
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.out.write_all(bytes)
    }

    pub fn entry(&mut self, key: &str, item: Option<&Item>) -> io::Result<()> {
        self.write(&[if item.is_some() { HELD } else { ABSENT }])?;
        self.field(key.as_bytes())?;
        let Some(item) = item else { return Ok(()) };
        self.write(&item.created.0.to_le_bytes())?;
        self.write(&item.modified.0.to_le_bytes())?;
        self.field(&item.value.peek())
    }

    fn field(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.write(&u32::try_from(bytes.len()).map_err(io::Error::other)?.to_le_bytes())?;
        self.write(bytes)
    }
}

fn encode_head(head: Head) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for field in [head.revision.0, head.other.0, u64::from(head.standalone)] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode_head(bytes: &[u8]) -> Option<Head> {
    let (fields, crc) = bytes.split_at_checked(HEADER - 4)?;
    if Input(crc).u32()? != crc32c::crc32c(fields) {
        return None;
    }
    let mut input = Input(fields.strip_prefix(MAGIC)?);
    Some(Head {
        revision: Revision(input.u64()?),
        other: Revision(input.u64()?),
        standalone: input.u64()? == 1,
    })
}

/// Reads what a dump says of itself.
pub(super) fn head(mut input: impl Read) -> io::Result<Head> {
    let mut header = [0; HEADER];
    input.read_exact(&mut header).map_err(damaged)?;
    decode_head(&header).ok_or_else(|| damaged("its header is damaged"))
}

/// Reads a dump whole, handing over its entries in order.
///
/// # Errors
/// `InvalidData` if anything in it is damaged; entries handed over before must then be thrown away.
pub(super) fn read(input: impl Read, mut each: impl FnMut(Entry)) -> io::Result<Head> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let head = head(&mut input)?;
    let mut body = Reader::new(input);
    let mut count = 0u64;
    while let Some(entry) = body.entry()? {
        count += 1;
        each(entry);
    }
    body.close(count)?;
    Ok(head)
}

/// A [`Body`], as it is read back.
pub(super) struct Reader<R: io::BufRead> {
    input: DeflateDecoder<R>,
    crc: u32,
}

impl<R: io::BufRead> Reader<R> {
    pub fn new(input: R) -> Self {
        Self { input: DeflateDecoder::new(input), crc: 0 }
    }

    /// Behind its end: whether it held so much, all of it as it was written.
    pub fn close(&mut self, count: u64) -> io::Result<()> {
        if u64::from_le_bytes(self.array()?) != count {
            return Err(damaged("its count is wrong"));
        }
        let expected = self.crc;
        if u32::from_le_bytes(self.array()?) != expected {
            return Err(damaged("its checksum is wrong"));
        }
        if self.input.read(&mut [0]).map_err(damaged)? > 0 {
            return Err(damaged("it does not end where it should"));
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes).map_err(damaged)?;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok(())
    }

    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn field(&mut self) -> io::Result<Vec<u8>> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        if len > LONGEST {
            return Err(damaged("a length is damaged"));
        }
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub fn entry(&mut self) -> io::Result<Option<Entry>> {
        let [tag] = self.array()?;
        if tag == END {
            return Ok(None);
        }
        let key = Arc::from(String::from_utf8(self.field()?).map_err(damaged)?);
        match tag {
            ABSENT => Ok(Some((key, None))),
            HELD => {
                let created = Revision(u64::from_le_bytes(self.array()?));
                let modified = Revision(u64::from_le_bytes(self.array()?));
                let value = Value::from(self.field()?);
                Ok(Some((key, Some(Item { value, created, modified }))))
            }
            _ => Err(damaged("an entry is damaged")),
        }
    }
}

pub(super) fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
