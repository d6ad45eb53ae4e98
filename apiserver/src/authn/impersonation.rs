//! Impersonation headers:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.

use crate::authz::{Attributes, Authorizer, require};
use coracle_api::{ApiError, UserInfo};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// What the headers ask to be.
#[derive(Debug, Default)]
struct Wish {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// The user to go on as: `None` where no header asks for another one. 403 if `user` may not impersonate each of the
/// asked user, groups, uid and extra values; 400 for groups without a user. Call it after authentication; remove the
/// headers before anything is proxied.
pub fn impersonate(
    user: &UserInfo,
    headers: &HeaderMap,
    authorizer: &dyn Authorizer,
) -> Result<Option<UserInfo>, ApiError> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let wish = parse(headers)?;
    if wish.user.is_empty() {
        if wish.uid.is_empty() && wish.groups.is_empty() && wish.extra.is_empty() {
            return Ok(None);
        }
        let what = "requested without impersonating a user";
        return Err(ApiError::bad_request(format!("impersonation of uid, groups or extra was {what}")));
    }
    allowed(user, &wish, authorizer)?;
    Ok(Some(become_user(wish)))
}

fn text(value: &HeaderValue) -> Result<String, ApiError> {
    let text = value.to_str().map_err(|_| ApiError::bad_request("impersonation headers must be ASCII"))?;
    Ok(text.to_owned())
}

fn parse(headers: &HeaderMap) -> Result<Wish, ApiError> {
    let mut wish = Wish::default();
    for (name, value) in headers {
        match name.as_str() {
            "impersonate-user" => wish.user = text(value)?,
            "impersonate-uid" => wish.uid = text(value)?,
            "impersonate-group" => wish.groups.push(text(value)?),
            other => {
                let Some(key) = other.strip_prefix(EXTRA_PREFIX) else { continue };
                let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                wish.extra.entry(key).or_default().push(text(value)?);
            }
        }
    }
    Ok(wish)
}

fn allowed(user: &UserInfo, wish: &Wish, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
    let ask = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let asked = Attributes {
            name,
            subresource,
            ..Attributes::resource(user, "impersonate", group, resource, namespace)
        };
        require(authorizer, &asked)
    };
    match service_account(&wish.user) {
        Some((namespace, name)) => ask("", "serviceaccounts", "", namespace, name)?,
        None => ask("", "users", "", "", &wish.user)?,
    }
    for group in &wish.groups {
        ask("", "groups", "", "", group)?;
    }
    if !wish.uid.is_empty() {
        ask(AUTHENTICATION_GROUP, "uids", "", "", &wish.uid)?;
    }
    for (key, values) in &wish.extra {
        for value in values {
            ask(AUTHENTICATION_GROUP, "userextras", key, "", value)?;
        }
    }
    Ok(())
}

fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

/// Adds the groups that a user of that name has by nature, as upstream.
fn become_user(wish: Wish) -> UserInfo {
    let mut user = UserInfo { name: wish.user, uid: wish.uid, groups: wish.groups, extra: wish.extra };
    let mut add = |group: String| {
        if !user.groups.contains(&group) {
            user.groups.push(group);
        }
    };
    if let Some((namespace, _)) = service_account(&user.name.clone()) {
        add("system:serviceaccounts".to_owned());
        add(format!("system:serviceaccounts:{namespace}"));
    }
    match user.name.as_str() {
        "system:anonymous" => add("system:unauthenticated".to_owned()),
        _ => add("system:authenticated".to_owned()),
    }
    user
}
