//! Client certificates: the common name is the user, each organization a group.

use super::AuthnError;
use super::revocation::{self, Fingerprint};
use coracle_api::UserInfo;
use coracle_api::certificate::Holder;
use coracle_api::identity::CREDENTIAL_ID;
use coracle_pki::{AuthorityId, ClientVerifier, KUBELET_CLIENT};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Common names of certificates whose holders may say who the user is (`--requestheader-allowed-names`).
pub const PROXY_NAMES: [&str; 1] = ["front-proxy-client"];

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
    /// Who vouches for the user.
    authority: Option<AuthorityId>,
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
        let judge = if proxy { &verifiers.proxies } else { &verifiers.clients };
        let authority = judge.authority_of(chain).ok();
        let chain = chain.iter().map(revocation::fingerprint).collect();
        Self { outcome, not_after, proxy, authority, chain }
    }

    fn judge_proxy(chain: &[CertificateDer<'_>], verifier: &ClientVerifier) -> Option<(bool, i64)> {
        verifier.verify(chain).ok()?;
        let (_, cert) = X509Certificate::from_der(chain.first()?).ok()?;
        let holder = Holder::of_parsed(&cert).ok()?;
        Some((PROXY_NAMES.contains(&holder.common_name().ok()?), cert.validity().not_after.timestamp()))
    }

    fn judge(chain: &[CertificateDer<'_>], verifier: &ClientVerifier) -> Result<(UserInfo, i64), String> {
        verifier.verify(chain)?;
        let own = chain.first().ok_or("no certificate")?;
        let (_, cert) = X509Certificate::from_der(own).map_err(|e| e.to_string())?;
        let holder = Holder::of_parsed(&cert).map_err(|e| e.to_string())?;
        let name = holder.common_name().map_err(|e| e.to_string())?;
        if name == KUBELET_CLIENT {
            return Err("it is this server's own towards kubelets, and good for nothing here".to_owned());
        }
        let orgs: Vec<&str> = holder.organizations.iter().map(String::as_str).collect();
        let mut user = UserInfo::authenticated(name, &orgs);
        user.uid = holder.uid.clone();
        let fingerprint = revocation::hex(&revocation::fingerprint(own));
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("{}{fingerprint}", revocation::CREDENTIAL)]);
        Ok((user, cert.validity().not_after.timestamp()))
    }

    /// For how long the certificate is good yet; `None` if it never was.
    pub(super) fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let seconds = u64::try_from(self.not_after - now.as_second()).unwrap_or(0);
        self.outcome.is_ok().then(|| Duration::from_secs(seconds))
    }

    /// Whether the authority behind it has been dropped since: connections outlive authorities, too.
    pub(super) fn is_forsaken(&self, verifiers: &Verifiers) -> bool {
        let judge = if self.proxy { &verifiers.proxies } else { &verifiers.clients };
        self.authority.is_some_and(|authority| !judge.trusts(&authority))
    }

    /// Returns when it is.
    pub(super) async fn forsaken(&self, verifiers: &Verifiers) {
        let judge = if self.proxy { &verifiers.proxies } else { &verifiers.clients };
        match &self.authority {
            Some(authority) => judge.distrusted(authority).await,
            None => std::future::pending().await,
        }
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
