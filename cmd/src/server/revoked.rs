//! The box's own administrator, when its certificate is taken back: it gets a new one at once.

use crate::cert::revoked;
use coracle_apiserver::kubeconfig;
use coracle_apiserver::pki::{Leaf, Pki};
use coracle_client::FollowedObject;
use k8s_openapi::api::core::v1::ConfigMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Watches the list of revoked certificates, for ever.
pub async fn watch(client: kube::Client, pki: Arc<Pki>, url: String, path: PathBuf) {
    let among = format!("/api/v1/namespaces/{}/configmaps", revoked::NAMESPACE);
    let mut followed = FollowedObject::<ConfigMap>::new(client, &among, revoked::NAME);
    loop {
        let Some(list) = followed.next().await else { continue };
        if list.data.is_some_and(|data| data.contains_key(&pki.leaf_fingerprint(Leaf::Admin))) {
            replace(&pki, &url, &path);
        }
    }
}

fn replace(pki: &Pki, url: &str, path: &Path) {
    tracing::warn!("the administrator's certificate was revoked, here is another one");
    match pki.replace(Leaf::Admin) {
        Ok(()) => write(pki, url, path),
        Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "certificate not replaced"),
    }
}

/// Writes the administrator's kubeconfig with the certificate of now.
pub fn write(pki: &Pki, url: &str, path: &Path) {
    if let Err(error) = kubeconfig::write_admin(pki, url, path) {
        tracing::error!(error = &error as &dyn std::error::Error, "kubeconfig not renewed");
    }
}
