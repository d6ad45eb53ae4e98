//! Whether a certificate and a private key belong together.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a server that is given both would say of them, in the words of upstream's library; `None` where they fit, or
/// where the key is of a kind that cannot be compared here.
pub fn key_pair_mistake(certificate: &[u8], key: &[u8]) -> Option<&'static str> {
    let is_pem = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("-----BEGIN ");
    if !is_pem(certificate) {
        return Some("tls: failed to find any PEM data in certificate input");
    }
    if !is_pem(key) {
        return Some("tls: failed to find any PEM data in key input");
    }
    let der = CertificateDer::from_pem_slice(certificate).ok()?;
    let Ok((_, parsed)) = X509Certificate::from_der(&der) else { return Some("x509: malformed certificate") };
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;
    let pair = rcgen::KeyPair::try_from(&key).ok()?;
    let mine = x509_parser::x509::SubjectPublicKeyInfo::from_der(
        &rcgen::PublicKeyData::subject_public_key_info(&pair),
    )
    .map(|(_, info)| (info.algorithm.algorithm.to_id_string(), info.subject_public_key.data.to_vec()))
    .ok()?;
    let theirs = &parsed.tbs_certificate.subject_pki;
    if mine.0 != theirs.algorithm.algorithm.to_id_string() {
        return Some("tls: private key type does not match public key type");
    }
    (mine.1 != theirs.subject_public_key.data.as_ref())
        .then_some("tls: private key does not match public key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_one_key() {
        let made = || {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let certificate =
                rcgen::CertificateParams::new(vec!["a.b".to_owned()]).unwrap().self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let ((certificate, key), (_, other)) = (made(), made());
        let edwards = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        for (certificate, key, expected) in [
            (certificate.as_str(), key.as_str(), None),
            (&certificate, &other, Some("tls: private key does not match public key")),
            (&certificate, &edwards, Some("tls: private key type does not match public key type")),
            ("x", &key, Some("tls: failed to find any PEM data in certificate input")),
            (&certificate, "", Some("tls: failed to find any PEM data in key input")),
        ] {
            assert_eq!(key_pair_mistake(certificate.as_bytes(), key.as_bytes()), expected);
        }
    }
}
