//! What lies in the directory.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The largest file that is read: what etcd takes in a hundred requests. A longer one is refused.
const LONGEST: u64 = 16 << 20;
/// Folders in folders; a link that leads back to where it lies would lead on for ever.
const DEEPEST: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    /// It is there, and nothing is made of it: why.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct File {
    pub content: Content,
    /// SHA-256 of its bytes in hex; of the reason where it is refused.
    pub hash: String,
}

/// Everything of one look: files by their paths below the directory, and all folders.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    pub files: BTreeMap<String, File>,
    pub folders: Vec<PathBuf>,
}

/// Reads YAML and JSON files, also in folders, in the order of their paths. Names that begin with a dot are left out:
/// editors and `rsync` write such while they are at work. Of other files chart archives are told of, the rest is not.
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
    let content = if ends(".tgz") || ends(".tar.gz") {
        Content::Refused("chart archives are not rendered here: write what `helm template` prints as a .yaml file, or install the chart with helm".to_owned())
    } else if ![".yaml", ".yml", ".json"].iter().any(|ending| ends(ending)) {
        return None;
    } else if length > LONGEST {
        Content::Refused(format!("it is larger than {LONGEST} bytes"))
    } else {
        match fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => Content::Text(text),
            Ok(Err(_)) => Content::Refused("it is no UTF-8 text".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Content::Refused(format!("it cannot be read: {error}")),
        }
    };
    let (Content::Text(text) | Content::Refused(text)) = &content;
    let hash = coracle_api::hex::text(&Sha256::digest(text.as_bytes()));
    Some(File { content, hash })
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
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/again")).unwrap();
        std::os::unix::fs::symlink("nowhere.yaml", dir.path().join("gone.yaml")).unwrap();
        let found = read(dir.path()).unwrap();
        let plain: Vec<&str> =
            found.files.keys().map(String::as_str).filter(|name| !name.contains("again")).collect();
        assert_eq!(plain, ["a/x.JSON", "b.yaml", "bad.yml", "web-1.0.0.tgz"]);
        assert_eq!(found.files["b.yaml"].content, Content::Text("b".to_owned()));
        assert!(matches!(&found.files["bad.yml"].content, Content::Refused(why) if why.contains("UTF-8")));
        assert!(
            matches!(&found.files["web-1.0.0.tgz"].content, Content::Refused(why) if why.contains("helm template"))
        );
        assert!(read(&dir.path().join("none")).is_err());
    }
}
