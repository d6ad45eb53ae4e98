//! The cluster's authority, as the controllers reach it.

use coracle_apiserver::pki::{Pki, PkiOptions};
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
    fn sign(&self, request: &[u8], usages: &[&str], life: Duration) -> Result<String, String> {
        self.pki.sign_request(request, usages, life).map_err(|e| e.to_string())
    }
}
