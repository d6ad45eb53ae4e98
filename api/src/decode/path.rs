//! Where a walk through an object stands.

use std::fmt;

/// Written out only for what is wrong, with indices: `spec.containers[0].foo`.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    /// A field of structs that are embedded in the one that has the path: theirs are the names in the middle.
    Embedded(&'p Path<'p>, &'p str, &'p str),
    /// A key of a map.
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    pub fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    /// As Go's decoder writes it, which names fields only, those without a name in JSON too.
    pub fn fields(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Index(up, _) | Self::Key(up, _) => up.fields(),
            Self::Field(Self::Root, name) => (*name).to_owned(),
            Self::Field(up, name) => format!("{}.{name}", up.fields()),
            Self::Embedded(up, inside, name) => Path::Field(&Path::Field(up, inside), name).fields(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name)
            | Self::Embedded(Self::Root, _, name)
            | Self::Key(Self::Root, name) => f.write_str(name),
            Self::Field(up, name) | Self::Embedded(up, _, name) | Self::Key(up, name) => {
                write!(f, "{up}.{name}")
            }
            Self::Index(up, index) => write!(f, "{up}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path::{Embedded, Field, Index, Key, Root};

    #[test]
    fn written_with_and_without_indices() {
        let spec = Field(&Root, "spec");
        let containers = Field(&spec, "containers");
        let first = Index(&containers, 0);
        let name = Field(&first, "name");
        assert_eq!(name.to_string(), "spec.containers[0].name");
        assert_eq!(name.fields(), "spec.containers.name");
        let inside = Embedded(&first, "Rule.Deeper", "paths");
        let key = Key(&inside, "a/b");
        assert_eq!(key.to_string(), "spec.containers[0].paths.a/b");
        assert_eq!(key.fields(), "spec.containers.Rule.Deeper.paths");
        assert_eq!((Root.to_string(), Index(&Root, 1).to_string()), (String::new(), "[1]".to_owned()));
    }
}
