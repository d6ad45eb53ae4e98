//! Making, loading and judging of certificates.

use super::files::{self, NewFile};
use super::{CA_LIFE, LEAF_LIFE, OLDEST_NOW, PkiError, PkiOptions, RENEW_BEFORE};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The certificates below the cluster's CA, in the order of `Pki`'s slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaf {
    /// `apiserver.crt`: what port 6443 serves.
    ApiServer,
    /// `apiserver-kubelet-client.crt`: the API server towards kubelets.
    KubeletClient,
    /// `kubelet.crt`: what port 10250 serves.
    Kubelet,
    /// `admin.crt`: the kubeconfig's user.
    Admin,
}

impl Leaf {
    pub const ALL: [Self; 4] = [Self::ApiServer, Self::KubeletClient, Self::Kubelet, Self::Admin];

    /// File name without its extension.
    pub fn file(self) -> &'static str {
        match self {
            Self::ApiServer => "apiserver",
            Self::KubeletClient => "apiserver-kubelet-client",
            Self::Kubelet => "kubelet",
            Self::Admin => "admin",
        }
    }

    pub(super) fn spec(self, options: &PkiOptions) -> Spec {
        let client = |cn: &str| Spec::client(cn, &["system:masters"]);
        match self {
            Self::ApiServer => Spec::server("kube-apiserver", &[], server_names(options)),
            Self::KubeletClient => client("kube-apiserver-kubelet-client"),
            Self::Kubelet => {
                let cn = format!("system:node:{}", options.node_name);
                Spec::server(&cn, &["system:nodes"], node_names(options))
            }
            Self::Admin => client("kubernetes-admin"),
        }
    }
}

/// What a leaf must say.
pub(super) struct Spec {
    cn: String,
    orgs: Vec<String>,
    names: BTreeSet<String>,
    usage: ExtendedKeyUsagePurpose,
}

impl Spec {
    pub(super) fn client(cn: &str, orgs: &[&str]) -> Self {
        let orgs = orgs.iter().map(|o| (*o).to_owned()).collect();
        Self { cn: cn.to_owned(), orgs, names: BTreeSet::new(), usage: ExtendedKeyUsagePurpose::ClientAuth }
    }

    fn server(cn: &str, orgs: &[&str], names: BTreeSet<String>) -> Self {
        Self { names, usage: ExtendedKeyUsagePurpose::ServerAuth, ..Self::client(cn, orgs) }
    }
}

fn node_names(options: &PkiOptions) -> BTreeSet<String> {
    let own = ["localhost", "127.0.0.1", "::1", options.node_name.as_str()];
    let mut names: BTreeSet<String> = own.iter().map(|n| (*n).to_owned()).collect();
    names.extend((options.host_names)());
    names.extend(options.extra_names.iter().cloned());
    names.retain(|n| !n.is_empty());
    names
}

fn server_names(options: &PkiOptions) -> BTreeSet<String> {
    let mut names = node_names(options);
    let service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    names.extend(service.iter().map(|n| (*n).to_owned()));
    names.insert(format!("kubernetes.default.svc.{}", options.cluster_domain));
    names.insert(options.service_ip.to_string());
    names
}

pub(super) fn generate_key(name: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|source| generate(name, source))
}

fn generate(name: &str, source: rcgen::Error) -> PkiError {
    PkiError::Generate { name: name.to_owned(), source }
}

/// Parameters with subject and validity set: from 1970 until `life` after `now`.
fn params(cn: &str, orgs: &[String], now: Timestamp, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    for org in orgs {
        subject.push(DnType::OrganizationName, org.as_str());
    }
    subject.push(DnType::CommonName, cn);
    params.distinguished_name = subject;
    let start = u64::try_from(now.as_second().max(OLDEST_NOW)).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch;
    params.not_after = epoch + Duration::from_secs(start) + life;
    params
}

/// A certificate authority with its key.
pub(super) struct Authority {
    pub pem: String,
    pub der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    not_after: i64,
}

impl Authority {
    pub fn load_or_make(
        dir: &Path,
        file: &str,
        cn: &str,
        now: Timestamp,
        new: &mut Vec<NewFile>,
    ) -> Result<Self, PkiError> {
        let (cert_name, key_name) = (format!("{file}.crt"), format!("{file}.key"));
        let (cert_path, key_path) = (dir.join(&cert_name), dir.join(&key_name));
        let key = match (files::read(dir, &cert_name)?, files::read(dir, &key_name)?) {
            (Some(cert), Some(key)) => return Self::load(cert, &key, &cert_path, &key_path),
            (Some(_), None) => return Err(PkiError::HalfMissing { path: key_path, beside: cert_path }),
            // A first start that was interrupted between the two files.
            (None, Some(pem)) => KeyPair::from_pem(&pem)
                .map_err(|e| PkiError::Malformed { path: key_path.clone(), why: e.to_string() })?,
            (None, None) => {
                let key = generate_key(file)?;
                new.push(NewFile { name: key_name, contents: key.serialize_pem() });
                key
            }
        };
        let mut params = params(cn, &[], now, CA_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).map_err(|e| generate(file, e))?;
        let (pem, not_after) = (cert.pem(), params.not_after.unix_timestamp());
        new.push(NewFile { name: cert_name, contents: pem.clone() });
        Ok(Self { pem, der: cert.der().clone(), issuer: Issuer::new(params, key), not_after })
    }

    fn load(cert: String, key: &str, cert_path: &Path, key_path: &Path) -> Result<Self, PkiError> {
        let malformed = |path: &Path, why: String| PkiError::Malformed { path: path.to_owned(), why };
        let key = KeyPair::from_pem(key).map_err(|e| malformed(key_path, e.to_string()))?;
        let der = CertificateDer::from_pem_slice(cert.as_bytes())
            .map_err(|e| malformed(cert_path, e.to_string()))?
            .into_owned();
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|e| malformed(cert_path, e.to_string()))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(malformed(key_path, "it is not the key of the certificate beside it".to_owned()));
        }
        let not_after = parsed.validity().not_after.timestamp();
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|e| malformed(cert_path, e.to_string()))?;
        Ok(Self { pem: cert, der, issuer, not_after })
    }

    pub fn key(&self) -> &KeyPair {
        self.issuer.key()
    }

    /// An authority is never replaced by itself, so its end must be seen coming.
    pub fn warn_before_expiry(&self, now: Timestamp) {
        let left_days = (self.not_after - now.as_second()) / 86_400;
        if left_days < 365 {
            tracing::warn!(left_days, "the cluster's certificate authority expires");
        }
    }

    fn sign(
        &self,
        spec: &Spec,
        name: &str,
        now: Timestamp,
    ) -> Result<(rcgen::Certificate, KeyPair), PkiError> {
        let mut params = params(&spec.cn, &spec.orgs, now, LEAF_LIFE);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![spec.usage.clone()];
        params.use_authority_key_identifier_extension = true;
        for name in &spec.names {
            params.subject_alt_names.push(alt_name(name)?);
        }
        let key = generate_key(name)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(|e| generate(name, e))?;
        Ok((cert, key))
    }
}

fn alt_name(name: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    name.try_into().map(SanType::DnsName).map_err(|e| generate(name, e))
}

/// A leaf as it is in use.
pub(crate) struct Issued {
    pub cert_pem: String,
    pub key_pem: String,
    pub certified: Arc<CertifiedKey>,
    cn: String,
    names: BTreeSet<String>,
    not_after: i64,
}

impl Issued {
    /// `None` for anything but a matching pair that this authority signed: it will be replaced.
    pub(super) fn load(dir: &Path, leaf: Leaf, ca: &Authority) -> Option<Self> {
        let cert = files::read(dir, &format!("{}.crt", leaf.file())).ok()??;
        let key = files::read(dir, &format!("{}.key", leaf.file())).ok()??;
        let issued = Self::parse(cert, key)?;
        let (_, authority) = X509Certificate::from_der(&ca.der).ok()?;
        let (_, parsed) = X509Certificate::from_der(issued.certified.cert.first()?).ok()?;
        parsed.verify_signature(Some(authority.public_key())).ok()?;
        Some(issued)
    }

    fn parse(cert_pem: String, key_pem: String) -> Option<Self> {
        let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes()).ok()?.into_owned();
        let pair = KeyPair::from_pem(&key_pem).ok()?;
        let (_, parsed) = X509Certificate::from_der(&cert).ok()?;
        if parsed.public_key().raw != pair.subject_public_key_info() {
            return None;
        }
        let cn = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        let (names, not_after) = (alt_names(&parsed), parsed.validity().not_after.timestamp());
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).ok()?;
        let signing = rustls::crypto::ring::sign::any_ecdsa_type(&key).ok()?;
        let certified = Arc::new(CertifiedKey::new(vec![cert], signing));
        Some(Self { cert_pem, key_pem, certified, cn, names, not_after })
    }

    pub(super) fn make(
        leaf: Leaf,
        spec: &Spec,
        ca: &Authority,
        now: Timestamp,
        new: &mut Vec<NewFile>,
    ) -> Result<Self, PkiError> {
        let (cert, key) = ca.sign(spec, leaf.file(), now)?;
        let (cert_pem, key_pem) = (cert.pem(), key.serialize_pem());
        new.push(NewFile { name: format!("{}.key", leaf.file()), contents: key_pem.clone() });
        new.push(NewFile { name: format!("{}.crt", leaf.file()), contents: cert_pem.clone() });
        Self::parse(cert_pem, key_pem)
            .ok_or_else(|| PkiError::Tls(format!("the new certificate {} cannot be used", leaf.file())))
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        let left = self.not_after - now.as_second();
        left < i64::try_from(RENEW_BEFORE.as_secs()).unwrap_or(i64::MAX)
    }

    /// Names beyond the wanted ones do no harm: an address that went away is no reason for a new certificate.
    pub(super) fn satisfies(&self, spec: &Spec, now: Timestamp) -> bool {
        !self.is_due(now) && self.cn == spec.cn && spec.names.is_subset(&self.names)
    }
}

fn alt_names(cert: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(extension)) = cert.subject_alternative_name() else { return BTreeSet::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(dns) => Some((*dns).to_owned()),
        GeneralName::IPAddress(octets) => ip(octets).map(|a| a.to_string()),
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// A certificate with its key, both PEM.
pub struct SignedClient {
    pub cert_pem: String,
    pub key_pem: String,
}

pub(super) fn sign_client(
    ca: &Authority,
    cn: &str,
    orgs: &[&str],
    now: Timestamp,
) -> Result<SignedClient, PkiError> {
    let (cert, key) = ca.sign(&Spec::client(cn, orgs), cn, now)?;
    Ok(SignedClient { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}
