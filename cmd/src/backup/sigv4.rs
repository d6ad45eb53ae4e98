//! The signature of requests to S3-compatible stores
//! (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>).

use coracle_api::hex;
use jiff::Timestamp;
use ring::hmac;
use sha2::{Digest, Sha256};
use std::path::Path;

/// By whom.
pub struct Credentials {
    pub id: String,
    pub secret: String,
    pub session: Option<String>,
}

impl Credentials {
    /// The entries of the first profile that has them. The error names the file, never what is in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let entry = |name: &str| {
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            let mut values =
                pairs.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned());
            values.next().filter(|value| !value.is_empty())
        };
        let needed = |name: &str| entry(name).ok_or_else(|| format!("{}: it has no {name}", path.display()));
        Ok(Self {
            id: needed("aws_access_key_id")?,
            secret: needed("aws_secret_access_key")?,
            session: entry("aws_session_token"),
        })
    }
}

/// What is signed of a request.
pub struct CanonicalRequest<'a> {
    pub method: &'a str,
    /// As in `Host`.
    pub host: &'a str,
    /// Escaped, as it is sent.
    pub path: &'a str,
    /// Not escaped, in any order.
    pub query: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body, hex.
    pub payload: &'a str,
    pub region: &'a str,
    pub at: Timestamp,
}

/// Everything but unreserved characters (RFC 3986), and slashes where they divide a path.
pub fn escape(text: &str, keep_slashes: bool) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep_slashes && byte == b'/' {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
        escaped
    })
}

/// The query as it is sent, which is as it is signed.
pub fn query(pairs: &[(&str, &str)]) -> String {
    let mut escaped: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name, false), escape(value, false)))
        .collect();
    escaped.sort();
    escaped.join("&")
}

/// The headers that a signed request has beside `Host`.
pub fn headers(asked: &CanonicalRequest<'_>, by: &Credentials) -> Vec<(&'static str, String)> {
    let time = asked.at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut signed = vec![
        ("host", asked.host.to_owned()),
        ("x-amz-content-sha256", asked.payload.to_owned()),
        ("x-amz-date", time.clone()),
    ];
    signed.extend(by.session.clone().map(|token| ("x-amz-security-token", token)));
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{}",
        asked.method,
        asked.path,
        query(asked.query),
        asked.payload
    );
    let scope = format!("{}/{}/s3/aws4_request", &time[..8], asked.region);
    let text =
        format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex::text(&Sha256::digest(canonical.as_bytes())));
    let signature = hex::text(&keyed(&signing_key(&by.secret, &time[..8], asked.region), text.as_bytes()));
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}", by.id);
    signed.remove(0);
    signed.push(("authorization", authorization));
    signed
}

fn keyed(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn signing_key(secret: &str, day: &str, region: &str) -> Vec<u8> {
    let first = format!("AWS4{secret}").into_bytes();
    [day, region, "s3", "aws4_request"].iter().fold(first, |key, part| keyed(&key, part.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the page "Signature Calculations for the Authorization Header", Get Bucket Lifecycle.
    #[test]
    fn requests_are_signed_as_published() {
        let by = Credentials {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
        };
        let empty = hex::text(&Sha256::digest(b""));
        let asked = CanonicalRequest {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            query: &[("lifecycle", "")],
            payload: &empty,
            region: "us-east-1",
            at: "2013-05-24T00:00:00Z".parse().expect("a time"),
        };
        let made = headers(&asked, &by);
        let (_, authorization) = made.last().expect("the signature");
        assert!(
            authorization.ends_with("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            "{authorization}"
        );
        let listing = CanonicalRequest { query: &[("prefix", "J"), ("max-keys", "2")], ..asked };
        let (_, authorization) = headers(&listing, &by).pop().expect("the signature");
        assert!(
            authorization.ends_with("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
            "{authorization}"
        );
    }

    #[test]
    fn credentials_are_read_as_the_tools_keep_them() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("credentials");
        std::fs::write(&path, "[default]\naws_access_key_id = a\naws_secret_access_key=b=c/+\n")
            .expect("written");
        let read = Credentials::read(&path).expect("whole");
        assert_eq!((read.id.as_str(), read.secret.as_str(), read.session), ("a", "b=c/+", None));
        std::fs::write(&path, "aws_access_key_id = a\n").expect("written");
        let why = Credentials::read(&path).map(drop).expect_err("half");
        assert!(why.ends_with("it has no aws_secret_access_key"), "{why}");
        assert_eq!(escape("a b/c:d~", true), "a%20b/c%3Ad~");
        assert_eq!(query(&[("prefix", "x/"), ("list-type", "2")]), "list-type=2&prefix=x%2F");
    }
}
