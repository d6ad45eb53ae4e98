//! Bootstrap tokens, `id.secret`, from Secrets in kube-system:
//! <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.

use super::TokenUser;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::well_known;
use coracle_api::{Object, UserInfo};
use coracle_requests::ObjectReader;
use jiff::Timestamp;

/// Six characters, a dot, sixteen characters; lower-case letters and digits.
pub(super) fn looks_like_one(token: &str) -> bool {
    let fits = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    token.split_once('.').is_some_and(|(id, secret)| fits(id, 6) && fits(secret, 16))
}

/// The Secret of a token that [looks like one](looks_like_one): resource, namespace and name.
pub(super) fn object_of(token: &str) -> (&'static str, String, String) {
    let id = token.split('.').next().unwrap_or_default();
    ("secrets.", "kube-system".to_owned(), format!("bootstrap-token-{id}"))
}

fn field(secret: &Object, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

pub(super) fn authenticate(
    token: &str,
    read: &dyn ObjectReader,
    now: Timestamp,
) -> Result<TokenUser, String> {
    let (id, secret) = token.split_once('.').ok_or("not a bootstrap token")?;
    let object = read.get("secrets.", "kube-system", &format!("bootstrap-token-{id}"));
    let object = object.ok_or_else(|| format!("bootstrap token {id} does not exist"))?;
    if object["type"] != well_known::BOOTSTRAP_TOKEN {
        return Err(format!("secret of bootstrap token {id} has the wrong type"));
    }
    if object["metadata"]["deletionTimestamp"].is_string() {
        return Err(format!("bootstrap token {id} is being deleted"));
    }
    let matches = |name: &str, value: &str| field(&object, name).is_some_and(|stored| same(&stored, value));
    if !matches("token-secret", secret) || !matches("token-id", id) {
        return Err(format!("bootstrap token {id} has another secret"));
    }
    if let Some(expiration) = field(&object, "expiration") {
        let end: Timestamp =
            expiration.parse().map_err(|_| format!("bootstrap token {id} has a bad expiration"))?;
        if end <= now {
            return Err(format!("bootstrap token {id} has expired"));
        }
    }
    if field(&object, "usage-bootstrap-authentication").as_deref() != Some("true") {
        return Err(format!("bootstrap token {id} is not for authentication"));
    }
    let mut groups = vec!["system:bootstrappers".to_owned()];
    let extra = field(&object, "auth-extra-groups").unwrap_or_default();
    for group in extra.split(',').map(str::trim).filter(|g| !g.is_empty()) {
        if !is_bootstrap_group(group) {
            return Err(format!("bootstrap token {id} names the group {group}, which it may not"));
        }
        groups.push(group.to_owned());
    }
    let user = UserInfo { name: format!("system:bootstrap:{id}"), groups, ..UserInfo::default() };
    Ok(TokenUser::new(user, Vec::new()))
}

/// `system:bootstrappers:` and up to 256 lower-case letters, digits, colons and dashes, of which the last is no sign.
fn is_bootstrap_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 256
        && name.bytes().all(|b| plain(b) || b == b':' || b == b'-')
        && name.bytes().last().is_some_and(plain)
}

/// Takes as long for the first differing byte as for the last.
pub(super) fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}
