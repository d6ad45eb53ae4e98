//! What a kubeconfig file says, and the target that is made of it.

use super::{Stamp, stamp};
use crate::target::Target;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use coracle_tls::{self as tls, Identity};
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Document {
    #[serde(rename = "apiVersion", default)]
    _api_version: Value,
    #[serde(rename = "kind", default)]
    _kind: Value,
    #[serde(rename = "preferences", default)]
    _preferences: Value,
    #[serde(rename = "extensions", default)]
    _extensions: Value,
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct Cluster {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
    /// Answers are asked for as they are.
    #[serde(rename = "disable-compression")]
    _disable_compression: bool,
    #[serde(rename = "extensions")]
    _extensions: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    #[serde(rename = "as")]
    act_as: Value,
    as_uid: Value,
    as_groups: Value,
    as_user_extra: Value,
    auth_provider: Value,
    exec: Value,
    #[serde(rename = "extensions")]
    _extensions: Value,
}

/// A target, and the files it was made of beside the kubeconfig.
pub(super) struct Parts {
    pub target: Target,
    pub files: Vec<(PathBuf, Stamp)>,
}

/// Every mistake begins with its field.
pub(super) fn read(path: &Path, agent: &'static str) -> Result<Parts, Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| vec![e.to_string()])?;
    let document: Document = serde_saphyr::from_str(&text).map_err(|e| vec![e.to_string()])?;
    let (cluster, user) = document.current()?;
    let mut reading = Reading { beside: path.parent().unwrap_or(Path::new(".")), ..Reading::default() };
    let made = reading.target(&cluster, &user, agent);
    match (made, reading.mistakes) {
        (Some(target), mistakes) if mistakes.is_empty() => Ok(Parts { target, files: reading.files }),
        (_, mistakes) => Err(mistakes),
    }
}

impl Document {
    /// The cluster and the user of the current context; a context may leave its user out.
    fn current(self) -> Result<(Cluster, User), Vec<String>> {
        let named = self.current_context;
        if named.is_empty() {
            return Err(vec!["current-context: Required value".to_owned()]);
        }
        let Some(NamedContext { context, .. }) = self.contexts.into_iter().find(|c| c.name == named) else {
            return Err(vec![format!("current-context: context {named:?} does not exist")]);
        };
        let mut mistakes = Vec::new();
        let cluster = self.clusters.into_iter().find(|c| c.name == context.cluster);
        if cluster.is_none() {
            mistakes.push(format!("contexts[{named}].cluster: cluster {:?} does not exist", context.cluster));
        }
        let user = self.users.into_iter().find(|u| u.name == context.user);
        if user.is_none() && !context.user.is_empty() {
            mistakes.push(format!("contexts[{named}].user: user {:?} does not exist", context.user));
        }
        match cluster {
            Some(cluster) if mistakes.is_empty() => {
                Ok((cluster.cluster, user.map_or_else(User::default, |user| user.user)))
            }
            _ => Err(mistakes),
        }
    }
}

/// Gathers what is wrong and what was read.
struct Reading<'a> {
    beside: &'a Path,
    mistakes: Vec<String>,
    files: Vec<(PathBuf, Stamp)>,
}

impl Default for Reading<'_> {
    fn default() -> Self {
        Self { beside: Path::new("."), mistakes: Vec::new(), files: Vec::new() }
    }
}

impl Reading<'_> {
    fn mistake(&mut self, field: &str, why: impl std::fmt::Display) {
        self.mistakes.push(format!("{field}: {why}"));
    }

    fn target(&mut self, cluster: &Cluster, user: &User, agent: &'static str) -> Option<Target> {
        self.refuse(cluster, user);
        let roots = self.bytes(
            "cluster.certificate-authority",
            &cluster.certificate_authority,
            &cluster.certificate_authority_data,
        );
        let identity = self.identity(user);
        let headers = self.headers(user, agent);
        let made = Target::remote(&cluster.server, &cluster.tls_server_name, headers, |protocols| {
            tls::client_config_as(roots.as_deref(), identity, protocols)
        });
        made.map_err(|error| self.mistake("cluster", error)).ok()
    }

    /// What would otherwise be ignored, or make the connection less safe than it looks.
    fn refuse(&mut self, cluster: &Cluster, user: &User) {
        const NOT_DONE: &str = "is not supported for webhooks of this server";
        if !cluster.server.starts_with("https://") {
            self.mistake("cluster.server", format!("{:?} must use 'https'", cluster.server));
        }
        if cluster.insecure_skip_tls_verify {
            self.mistake("cluster.insecure-skip-tls-verify", format!("{NOT_DONE}; name the authority"));
        }
        if !cluster.proxy_url.is_empty() {
            self.mistake("cluster.proxy-url", NOT_DONE);
        }
        for (field, value) in [
            ("user.as", &user.act_as),
            ("user.as-uid", &user.as_uid),
            ("user.as-groups", &user.as_groups),
            ("user.as-user-extra", &user.as_user_extra),
            ("user.auth-provider", &user.auth_provider),
            ("user.exec", &user.exec),
        ] {
            if !value.is_null() {
                self.mistake(field, NOT_DONE);
            }
        }
    }

    /// The data of a field, or the content of the file that its sibling names, which counts less.
    fn bytes(&mut self, field: &str, file: &str, data: &str) -> Option<Vec<u8>> {
        if !data.is_empty() {
            let read = BASE64_STANDARD.decode(data);
            return read.map_err(|e| self.mistake(&format!("{field}-data"), e)).ok();
        }
        if file.is_empty() { None } else { self.file(field, file) }
    }

    /// A path is relative to the kubeconfig.
    fn file(&mut self, field: &str, file: &str) -> Option<Vec<u8>> {
        let path = self.beside.join(file);
        self.files.push((path.clone(), stamp(&path)));
        std::fs::read(&path).map_err(|e| self.mistake(field, format!("{}: {e}", path.display()))).ok()
    }

    fn identity(&mut self, user: &User) -> Option<Identity> {
        let before = self.mistakes.len();
        let certificate =
            self.bytes("user.client-certificate", &user.client_certificate, &user.client_certificate_data);
        let key = self.bytes("user.client-key", &user.client_key, &user.client_key_data);
        match (certificate, key) {
            (Some(certificate), Some(key)) => Identity::from_pem(&certificate, &key)
                .map_err(|error| self.mistake("user.client-certificate", error))
                .ok(),
            (None, None) => None,
            _ if self.mistakes.len() > before => None,
            (Some(_), None) => {
                self.mistake("user.client-key", "must be given with client-certificate");
                None
            }
            (None, Some(_)) => {
                self.mistake("user.client-certificate", "must be given with client-key");
                None
            }
        }
    }

    fn headers(&mut self, user: &User, agent: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let has_token = !(user.token.is_empty() && user.token_file.is_empty());
        let has_name = !(user.username.is_empty() && user.password.is_empty());
        if has_token && has_name {
            self.mistake("user", "more than one authentication method, token and basic; only one is allowed");
        }
        let credentials = if has_token {
            format!("Bearer {}", self.token(user))
        } else if has_name {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", user.username, user.password)))
        } else {
            return headers;
        };
        match HeaderValue::from_str(&credentials) {
            Ok(mut value) => {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            Err(_) => self.mistake("user.token", "holds characters that no header may"),
        }
        headers
    }

    /// The file counts more, as upstream.
    fn token(&mut self, user: &User) -> String {
        if user.token_file.is_empty() {
            return user.token.clone();
        }
        let bytes = self.file("user.tokenFile", &user.token_file).unwrap_or_default();
        let token = String::from_utf8_lossy(&bytes).trim().to_owned();
        if token.is_empty() && !bytes.is_empty() {
            self.mistake("user.tokenFile", "is empty");
        }
        token
    }
}
