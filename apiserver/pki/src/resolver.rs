//! What rustls asks at every handshake: the leaf as it is valid now.

use super::{Leaf, Pki};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;

pub(super) struct Current {
    pub pki: Arc<Pki>,
    pub leaf: Leaf,
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("leaf", &self.leaf).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pki.current(self.leaf).certified.clone())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.pki.current(self.leaf).certified.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
