//! The credentials that have pulled an image, as they are noted: never themselves.

use super::auth::split;
use crate::cri::api;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Secrets noted for one image and repository; the oldest is forgotten then, and its pods pull once more.
const MAX_SECRETS: usize = 100;

/// Credentials of a pod, by the Secret that has them and by what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// The same credentials may be in Secrets of many namespaces.
    pub credential_hash: String,
}

impl Used {
    pub fn of(secret: &Secret, login: &api::AuthConfig) -> Self {
        let part = |value: &Option<String>| value.clone().unwrap_or_default();
        let meta = &secret.metadata;
        Self {
            uid: part(&meta.uid),
            namespace: part(&meta.namespace),
            name: part(&meta.name),
            credential_hash: hash(login),
        }
    }

    fn is_same_secret(&self, other: &Self) -> bool {
        !self.uid.is_empty()
            && (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

/// Each part goes in with its length: no two logins give the same text.
fn hash(login: &api::AuthConfig) -> String {
    let mut hasher = Sha256::new();
    for part in [&login.username, &login.password, &login.identity_token, &login.registry_token] {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    coracle_api::hex::text(&hasher.finalize())
}

/// Who may use an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Access {
    /// It was pulled without credentials.
    node_pods_accessible: bool,
    kubernetes_secrets: Vec<Used>,
}

impl Access {
    pub fn admits(&self, used: Option<&Used>) -> bool {
        let known = |used: &Used| {
            let mut secrets = self.kubernetes_secrets.iter();
            secrets.any(|s| s.is_same_secret(used) || s.credential_hash == used.credential_hash)
        };
        self.node_pods_accessible || used.is_some_and(known)
    }

    pub fn add(&mut self, used: Option<&Used>) {
        let Some(used) = used else {
            *self = Self { node_pods_accessible: true, kubernetes_secrets: Vec::new() };
            return;
        };
        if self.node_pods_accessible {
            return;
        }
        self.kubernetes_secrets.retain(|s| !s.is_same_secret(used));
        self.kubernetes_secrets.push(used.clone());
        let surplus = self.kubernetes_secrets.len().saturating_sub(MAX_SECRETS);
        self.kubernetes_secrets.drain(..surplus);
    }
}

/// An image's name with its registry, without tag and digest.
pub fn repository(image: &str) -> String {
    let (host, name) = split(image);
    let name = name.split_once('@').map_or(name.as_str(), |(name, _)| name);
    let (above, last) = name.rsplit_once('/').map_or(("", name), |(above, last)| (above, last));
    let last = last.split_once(':').map_or(last, |(last, _)| last);
    if above.is_empty() { format!("{host}/{last}") } else { format!("{host}/{above}/{last}") }
}
