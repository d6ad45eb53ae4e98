//! Whom aggregated servers see: the front proxy, with the user that it speaks for in its headers.

use coracle_access::authn::PROXY_NAMES;
use coracle_api::UserInfo;
use coracle_pki::{Pki, PkiError};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// A certificate is made when it is first needed and replaced after this long; it is valid for a year.
const RENEWAL_AGE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The front proxy's client certificate. Its key is in memory only.
pub struct FrontProxy {
    pki: Arc<Pki>,
    current: Mutex<Option<Made>>,
}

/// A certificate, and what it was made by.
struct Made {
    at: Timestamp,
    authorities: String,
    key: Arc<CertifiedKey>,
}

impl FrontProxy {
    pub fn new(pki: Arc<Pki>) -> Arc<Self> {
        Arc::new(Self { pki, current: Mutex::default() })
    }

    /// Who signs the certificates of clients.
    pub fn client_ca_pem(&self) -> String {
        self.pki.ca_pem()
    }

    /// Who signs this one.
    pub fn own_ca_pem(&self) -> String {
        self.pki.front_proxy_ca_pem()
    }

    /// Word of changes of both.
    pub fn changes(&self) -> watch::Receiver<String> {
        self.pki.ca_changes()
    }

    fn certified(&self) -> Result<Arc<CertifiedKey>, PkiError> {
        let now = (self.pki.clock())();
        let authorities = self.own_ca_pem();
        let mut current = self.current.lock();
        if let Some(made) = &*current
            && now.duration_since(made.at).abs() < RENEWAL_AGE
            && made.authorities == authorities
        {
            return Ok(made.key.clone());
        }
        let [name] = PROXY_NAMES;
        let signed = self.pki.sign_front_proxy(name)?;
        let failed = |error: &dyn fmt::Display| PkiError::Tls(error.to_string());
        let certificate = CertificateDer::from_pem_slice(signed.cert_pem.as_bytes());
        let certificate = certificate.map_err(|e| failed(&e))?.into_owned();
        let key = PrivateKeyDer::from_pem_slice(signed.key_pem.as_bytes()).map_err(|e| failed(&e))?;
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&key).map_err(|e| failed(&e))?;
        let certified = Arc::new(CertifiedKey::new(vec![certificate], key));
        *current = Some(Made { at: now, authorities, key: certified.clone() });
        Ok(certified)
    }
}

impl fmt::Debug for FrontProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontProxy").finish_non_exhaustive()
    }
}

impl ResolvesClientCert for FrontProxy {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let certified = self.certified();
        certified.inspect_err(|error| tracing::error!(%error, "the front proxy's certificate")).ok()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// What may stand in a header's name (RFC 9110, section 5.6.2), but for the percent sign.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'(')
    .add(b')')
    .add(b',')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'{')
    .add(b'}');

/// Says whom the request is for; what the client claimed of that is removed.
pub fn set_user(headers: &mut HeaderMap, user: &UserInfo) {
    let claims: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
    let mut append = |name: &str, value: &str| {
        // A value that no header can carry is a name that no server could have authenticated.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.append(name, value);
        }
    };
    append("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        append("x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        append("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", utf8_percent_encode(key, ESCAPED));
        for value in values {
            append(&name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_ours_to_say() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-scopes", HeaderValue::from_static("all"));
        headers.insert("x-other", HeaderValue::from_static("stays"));
        let mut user = UserInfo::authenticated("jane", &["ops", "dev"]);
        user.uid = "7".to_owned();
        user.extra.insert("acme.com/project".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        set_user(&mut headers, &user);
        let all =
            |name: &str| -> Vec<&str> { headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect() };
        assert_eq!((all("x-remote-user"), all("x-remote-uid")), (vec!["jane"], vec!["7"]));
        assert_eq!(all("x-remote-group"), ["ops", "dev", "system:authenticated"]);
        assert_eq!(all("x-remote-extra-acme.com%2Fproject"), ["a", "b"]);
        assert!(all("x-remote-extra-scopes").is_empty());
        assert_eq!(all("x-other"), ["stays"]);
    }
}
