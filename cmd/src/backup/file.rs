//! A file that is there whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Written beside its place, under another name until [`finish`](Self::finish). Dropped before that, nothing is left; a
/// killed process leaves a hidden file that the next one overwrites.
pub struct NewFile {
    file: File,
    at: PathBuf,
    path: PathBuf,
    written: u64,
    done: bool,
}

pub const PARTIAL: &str = ".partial";

fn partial(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    Ok(path.with_file_name(format!(".{name}{PARTIAL}")))
}

impl NewFile {
    /// For its owner alone (0600).
    ///
    /// # Errors
    /// `ResourceBusy` if another process is writing the same file.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let at = partial(path)?;
        // Not emptied before it is ours.
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&at)?;
        file.try_lock().map_err(|_| {
            io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing this file")
        })?;
        file.set_len(0)?;
        Ok(Self { file, at, path: path.to_owned(), written: 0, done: false })
    }

    /// Makes it durable, and gives it its name.
    pub fn finish(mut self) -> io::Result<u64> {
        self.file.sync_all()?;
        std::fs::rename(&self.at, &self.path)?;
        self.done = true;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(self.written)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.done {
            // Hidden and overwritten at worst.
            let _ = std::fs::remove_file(&self.at);
        }
    }
}

/// Why writing below `path` failed, in the words of whoever owns the machine.
pub fn explain(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull => format!("{shown}: the disk is full"),
        io::ErrorKind::QuotaExceeded => format!("{shown}: the disk quota is used up"),
        io::ErrorKind::ReadOnlyFilesystem => format!("{shown}: the file system is read-only"),
        _ => format!("{shown}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("b");
        let names = || std::fs::read_dir(dir.path()).expect("readable").count();
        let mut file = NewFile::create(&path).expect("created");
        file.write_all(b"first").expect("written");
        let busy = NewFile::create(&path).map(drop).expect_err("two writers");
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        assert!(!path.exists());
        assert_eq!(file.finish().expect("in place"), 5);
        let mut file = NewFile::create(&path).expect("created");
        file.write_all(b"second").expect("written");
        drop(file);
        assert_eq!((std::fs::read(&path).expect("readable"), names()), (b"first".to_vec(), 1));
        // What a killed process leaves.
        std::fs::write(dir.path().join(".b.partial"), b"longer than the next").expect("written");
        let mut file = NewFile::create(&path).expect("created");
        file.write_all(b"third").expect("written");
        file.finish().expect("in place");
        assert_eq!((std::fs::read(&path).expect("readable"), names()), (b"third".to_vec(), 1));
        assert!(NewFile::create(dir.path()).is_err());
    }
}
