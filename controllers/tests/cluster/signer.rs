//! The cluster's authority and the key of its accounts, as the controllers reach them.

use coracle_apiserver::pki::{Pki, PkiOptions, Signer as Authority};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use std::sync::Arc;
use std::time::Duration;

/// An authority of its own.
pub struct Signer {
    pki: Arc<Pki>,
    _dir: tempfile::TempDir,
}

impl Signer {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { pki: Pki::ensure(dir.path(), PkiOptions::default()).expect("an authority"), _dir: dir }
    }
}

impl coracle_controllers::CertificateSigner for Signer {
    fn sign(
        &self,
        signer_name: &str,
        request: &[u8],
        usages: &[&str],
        life: Duration,
    ) -> Result<String, String> {
        let serving = signer_name == coracle_controllers::certificates::KUBELET_SERVING;
        let authority = if serving { Authority::KubeletServing } else { Authority::Cluster };
        self.pki.sign_request(authority, request, usages, life).map_err(|e| e.to_string())
    }
}

/// Signs nothing that anybody would believe.
pub struct Tokens;

impl coracle_controllers::LegacyTokens for Tokens {
    fn sign(&self, account: &ServiceAccount, _secret: &Secret) -> Result<String, String> {
        Ok(format!("a token of {}", account.metadata.name.as_deref().unwrap_or_default()))
    }
}
