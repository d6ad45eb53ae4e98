//! The secrets by which a driver does its work.

use k8s_openapi::api::core::v1::{Secret, SecretReference};
use kube::Api;
use std::collections::BTreeMap;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("error getting secret {name} in namespace {namespace}: {source}")]
    Read { namespace: String, name: String, source: kube::Error },
    #[error("secret {namespace}/{name}: the value of {key:?} is no text")]
    NoText { namespace: String, name: String, key: String },
}

/// What a secret holds; nothing where none is named.
pub async fn read(
    client: &kube::Client,
    reference: Option<&SecretReference>,
) -> Result<BTreeMap<String, String>, SecretError> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    let namespace = reference.namespace.clone().unwrap_or_default();
    let name = reference.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Ok(BTreeMap::new());
    }
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let secret = api.get(&name).await.map_err(|source| SecretError::Read {
        namespace: namespace.clone(),
        name: name.clone(),
        source,
    })?;
    let text = |(key, value): (String, k8s_openapi::ByteString)| match String::from_utf8(value.0) {
        Ok(text) => Ok((key, text)),
        Err(_) => Err(SecretError::NoText { namespace: namespace.clone(), name: name.clone(), key }),
    };
    secret.data.unwrap_or_default().into_iter().map(text).collect()
}
