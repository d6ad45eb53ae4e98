//! Client certificates: the common name is the user, each organization a group.

use super::AuthnError;
use super::revocation::{self, Fingerprint};
use crate::pki::ClientVerifier;
use coracle_api::UserInfo;
use coracle_api::identity::CREDENTIAL_ID;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// Upstream's attribute of the subject that carries the user's uid.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// Common names of certificates whose holders may say who the user is (`--requestheader-allowed-names`).
pub(crate) const PROXY_NAMES: [&str; 1] = ["front-proxy-client"];

/// Those who judge certificates: one authority for clients, one for the proxies in front.
#[derive(Clone)]
pub(super) struct Verifiers {
    pub clients: ClientVerifier,
    pub proxies: ClientVerifier,
}

/// What a connection's certificate chain proved. The chain is judged once; its end is looked at on every request,
/// because connections outlive certificates.
#[derive(Clone, Debug)]
pub struct PeerIdentity {
    outcome: Result<UserInfo, AuthnError>,
    not_after: i64,
    /// Whether the holder is a proxy whose headers name the user.
    proxy: bool,
    /// Of every certificate that was shown, because one of those in between may be revoked too.
    chain: Vec<Fingerprint>,
}

impl PeerIdentity {
    pub(super) fn of(chain: &[CertificateDer<'_>], verifiers: &Verifiers) -> Self {
        let (proxy, end) = Self::judge_proxy(chain, &verifiers.proxies).unwrap_or((false, i64::MAX));
        let (outcome, not_after) = match Self::judge(chain, &verifiers.clients) {
            Ok((user, not_after)) => (Ok(user), not_after),
            Err(why) => (Err(AuthnError::Certificate(why)), end),
        };
        let chain = chain.iter().map(revocation::fingerprint).collect();
        Self { outcome, not_after, proxy, chain }
    }

    fn judge_proxy(chain: &[CertificateDer<'_>], verifier: &ClientVerifier) -> Option<(bool, i64)> {
        verifier.verify(chain).ok()?;
        let (_, cert) = X509Certificate::from_der(chain.first()?).ok()?;
        let name = common_name(cert.subject())?;
        Some((PROXY_NAMES.contains(&name), cert.validity().not_after.timestamp()))
    }

    fn judge(chain: &[CertificateDer<'_>], verifier: &ClientVerifier) -> Result<(UserInfo, i64), String> {
        verifier.verify(chain)?;
        let own = chain.first().ok_or("no certificate")?;
        let (_, cert) = X509Certificate::from_der(own).map_err(|e| e.to_string())?;
        let subject = cert.subject();
        let name = common_name(subject).unwrap_or_default();
        if name.is_empty() {
            return Err("the subject has no common name".to_owned());
        }
        let orgs: Vec<&str> = subject.iter_organization().filter_map(|o| o.as_str().ok()).collect();
        let mut user = UserInfo::authenticated(name, &orgs);
        user.uid = uid(subject)?;
        let fingerprint = revocation::hex(&revocation::fingerprint(own));
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("{}{fingerprint}", revocation::CREDENTIAL)]);
        Ok((user, cert.validity().not_after.timestamp()))
    }

    /// For how long the certificate is good yet; `None` if it never was.
    pub(super) fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let seconds = u64::try_from(self.not_after - now.as_second()).unwrap_or(0);
        self.outcome.is_ok().then(|| Duration::from_secs(seconds))
    }

    /// Of the certificates that were shown, the client's own first.
    pub(super) fn chain(&self) -> &[Fingerprint] {
        &self.chain
    }

    /// The user, if the certificate is still valid.
    pub fn user(&self, now: Timestamp) -> Result<UserInfo, AuthnError> {
        if now.as_second() > self.not_after {
            return Err(AuthnError::Certificate("it has expired".to_owned()));
        }
        self.outcome.clone()
    }

    /// Whether the headers of this connection's requests may name the user.
    pub(super) fn is_proxy(&self, now: Timestamp) -> bool {
        self.proxy && now.as_second() <= self.not_after
    }
}

/// The last one, as in Go.
fn common_name<'a>(subject: &'a X509Name<'a>) -> Option<&'a str> {
    subject.iter_common_name().last().and_then(|cn| cn.as_str().ok())
}

/// Empty without the attribute; more than one is a mistake, as is an empty one.
fn uid(subject: &X509Name<'_>) -> Result<String, String> {
    let mut found = subject.iter_attributes().filter(|a| a.attr_type().to_id_string() == UID_ATTRIBUTE);
    let Some(first) = found.next() else { return Ok(String::new()) };
    if found.next().is_some() {
        return Err("expected 1 UID, but found multiple".to_owned());
    }
    match first.as_str() {
        Ok("") => Err("UID cannot be an empty string".to_owned()),
        Ok(uid) => Ok(uid.to_owned()),
        Err(error) => Err(format!("unable to parse UID into a string: {error}")),
    }
}
