//! Impersonation headers:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.

use super::front_proxy::unescaped;
use super::{Credentials, constrained};
use crate::authz::{Attributes, Authorizer, require};
use coracle_api::identity::{service_account, service_account_groups};
use coracle_api::{ApiError, UserInfo};
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;

const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// What the headers ask to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub user: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Wish {
    /// Whether nothing but a name is asked for.
    pub fn is_name_only(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }
}

/// The user to go on as: `None` where no header asks for another one. 403 if the requester may not impersonate each of
/// the asked user, groups, uid and extra values; 400 for groups without a user. Call it after authentication; remove the
/// headers before anything is proxied. Some may impersonate only for some requests (KEP-5284): `request` is what the
/// requester asks, with the requester as its user. The constrained ways are tried first; the error is the first one's.
pub fn impersonate_request(
    request: &Attributes<'_>,
    said: &Credentials,
    authorizer: &dyn Authorizer,
) -> Result<Option<UserInfo>, ApiError> {
    let Some(wish) = said.wish.as_ref().map_err(ApiError::clone)? else { return Ok(None) };
    let mut refused = None;
    for mode in constrained::modes_for(request.user, wish) {
        match constrained::allow(mode, request, wish, authorizer) {
            Ok(()) => return Ok(Some(constrained::become_user(wish.clone()))),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match Part::LEGACY.allow(request.user, wish, authorizer) {
        Ok(()) => Ok(Some(become_user(wish.clone()))),
        Err(error) => Err(refused.unwrap_or(error)),
    }
}

/// What headers ask for.
///
/// # Errors
/// 400 for what cannot be read, for more than one user, and for anything without a user.
pub(super) fn wish(headers: &HeaderMap) -> Result<Option<Wish>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let wish = parse(headers)?;
    if !wish.user.is_empty() {
        return Ok(Some(wish));
    }
    if wish.is_name_only() {
        return Ok(None);
    }
    let asked: Vec<String> = [
        ("uid", !wish.uid.is_empty()),
        ("groups", !wish.groups.is_empty()),
        ("extra", !wish.extra.is_empty()),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .map(|(name, _)| name.to_owned())
    .collect();
    Err(ApiError::bad_request(format!("requested [{}] without impersonating a user name", asked.join(" "))))
}

fn text(value: &HeaderValue) -> Result<String, ApiError> {
    let text = value.to_str().map_err(|_| ApiError::bad_request("impersonation headers must be ASCII"))?;
    Ok(text.to_owned())
}

/// The value of a header that is there once at most: of two, somebody in front of this server may have judged the other.
fn only(headers: &HeaderMap, name: &str) -> Result<String, ApiError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map_or_else(|| Ok(String::new()), text)?;
    match values.next() {
        None => Ok(value),
        Some(_) => Err(ApiError::bad_request(format!("more than one {name} header"))),
    }
}

fn parse(headers: &HeaderMap) -> Result<Wish, ApiError> {
    let (user, uid) = (only(headers, "impersonate-user")?, only(headers, "impersonate-uid")?);
    let mut wish = Wish { user, uid, ..Wish::default() };
    for (name, value) in headers {
        if name == "impersonate-group" {
            wish.groups.push(text(value)?);
        } else if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            wish.extra.entry(unescaped(key)).or_default().push(text(value)?);
        }
    }
    Ok(wish)
}

/// The verb of one way to impersonate, and the group that its users and groups are in.
pub(super) struct Part<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub nodes: bool,
}

impl Part<'_> {
    const LEGACY: Part<'static> = Part { verb: "impersonate", group: "", nodes: false };

    /// Asks for every part of the wish.
    pub fn allow(&self, user: &UserInfo, wish: &Wish, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
        let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
            let asked = Attributes {
                name,
                subresource,
                version: "v1",
                ..Attributes::resource(user, self.verb, group, resource, namespace)
            };
            require(authorizer, &asked)
        };
        match (service_account(&wish.user), node(&wish.user).filter(|_| self.nodes)) {
            (Some((namespace, name)), _) => ask(self.group, "serviceaccounts", "", namespace, name)?,
            (None, Some(node)) => ask(self.group, "nodes", "", "", node)?,
            (None, None) => ask(self.group, "users", "", "", &wish.user)?,
        }
        if !wish.uid.is_empty() {
            ask(AUTHENTICATION_GROUP, "uids", "", "", &wish.uid)?;
        }
        for group in &wish.groups {
            ask(self.group, "groups", "", "", group)?;
        }
        for (key, values) in &wish.extra {
            for value in values {
                ask(AUTHENTICATION_GROUP, "userextras", key, "", value)?;
            }
        }
        Ok(())
    }
}

pub(super) fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    coracle_api::validation::dns1123_subdomain(name).is_empty().then_some(name)
}

/// Adds the groups that a user of that name has by nature, as upstream: those of a service account only where no groups
/// were asked for.
pub(super) fn become_user(wish: Wish) -> UserInfo {
    let mut user = UserInfo { name: wish.user, uid: wish.uid, groups: wish.groups, extra: wish.extra };
    if user.groups.is_empty()
        && let Some((namespace, _)) = service_account(&user.name)
    {
        user.groups = service_account_groups(namespace).into();
    }
    let own = if user.name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if !user.in_group(own) && !user.in_group("system:unauthenticated") {
        user.groups.push(own.to_owned());
    }
    user
}
