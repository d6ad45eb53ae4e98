//! Making, loading and judging of certificates.

use super::files::{self, NewFile};
use super::{ADMIN_LIFETIME, CA_LIFETIME, LEAF_LIFETIME, OLDEST_NOW, PkiError, PkiOptions};
use coracle_api::certificate::{Holder, Name};
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
use x509_parser::prelude::{FromDer, X509Certificate};

/// The user that the API server is to kubelets; `coracle:kubelet-api-admin` binds it to upstream's role. The API itself
/// does not know it.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The group of administrators, as kubeadm's: bound to `cluster-admin`, so that taking the binding away ends it.
pub const ADMINS: &str = "kubeadm:cluster-admins";

/// The user of administrators' kubeconfigs, as kubeadm's.
pub const ADMIN: &str = "kubernetes-admin";

/// The certificates that the server keeps, in the order of `Pki`'s slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaf {
    /// `apiserver.crt`: what port 6443 serves.
    ApiServer,
    /// `apiserver-kubelet-client.crt`: the API server towards kubelets, and nothing else.
    KubeletClient,
    /// `kubelet.crt`: what port 10250 serves; below the authority for kubelets' ports.
    Kubelet,
    /// `admin.crt`: the kubeconfig's user, for days only.
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

    /// What is left of its life when it is replaced: a third of a year's, as a box may be switched on a few times a year
    /// only; half of the administrator's, whose file the server writes anew.
    fn renew_before(self) -> Duration {
        match self {
            Self::Admin => self.life() / 2,
            _ => self.life() / 3,
        }
    }

    fn life(self) -> Duration {
        if self == Self::Admin { ADMIN_LIFETIME } else { LEAF_LIFETIME }
    }

    pub(super) fn spec(self, options: &PkiOptions) -> Spec {
        match self {
            Self::ApiServer => Spec::server("kube-apiserver", &[], server_names(options)),
            Self::KubeletClient => Spec::client(KUBELET_CLIENT, &[], LEAF_LIFETIME),
            Self::Kubelet => {
                let cn = format!("system:node:{}", options.node_name);
                Spec::server(&cn, &["system:nodes"], node_names(options))
            }
            Self::Admin => Spec::client(ADMIN, &[ADMINS], ADMIN_LIFETIME),
        }
    }
}

/// What a leaf must say.
pub(super) struct Spec {
    cn: String,
    orgs: Vec<String>,
    names: BTreeSet<String>,
    usage: ExtendedKeyUsagePurpose,
    life: Duration,
}

impl Spec {
    pub(super) fn client(cn: &str, orgs: &[&str], life: Duration) -> Self {
        let orgs = orgs.iter().map(|o| (*o).to_owned()).collect();
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        Self { cn: cn.to_owned(), orgs, names: BTreeSet::new(), usage, life }
    }

    fn server(cn: &str, orgs: &[&str], names: BTreeSet<String>) -> Self {
        Self { names, usage: ExtendedKeyUsagePurpose::ServerAuth, ..Self::client(cn, orgs, LEAF_LIFETIME) }
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

pub(super) fn server_names(options: &PkiOptions) -> BTreeSet<String> {
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

fn authority(cn: &str, now: Timestamp) -> CertificateParams {
    let mut params = params(cn, &[], now, CA_LIFETIME);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
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
        let params = authority(cn, now);
        let cert = params.self_signed(&key).map_err(|e| generate(file, e))?;
        let (pem, not_after) = (cert.pem(), params.not_after.unix_timestamp());
        new.push(NewFile { name: cert_name, contents: pem.clone() });
        Ok(Self { pem, der: cert.der().clone(), issuer: Issuer::new(params, key), not_after })
    }

    /// One that must be there.
    pub fn open(dir: &Path, file: &str) -> Result<Self, PkiError> {
        let (cert_name, key_name) = (format!("{file}.crt"), format!("{file}.key"));
        let there = |name: &str| {
            let missing =
                || PkiError::Read { path: dir.join(name), source: std::io::ErrorKind::NotFound.into() };
            files::read(dir, name)?.ok_or_else(missing)
        };
        Self::load(there(&cert_name)?, &there(&key_name)?, &dir.join(&cert_name), &dir.join(&key_name))
    }

    pub fn load(cert: String, key: &str, cert_path: &Path, key_path: &Path) -> Result<Self, PkiError> {
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

    /// This one's name and key under another's signature.
    pub fn certified_by(&self, other: &Self, now: Timestamp) -> Result<rcgen::Certificate, PkiError> {
        let (_, own) = X509Certificate::from_der(&self.der).map_err(|e| PkiError::Tls(e.to_string()))?;
        let name = own.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let params = authority(name.unwrap_or_default(), now);
        params.signed_by(self.key(), &other.issuer).map_err(|e| generate("cross-signed authority", e))
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
        let mut params = params(&spec.cn, &spec.orgs, now, spec.life);
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
    holder: Holder,
    not_after: i64,
    /// Seconds before the end from which on it is due.
    renew_before: i64,
    /// Seconds that it may be good for at most.
    longest: i64,
}

impl Issued {
    /// `None` for anything but a matching pair that this authority signed: it will be replaced.
    pub(super) fn load(dir: &Path, leaf: Leaf, ca: &Authority) -> Option<Self> {
        let cert = files::read(dir, &format!("{}.crt", leaf.file())).ok()??;
        let key = files::read(dir, &format!("{}.key", leaf.file())).ok()??;
        let issued = Self::parse(leaf, cert, key)?;
        let (_, authority) = X509Certificate::from_der(&ca.der).ok()?;
        let (_, parsed) = X509Certificate::from_der(issued.certified.cert.first()?).ok()?;
        parsed.verify_signature(Some(authority.public_key())).ok()?;
        Some(issued)
    }

    fn parse(leaf: Leaf, cert_pem: String, key_pem: String) -> Option<Self> {
        let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes()).ok()?.into_owned();
        let pair = KeyPair::from_pem(&key_pem).ok()?;
        let (_, parsed) = X509Certificate::from_der(&cert).ok()?;
        if parsed.public_key().raw != pair.subject_public_key_info() {
            return None;
        }
        let (holder, not_after) = (Holder::of_parsed(&parsed).ok()?, parsed.validity().not_after.timestamp());
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).ok()?;
        let signing = rustls::crypto::ring::sign::any_ecdsa_type(&key).ok()?;
        let certified = Arc::new(CertifiedKey::new(vec![cert], signing));
        let seconds = |life: Duration| i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        let (renew_before, longest) = (seconds(leaf.renew_before()), seconds(leaf.life() * 2));
        Some(Self { cert_pem, key_pem, certified, holder, not_after, renew_before, longest })
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
        Self::parse(leaf, cert_pem, key_pem)
            .ok_or_else(|| PkiError::Tls(format!("the new certificate {} cannot be used", leaf.file())))
    }

    /// Seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// Near its end; or further from it than it can be, because the clock was ahead when it was made.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let left = self.not_after - now.as_second();
        left < self.renew_before || now.as_second() >= OLDEST_NOW && left > self.longest
    }

    /// Names beyond the wanted ones do no harm: an address that went away is no reason for a new certificate. Groups
    /// beyond them would.
    pub(super) fn satisfies(&self, spec: &Spec, now: Timestamp) -> bool {
        let same = self.holder.common_name() == Ok(&spec.cn) && self.holder.organizations == spec.orgs;
        !self.is_due(now) && same && spec.names.is_subset(&self.names())
    }

    /// DNS names and addresses.
    fn names(&self) -> BTreeSet<String> {
        let name = |name: &Name| match name {
            Name::Dns(name) => Some(name.clone()),
            Name::Ip(ip) => Some(ip.to_string()),
            _ => None,
        };
        self.holder.names.iter().filter_map(name).collect()
    }

    /// As it is shown to others: with `beside` behind it.
    pub fn with_chain(mut self, beside: Option<&CertificateDer<'static>>) -> Self {
        if let Some(beside) = beside {
            let chain = [&self.certified.cert[..], std::slice::from_ref(beside)].concat();
            self.certified = Arc::new(CertifiedKey::new(chain, self.certified.key.clone()));
        }
        self
    }

    /// SHA-256 of the DER, in lowercase hex.
    pub fn fingerprint(&self) -> String {
        self.certified.cert.first().map(|der| super::fingerprint(der)).unwrap_or_default()
    }

    pub fn ends_after(&self, now: Timestamp) -> bool {
        self.not_after > now.as_second()
    }

    pub fn organizations(&self) -> &[String] {
        &self.holder.organizations
    }
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
    life: Duration,
    now: Timestamp,
) -> Result<SignedClient, PkiError> {
    let (cert, key) = ca.sign(&Spec::client(cn, orgs, life), cn, now)?;
    Ok(SignedClient { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}
