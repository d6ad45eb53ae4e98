//! Connections that this process begins: whom a server must be to be believed (the bundle of a configuration, the machine's
//! roots, or nobody in particular), and the way to it ([`outbound`]).

mod any_certificate;
pub mod outbound;
mod verifier;

pub use any_certificate::{AnyCertificate, unverified};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::{ClientConfig, Error, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::{Arc, OnceLock};
use verifier::Verifier;

/// Why nobody could be believed.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("no certificate in the bundle")]
    Empty,
    #[error("a certificate of the bundle: {0}")]
    Certificate(String),
    #[error("this machine has no root certificates")]
    NoSystemRoots,
    #[error(transparent)]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    #[error(transparent)]
    Protocols(#[from] Error),
    #[error("the private key: {0}")]
    Key(String),
    #[error("the certificate and the key do not belong together: {0}")]
    Identity(Error),
}

/// A client certificate with its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// # Errors
    /// PEM that holds no certificate or no key.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| TlsError::Key(e.to_string()))?;
        Ok(Self { chain: certificates(certificate)?, key })
    }
}

/// For a client that presents no certificate. `bundle` are roots in PEM, without them the machine's own count.
/// `protocols` is what is offered in the handshake.
///
/// # Errors
/// Roots that cannot be read.
pub fn client_config(bundle: Option<&[u8]>, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
    client_config_as(bundle, None, protocols)
}

/// As [`client_config`], for a client that may present a certificate.
///
/// # Errors
/// Roots that cannot be read, or a key that is another certificate's.
pub fn client_config_as(
    bundle: Option<&[u8]>,
    identity: Option<Identity>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let (roots, certificates) = match bundle {
        Some(pem) => {
            let certificates = certificates(pem)?;
            (Arc::new(store(&certificates)?), certificates)
        }
        None => (system_roots()?, Vec::new()),
    };
    let usual = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build()?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { usual, certificates }));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { chain, key }) => {
            builder.with_client_auth_cert(chain, key).map_err(TlsError::Identity)?
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The certificates of a bundle, at least one.
///
/// # Errors
/// A bundle without any, or PEM that cannot be read.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|e| TlsError::Certificate(e.to_string()))?;
    if found.is_empty() { Err(TlsError::Empty) } else { Ok(found) }
}

fn store(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|e| TlsError::Certificate(e.to_string()))?;
    }
    Ok(roots)
}

/// The authorities that this machine trusts. Read once, when somebody first asks for them; as Go, it heeds `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`.
///
/// # Errors
/// A machine without any.
pub fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(roots.clone()) }
}
