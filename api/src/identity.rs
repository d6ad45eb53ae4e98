//! Who is asking: the outcome of authentication, carried with every request.

use crate::validation;
use std::collections::BTreeMap;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The key in [`UserInfo::extra`] of the node that a service account's token is bound to, by itself or by its pod.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The key in [`UserInfo::extra`] of what proved who the user is: a token's id, or a certificate's digest.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The groups of every service account of a namespace, beside `system:authenticated`.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The user name of a service account.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// What stands for namespace and name in a service account's user name, whether they are such names or not.
pub fn split_service_account(user_name: &str) -> Option<(&str, &str)> {
    user_name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
}

/// Namespace and name of a service account's user name, if both are such names.
pub fn service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = split_service_account(user_name)?;
    let good =
        validation::dns1123_label(namespace).is_empty() && validation::dns1123_subdomain(name).is_empty();
    good.then_some((namespace, name))
}

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

    /// The user that an authenticated service account is; its uid is left empty.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = service_account_groups(namespace);
        Self::authenticated(&service_account_name(namespace, name), &groups.each_ref().map(String::as_str))
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

    /// Whether this is a service account whose token is bound to this node.
    pub fn is_service_account_on(&self, node: &str) -> bool {
        let bound = self.extra.get(NODE_NAME).map(Vec::as_slice).unwrap_or_default();
        let bound = matches!(bound, [one] if one == node);
        bound && service_account(&self.name).is_some() && validation::dns1123_subdomain(node).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_are_told_by_their_names_and_tokens() {
        let name = service_account_name("ns", "bot");
        assert_eq!(service_account(&name), Some(("ns", "bot")));
        let user = UserInfo::service_account("ns", "bot");
        assert_eq!(user.name, name);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!(user.groups, groups);
        for other in
            ["bot", "system:serviceaccount:ns", "system:serviceaccount:NS:bot", "system:serviceaccount:ns:"]
        {
            assert_eq!(service_account(other), None, "{other}");
        }
        let on = |name: &str, nodes: &[&str]| {
            let mut user = UserInfo::authenticated(name, &[]);
            user.extra.insert(NODE_NAME.to_owned(), nodes.iter().map(|&node| node.to_owned()).collect());
            user.is_service_account_on("n1")
        };
        assert!(on(&name, &["n1"]));
        assert!(!on(&name, &["n2"]) && !on(&name, &["n1", "n2"]) && !on(&name, &[]) && !on("jane", &["n1"]));
        assert!(
            !UserInfo {
                extra: [(NODE_NAME.to_owned(), vec![String::new()])].into(),
                ..UserInfo::authenticated(&name, &[])
            }
            .is_service_account_on("")
        );
    }
}
