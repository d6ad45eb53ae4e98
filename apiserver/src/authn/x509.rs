//! Client certificates: the common name is the user, each organization a group.

use super::AuthnError;
use crate::pki::ClientVerifier;
use coracle_api::UserInfo;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a connection's certificate chain proved. The chain is judged once; its end is looked at on every request,
/// because connections outlive certificates.
#[derive(Clone, Debug)]
pub struct PeerIdentity {
    outcome: Result<UserInfo, AuthnError>,
    not_after: i64,
}

impl PeerIdentity {
    pub(super) fn of(chain: &[CertificateDer<'_>], verifier: &ClientVerifier) -> Self {
        match Self::judge(chain, verifier) {
            Ok((user, not_after)) => Self { outcome: Ok(user), not_after },
            Err(why) => Self { outcome: Err(AuthnError::Certificate(why)), not_after: i64::MAX },
        }
    }

    fn judge(chain: &[CertificateDer<'_>], verifier: &ClientVerifier) -> Result<(UserInfo, i64), String> {
        verifier.verify(chain)?;
        let own = chain.first().ok_or("no certificate")?;
        let (_, cert) = X509Certificate::from_der(own).map_err(|e| e.to_string())?;
        let subject = cert.subject();
        let name = subject.iter_common_name().next().and_then(|cn| cn.as_str().ok()).unwrap_or_default();
        if name.is_empty() {
            return Err("the subject has no common name".to_owned());
        }
        let orgs: Vec<&str> = subject.iter_organization().filter_map(|o| o.as_str().ok()).collect();
        let mut user = UserInfo::authenticated(name, &orgs);
        let mut fingerprint = "X509SHA256=".to_owned();
        for byte in Sha256::digest(own) {
            let _ = write!(fingerprint, "{byte:02x}");
        }
        user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![fingerprint]);
        Ok((user, cert.validity().not_after.timestamp()))
    }

    /// The user, if the certificate is still valid.
    pub fn user(&self, now: Timestamp) -> Result<UserInfo, AuthnError> {
        if now.as_second() > self.not_after {
            return Err(AuthnError::Certificate("it has expired".to_owned()));
        }
        self.outcome.clone()
    }
}
