//! Credentials for registries from imagePullSecrets.

use super::credentials::Used;
use crate::cri::api;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Login>,
}

#[derive(Clone, Default, Deserialize)]
struct Login {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default, rename = "identitytoken")]
    identity_token: String,
}

/// The registry's host (with port) of an image name, and the name below it, as Docker reads names.
pub(super) fn split(image: &str) -> (&str, String) {
    match image.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest.to_owned()),
        Some(_) => ("docker.io", image.to_owned()),
        None => ("docker.io", format!("library/{image}")),
    }
}

/// The most specific login for the image in these secrets, and whose it is. Secrets of other types are skipped.
pub fn for_image(image: &str, secrets: &[impl AsRef<Secret>]) -> Option<(api::AuthConfig, Used)> {
    let (host, name) = split(image);
    let mut best: Option<(usize, Login, &Secret)> = None;
    for secret in secrets {
        for (key, login) in logins(secret.as_ref()) {
            let fits = matches(&key, host, &name);
            if let Some(length) = fits.filter(|length| best.as_ref().is_none_or(|(b, ..)| length > b)) {
                best = Some((length, login, secret.as_ref()));
            }
        }
    }
    let (_, login, secret) = best?;
    let decoded = STANDARD.decode(&login.auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let (username, password) = match decoded.as_deref().and_then(|text| text.split_once(':')) {
        Some((user, password)) => (user.to_owned(), password.trim_end_matches('\0').to_owned()),
        None => (login.username, login.password),
    };
    let login = api::AuthConfig {
        username,
        password,
        identity_token: login.identity_token,
        ..api::AuthConfig::default()
    };
    let used = Used::of(secret, &login);
    Some((login, used))
}

fn logins(secret: &Secret) -> BTreeMap<String, Login> {
    let data = |key: &str| secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.as_slice());
    if let Some(json) = data(".dockerconfigjson") {
        return serde_json::from_slice::<DockerConfig>(json).map(|c| c.auths).unwrap_or_default();
    }
    data(".dockercfg").and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
}

/// How specifically a key of the configuration (`host`, `https://host/v1/`, `host/path`, `*.host`) names the image.
fn matches(key: &str, host: &str, name: &str) -> Option<usize> {
    let bare = key.trim_start_matches("https://").trim_start_matches("http://");
    let (key_host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let path = path.trim_end_matches('/');
    let path = path.trim_start_matches("v1").trim_start_matches("v2").trim_start_matches('/');
    let hub = |h: &str| matches!(h, "index.docker.io" | "registry-1.docker.io" | "docker.io");
    let same =
        key_host == host || (hub(key_host) && hub(host)) || (key_host.contains('*') && glob(key_host, host));
    let below = path.is_empty() || name == path || name.starts_with(&format!("{path}/"));
    (same && below).then_some(bare.len())
}

/// `*` stands for one label.
fn glob(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern.len() == host.len() && pattern.iter().zip(&host).all(|(p, h)| *p == "*" || p == h)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn the_most_specific_login_wins() {
        let config = json!({ "auths": {
            "https://index.docker.io/v1/": { "auth": STANDARD.encode("hub:pw") },
            "registry.example:5000": { "username": "any", "password": "x" },
            "registry.example:5000/team": { "username": "team", "password": "y" },
            "*.wild.example": { "username": "wild", "password": "z" }
        }});
        let data = json!({ "data": { ".dockerconfigjson": STANDARD.encode(config.to_string()) } });
        let secret: Arc<Secret> = Arc::new(serde_json::from_value(data).unwrap());
        let user = |image: &str| for_image(image, &[&secret]).map(|(login, _)| login.username);
        assert_eq!(user("busybox").as_deref(), Some("hub"));
        assert_eq!(user("registry.example:5000/x/y").as_deref(), Some("any"));
        assert_eq!(user("registry.example:5000/team/y:1").as_deref(), Some("team"));
        assert_eq!(user("registry.example:5000/teamwork/y").as_deref(), Some("any"));
        assert_eq!(user("a.wild.example/y").as_deref(), Some("wild"));
        assert_eq!(user("elsewhere.example/y"), None);
    }
}
