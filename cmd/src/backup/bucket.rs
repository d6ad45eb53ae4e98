//! Backups in a bucket of an S3-compatible store, addressed by path: put, listed, deleted.

use super::sigv4::{CanonicalRequest, Credentials, escape, headers, query};
use crate::scheduled::Bucket;
use axum::body::Body;
use bytes::Bytes;
use coracle_api::error::chain;
use coracle_apiserver::webhook::{self, CallError};
use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// For a request without a body: connecting over a slow line, and a store that is busy.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// A line slower than this carries no backups; what is sent gets so much more time.
const SLOWEST_BYTES_A_SECOND: u64 = 32 << 10;
/// A page of a listing has a thousand keys, each of a kilobyte at most, and some words about it.
const LARGEST_ANSWER: usize = 4 << 20;

/// One that lies there, by its name behind the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub name: String,
    pub bytes: u64,
}

impl Bucket {
    /// Copies a file there. Its size and sum are told beforehand, so that the store takes it whole or not at all.
    pub async fn put(&self, file: &Path, name: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        let (path, named) = (file.to_owned(), name.to_owned());
        let (payload, bytes) = tokio::task::spawn_blocking(move || summed(&path))
            .await
            .map_err(|error| error.to_string())?
            .map_err(failed)?;
        let content = tokio::fs::File::open(file).await.map_err(failed)?;
        let body = Body::from_stream(tokio_util::io::ReaderStream::new(content));
        let timeout = WAIT_TIMEOUT + Duration::from_secs(bytes / SLOWEST_BYTES_A_SECOND);
        self.ask(Method::PUT, &named, &[], (&payload, bytes, body), timeout).await.map(drop)
    }

    pub async fn delete(&self, name: &str) -> Result<(), String> {
        self.ask(Method::DELETE, name, &[], nothing(), WAIT_TIMEOUT).await.map(drop)
    }

    /// All that is there below the prefix.
    pub async fn list(&self) -> Result<Vec<Stored>, String> {
        let (mut all, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut asked = vec![("list-type", "2"), ("prefix", self.prefix.as_str())];
            asked.extend(token.as_deref().map(|token| ("continuation-token", token)));
            let body = self.ask(Method::GET, "", &asked, nothing(), WAIT_TIMEOUT).await?;
            let text = String::from_utf8_lossy(&body);
            all.extend(contents(&text, &self.prefix));
            token = element(&text, "NextContinuationToken")
                .filter(|_| element(&text, "IsTruncated").as_deref() == Some("true"));
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// An empty name asks the bucket itself.
    async fn ask(
        &self,
        method: Method,
        name: &str,
        asked: &[(&str, &str)],
        (payload, bytes, body): (&str, u64, Body),
        timeout: Duration,
    ) -> Result<Bytes, String> {
        let said = |why: &str| {
            format!("bucket {} at {}: {why}", self.name, self.endpoint.host().unwrap_or_default())
        };
        let by = Credentials::read(&self.credentials_file)?;
        let roots = self
            .ca_file
            .as_ref()
            .map(|file| std::fs::read(file).map_err(|e| format!("{}: {e}", file.display())));
        let roots = roots.transpose()?;
        let base = self.endpoint.path().trim_end_matches('/');
        let key = if name.is_empty() { String::new() } else { format!("/{}{name}", self.prefix) };
        let path = escape(&format!("{base}/{}{key}", self.name), true);
        let host = self.endpoint.authority().map(ToString::to_string).unwrap_or_default();
        let signed = CanonicalRequest {
            method: method.as_str(),
            host: &host,
            path: &path,
            query: asked,
            payload,
            region: &self.region,
            at: Timestamp::now(),
        };
        let scheme = self.endpoint.scheme_str().unwrap_or("https");
        let mut url = format!("{scheme}://{host}{path}");
        if !asked.is_empty() {
            url += &format!("?{}", query(asked));
        }
        let mut request = Request::builder().method(method.clone()).uri(url).header("content-length", bytes);
        for (header, value) in headers(&signed, &by) {
            request = request.header(header, value);
        }
        let request = request.body(body).map_err(|error| said(&error.to_string()))?;
        let answer = webhook::send(request, roots.as_deref(), LARGEST_ANSWER, timeout).await;
        let answer = answer.map_err(|error| match error {
            CallError::Transport { source, .. } => said(&chain(&source)),
            other => said(&chain(&other)),
        })?;
        let deleted = answer.status == StatusCode::NOT_FOUND && signed.method == "DELETE";
        if answer.status.is_success() || deleted {
            return Ok(answer.body);
        }
        let text = String::from_utf8_lossy(&answer.body);
        let why =
            [element(&text, "Code"), element(&text, "Message")].into_iter().flatten().collect::<Vec<_>>();
        Err(said(&format!("{} {}", answer.status.as_u16(), why.join(": "))))
    }
}

fn nothing() -> (&'static str, u64, Body) {
    /// SHA-256 of nothing.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    (EMPTY, 0, Body::empty())
}

/// SHA-256 in hex, and the length.
fn summed(file: &Path) -> std::io::Result<(String, u64)> {
    let mut file = std::fs::File::open(file)?;
    let (mut sum, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 64 << 10]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok((coracle_api::hex::text(&sum.finalize()), bytes));
        }
        sum.update(&piece[..read]);
        bytes += read as u64;
    }
}

/// The text of the first element of this name.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    Some(entities.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter)))
}

fn contents(xml: &str, prefix: &str) -> Vec<Stored> {
    let blocks = xml.split("<Contents>").skip(1);
    let stored = |block: &str| {
        let name = element(block, "Key")?.strip_prefix(prefix)?.to_owned();
        Some(Stored { name, bytes: element(block, "Size")?.parse().ok()? })
    };
    blocks.filter_map(stored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read() {
        let xml = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a/x&amp;y</Key><Size>7</Size></Contents>\
                   <Contents><Key>b</Key><Size>1</Size></Contents></ListBucketResult>";
        assert_eq!(contents(xml, "a/"), [Stored { name: "x&y".to_owned(), bytes: 7 }]);
        assert_eq!((element(xml, "IsTruncated").as_deref(), element(xml, "Code")), (Some("false"), None));
    }
}
