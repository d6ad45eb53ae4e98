//! What was applied of which file, on disk: it says what is to go when a file goes, also while nobody looked.

use crate::documents::Id;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Objects by the paths of files.
pub type Applied = BTreeMap<String, Vec<Id>>;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    version: u32,
    files: Applied,
}

/// The file's form. Another one is of a later version, which knows what this one does not.
const VERSION: u32 = 1;

/// Written before anything is applied and after something has gone, whole each time and by a rename: whenever the process
/// is killed it names everything that was applied, at most a little more.
pub struct Memory {
    path: PathBuf,
    applied: Applied,
}

impl Memory {
    /// What an earlier process wrote. A file that cannot be read is set aside: nothing is deleted for it.
    ///
    /// # Errors
    /// It can be neither read nor set aside, or a later version wrote it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), applied: Applied::new() });
            }
            Err(error) => return Err(error),
        };
        let applied = match serde_json::from_str::<Written>(&text) {
            Ok(Written { version: VERSION, files }) => files,
            Ok(Written { version, .. }) => {
                return Err(io::Error::other(format!("{}: version {version} is unknown", path.display())));
            }
            Err(error) => {
                let aside = path.with_extension("json.bad");
                tracing::error!(%error, file = %path.display(), aside = %aside.display(), "what was applied cannot be read: nothing is deleted for it");
                fs::rename(path, aside)?;
                Applied::new()
            }
        };
        Ok(Self { path: path.to_owned(), applied })
    }

    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    /// # Errors
    /// It is not on the disk.
    pub fn replace(&mut self, applied: Applied) -> io::Result<()> {
        if applied == self.applied {
            return Ok(());
        }
        let written = Written { version: VERSION, files: applied };
        let new = self.path.with_extension("json.new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec_pretty(&written)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        if let Some(parent) = self.path.parent() {
            fs::File::open(parent)?.sync_all()?;
        }
        self.applied = written.files;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_again_and_damage_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifests-applied.json");
        let id = Id {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: String::new(),
            name: "a".into(),
        };
        let applied = Applied::from([("a.yaml".to_owned(), vec![id])]);
        Memory::open(&path).unwrap().replace(applied.clone()).unwrap();
        assert_eq!(Memory::open(&path).unwrap().applied(), &applied);
        // Killed while the next one was being written.
        fs::write(path.with_extension("json.new"), "{\"ver").unwrap();
        assert_eq!(Memory::open(&path).unwrap().applied(), &applied);
        fs::write(&path, "{\"version\": 1, \"fi").unwrap();
        assert!(Memory::open(&path).unwrap().applied().is_empty());
        assert!(path.with_extension("json.bad").exists() && !path.exists());
        fs::write(&path, "{\"version\": 2, \"files\": {}}").unwrap();
        assert!(Memory::open(&path).is_err());
    }
}
