//! TLS configurations of the API server and the kubelet.

use super::resolver::Current;
use super::{Leaf, Pki, PkiError};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// HTTP/2 first, as upstream.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::LazyLock<Arc<CryptoProvider>> =
        std::sync::LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}

fn tls_error(error: impl std::fmt::Display) -> PkiError {
    PkiError::Tls(error.to_string())
}

impl Pki {
    /// Judges the certificates of proxies that name the user in headers, against the front proxy's authority.
    pub fn front_proxy_verifier(&self) -> Result<ClientVerifier, PkiError> {
        self.verifier(&[&self.front_proxy_ca.der])
    }

    fn verifier(&self, authorities: &[&CertificateDer<'static>]) -> Result<ClientVerifier, PkiError> {
        ClientVerifier::new(authorities, self.options.clock.clone())
    }

    /// Of kubelets' ports alone.
    fn kubelet_roots(&self, further: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, PkiError> {
        let mut roots = RootCertStore::empty();
        for authority in std::iter::once(&self.kubelet_ca.der).chain(further) {
            roots.add(authority.clone()).map_err(tls_error)?;
        }
        Ok(Arc::new(roots))
    }

    /// Judges client certificates against the cluster's CA.
    pub fn client_verifier(&self) -> Result<ClientVerifier, PkiError> {
        self.verifier(&[&self.ca.der])
    }

    /// For port 6443. Client certificates are asked for, never demanded; see [`ClientVerifier`].
    pub fn server_tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>, PkiError> {
        self.serving(Leaf::ApiServer)
    }

    /// For port 10250, with the same rules for client certificates.
    pub fn kubelet_server_tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>, PkiError> {
        self.serving(Leaf::Kubelet)
    }

    fn serving(self: &Arc<Self>, leaf: Leaf) -> Result<Arc<ServerConfig>, PkiError> {
        // Clients choose their certificate by these names, so those of proxies must be told too.
        let known = self.verifier(&[&self.ca.der, &self.front_proxy_ca.der])?;
        serving(&known, Arc::new(Current { pki: self.clone(), leaf }))
    }

    /// For calls to kubelets: presents `apiserver-kubelet-client`, trusts the authority of kubelets' ports and, for
    /// kubelets that have theirs from elsewhere, `further` ones. Without ALPN, because exec, attach and port-forward
    /// upgrade HTTP/1.1 connections.
    pub fn client_config_for_kubelet(
        self: &Arc<Self>,
        further: &[CertificateDer<'static>],
    ) -> Result<Arc<ClientConfig>, PkiError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls_error)?
            .with_root_certificates(self.kubelet_roots(further)?)
            .with_client_cert_resolver(Arc::new(Current { pki: self.clone(), leaf: Leaf::KubeletClient }));
        Ok(Arc::new(config))
    }
}

/// Serves under whatever certificate `certificate` answers with; clients are asked for one of `known`'s.
fn serving(
    known: &ClientVerifier,
    certificate: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<ServerConfig>, PkiError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?
        .with_client_cert_verifier(Arc::new(AcceptThenJudge(known.inner.clone())))
        .with_cert_resolver(certificate);
    config.alpn_protocols = ALPN.iter().map(|p| p.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The authorities in a PEM file, at least one, of which each can be trusted.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let malformed = |why: String| PkiError::Malformed { path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|source| PkiError::Read { path: path.to_owned(), source })?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|e| malformed(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    for authority in &found {
        roots.add(authority.clone()).map_err(|e| malformed(e.to_string()))?;
    }
    if found.is_empty() { Err(malformed("there is no certificate in it".to_owned())) } else { Ok(found) }
}

/// For the kubelet's port of a machine that has no authority of its own: its certificate and key (PEM), and the judge of
/// clients by the cluster's CA.
pub fn joined_kubelet_tls(
    ca_pem: &str,
    certificate_pem: &str,
    key_pem: &str,
) -> Result<(Arc<ServerConfig>, ClientVerifier), PkiError> {
    let authorities: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(ca_pem.as_bytes()).collect::<Result<_, _>>().map_err(tls_error)?;
    let known = ClientVerifier::new(&authorities.iter().collect::<Vec<_>>(), Arc::new(jiff::Timestamp::now))?;
    let chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(tls_error)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(tls_error)?;
    let own = CertifiedKey::from_der(chain, key, &provider()).map_err(tls_error)?;
    let tls = serving(&known, Arc::new(SingleCertAndKey::from(own)))?;
    Ok((tls, known))
}

/// Verifies a client's certificate chain. The handshake only proves that the client holds the key; whether the
/// certificate is worth anything is asked here, so that a bad one gets a 401 instead of a broken connection.
#[derive(Clone)]
pub struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    clock: super::Clock,
}

impl ClientVerifier {
    fn new(authorities: &[&CertificateDer<'static>], clock: super::Clock) -> Result<Self, PkiError> {
        let mut roots = RootCertStore::empty();
        for der in authorities {
            roots.add((*der).clone()).map_err(tls_error)?;
        }
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .allow_unauthenticated()
            .build()
            .map_err(tls_error)?;
        Ok(Self { inner, clock })
    }

    /// `chain` as the client sent it: its own certificate first.
    pub fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (own, others) = chain.split_first().ok_or("no certificate")?;
        let seconds = u64::try_from((self.clock)().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        self.inner.verify_client_cert(own, others, now).map(|_| ()).map_err(|e| e.to_string())
    }
}

#[derive(Debug)]
struct AcceptThenJudge(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AcceptThenJudge {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
