//! Where a node's volumes of local-path lie: in its root, and in further places that whoever owns the machine has put there:
//! directories, mounts or links to directories of other disks, whose names begin with `@`.

use std::path::{Component, Path, PathBuf};

/// What the names of further places begin with.
const MARK: char = '@';

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{0:?} is no name of a volume")]
    Name(String),
    #[error("there is no directory {} on this node", .0.display())]
    Missing(PathBuf),
}

/// Where one volume lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The root, or a further place.
    pub base: PathBuf,
    pub path: PathBuf,
}

impl Place {
    /// `directory` is a name in the root, or `@<place>/<name>`. None that is hidden.
    pub fn of(root: &Path, directory: &str) -> Result<Self, PlaceError> {
        let wrong = || PlaceError::Name(directory.to_owned());
        let (base, name) = match directory.split_once('/') {
            Some((place, name)) if is_place(place) => (root.join(place), name),
            Some(_) => return Err(wrong()),
            None if directory.starts_with(MARK) => return Err(wrong()),
            None => (root.to_owned(), directory),
        };
        if !is_name(name) || name.starts_with(['.', MARK]) {
            return Err(wrong());
        }
        if Self::is_further(&base) && !base.is_dir() {
            return Err(PlaceError::Missing(base));
        }
        Ok(Self { path: base.join(name), base })
    }

    pub fn is_further(base: &Path) -> bool {
        base.file_name().and_then(|name| name.to_str()).is_some_and(is_place)
    }
}

fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}

fn is_place(name: &str) -> bool {
    is_name(name) && name.len() > 1 && name.starts_with(MARK)
}

/// A volume's name as [`Place::of`] takes it: in the root where `place` is empty, or in the further place of that name.
pub fn directory_in(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{MARK}{place}/{name}") }
}

/// Whether it may be a place's name: a label of DNS.
pub fn is_place_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(allowed)
}

/// What of a path lies below the root, as [`Place::of`] takes it. Whatever lies elsewhere is no volume of the node's.
pub fn below(root: &Path, path: &Path) -> Option<String> {
    let relative = path.strip_prefix(root).ok()?.to_str()?;
    let exact = root.join(relative) == *path && path.components().all(|part| part != Component::ParentDir);
    let (place, name) = relative.rsplit_once('/').unwrap_or(("", relative));
    let known = place.is_empty() || is_place(place);
    (exact && known && is_name(name) && !name.starts_with(['.', MARK])).then(|| relative.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_lie_in_the_root_or_in_places_that_are_there() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        std::fs::create_dir(root.join("@big")).unwrap();
        assert_eq!(Place::of(root, "v").unwrap(), Place { base: root.into(), path: root.join("v") });
        let big = Place::of(root, "@big/v").unwrap();
        assert_eq!(big, Place { base: root.join("@big"), path: root.join("@big/v") });
        assert!(matches!(Place::of(root, "@small/v"), Err(PlaceError::Missing(_))));
        for wrong in
            ["", "..", "@big", "@big/", "@big/..", "@big/.new", "@/v", "a/b", "@big/a/b", "/v", "@big/@c"]
        {
            assert!(matches!(Place::of(root, wrong), Err(PlaceError::Name(_))), "{wrong}");
        }
        assert_eq!(directory_in("big", "v"), "@big/v");
        let below = |path: &str| below(Path::new("/r"), Path::new(path));
        assert_eq!(below("/r/v").as_deref(), Some("v"));
        assert_eq!(below("/r/@big/v").as_deref(), Some("@big/v"));
        for wrong in ["/r", "/etc", "/r/a/b", "/r/@big/a/b", "/r/../etc", "/r/@big/../v", "/r/.v"] {
            assert_eq!(below(wrong), None, "{wrong}");
        }
        assert!(
            is_place_name("big-2") && !is_place_name("") && !is_place_name("a/b") && !is_place_name("..")
        );
    }
}
