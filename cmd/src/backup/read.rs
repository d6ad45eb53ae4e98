//! Reading a backup: whole, to see that it is as it was written, or into another one.

use super::ArchiveError;
use super::archive::{Reader, Writer};
use super::contents::{MANIFEST, Manifest, STORE};
use super::key::Key;
use crate::progress::{Counted, Progress};
use coracle_apiserver::store::sled::inspect;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

/// What a backup that is well holds.
pub struct Examined {
    pub manifest: Manifest,
}

/// `what` is done with it, for whoever waits.
pub fn open(
    path: &Path,
    key: Option<&Key>,
    what: &str,
) -> Result<Reader<BufReader<Counted<File>>>, ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::Io)?;
    let size = file.metadata().map_err(ArchiveError::Io)?.len();
    let progress = Progress::new(format!("{what} {}", path.display()), Some(size));
    Reader::new(BufReader::new(progress.over(file)), key)
}

fn manifest(text: &[u8]) -> Result<Manifest, ArchiveError> {
    serde_json::from_slice(text).map_err(|error| ArchiveError::Damaged(format!("its manifest: {error}")))
}

fn missing(part: &str) -> ArchiveError {
    ArchiveError::Damaged(format!("it has no part {part}"))
}

/// What a backup says of itself, which is how it begins.
pub fn manifest_of(path: &Path, key: Option<&Key>) -> Result<Manifest, ArchiveError> {
    let mut archive = Reader::new(BufReader::new(File::open(path).map_err(ArchiveError::Io)?), key)?;
    if archive.next()?.is_none_or(|head| head.name != MANIFEST) {
        return Err(missing(MANIFEST));
    }
    let mut text = Vec::new();
    archive.part().read_to_end(&mut text)?;
    manifest(&text)
}

/// Reads all of it, the store's values included.
pub fn examine(path: &Path, key: Option<&Key>) -> Result<Examined, ArchiveError> {
    let mut archive = open(path, key, "checking")?;
    let (mut found, mut store) = (None, None);
    while let Some(head) = archive.next()? {
        match head.name.as_str() {
            MANIFEST => {
                let mut text = Vec::new();
                archive.part().read_to_end(&mut text)?;
                found = Some(manifest(&text)?);
            }
            STORE => {
                let inspected = inspect(archive.part());
                store = Some(inspected.map_err(|e| ArchiveError::Damaged(format!("its store: {e}")))?);
            }
            _ => {}
        }
    }
    let manifest = found.ok_or_else(|| missing(MANIFEST))?;
    let (revision, objects) = store.ok_or_else(|| missing(STORE))?;
    if (revision.0, objects) != (manifest.revision, manifest.objects) {
        return Err(ArchiveError::Damaged("its store is not the one that its manifest names".to_owned()));
    }
    Ok(Examined { manifest })
}

/// Writes what comes, sealed if there is a key, and checks it on the way.
pub fn copy(input: impl Read, out: impl Write, key: Option<&Key>) -> Result<Manifest, ArchiveError> {
    let mut archive = Reader::new(input, None)?;
    let mut copy = Writer::new(BufWriter::new(out), key)?;
    let mut found = None;
    while let Some(head) = archive.next()? {
        let mut text = Vec::new();
        if head.name == MANIFEST {
            archive.part().read_to_end(&mut text)?;
            found = Some(manifest(&text)?);
        }
        copy.part(&head, |part| {
            part.write_all(&text)?;
            std::io::copy(&mut archive.part(), part).map(drop)
        })?;
    }
    copy.finish()?;
    found.ok_or_else(|| missing(MANIFEST))
}
