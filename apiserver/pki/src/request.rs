//! Certificate requests (PKCS#10): checked, and signed by the cluster's authority
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>).

use super::certs::Authority;
use super::{Pki, PkiError, der};
use coracle_api::certificate::{Holder, HolderError, Name};
use jiff::{SignedDuration, Timestamp};
use rcgen::SigningKey;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Clocks of clients that lag behind, as upstream allows for.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Certificates that live less than this get their whole life from now on; longer ones count from the backdated start.
const SHORT: SignedDuration = SignedDuration::from_hours(8);

/// Why a request was not signed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{0}")]
    Malformed(String),
    #[error("x509: {0}")]
    Holder(#[from] HolderError),
    #[error("unrecognized usage: {0}")]
    Usage(String),
    #[error("the authority's key cannot sign requests: {0}")]
    Authority(String),
}

/// A request whose form has been checked, as DER.
pub struct CertificateRequest {
    der: Vec<u8>,
}

impl CertificateRequest {
    /// The first PEM block must be a `CERTIFICATE REQUEST`; what follows is ignored, as upstream.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RequestError> {
        let wrong = || RequestError::Malformed("PEM block type must be CERTIFICATE REQUEST".to_owned());
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| wrong())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(wrong());
        }
        let request = Self { der: block.contents };
        request.parsed()?;
        Ok(request)
    }

    fn parsed(&self) -> Result<X509CertificationRequest<'_>, RequestError> {
        let (rest, request) = X509CertificationRequest::from_der(&self.der)
            .map_err(|e| RequestError::Malformed(format!("x509: malformed certificate request: {e}")))?;
        if rest.is_empty() {
            Ok(request)
        } else {
            Err(RequestError::Malformed("asn1: syntax error: trailing data".to_owned()))
        }
    }

    /// Whether whoever made it holds the key it asks for.
    pub fn check_signature(&self) -> Result<(), RequestError> {
        let bad = |e| RequestError::Malformed(format!("x509: signature of the request: {e}"));
        self.parsed()?.verify_signature().map_err(bad)
    }

    /// Whom it is for.
    pub fn holder(&self) -> Result<Holder, HolderError> {
        Holder::of_request(&self.der)
    }

    /// Whether its subject can be read in one way only. A request without a common name is some signer's business.
    pub fn check_subject(&self) -> Result<(), RequestError> {
        match self.holder() {
            Err(error @ HolderError::CommonNames(_)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The PEM of `status.certificate`: certificates alone, at least one. The error is upstream's detail.
pub fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let mut blocks = 0;
    for block in x509_parser::pem::Pem::iter_from_buffer(pem) {
        let Ok(block) = block else { break };
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found \"{}\"", block.label));
        }
        X509Certificate::from_der(&block.contents)
            .map_err(|e| format!("x509: malformed certificate: {e}"))?;
        blocks += 1;
    }
    if blocks == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    if pem.split(|b| *b == b'\n').any(is_header) {
        return Err("no PEM block headers are permitted".to_owned());
    }
    Ok(())
}

/// How long the first certificate is good, in seconds from its beginning to its end; `None` where it cannot be read.
pub fn seconds_of_life(pem: &[u8]) -> Option<i64> {
    let block = x509_parser::pem::Pem::iter_from_buffer(pem).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    let validity = certificate.validity();
    Some(validity.not_after.timestamp() - validity.not_before.timestamp())
}

/// A line such as `Proc-Type: 4,ENCRYPTED`: base64 has no colons.
fn is_header(line: &[u8]) -> bool {
    !line.starts_with(b"-----") && line.contains(&b':')
}

/// Whose signature a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The cluster's authority: clients of the API, and whatever else is approved.
    Cluster,
    /// The authority of the kubelets' own ports, which nobody but the API server's client for kubelets trusts.
    KubeletServing,
}

impl Pki {
    /// Signs the request for `usages` (upstream's names) and `life` from now, but never beyond the authority's own end.
    /// Subject, key and alternative names are the request's. The caller has checked that they may be.
    pub fn sign_request(
        &self,
        signer: Signer,
        pem: &[u8],
        usages: &[&str],
        life: Duration,
    ) -> Result<String, RequestError> {
        let all = self.trust.now();
        let authority = match signer {
            Signer::Cluster => &all.cluster.signer,
            Signer::KubeletServing => &all.kubelet.signer,
        };
        checked_and_signed(authority, pem, usages, life, (self.clock())())
    }
}

/// An authority that signs requests where the rest of its cluster's [`Pki`] is not: in a process of its own.
pub struct SigningAuthority(Authority);

impl SigningAuthority {
    /// From a certificate and its key: PEM, of which the key is PKCS#8.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, PkiError> {
        let read = |path: &Path| {
            let failed = |source| PkiError::Read { path: path.to_owned(), source };
            std::fs::read_to_string(path).map_err(failed)
        };
        Authority::load(read(certificate)?, &read(key)?, certificate, key).map(Self)
    }

    /// As [`Pki::sign_request`], at `now`.
    pub fn sign_request(
        &self,
        pem: &[u8],
        usages: &[&str],
        life: Duration,
        now: Timestamp,
    ) -> Result<String, RequestError> {
        checked_and_signed(&self.0, pem, usages, life, now)
    }
}

fn checked_and_signed(
    authority: &Authority,
    pem: &[u8],
    usages: &[&str],
    life: Duration,
    now: Timestamp,
) -> Result<String, RequestError> {
    let request = CertificateRequest::from_pem(pem)?;
    request.check_signature()?;
    Ok(pem_of(&signed(authority, &request, usages, life, now)?))
}

/// A certificate as a PEM block.
pub fn pem_of(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn signed(
    ca: &Authority,
    request: &CertificateRequest,
    usages: &[&str],
    life: Duration,
    now: Timestamp,
) -> Result<Vec<u8>, RequestError> {
    let broken = |e: &dyn std::fmt::Display| RequestError::Authority(e.to_string());
    let (_, authority) = X509Certificate::from_der(&ca.der).map_err(|e| broken(&e))?;
    let parsed = request.parsed()?;
    let info = &parsed.certification_request_info;
    let algorithm = algorithm(ca)?;
    let (start, end) = validity(&authority, life, now);
    let mut serial: [u8; 16] = rand::random();
    // Positive, and never zero.
    serial[0] = serial[0] & 0x7f | 0x40;
    let extensions = extensions(&authority, &request.holder()?, usages)?;
    let to_sign = der::sequence(&[
        &der::value(0xa0, &der::positive(&[2])),
        &der::positive(&serial),
        &algorithm,
        authority.subject().as_raw(),
        &der::sequence(&[&der::time(start), &der::time(end)]),
        info.subject.as_raw(),
        info.subject_pki.raw,
        &der::value(0xa3, &der::sequence(&[&extensions])),
    ]);
    let signature = ca.key().sign(&to_sign).map_err(|e| broken(&e))?;
    Ok(der::sequence(&[&to_sign, &algorithm, &der::bit_string(&signature, 0)]))
}

/// The `AlgorithmIdentifier` of the authority's signatures.
fn algorithm(ca: &Authority) -> Result<Vec<u8>, RequestError> {
    let own = ca.key().algorithm();
    let ecdsa = |last: u32| der::sequence(&[&der::oid(&[1, 2, 840, 10045, 4, 3, last])]);
    let known = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, ecdsa(2)),
        (&rcgen::PKCS_ECDSA_P384_SHA384, ecdsa(3)),
        (&rcgen::PKCS_ED25519, der::sequence(&[&der::oid(&[1, 3, 101, 112])])),
        (
            &rcgen::PKCS_RSA_SHA256,
            der::sequence(&[&der::oid(&[1, 2, 840, 113_549, 1, 1, 11]), &[0x05, 0x00]]),
        ),
    ];
    let found = known.into_iter().find(|(algorithm, _)| *algorithm == own);
    found
        .map(|(_, id)| id)
        .ok_or_else(|| RequestError::Authority("its algorithm is not known here".to_owned()))
}

fn validity(authority: &X509Certificate<'_>, life: Duration, now: Timestamp) -> (Timestamp, Timestamp) {
    let life = SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX);
    let start = now.saturating_sub(BACKDATE).unwrap_or(now);
    let from = if life < SHORT { now } else { start };
    let end = from.saturating_add(life).unwrap_or(Timestamp::MAX);
    let last = Timestamp::from_second(authority.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
    (start, end.min(last))
}

fn extensions(
    authority: &X509Certificate<'_>,
    holder: &Holder,
    usages: &[&str],
) -> Result<Vec<u8>, RequestError> {
    let (mut key, mut extended) = (Vec::new(), Vec::new());
    for usage in usages {
        match (key_usage(usage), extended_usage(usage)) {
            (Some(flag), _) => key.push(flag),
            (_, Some(id)) if !extended.contains(&id) => extended.push(id),
            (_, Some(_)) => {}
            (None, None) => return Err(RequestError::Usage((*usage).to_owned())),
        }
    }
    let mut all = Vec::new();
    if !key.is_empty() {
        all.push(der::extension(&[2, 5, 29, 15], true, &der::flags(key)));
    }
    if !extended.is_empty() {
        let ids: Vec<Vec<u8>> = extended.iter().map(|id| der::oid(id)).collect();
        all.push(der::extension(&[2, 5, 29, 37], false, &der::value(0x30, &ids.concat())));
    }
    all.push(der::extension(&[2, 5, 29, 19], true, &der::sequence(&[])));
    if let Some(id) = subject_key(authority) {
        let contents = der::sequence(&[&der::value(0x80, &id)]);
        all.push(der::extension(&[2, 5, 29, 35], false, &contents));
    }
    let names = alternative_names(&holder.names);
    if !names.is_empty() {
        all.push(der::extension(&[2, 5, 29, 17], false, &der::value(0x30, &names)));
    }
    Ok(all.concat())
}

fn subject_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

/// E-mail, DNS, URI and IP names; other kinds are left out, as upstream.
fn alternative_names(names: &[Name]) -> Vec<u8> {
    let mut out = Vec::new();
    for name in names {
        out.extend(match name {
            Name::Email(mail) => der::value(0x81, mail.as_bytes()),
            Name::Dns(dns) => der::value(0x82, dns.as_bytes()),
            Name::Uri(uri) => der::value(0x86, uri.as_bytes()),
            Name::Ip(IpAddr::V4(ip)) => der::value(0x87, &ip.octets()),
            Name::Ip(IpAddr::V6(ip)) => der::value(0x87, &ip.octets()),
            Name::Other => Vec::new(),
        });
    }
    out
}

/// Bit of the key usage extension, RFC 5280, 4.2.1.3.
fn key_usage(name: &str) -> Option<u8> {
    Some(match name {
        "signing" | "digital signature" => 0,
        "content commitment" => 1,
        "key encipherment" => 2,
        "data encipherment" => 3,
        "key agreement" => 4,
        "cert sign" => 5,
        "crl sign" => 6,
        "encipher only" => 7,
        "decipher only" => 8,
        _ => return None,
    })
}

fn extended_usage(name: &str) -> Option<&'static [u32]> {
    Some(match name {
        "any" => &[2, 5, 29, 37, 0],
        "server auth" => &[1, 3, 6, 1, 5, 5, 7, 3, 1],
        "client auth" => &[1, 3, 6, 1, 5, 5, 7, 3, 2],
        "code signing" => &[1, 3, 6, 1, 5, 5, 7, 3, 3],
        "email protection" | "s/mime" => &[1, 3, 6, 1, 5, 5, 7, 3, 4],
        "ipsec end system" => &[1, 3, 6, 1, 5, 5, 7, 3, 5],
        "ipsec tunnel" => &[1, 3, 6, 1, 5, 5, 7, 3, 6],
        "ipsec user" => &[1, 3, 6, 1, 5, 5, 7, 3, 7],
        "timestamping" => &[1, 3, 6, 1, 5, 5, 7, 3, 8],
        "ocsp signing" => &[1, 3, 6, 1, 5, 5, 7, 3, 9],
        "microsoft sgc" => &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3],
        "netscape sgc" => &[2, 16, 840, 1, 113_730, 4, 1],
        _ => return None,
    })
}

/// Upstream's names of key usages, sorted.
pub const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
