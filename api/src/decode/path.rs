//! Where a walk through an object stands.

use std::fmt;

/// Written out only for what is wrong, with indices: `spec.containers[0].foo`.
#[derive(Clone, Copy)]
pub(super) enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    pub fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    /// As Go's decoder writes it, which names fields only.
    pub fn fields(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Index(up, _) => up.fields(),
            Self::Field(up, name) => {
                let mut text = up.fields();
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
                text
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(up, name) => write!(f, "{up}.{name}"),
            Self::Index(up, index) => write!(f, "{up}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path::{Field, Index, Root};

    #[test]
    fn written_with_and_without_indices() {
        let spec = Field(&Root, "spec");
        let containers = Field(&spec, "containers");
        let first = Index(&containers, 0);
        let name = Field(&first, "name");
        assert_eq!(name.to_string(), "spec.containers[0].name");
        assert_eq!(name.fields(), "spec.containers.name");
        assert_eq!((Root.to_string(), Index(&Root, 1).to_string()), (String::new(), "[1]".to_owned()));
    }
}
