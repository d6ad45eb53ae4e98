//! Certificates in files: PEM, or the users of a kubeconfig.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_apiserver::pki::fingerprint;
use jiff::Timestamp;
use kube::config::Kubeconfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What is told of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub subject: String,
    pub issuer: String,
    /// Lowercase hex, as openssl's `-serial` in upper case.
    pub serial: String,
    pub not_after: Timestamp,
    pub fingerprint: String,
    pub is_authority: bool,
}

impl Found {
    fn of(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp());
        let serial = parsed.raw_serial();
        let serial = serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(serial);
        Ok(Self {
            subject: parsed.subject().to_string().replace(", ", ","),
            issuer: parsed.issuer().to_string().replace(", ", ","),
            serial: coracle_api::hex::text(serial),
            not_after: not_after.map_err(|e| e.to_string())?,
            fingerprint: fingerprint(der),
            is_authority: parsed.is_ca(),
        })
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        self.not_after < now
    }
}

/// All certificates of PEM text; none where there is none.
fn of_pem(pem: &[u8]) -> Result<Vec<Found>, String> {
    CertificateDer::pem_slice_iter(pem).map(|der| Found::of(&der.map_err(|e| e.to_string())?)).collect()
}

/// All certificates of a file. The error names it.
pub fn in_file(path: &Path) -> Result<Vec<Found>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = std::fs::read(path).map_err(|e| failed(&e))?;
    let found = of_pem(&bytes).map_err(|e| failed(&e))?;
    if !found.is_empty() {
        return Ok(found);
    }
    let text = String::from_utf8(bytes).map_err(|_| failed(&"it holds no certificate"))?;
    let config = Kubeconfig::from_yaml(&text).map_err(|_| failed(&"it holds no certificate"))?;
    let mut all = Vec::new();
    for user in config.auth_infos.into_iter().filter_map(|named| named.auth_info) {
        if let Some(data) = user.client_certificate_data {
            let pem = STANDARD.decode(data).map_err(|e| failed(&e))?;
            all.extend(of_pem(&pem).map_err(|e| failed(&e))?);
        } else if let Some(file) = user.client_certificate {
            all.extend(in_file(Path::new(&file))?);
        }
    }
    if all.is_empty() { Err(failed(&"it holds no client certificate")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_found_in_pem_and_in_kubeconfigs() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a certificate");
        let pem = dir.path().join("a.pem");
        std::fs::write(&pem, made.signing_key.serialize_pem() + &made.cert.pem()).expect("written");
        let found = in_file(&pem).expect("one");
        assert_eq!((found.len(), found[0].fingerprint.len()), (1, 64));
        assert_eq!(found[0].fingerprint, fingerprint(made.cert.der()));
        assert!(!found[0].serial.starts_with("00") && !found[0].is_over(Timestamp::now()));
        let config = dir.path().join("config");
        let rendered = coracle_apiserver::kubeconfig::render("https://a", "ca", "u", &made.cert.pem(), "key");
        std::fs::write(&config, rendered).expect("written");
        assert_eq!(in_file(&config), Ok(found));
        std::fs::write(&config, "users: []\n").expect("written");
        assert!(in_file(&config).expect_err("none").ends_with("it holds no client certificate"));
        std::fs::write(&config, [0xff, 0xfe]).expect("written");
        assert!(in_file(&config).expect_err("none").ends_with("it holds no certificate"));
        assert!(in_file(&dir.path().join("none")).expect_err("no file").contains("No such file"));
    }
}
