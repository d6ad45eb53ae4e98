//! Header blocks: name/value pairs behind one zlib stream per direction and connection.

use super::SpdyError;
use super::dictionary::DICTIONARY;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Bytes of one decompressed header block. Kubernetes' streams carry four short headers; the limit stops a small
/// block that inflates without end.
const MAX_BLOCK: usize = 64 * 1024;

/// Bytes by which the buffers of compression grow.
const STEP: usize = 1024;

/// Header names (lower case) and values, in order. Several values of one name are separate pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    pub fn new<const N: usize>(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.iter().map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned())).collect())
    }

    /// The first value of a name given in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The block before compression. Values of one name are joined by NUL.
    fn block(&self) -> Vec<u8> {
        let mut joined: Vec<(&str, String)> = Vec::new();
        for (name, value) in &self.0 {
            match joined.iter_mut().find(|(n, _)| n == name) {
                Some((_, values)) => {
                    values.push('\0');
                    values.push_str(value);
                }
                None => joined.push((name, value.clone())),
            }
        }
        let mut block = Vec::new();
        push_length(&mut block, joined.len());
        for (name, values) in joined {
            push_length(&mut block, name.len());
            block.extend_from_slice(name.as_bytes());
            push_length(&mut block, values.len());
            block.extend_from_slice(values.as_bytes());
        }
        block
    }

    fn parse(mut block: &[u8]) -> Option<Self> {
        let count = take_length(&mut block)?;
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = take_text(&mut block)?.to_ascii_lowercase();
            let values = take_text(&mut block)?;
            headers.extend(values.split('\0').map(|value| (name.clone(), value.to_owned())));
        }
        block.is_empty().then_some(Self(headers))
    }
}

fn push_length(block: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    block.extend_from_slice(&length.to_be_bytes());
}

fn take_length(block: &mut &[u8]) -> Option<usize> {
    let (length, rest) = block.split_first_chunk::<4>()?;
    *block = rest;
    usize::try_from(u32::from_be_bytes(*length)).ok()
}

fn take_text<'a>(block: &mut &'a [u8]) -> Option<std::borrow::Cow<'a, str>> {
    let length = take_length(block)?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    Some(String::from_utf8_lossy(text))
}

/// Compresses the blocks of one direction.
pub(super) struct Deflater(Compress);

impl Deflater {
    pub(super) fn new() -> Result<Self, SpdyError> {
        let mut stream = Compress::new(Compression::fast(), true);
        stream.set_dictionary(&DICTIONARY).map_err(|_| SpdyError::Compression)?;
        Ok(Self(stream))
    }

    /// One block, flushed to a byte boundary so that the peer can read it whole.
    pub(super) fn compress(&mut self, headers: &Headers) -> Result<Vec<u8>, SpdyError> {
        let block = headers.block();
        if block.len() > MAX_BLOCK {
            return Err(SpdyError::HeadersTooLarge(MAX_BLOCK));
        }
        let (start, mut out) = (self.0.total_in(), Vec::with_capacity(STEP));
        loop {
            let rest = unread(&block, self.0.total_in() - start);
            self.0.compress_vec(rest, &mut out, FlushCompress::Sync).map_err(|_| SpdyError::Compression)?;
            if out.len() < out.capacity() {
                return Ok(out);
            }
            out.reserve(STEP);
        }
    }
}

fn unread(input: &[u8], consumed: u64) -> &[u8] {
    usize::try_from(consumed).ok().and_then(|at| input.get(at..)).unwrap_or_default()
}

/// Decompresses the blocks of one direction.
pub(super) struct Inflater(Decompress);

impl Inflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    pub(super) fn decompress(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        let (start, mut out) = (self.0.total_in(), Vec::with_capacity(STEP));
        loop {
            let rest = unread(block, self.0.total_in() - start);
            match self.0.decompress_vec(rest, &mut out, FlushDecompress::Sync) {
                Ok(Status::StreamEnd) => return Err(SpdyError::Compression),
                Ok(Status::Ok | Status::BufError) if out.len() < out.capacity() => break,
                Ok(_) if out.len() > MAX_BLOCK => return Err(SpdyError::HeadersTooLarge(MAX_BLOCK)),
                Ok(_) => out.reserve(STEP),
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| SpdyError::Compression)?;
                }
                Err(_) => return Err(SpdyError::Compression),
            }
        }
        if !unread(block, self.0.total_in() - start).is_empty() {
            return Err(SpdyError::Compression);
        }
        Headers::parse(&out).ok_or(SpdyError::Compression)
    }
}
