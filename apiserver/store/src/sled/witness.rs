//! A note, outside of the journal, of the newest commit that the journal was known to hold. Without it the loss of the
//! journal's end, however much of it, could not be told from a last write that a power cut has torn.

use super::disk;
use super::record::Input;
use crate::Revision;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

pub(super) const FILE: &str = "witness";
const MAGIC: &[u8; 8] = b"COROWIT1";

/// The newest commit that there must be; 0 where nobody tells. A note that cannot be read is as good as none.
pub(super) fn read(dir: &Path) -> Revision {
    std::fs::read(dir.join(FILE)).ok().and_then(|bytes| decode(&bytes)).unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Option<Revision> {
    let (fields, crc) = bytes.split_at_checked(MAGIC.len() + 8)?;
    if Input(crc).u32()? != crc32c::crc32c(fields) {
        return None;
    }
    Input(fields.strip_prefix(MAGIC)?).u64().map(Revision)
}

/// Overwrites the note in place, which changes one sector of the disk and none of the file system's own.
pub(super) fn write(dir: &Path, newest: Revision) -> io::Result<()> {
    let mut bytes = [&MAGIC[..], &newest.0.to_le_bytes()].concat();
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let path = dir.join(FILE);
    let is_new = !path.exists();
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.write_all_at(&bytes, 0)?;
    file.sync_data()?;
    if is_new { disk::sync_dir(dir) } else { Ok(()) }
}
