//! What a machine is given to join with.

use crate::settings::{first_of, or_note};
use axum::http::Uri;
use clap::Args;
use coracle_api::hex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
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

/// The token by which a further server joins: one like an agent's, and the key that what it is given is sealed by, which the
/// API never sees.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerToken {
    pub token: Token,
    pub key: [u8; 32],
}

impl std::fmt::Debug for ServerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerToken({})", self.token.id)
    }
}

impl ServerToken {
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "token: a server joins by one of the form [a-z0-9]{6}.[a-z0-9]{16}.[0-9a-f]{64}; coracle token create \
             --server makes one"
                .to_owned()
        };
        let (token, key) = text.rsplit_once('.').ok_or_else(wrong)?;
        let token = Token::parse(token).map_err(|_| wrong())?;
        let key = hex::bytes(key).and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)?;
        Ok(Self { token, key })
    }

    pub fn whole(&self) -> String {
        format!("{}.{}", self.token.whole(), hex::text(&self.key))
    }
}

/// Flags by which a server joins others.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinArgs {
    /// A server of the cluster that this one joins, such as https://192.0.2.1:6443: it hands over authorities and keys at the
    /// first start. Needs --storage-backend etcd, with the same etcd
    #[arg(long, value_name = "URL")]
    pub join: Option<String>,
    /// Of `coracle token create --server`; needed for the first start only
    #[arg(long, value_name = "TOKEN", env = "CORACLE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Join only a cluster whose CA has this public key: sha256:HEX, as kubeadm writes it
    #[arg(long, value_name = "HASH,...", value_delimiter = ',')]
    pub discovery_token_ca_cert_hash: Option<Vec<String>>,
}

/// Whom a server joins, and by what.
#[derive(Clone, Debug)]
pub struct Join {
    pub server: Uri,
    pub token: Option<ServerToken>,
    /// Of the CA's public key; any one of them will do.
    pub pins: Vec<Pin>,
}

impl JoinArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(self, other: join, token, discovery_token_ca_cert_hash)
    }

    /// `None` for a server that joins nobody.
    pub fn checked(self, is_shared: bool, mistakes: &mut Vec<String>) -> Option<Join> {
        let pins = self.discovery_token_ca_cert_hash.unwrap_or_default();
        let pins = pins.iter().filter_map(|pin| or_note(Pin::parse(pin), mistakes)).collect();
        // Of an environment in which an agent's token stands, a server that joins nobody takes no notice.
        let server = or_note(server_url("join", &self.join?), mistakes);
        let token = self.token.filter(|token| !token.is_empty());
        let token = token.and_then(|token| or_note(ServerToken::parse(&token), mistakes));
        if !is_shared {
            mistakes.push("join: only servers with --storage-backend etcd share a cluster".to_owned());
        }
        Some(Join { server: server?, token, pins })
    }
}

/// The address of a server, as it is given by hand.
pub fn server_url(flag: &str, text: &str) -> Result<Uri, String> {
    let wrong = || format!("{flag}: \"{text}\" is no URL such as https://192.0.2.1:6443");
    let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
    let plain = uri.path().is_empty() || uri.path() == "/";
    if uri.scheme_str() == Some("https") && uri.host().is_some() && plain { Ok(uri) } else { Err(wrong()) }
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
        Ok(Self(format!("sha256:{}", hex::text(&digest))))
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

    #[test]
    fn a_servers_token_carries_a_key() {
        let text = format!("abcdef.0123456789abcdef.{}", "0a".repeat(32));
        let token = ServerToken::parse(&text).expect("a token");
        assert_eq!((token.key, token.whole()), ([10; 32], text));
        assert_eq!(format!("{token:?}"), "ServerToken(abcdef)");
        for bad in ["abcdef.0123456789abcdef", "abcdef.0123456789abcdef.00", "a.b.c"] {
            assert!(ServerToken::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_joins_on_a_shared_store_only() {
        let args = JoinArgs {
            join: Some("http://192.0.2.1:6443".to_owned()),
            token: Some("abcdef.0123456789abcdef".to_owned()),
            discovery_token_ca_cert_hash: Some(vec!["md5:0".to_owned()]),
        };
        let mut mistakes = Vec::new();
        assert!(args.checked(false, &mut mistakes).is_none());
        let told = mistakes.join("\n");
        for word in ["md5:0", "join: \"http:", "token: a server joins", "join: only servers with"] {
            assert!(told.contains(word), "{word} is missing from {told}");
        }
        assert!(!told.contains("abcdef"), "no part of a token goes into a log: {told}");
        assert!(JoinArgs::default().checked(false, &mut Vec::new()).is_none());
    }
}
