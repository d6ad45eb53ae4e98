//! What lies on a disk that is switched off.

use super::content::Content;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Files with what they hold and directories (`None`), by path without a leading slash. Cheap to copy: pages are shared.
#[derive(Clone, Debug, Default)]
pub struct Image(pub BTreeMap<String, Option<Content>>);

impl Image {
    /// Writes it into a directory that anything can read, for a look at what went wrong.
    pub fn export(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        for (path, content) in &self.0 {
            match content {
                None => std::fs::create_dir_all(dir.join(path))?,
                Some(content) => std::fs::write(dir.join(path), content.read(0, content.size))?,
            }
        }
        Ok(())
    }

    /// Files whose path satisfies the condition and that hold something.
    pub fn files(&self, matches: impl Fn(&str) -> bool) -> Vec<String> {
        let full =
            |content: &Option<Content>| content.as_ref().is_some_and(|content| !content.pages.is_empty());
        self.0
            .iter()
            .filter(|(path, content)| full(content) && matches(path))
            .map(|(p, _)| p.clone())
            .collect()
    }
}
