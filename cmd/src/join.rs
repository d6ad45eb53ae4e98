//! What a machine is given to join with.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// `id.secret`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl Token {
    pub fn parse(text: &str) -> Result<Self, String> {
        let good = |part: &str, length| {
            part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        match text.split_once('.') {
            Some((id, secret)) if good(id, 6) && good(secret, 16) => {
                Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
            }
            _ => Err("token: must be of the form [a-z0-9]{6}.[a-z0-9]{16}; coracle token create makes one"
                .to_owned()),
        }
    }

    pub fn whole(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// SHA-256 of a CA's public key (SubjectPublicKeyInfo, DER), in kubeadm's form `sha256:HEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin(String);

impl Pin {
    pub fn parse(text: &str) -> Result<Self, String> {
        let hex = text
            .strip_prefix("sha256:")
            .filter(|h| h.len() == 64 && h.bytes().all(|b| b.is_ascii_hexdigit()));
        let hex = hex.ok_or_else(|| {
            format!("discovery-token-ca-cert-hash: \"{text}\" is not of the form sha256:HEX")
        })?;
        Ok(Self(format!("sha256:{}", hex.to_lowercase())))
    }

    /// Of each certificate of a bundle, at least one.
    pub fn all_of(ca_pem: &str) -> Result<Vec<Self>, String> {
        const END: &str = "-----END CERTIFICATE-----\n";
        let blocks = ca_pem.split_inclusive(END).filter(|block| block.contains("-----BEGIN"));
        let pins = blocks.map(Self::of).collect::<Result<Vec<_>, _>>()?;
        if pins.is_empty() { Self::of(ca_pem).map(|pin| vec![pin]) } else { Ok(pins) }
    }

    /// Of the first certificate.
    pub fn of(ca_pem: &str) -> Result<Self, String> {
        let unreadable = |why: &dyn std::fmt::Display| format!("the cluster's CA cannot be read: {why}");
        let der = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|e| unreadable(&e))?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| unreadable(&e))?;
        let digest = Sha256::digest(certificate.public_key().raw);
        Ok(Self(digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))))
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_pins_have_their_form() {
        assert_eq!(
            Token::parse("abcdef.0123456789abcdef").expect("a token").whole(),
            "abcdef.0123456789abcdef"
        );
        assert_eq!(
            format!("{:?}", Token::parse("abcdef.0123456789abcdef").expect("a token")),
            "Token(abcdef)"
        );
        for bad in ["", "abcdef", "abcdef.", "Abcdef.0123456789abcdef", "abcdef.0123456789abcde"] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
        let hex = "AB".repeat(32);
        assert_eq!(
            Pin::parse(&format!("sha256:{hex}")).expect("a pin").to_string(),
            format!("sha256:{}", hex.to_lowercase())
        );
        assert!(Pin::parse(&hex).is_err() && Pin::parse("sha256:12").is_err());
    }
}
