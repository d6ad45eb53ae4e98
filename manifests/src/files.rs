//! What lies in the directory.

use crate::charts;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The largest file that is read: what etcd takes in a hundred requests. A longer one is refused.
const LONGEST: u64 = 16 << 20;
/// How the name of a chart's settings ends; before it stands the release's name.
const SETTINGS: &str = ".helm.yaml";
/// Folders in folders; a link that leads back to where it lies would lead on for ever.
const DEEPEST: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    /// A chart's archive, and the text of the settings beside it.
    Chart {
        archive: PathBuf,
        settings: Option<String>,
    },
    /// It is there, and nothing is made of it: why.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct File {
    pub content: Content,
    /// SHA-256 of its bytes in hex, of a chart's with its settings; of the reason where it is refused.
    pub hash: String,
}

/// Everything of one look: files by their paths below the directory, and all folders.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    pub files: BTreeMap<String, File>,
    pub folders: Vec<PathBuf>,
}

/// Reads YAML and JSON files and chart archives, also in folders, in the order of their paths. Names that begin with a dot are
/// left out: editors and `rsync` write such while they are at work. Other files are not told of.
///
/// # Errors
/// A folder that cannot be listed: nothing may be taken for gone then.
pub fn read(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    walk(directory, "", 0, &mut found)?;
    Ok(found)
}

fn walk(folder: &Path, below: &str, depth: usize, found: &mut Found) -> io::Result<()> {
    found.folders.push(folder.to_owned());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let shown = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        if name.starts_with('.') {
            continue;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() && depth < DEEPEST => walk(&path, &shown, depth + 1, found)?,
            Ok(metadata) if metadata.is_file() => {
                if let Some(file) = file(&path, name, metadata.len()) {
                    found.files.insert(shown, file);
                }
            }
            // Gone in between, a socket, a link to nowhere.
            _ => {}
        }
    }
    Ok(())
}

fn file(path: &Path, name: &str, length: u64) -> Option<File> {
    let ends = |ending: &str| name.to_ascii_lowercase().ends_with(ending);
    let is_chart = is_archive(name);
    if !is_chart && ![".yaml", ".yml", ".json"].iter().any(|ending| ends(ending)) {
        return None;
    }
    if ends(SETTINGS) {
        // Read with its archive.
        return unused(path, name)
            .then(|| refused("there is no chart archive of this name beside it".to_owned()));
    }
    if length > LONGEST {
        return Some(refused(format!("it is larger than {LONGEST} bytes")));
    }
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(refused(format!("it cannot be read: {error}"))),
    };
    if is_chart {
        return Some(chart(path, name, &bytes));
    }
    let hash = hex(&[&bytes]);
    Some(match String::from_utf8(bytes) {
        Ok(text) => File { content: Content::Text(text), hash },
        Err(_) => refused("it is no UTF-8 text".to_owned()),
    })
}

fn refused(why: String) -> File {
    File { hash: hex(&[why.as_bytes()]), content: Content::Refused(why) }
}

fn hex(parts: &[&[u8]]) -> String {
    let mut sum = Sha256::new();
    parts.iter().for_each(|part| sum.update(part));
    coracle_api::hex::text(&sum.finalize())
}

fn is_archive(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".tgz") || name.ends_with(".tar.gz")
}

fn chart(archive: &Path, name: &str, bytes: &[u8]) -> File {
    let settings =
        charts::release(name).map(|release| archive.with_file_name(format!("{release}{SETTINGS}")));
    let settings = match settings.map(fs::read_to_string) {
        Ok(Ok(text)) => Some(text),
        Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
            return refused(format!("its settings cannot be read: {error}"));
        }
        // There are none; or a name that no settings can have, which is told later.
        Ok(Err(_)) | Err(_) => None,
    };
    let hash = hex(&[bytes, settings.as_deref().unwrap_or_default().as_bytes()]);
    File { content: Content::Chart { archive: archive.to_owned(), settings }, hash }
}

/// Whether no archive beside these settings is of their release.
fn unused(path: &Path, name: &str) -> bool {
    let release = &name[..name.len() - SETTINGS.len()];
    let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut archives =
        beside.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_archive(name));
    !archives.any(|archive| charts::release(&archive).is_ok_and(|found| found == release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_folders_are_found_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("b.yaml", b"b");
        write("a/x.JSON", b"{}");
        write("a/.x.yaml.swp.yaml", b"?");
        write(".git/c.yaml", b"?");
        write("notes.txt", b"?");
        write("bad.yml", b"\xff");
        write("web-1.0.0.tgz", b"?");
        write("web.helm.yaml", b"namespace: n");
        write("bare-1.0.0.tgz", b"?");
        write("old.helm.yaml", b"?");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/again")).unwrap();
        std::os::unix::fs::symlink("nowhere.yaml", dir.path().join("gone.yaml")).unwrap();
        let found = read(dir.path()).unwrap();
        let plain: Vec<&str> =
            found.files.keys().map(String::as_str).filter(|name| !name.contains("again")).collect();
        assert_eq!(
            plain,
            ["a/x.JSON", "b.yaml", "bad.yml", "bare-1.0.0.tgz", "old.helm.yaml", "web-1.0.0.tgz"]
        );
        assert_eq!(found.files["b.yaml"].content, Content::Text("b".to_owned()));
        assert!(matches!(&found.files["bad.yml"].content, Content::Refused(why) if why.contains("UTF-8")));
        let (web, bare) = (&found.files["web-1.0.0.tgz"], &found.files["bare-1.0.0.tgz"]);
        assert!(
            matches!(&web.content, Content::Chart { settings: Some(text), .. } if text == "namespace: n")
        );
        assert!(matches!(&bare.content, Content::Chart { settings: None, .. }));
        assert_ne!(web.hash, bare.hash, "settings count");
        assert!(
            matches!(&found.files["old.helm.yaml"].content, Content::Refused(why) if why.contains("no chart"))
        );
        assert!(read(&dir.path().join("none")).is_err());
    }
}
