//! The inner form of a backup: parts with names, each with its checksum, and a checksum over the whole.
//!
//! ```text
//! 1 | length u32 | head of a part, JSON
//! 2 | length u32 | bytes of it
//! 3 | its length u64 | its SHA-256
//! 4 | number of parts u32 | SHA-256 of everything before
//! ```

use super::ArchiveError;
use super::chunks::{ChunkReader, ChunkWriter};
use super::key::Key;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::path::{Component, Path};

const BEGIN: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const CLOSE: u8 = 4;
/// Heads hold a name and a mode.
const LONGEST_HEAD: u32 = 64 << 10;

/// What stands before a part.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Head {
    /// With slashes, relative, and leading nowhere else.
    pub name: String,
    /// Permissions of the file.
    pub mode: u32,
}

impl Head {
    fn is_safe(&self) -> bool {
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        !self.name.is_empty() && Path::new(&self.name).components().all(plain)
    }
}

pub struct Writer<W: Write> {
    out: ChunkWriter<W>,
    whole: Sha256,
    parts: u32,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, key: Option<&Key>) -> io::Result<Self> {
        Ok(Self { out: ChunkWriter::new(out, key)?, whole: Sha256::new(), parts: 0 })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.whole.update(bytes);
        self.out.write_all(bytes)
    }

    fn record(&mut self, tag: u8, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.put(&[tag])?;
        self.put(&len.to_le_bytes())?;
        self.put(bytes)
    }

    /// Writes one part, which is what `write` writes.
    pub fn part(
        &mut self,
        head: &Head,
        write: impl FnOnce(&mut PartWriter<'_, W>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.record(BEGIN, &serde_json::to_vec(head)?)?;
        let mut part = PartWriter { archive: self, sum: Sha256::new(), len: 0 };
        write(&mut part)?;
        let (len, sum) = (part.len, part.sum.finalize());
        self.put(&[END])?;
        self.put(&len.to_le_bytes())?;
        self.put(&sum)?;
        self.parts += 1;
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<W> {
        let sum = self.whole.clone().finalize();
        let parts = self.parts.to_le_bytes();
        self.out.write_all(&[CLOSE])?;
        self.out.write_all(&parts)?;
        self.out.write_all(&sum)?;
        self.out.finish()
    }
}

pub struct PartWriter<'a, W: Write> {
    archive: &'a mut Writer<W>,
    sum: Sha256,
    len: u64,
}

impl<W: Write> Write for PartWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            self.archive.record(DATA, bytes)?;
            self.sum.update(bytes);
            self.len += bytes.len() as u64;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads part after part: [`next`](Self::next), then the part's bytes by `Read`. What is not read of a part is passed over.
pub struct Reader<R: Read> {
    input: ChunkReader<R>,
    whole: Sha256,
    parts: u32,
    /// The part at hand.
    part: Option<Part>,
}

struct Part {
    name: String,
    sum: Sha256,
    len: u64,
    /// Bytes that are left of its record.
    left: u32,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R, key: Option<&Key>) -> Result<Self, ArchiveError> {
        Ok(Self { input: ChunkReader::new(input, key)?, whole: Sha256::new(), parts: 0, part: None })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ArchiveError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ArchiveError> {
        self.input.read_exact(bytes).map_err(ended)?;
        self.whole.update(&*bytes);
        Ok(())
    }

    /// The next part; `None` when all of it was read and is as it was written.
    pub fn next(&mut self) -> Result<Option<Head>, ArchiveError> {
        io::copy(&mut PartReader(self), &mut io::sink())?;
        let before = self.whole.clone();
        let [tag] = self.array()?;
        match tag {
            BEGIN => self.begin().map(Some),
            CLOSE => self.close(before).map(|()| None),
            _ => Err(ArchiveError::Damaged(format!("what follows its part {}", self.parts))),
        }
    }

    fn begin(&mut self) -> Result<Head, ArchiveError> {
        let damaged = || ArchiveError::Damaged("the head of a part".to_owned());
        let len = u32::from_le_bytes(self.array()?);
        if len > LONGEST_HEAD {
            return Err(damaged());
        }
        let mut text = vec![0; len as usize];
        self.fill(&mut text)?;
        let head: Head = serde_json::from_slice(&text).map_err(|_| damaged())?;
        if !head.is_safe() {
            return Err(ArchiveError::Damaged(format!("the name {:?} of a part", head.name)));
        }
        self.part = Some(Part { name: head.name.clone(), sum: Sha256::new(), len: 0, left: 0 });
        Ok(head)
    }

    fn close(&mut self, before: Sha256) -> Result<(), ArchiveError> {
        let parts = u32::from_le_bytes(self.array()?);
        let sum: [u8; 32] = self.array()?;
        if parts != self.parts || before.finalize()[..] != sum {
            return Err(ArchiveError::Damaged("its checksum is another".to_owned()));
        }
        self.input.must_have_ended()
    }

    /// The bytes of the part at hand. Its end is told only when its checksum is right.
    pub fn part(&mut self) -> PartReader<'_, R> {
        PartReader(self)
    }

    fn read_part(&mut self, bytes: &mut [u8]) -> Result<usize, ArchiveError> {
        loop {
            let Some(part) = &mut self.part else { return Ok(0) };
            if part.left == 0 {
                self.next_record()?;
                continue;
            }
            let wanted = bytes.len().min(part.left as usize);
            let read = self.input.read(&mut bytes[..wanted])?;
            if read == 0 && wanted > 0 {
                return Err(ArchiveError::Truncated);
            }
            self.whole.update(&bytes[..read]);
            part.sum.update(&bytes[..read]);
            part.len += read as u64;
            part.left -= u32::try_from(read).unwrap_or(part.left);
            return Ok(read);
        }
    }

    fn next_record(&mut self) -> Result<(), ArchiveError> {
        let [tag] = self.array()?;
        let Some(part) = &mut self.part else { return Ok(()) };
        let damaged = ArchiveError::Damaged(format!("its part {}", part.name));
        match tag {
            DATA => {
                let left = u32::from_le_bytes(self.array()?);
                if let Some(part) = &mut self.part {
                    part.left = left;
                }
                if left == 0 { Err(damaged) } else { Ok(()) }
            }
            END => {
                let (len, sum) = (part.len, part.sum.clone().finalize());
                self.part = None;
                self.parts += 1;
                let same = u64::from_le_bytes(self.array()?) == len;
                let expected: [u8; 32] = self.array()?;
                if same && sum[..] == expected { Ok(()) } else { Err(damaged) }
            }
            _ => Err(damaged),
        }
    }
}

pub struct PartReader<'a, R: Read>(&'a mut Reader<R>);

impl<R: Read> Read for PartReader<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read_part(bytes)?)
    }
}

fn ended(error: io::Error) -> ArchiveError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::Truncated,
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(key: Option<&Key>) -> Vec<u8> {
        let mut archive = Writer::new(Vec::new(), key).expect("a beginning");
        let part = |name: &str| Head { name: name.to_owned(), mode: 0o600 };
        let large: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        archive.part(&part("a/small"), |out| out.write_all(b"secret")).expect("written");
        archive.part(&part("large"), |out| out.write_all(&large)).expect("written");
        archive.part(&part("empty"), |_| Ok(())).expect("written");
        archive.finish().expect("an end")
    }

    fn read(bytes: &[u8], key: Option<&Key>) -> Result<Vec<(String, usize)>, ArchiveError> {
        let mut archive = Reader::new(bytes, key)?;
        let mut found = Vec::new();
        while let Some(head) = archive.next()? {
            let mut bytes = Vec::new();
            archive.part().read_to_end(&mut bytes)?;
            found.push((head.name, bytes.len()));
        }
        Ok(found)
    }

    #[test]
    fn what_was_written_is_read() {
        let parts =
            [("a/small", 6), ("large", 200_000), ("empty", 0)].map(|(name, len)| (name.to_owned(), len));
        let (key, other) = (Key::of(1), Key::of(2));
        let (plain, sealed) = (written(None), written(Some(&key)));
        assert_eq!(read(&plain, None).expect("whole"), parts);
        assert_eq!(read(&plain, Some(&key)).expect("whole"), parts, "a key that is not needed does no harm");
        assert_eq!(read(&sealed, Some(&key)).expect("whole"), parts);
        assert!(matches!(read(&sealed, None), Err(ArchiveError::KeyNeeded)));
        assert!(matches!(read(&sealed, Some(&other)), Err(ArchiveError::WrongKey)));
        let holds = |bytes: &[u8]| bytes.windows(6).any(|window| window == b"secret");
        assert!(holds(&plain) && !holds(&sealed));
        assert_ne!(written(Some(&key)), sealed, "no two files are sealed alike");
    }

    #[test]
    fn parts_that_are_not_read_are_checked_too() {
        let mut bytes = written(None);
        let at = bytes.windows(6).position(|window| window == b"secret").expect("it is there");
        bytes[at] ^= 1;
        let mut archive = Reader::new(&bytes[..], None).expect("a beginning");
        archive.next().expect("the first part");
        let error = archive.next().expect_err("the first part is damaged");
        assert_eq!(error.to_string(), "it is damaged: its part a/small");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        for key in [None, Some(Key::of(1))] {
            let good = written(key.as_ref());
            for at in (0..good.len()).step_by(997).chain(0..80).chain(good.len() - 80..good.len()) {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert!(read(&bad, key.as_ref()).is_err(), "a flipped bit at {at}");
                assert!(read(&good[..at], key.as_ref()).is_err(), "cut at {at}");
            }
            let longer = [&good[..], b"x"].concat();
            assert!(read(&longer, key.as_ref()).is_err());
        }
    }

    #[test]
    fn what_is_no_backup_or_a_later_ones_is_told() {
        for foreign in [
            &b""[..],
            b"CORABAK\n",
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: something-of-some-length}",
        ] {
            assert!(matches!(read(foreign, None), Err(ArchiveError::Foreign)), "{foreign:?}");
        }
        let mut newer = written(None);
        newer[8] = 9;
        let sum = Sha256::digest(&newer[..48]);
        newer[48..56].copy_from_slice(&sum[..8]);
        let error = read(&newer, None).expect_err("a later form");
        assert_eq!(
            error.to_string(),
            "a later version of coracle made it (format 9, this one knows up to 1)"
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["/etc/passwd", "../up", "a/../../b", "", "."] {
            let mut archive = Writer::new(Vec::new(), None).expect("a beginning");
            archive.part(&Head { name: name.to_owned(), mode: 0o600 }, |_| Ok(())).expect("written");
            let bytes = archive.finish().expect("an end");
            assert!(matches!(read(&bytes, None), Err(ArchiveError::Damaged(_))), "{name}");
        }
    }
}
