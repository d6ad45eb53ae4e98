//! What a service-account token says, in upstream's names.

use serde::{Deserialize, Serialize};

/// Payload of a bound token and, with other fields filled, of a token from a Secret.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    pub iss: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(default, rename = "kubernetes.io", skip_serializing_if = "Option::is_none")]
    pub private: Option<Private>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    pub sub: String,
    #[serde(flatten)]
    pub legacy: Legacy,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Private {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    pub serviceaccount: Reference,
    /// Seconds since 1970 from which a client should have fetched a new token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Claims of tokens that live in Secrets of type `kubernetes.io/service-account-token`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Legacy {
    #[serde(
        default,
        rename = "kubernetes.io/serviceaccount/namespace",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,
    #[serde(
        default,
        rename = "kubernetes.io/serviceaccount/secret.name",
        skip_serializing_if = "Option::is_none"
    )]
    pub secret: Option<String>,
    #[serde(
        default,
        rename = "kubernetes.io/serviceaccount/service-account.name",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    #[serde(
        default,
        rename = "kubernetes.io/serviceaccount/service-account.uid",
        skip_serializing_if = "Option::is_none"
    )]
    pub uid: Option<String>,
}

impl Legacy {
    /// The Secret and its service account: resource, namespace and name.
    pub fn objects(&self) -> Vec<(&'static str, String, String)> {
        let Some(namespace) = &self.namespace else { return Vec::new() };
        let named = [("secrets.", &self.secret), ("serviceaccounts.", &self.name)].into_iter();
        named.filter_map(|(resource, name)| Some((resource, namespace.clone(), name.clone()?))).collect()
    }
}

/// RFC 7519 lets `aud` be one string or a list.
fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(from)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}
