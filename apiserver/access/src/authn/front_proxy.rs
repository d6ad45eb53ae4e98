//! The user that an authenticating proxy names in its headers
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#authenticating-proxy>).
//!
//! Whoever connects with a certificate of the front proxy's authority and one of the allowed names is believed; headers
//! of anybody else are nothing.

use coracle_api::UserInfo;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// `None` if no user is named.
pub(super) fn user(headers: &HeaderMap) -> Option<UserInfo> {
    let text =
        |name: &HeaderName| -> Option<&str> { headers.get(name)?.to_str().ok().filter(|t| !t.is_empty()) };
    let mut user = UserInfo::authenticated(text(&USER)?, &[]);
    user.uid = text(&UID).unwrap_or_default().to_owned();
    let mut groups: Vec<String> =
        headers.get_all(GROUP).iter().filter_map(|v| v.to_str().ok()).map(str::to_owned).collect();
    // Upstream's group adder: everybody but somebody unauthenticated is authenticated.
    let decided = |g: &String| g == "system:authenticated" || g == "system:unauthenticated";
    if user.name != "system:anonymous" && !groups.iter().any(decided) {
        groups.push("system:authenticated".to_owned());
    }
    user.groups = groups;
    for (name, value) in headers {
        let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA), value.to_str()) else { continue };
        user.extra.entry(unescaped(key)).or_default().push(value.to_owned());
    }
    Some(user)
}

/// Keys travel percent-encoded; what is no such encoding is taken as it is, as upstream.
pub(super) fn unescaped(key: &str) -> String {
    let bad = key.match_indices('%').any(|(at, _)| {
        !key.get(at + 1..at + 3).is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    if bad { key.to_owned() } else { percent_decode_str(key).decode_utf8_lossy().into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_user() {
        let mut headers = HeaderMap::new();
        assert_eq!(user(&headers), None);
        headers.append("x-remote-user", "jane".parse().unwrap());
        headers.append("x-remote-group", "ops".parse().unwrap());
        headers.append("x-remote-group", "dev".parse().unwrap());
        headers.append("x-remote-extra-acme.com%2fproject", "a".parse().unwrap());
        headers.append("x-remote-extra-acme.com%2fproject", "b".parse().unwrap());
        headers.append("x-remote-uid", "7".parse().unwrap());
        let found = user(&headers).unwrap();
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("jane", "7"));
        assert_eq!(found.groups, ["ops", "dev", "system:authenticated"]);
        assert_eq!(found.extra["acme.com/project"], ["a", "b"]);
        assert_eq!(unescaped("a%2"), "a%2");
        assert_eq!(unescaped("a%zz"), "a%zz");
    }
}
