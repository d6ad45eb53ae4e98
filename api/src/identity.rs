//! Who is asking: the outcome of authentication, carried with every request.

use std::collections::BTreeMap;

/// A user as upstream's `user.Info` describes one.
///
/// The in-memory transport puts a value of this type into the request's extensions; the API server trusts it
/// there and nowhere else, so nothing that comes from a socket may carry one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user with the given groups and, as every authenticated user, `system:authenticated`.
    pub fn authenticated(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        groups.push("system:authenticated".to_owned());
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
