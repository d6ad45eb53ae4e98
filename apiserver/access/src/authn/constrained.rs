//! Constrained impersonation (KEP-5284): whoever may `impersonate:<mode>` somebody and `impersonate-on:<mode>:<verb>` the
//! object of the request may make this request as them, and no other.

use super::impersonation::{Part, Wish, become_user as plain_user, node};
use crate::authz::{Attributes, Authorizer, MASTERS, require};
use coracle_api::identity::service_account;
use coracle_api::{ApiError, UserInfo};

const GROUP: &str = "authentication.k8s.io";

/// The kinds of users, each with verbs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A service account on the node that it asks to be.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
        }
    }
}

/// The ways by which this user can be asked for, the narrowest first.
pub(super) fn modes_for(requester: &UserInfo, wish: &Wish) -> Vec<Mode> {
    let (as_node, as_account) = (node(&wish.user), service_account(&wish.user));
    match (as_node, as_account, wish.is_name_only()) {
        (Some(node), _, true) if requester.is_service_account_on(node) => {
            vec![Mode::AssociatedNode, Mode::ArbitraryNode]
        }
        (Some(_), _, true) => vec![Mode::ArbitraryNode],
        (None, Some(_), true) => vec![Mode::ServiceAccount],
        (None, None, _) => vec![Mode::UserInfo],
        _ => Vec::new(),
    }
}

pub(super) fn allow(
    mode: Mode,
    request: &Attributes<'_>,
    wish: &Wish,
    authorizer: &dyn Authorizer,
) -> Result<(), ApiError> {
    let verb = format!("impersonate-on:{}:{}", mode.name(), request.verb);
    require(authorizer, &Attributes { verb: &verb, ..*request })?;
    let verb = format!("impersonate:{}", mode.name());
    if mode == Mode::AssociatedNode {
        // Whichever node it is: the requester is on it.
        let asked = Attributes {
            name: "*",
            version: "v1",
            ..Attributes::resource(request.user, &verb, GROUP, "nodes", "")
        };
        return require(authorizer, &asked);
    }
    sane(&verb, request.user, wish)?;
    Part { verb: &verb, group: GROUP, nodes: true }.allow(request.user, wish, authorizer)
}

/// What plain impersonation lets through for old times' sake.
fn sane(verb: &str, requester: &UserInfo, wish: &Wish) -> Result<(), ApiError> {
    let refuse = |resource: &str, name: &str, why: &str| {
        let asked = Attributes { name, ..Attributes::resource(requester, verb, GROUP, resource, "") };
        Err(asked.forbidden(why))
    };
    if wish.groups.iter().any(String::is_empty) {
        return refuse("groups", "", "impersonating the empty string group is not allowed");
    }
    if wish.groups.iter().any(|g| g == MASTERS) {
        return refuse("groups", MASTERS, "impersonating the system:masters group is not allowed");
    }
    for (key, values) in &wish.extra {
        if key.is_empty() {
            return refuse("userextras", "", "impersonating the empty string key in extra is not allowed");
        }
        if *key != key.to_lowercase() {
            let why = format!("impersonating a non-lowercase key in extra is not allowed: \"{key}\"");
            return refuse("userextras", "", &why);
        }
        if values.iter().any(String::is_empty) {
            return refuse("userextras", "", "impersonating the empty string value in extra is not allowed");
        }
    }
    Ok(())
}

/// Nodes have the group of all nodes here.
pub(super) fn become_user(wish: Wish) -> UserInfo {
    let mut wish = wish;
    if node(&wish.user).is_some() {
        wish.groups = vec!["system:nodes".to_owned()];
    }
    plain_user(wish)
}
