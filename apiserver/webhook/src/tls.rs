//! Whom a server must be to be believed: the bundle of a configuration, or the machine's roots.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::sync::{Arc, OnceLock};

/// Where systems keep their roots, in the order in which Go looks for them.
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

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

/// Read once, when somebody first trusts them.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Option<Arc<RootCertStore>>> = OnceLock::new();
    let found = ROOTS.get_or_init(|| {
        let named = std::env::var("SSL_CERT_FILE").ok();
        let files = named.iter().map(String::as_str).chain(SYSTEM_ROOTS.iter().copied());
        let pem = files.filter_map(|file| std::fs::read(file).ok()).find(|pem| !pem.is_empty())?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&pem).ok()?);
        (!roots.is_empty()).then(|| Arc::new(roots))
    });
    found.clone().ok_or(TlsError::NoSystemRoots)
}

/// The usual rules, and one that Go has too: a certificate that is itself in the bundle is believed, although it says
/// that it is an authority. Self-signed certificates of small webhooks are like that.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn is_listed(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if !self.certificates.iter().any(|listed| listed == certificate) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|_| Error::from(CertificateError::BadEncoding))?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if now > validity.not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        if now < validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let usual = self.usual.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match usual {
            Err(Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::UnknownIssuer))
                if self.certificates.iter().any(|listed| listed == certificate) =>
            {
                self.is_listed(certificate, name, now).map(|()| ServerCertVerified::assertion())
            }
            usual => usual,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
