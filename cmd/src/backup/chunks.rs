//! The outer form of a backup: a preamble, then chunks, each sealed where there is a key.
//!
//! ```text
//! magic "CORABAK\n" | format u32 | flags u32 | salt 16 | check 16 | first 8 bytes of the SHA-256 of all that
//! then chunks: length u32, whose highest bit marks the last one, and so many bytes
//! ```
//! Numbers are little-endian. A sealed chunk is AES-256-GCM under a key of this file alone (HKDF-SHA256 of the owner's key
//! and the salt); its nonce is its number, and the preamble and the mark of the last one are authenticated with it, so that
//! chunks can be neither changed nor moved, left out or cut off.

use super::ArchiveError;
use super::key::Key;
use rand::RngCore;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"CORABAK\n";
/// The newest form that this version knows, and the one that it writes.
pub const FORMAT: u32 = 1;
const SEALED: u32 = 1;
const SALT: usize = 16;
const CHECK: usize = 16;
const SUM: usize = 8;
const PREAMBLE: usize = 8 + 4 + 4 + SALT + CHECK + SUM;
/// Of what is sealed together: small beside a backup, large beside the 20 bytes that each costs.
const CHUNK: usize = 64 << 10;
const LAST: u32 = 1 << 31;

/// Seals the chunks of one file, or opens them.
struct Sealing {
    key: LessSafeKey,
    number: u64,
    preamble: [u8; PREAMBLE],
}

impl Sealing {
    fn new(derived: &Prk, preamble: [u8; PREAMBLE]) -> Result<Self, ring::error::Unspecified> {
        let key = UnboundKey::from(derived.expand(&[b"coracle backup chunks"], &AES_256_GCM)?);
        Ok(Self { key: LessSafeKey::new(key), number: 0, preamble })
    }

    /// The nonce and the authenticated data of the next chunk.
    fn next(&mut self, last: bool) -> (Nonce, Aad<[u8; PREAMBLE + 1]>) {
        let mut nonce = [0; NONCE_LEN];
        nonce[4..].copy_from_slice(&self.number.to_be_bytes());
        self.number += 1;
        let mut with = [u8::from(last); PREAMBLE + 1];
        with[..PREAMBLE].copy_from_slice(&self.preamble);
        (Nonce::assume_unique_for_key(nonce), Aad::from(with))
    }
}

fn derive(key: &Key, salt: &[u8]) -> Prk {
    Salt::new(HKDF_SHA256, salt).extract(key.bytes())
}

/// By which a wrong key is told from damage.
fn check(derived: &Prk) -> Result<[u8; CHECK], ring::error::Unspecified> {
    let mut whole = [0; 32];
    derived.expand(&[b"coracle backup check"], HKDF_SHA256)?.fill(&mut whole)?;
    let mut check = [0; CHECK];
    check.copy_from_slice(&whole[..CHECK]);
    Ok(check)
}

fn preamble(flags: u32, salt: &[u8; SALT], check: &[u8; CHECK]) -> [u8; PREAMBLE] {
    let fields = [&MAGIC[..], &FORMAT.to_le_bytes(), &flags.to_le_bytes(), salt, check].concat();
    let mut all = [0; PREAMBLE];
    all[..PREAMBLE - SUM].copy_from_slice(&fields);
    all[PREAMBLE - SUM..].copy_from_slice(&Sha256::digest(&fields)[..SUM]);
    all
}

fn sealing_failed(_: ring::error::Unspecified) -> io::Error {
    io::Error::other("a chunk cannot be sealed")
}

/// Cuts what is written into chunks. Nothing counts before [`finish`](Self::finish).
pub struct ChunkWriter<W: Write> {
    out: W,
    sealing: Option<Sealing>,
    waiting: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    pub fn new(mut out: W, key: Option<&Key>) -> io::Result<Self> {
        let mut salt = [0; SALT];
        let sealing = match key {
            None => {
                out.write_all(&preamble(0, &salt, &[0; CHECK]))?;
                None
            }
            Some(key) => {
                rand::rng().fill_bytes(&mut salt);
                let derived = derive(key, &salt);
                let preamble = preamble(SEALED, &salt, &check(&derived).map_err(sealing_failed)?);
                out.write_all(&preamble)?;
                Some(Sealing::new(&derived, preamble).map_err(sealing_failed)?)
            }
        };
        Ok(Self { out, sealing, waiting: Vec::with_capacity(CHUNK + AES_256_GCM.tag_len()) })
    }

    fn send(&mut self, last: bool) -> io::Result<()> {
        if let Some(sealing) = &mut self.sealing {
            let (nonce, with) = sealing.next(last);
            sealing.key.seal_in_place_append_tag(nonce, with, &mut self.waiting).map_err(sealing_failed)?;
        }
        let len = u32::try_from(self.waiting.len()).map_err(io::Error::other)?;
        self.out.write_all(&(len | if last { LAST } else { 0 }).to_le_bytes())?;
        self.out.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.send(true)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for ChunkWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() == CHUNK {
            self.send(false)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a [`ChunkWriter`] was given. Its errors carry an [`ArchiveError`].
pub struct ChunkReader<R: Read> {
    input: R,
    sealing: Option<Sealing>,
    chunk: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<R: Read> ChunkReader<R> {
    /// # Errors
    /// It is no backup, one of a later version, or sealed by another key than this.
    pub fn new(mut input: R, key: Option<&Key>) -> Result<Self, ArchiveError> {
        let mut found = [0; PREAMBLE];
        fill(&mut input, &mut found).map_err(|error| match error {
            // Whatever is that short.
            ArchiveError::Truncated => ArchiveError::Foreign,
            other => other,
        })?;
        if !found.starts_with(MAGIC) {
            return Err(ArchiveError::Foreign);
        }
        if Sha256::digest(&found[..PREAMBLE - SUM])[..SUM] != found[PREAMBLE - SUM..] {
            return Err(ArchiveError::Damaged("its beginning".to_owned()));
        }
        let number = |at: usize| u32::from_le_bytes([found[at], found[at + 1], found[at + 2], found[at + 3]]);
        let (format, flags) = (number(8), number(12));
        if format > FORMAT || flags & !SEALED != 0 {
            return Err(ArchiveError::Newer(format));
        }
        let sealing = match (flags & SEALED != 0, key) {
            (false, _) => None,
            (true, None) => return Err(ArchiveError::KeyNeeded),
            (true, Some(key)) => Some(open(key, found)?),
        };
        Ok(Self { input, sealing, chunk: Vec::new(), at: 0, ended: false })
    }

    fn next(&mut self) -> Result<(), ArchiveError> {
        let mut len = [0; 4];
        fill(&mut self.input, &mut len)?;
        let len = u32::from_le_bytes(len);
        let (last, len) = (len & LAST != 0, (len & !LAST) as usize);
        if len > CHUNK + AES_256_GCM.tag_len() {
            return Err(ArchiveError::Damaged("a length".to_owned()));
        }
        self.chunk.resize(len, 0);
        fill(&mut self.input, &mut self.chunk)?;
        if let Some(sealing) = &mut self.sealing {
            let number = sealing.number;
            let (nonce, with) = sealing.next(last);
            let opened = sealing.key.open_in_place(nonce, with, &mut self.chunk).map(|plain| plain.len());
            let len = opened.map_err(|_| ArchiveError::Damaged(format!("its chunk {number}")))?;
            self.chunk.truncate(len);
        }
        (self.at, self.ended) = (0, last);
        Ok(())
    }

    /// Nothing may follow the last chunk.
    pub fn must_have_ended(&mut self) -> Result<(), ArchiveError> {
        let further = || ArchiveError::Damaged("its end: there is more than was written".to_owned());
        while self.at == self.chunk.len() && !self.ended {
            self.next()?;
        }
        if self.at < self.chunk.len() || self.input.read(&mut [0])? > 0 { Err(further()) } else { Ok(()) }
    }
}

fn open(key: &Key, preamble: [u8; PREAMBLE]) -> Result<Sealing, ArchiveError> {
    let unusable = |_| ArchiveError::WrongKey;
    let (salt, expected) = (&preamble[16..16 + SALT], &preamble[16 + SALT..16 + SALT + CHECK]);
    let derived = derive(key, salt);
    if check(&derived).map_err(unusable)? != expected {
        return Err(ArchiveError::WrongKey);
    }
    Sealing::new(&derived, preamble).map_err(unusable)
}

fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<(), ArchiveError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::Truncated,
        _ => error.into(),
    })
}

impl<R: Read> Read for ChunkReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() && !self.ended {
            self.next()?;
        }
        let taken = bytes.len().min(self.chunk.len() - self.at);
        bytes[..taken].copy_from_slice(&self.chunk[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}
