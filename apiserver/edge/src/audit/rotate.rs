//! A log file that is set aside when it is full.

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::{Timestamp, tz::TimeZone};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// When a file is set aside and which of those are deleted: upstream's `--audit-log-max*`. Zero sets none aside, and keeps all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    /// Bytes of one file.
    pub max_bytes: u64,
    pub max_backups: usize,
    pub max_age_days: u64,
    /// Files that are set aside are packed with gzip.
    pub compress: bool,
}

/// What the names of packed files end with.
const PACKED: &str = ".gz";

pub(super) struct Rotating {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    /// Bytes; `None` of what is no regular file.
    written: Option<u64>,
    packer: Option<JoinHandle<()>>,
}

/// Only the owner may read who did what.
/// Nothing counts as written to what is no regular file, `/dev/null` or a pipe: it never fills, and setting it aside would
/// take it from everybody.
fn open(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    let written = metadata.is_file().then_some(metadata.len());
    Ok((file, written))
}

/// Packs files that nobody writes to any more. One that cannot be packed stays as it is.
fn pack(paths: Vec<PathBuf>) {
    for path in paths {
        if let Err(error) = packed(&path) {
            tracing::error!(path = %path.display(), %error, "packing an audit log");
        }
    }
}

fn is_packed(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(PACKED.as_bytes())
}

fn packed(path: &Path) -> io::Result<()> {
    let named = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    // A name that is no backup's, until it is whole.
    let unfinished = named(".packing");
    let options = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
    let mut packer = GzEncoder::new(options, Compression::default());
    io::copy(&mut File::open(path)?, &mut packer)?;
    packer.finish()?.sync_all()?;
    std::fs::rename(&unfinished, named(PACKED))?;
    std::fs::remove_file(path)
}

impl Rotating {
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        if let Some(parent) = path.parent()
            && !parent.as_os_str().is_empty()
        {
            std::fs::create_dir_all(parent)?;
        }
        let (file, written) = open(&path)?;
        Ok(Self { path, rotation, file, written, packer: None })
    }

    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let limit = self.rotation.max_bytes;
        let more = line.len() as u64;
        if self.written.is_some_and(|written| limit > 0 && written > 0 && written + more > limit) {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.written = self.written.map(|written| written + more);
        Ok(())
    }

    /// `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`.
    fn rotate(&mut self) -> io::Result<()> {
        let now = Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H-%M-%S%.3f").to_string();
        let (stem, extension) = self.names();
        let backup = self.path.with_file_name(format!("{stem}-{now}{extension}"));
        std::fs::rename(&self.path, backup)?;
        (self.file, self.written) = open(&self.path)?;
        let kept = self.prune()?;
        if self.rotation.compress {
            self.pack(kept)?;
        }
        Ok(())
    }

    /// On a thread of its own, because a file may have 100 MB. What it has no time for now, or what an end of the process
    /// left over, is packed after a later rotation.
    fn pack(&mut self, backups: Vec<PathBuf>) -> io::Result<()> {
        if self.packer.as_ref().is_some_and(|packer| !packer.is_finished()) {
            return Ok(());
        }
        let plain: Vec<_> = backups.into_iter().filter(|path| !is_packed(path)).collect();
        let thread = std::thread::Builder::new().name("audit-gzip".to_owned());
        self.packer = Some(thread.spawn(move || pack(plain))?);
        Ok(())
    }

    fn names(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.map(|p| p.to_string_lossy().into_owned());
        let extension = part(self.path.extension()).map(|e| format!(".{e}")).unwrap_or_default();
        (part(self.path.file_stem()).unwrap_or_default(), extension)
    }

    /// Deletes what is too much or too old; what stays is returned.
    fn prune(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, extension) = self.names();
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut backups = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let plain = name.strip_suffix(PACKED).unwrap_or(&name);
            let time = plain.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&extension));
            if time.is_some_and(|time| time.len() >= 19 && time.as_bytes()[10] == b'T') {
                backups.push((name, entry));
            }
        }
        backups.sort_by(|a, b| b.0.cmp(&a.0));
        let oldest = SystemTime::now() - Duration::from_secs(self.rotation.max_age_days * 24 * 3600);
        let mut kept = Vec::new();
        for (index, (_, entry)) in backups.iter().enumerate() {
            let surplus = self.rotation.max_backups > 0 && index >= self.rotation.max_backups;
            let old = self.rotation.max_age_days > 0
                && entry.metadata().and_then(|m| m.modified()).is_ok_and(|modified| modified < oldest);
            if surplus || old {
                std::fs::remove_file(entry.path())?;
            } else {
                kept.push(entry.path());
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_set_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let device = dir.path().join("device.log");
        std::os::unix::fs::symlink("/dev/null", &device).expect("a link");
        let small = Rotation { max_bytes: 10, ..Rotation::default() };
        let (plain, endless) = (dir.path().join("plain.log"), dir.path().join("endless.log"));
        for (path, rotation, files) in
            [(device, small, 1), (plain, small, 3), (endless, Rotation::default(), 4)]
        {
            let mut log = Rotating::open(path, rotation).expect("opened");
            for _ in 0..2 {
                log.write(b"twelve bytes").expect("written");
            }
            assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), files);
        }
    }
}
