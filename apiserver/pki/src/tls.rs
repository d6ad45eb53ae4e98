//! TLS configurations of the API server and the kubelet.

use super::resolver::Current;
use super::trust::{Authorities, AuthorityId, Following, Office, id_of};
use super::{Leaf, Pki, PkiError};
use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

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

/// What of the authorities matters to a verifier.
type Offices = fn(&Authorities) -> Vec<&Office>;

impl Pki {
    /// Judges the certificates of proxies that name the user in headers, against the front proxy's authority.
    pub fn front_proxy_verifier(&self) -> Result<ClientVerifier, PkiError> {
        self.verifier(|all| vec![&all.front_proxy])
    }

    fn verifier(&self, offices: Offices) -> Result<ClientVerifier, PkiError> {
        let known = Following::new(&self.trust, move |all| {
            let trusted = offices(all).into_iter().flat_map(Office::known).map(|known| known.der);
            Judges::new(&trusted.collect::<Vec<_>>())
        })?;
        let changes = Some(self.trust.changes());
        Ok(ClientVerifier {
            judges: Arc::new(move || known.now()),
            changes,
            clock: self.options.clock.clone(),
        })
    }

    /// Judges client certificates against the cluster's CA.
    pub fn client_verifier(&self) -> Result<ClientVerifier, PkiError> {
        self.verifier(|all| vec![&all.cluster])
    }

    /// For port 6443. Client certificates are asked for, never demanded; see [`ClientVerifier`].
    pub fn server_tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>, PkiError> {
        self.serving(Leaf::ApiServer)
    }

    /// For port 10250, with the same rules for client certificates.
    pub fn kubelet_server_tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>, PkiError> {
        self.serving(Leaf::Kubelet)
    }

    /// When the certificate of port 10250 ends, which is renewed before.
    pub fn kubelet_serving_end(&self) -> Timestamp {
        Timestamp::from_second(self.current(Leaf::Kubelet).not_after()).unwrap_or(Timestamp::MAX)
    }

    /// How often it could not be renewed.
    pub fn kubelet_serving_failures(&self) -> u64 {
        self.kubelet_failures.load(Ordering::Relaxed)
    }

    fn serving(self: &Arc<Self>, leaf: Leaf) -> Result<Arc<ServerConfig>, PkiError> {
        // Clients choose their certificate by these names, so those of proxies must be told too.
        let known = self.verifier(|all| vec![&all.cluster, &all.front_proxy])?;
        serving(known, Arc::new(Current { pki: self.clone(), leaf }))
    }

    /// For calls to kubelets: presents `apiserver-kubelet-client`, trusts the authority of kubelets' ports and, for
    /// kubelets that have theirs from elsewhere, `further` ones. Without ALPN, because exec, attach and port-forward
    /// upgrade HTTP/1.1 connections.
    pub fn client_config_for_kubelet(
        self: &Arc<Self>,
        further: &[CertificateDer<'static>],
    ) -> Result<Arc<ClientConfig>, PkiError> {
        let further = further.to_vec();
        let verifier = Following::new(&self.trust, move |all| {
            let mut roots = RootCertStore::empty();
            for der in all.kubelet.known().into_iter().map(|known| known.der).chain(further.iter().cloned()) {
                roots.add(der).map_err(tls_error)?;
            }
            let made = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            made.map_err(tls_error)
        })?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls_error)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OfKubelets(verifier)))
            .with_client_cert_resolver(Arc::new(Current { pki: self.clone(), leaf: Leaf::KubeletClient }));
        Ok(Arc::new(config))
    }
}

/// Judges as rustls does, by the authorities of the moment.
struct OfKubelets(Arc<Following<Arc<WebPkiServerVerifier>>>);

impl fmt::Debug for OfKubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfKubelets").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for OfKubelets {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.now().verify_server_cert(own, others, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.now().verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.now().verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.now().supported_verify_schemes()
    }
}

/// Serves under whatever certificate `certificate` answers with; clients are asked for one of `known`'s.
fn serving(
    known: ClientVerifier,
    certificate: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<ServerConfig>, PkiError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?
        .with_client_cert_verifier(Arc::new(AcceptThenJudge::of(known)))
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
    let judges = Judges::new(&authorities)?;
    let known = ClientVerifier {
        judges: Arc::new(move || judges.clone()),
        changes: None,
        clock: Arc::new(jiff::Timestamp::now),
    };
    let chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(tls_error)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(tls_error)?;
    let own = CertifiedKey::from_der(chain, key, &provider()).map_err(tls_error)?;
    let tls = serving(known.clone(), Arc::new(SingleCertAndKey::from(own)))?;
    Ok((tls, known))
}

/// Who judges for one authority.
type Judge = (AuthorityId, Arc<dyn ClientCertVerifier>);

/// Those who judge for one authority each.
#[derive(Clone)]
struct Judges {
    each: Arc<[Judge]>,
    subjects: Arc<[DistinguishedName]>,
}

impl Judges {
    fn new(authorities: &[CertificateDer<'static>]) -> Result<Self, PkiError> {
        let mut each: Vec<Judge> = Vec::new();
        for der in authorities {
            let mut roots = RootCertStore::empty();
            roots.add(der.clone()).map_err(tls_error)?;
            let made = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                .allow_unauthenticated()
                .build()
                .map_err(tls_error)?;
            each.push((id_of(der), made));
        }
        let subjects = each.iter().flat_map(|(_, judge)| judge.root_hint_subjects().iter().cloned());
        let subjects = subjects.collect();
        Ok(Self { each: each.into(), subjects })
    }

    fn any(&self) -> Result<&Arc<dyn ClientCertVerifier>, rustls::Error> {
        let first = self.each.first().map(|(_, judge)| judge);
        first.ok_or_else(|| rustls::Error::General("no authority is trusted".to_owned()))
    }
}

/// Verifies a client's certificate chain. The handshake only proves that the client holds the key; whether the
/// certificate is worth anything is asked here, so that a bad one gets a 401 instead of a broken connection.
#[derive(Clone)]
pub struct ClientVerifier {
    /// Those of the moment.
    judges: Arc<dyn Fn() -> Judges + Send + Sync>,
    /// Absent where authorities never change.
    changes: Option<watch::Receiver<String>>,
    clock: super::Clock,
}

impl ClientVerifier {
    /// `chain` as the client sent it: its own certificate first.
    pub fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        self.authority_of(chain).map(drop)
    }

    /// As [`verify`](Self::verify); says who vouches for it.
    pub fn authority_of(&self, chain: &[CertificateDer<'_>]) -> Result<AuthorityId, String> {
        let (own, others) = chain.split_first().ok_or("no certificate")?;
        let seconds = u64::try_from((self.clock)().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let mut refused: Option<rustls::Error> = None;
        for (id, judge) in &*(self.judges)().each {
            match judge.verify_client_cert(own, others, now) {
                Ok(_) => return Ok(*id),
                // Whoever knows the signer says more than whoever does not.
                Err(error) if refused.as_ref().is_none_or(is_of_unknown_issuer) => refused = Some(error),
                Err(_) => {}
            }
        }
        Err(refused.map_or_else(|| "no authority is trusted".to_owned(), |error| error.to_string()))
    }

    /// Whether this one is trusted still.
    pub fn trusts(&self, authority: &AuthorityId) -> bool {
        (self.judges)().each.iter().any(|(id, _)| id == authority)
    }

    /// Returns when this one is trusted no more; never, if it stays.
    pub async fn distrusted(&self, authority: &AuthorityId) {
        let Some(mut changes) = self.changes.clone() else { return std::future::pending().await };
        while self.trusts(authority) {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

fn is_of_unknown_issuer(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))
}

/// Names that clients are told. They are lent out while a handshake lasts, so that new ones come behind the old ones.
struct Hints {
    subjects: Arc<[DistinguishedName]>,
    next: OnceLock<Box<Hints>>,
}

impl Hints {
    fn of(subjects: Arc<[DistinguishedName]>) -> Self {
        Self { subjects, next: OnceLock::new() }
    }

    fn lend(&self, wanted: &Arc<[DistinguishedName]>) -> &[DistinguishedName] {
        let mut at = self;
        while !same(&at.subjects, wanted) {
            at = at.next.get_or_init(|| Box::new(Self::of(wanted.clone())));
        }
        &at.subjects
    }
}

fn same(some: &[DistinguishedName], others: &[DistinguishedName]) -> bool {
    some.iter().map(AsRef::as_ref).eq(others.iter().map(AsRef::<[u8]>::as_ref))
}

struct AcceptThenJudge {
    known: ClientVerifier,
    hints: Hints,
}

impl AcceptThenJudge {
    fn of(known: ClientVerifier) -> Self {
        let hints = Hints::of((known.judges)().subjects);
        Self { known, hints }
    }
}

impl fmt::Debug for AcceptThenJudge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptThenJudge").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for AcceptThenJudge {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.hints.lend(&(self.known.judges)().subjects)
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
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
        (self.known.judges)().any()?.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        (self.known.judges)().any()?.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
