//! Requests without credentials.

/// For which requests `system:anonymous` is the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    #[default]
    Everywhere,
    /// For these paths, exactly as they are written.
    Paths(Vec<String>),
    /// For health and version alone.
    Nowhere,
}

impl Anonymous {
    /// Authorization is still asked, about `system:anonymous`.
    pub(super) fn may_ask(&self, path: &str) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Paths(paths) => paths.iter().any(|one| one == path),
            Self::Nowhere => is_public(path),
        }
    }
}

/// Paths that answer without credentials even where anonymous requests are off: health and version. Authorization still
/// sees `system:anonymous`.
pub fn is_public(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    let health =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    path == "/version" || ["/livez", "/readyz", "/healthz"].into_iter().any(health)
}
