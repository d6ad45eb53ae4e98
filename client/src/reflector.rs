//! A watch that never ends: a complete copy of some objects first, then every change, over any interruption.
//!
//! It hands out the objects' JSON undecoded, so that its machinery exists once and not once per kind.
//! The first copy comes as a streaming list (KEP-3157), object by object, never as one large answer.

use crate::document::Document;
use bytes::{Buf, Bytes, BytesMut};
use coracle_api::Pieces;
use coracle_api::well_known;
use futures::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use rand::Rng;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// client-go's reflector back-off: 800 ms, doubled up to 30 s, and up to as much again by chance.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_millis(800);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// A watch is asked to end after five to ten minutes, as client-go's are.
const WATCH_SECONDS: std::ops::Range<u32> = 300..600;
const INITIAL_END: &str = well_known::INITIAL_EVENTS_END;
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Which objects to follow.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The collection's path, `/api/v1/pods`.
    pub path: String,
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// Whether `metadata` is all that is wanted.
    pub metadata_only: bool,
}

impl Selection {
    pub fn of(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    #[must_use]
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..self }
    }
}

/// What happened, in the server's order. Objects are JSON as the server sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<D = Bytes> {
    /// Whatever was known is void: what follows until [`Synced`](Self::Synced) is a new complete copy.
    Restart,
    Applied(D),
    Deleted(D),
    Synced,
}

impl Change<Document> {
    fn whole(self) -> Change {
        match self {
            Self::Restart => Change::Restart,
            Self::Applied(object) => Change::Applied(object.into_bytes()),
            Self::Deleted(object) => Change::Deleted(object.into_bytes()),
            Self::Synced => Change::Synced,
        }
    }
}

/// Why a watch ended before its time.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{0}")]
    Transport(String),
    #[error("{code} {message}")]
    Status { code: u16, message: String },
    #[error("a line of the watch is no event: {0}")]
    Nonsense(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
struct Head {
    #[serde(default)]
    metadata: HeadMeta,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

/// Where the next watch begins.
#[derive(Debug, PartialEq, Eq)]
enum From {
    /// With a new complete copy.
    Nothing,
    /// After this resourceVersion.
    Version(String),
}

pub struct Reflector {
    client: kube::Client,
    selection: Selection,
    from: From,
    body: Option<Body>,
    buffer: BytesMut,
    /// The server is asked for objects in pieces, and may promise them.
    pieces: Option<Pieces>,
    /// Those of an event that is not complete.
    parts: Vec<Bytes>,
    /// Whether the complete copy has been told to the end.
    synced: bool,
    pause: Option<Duration>,
    /// Not before this is the server asked again.
    resume_at: Option<Instant>,
}

impl Reflector {
    pub fn new(client: kube::Client, selection: Selection) -> Self {
        Self {
            client,
            selection,
            from: From::Nothing,
            body: None,
            buffer: BytesMut::new(),
            pieces: None,
            parts: Vec::new(),
            synced: false,
            pause: None,
            resume_at: None,
        }
    }

    /// The path of the collection that it follows.
    pub fn path(&self) -> &str {
        &self.selection.path
    }

    /// For who keeps the objects as they come: a server in this process shares their bytes.
    pub(crate) fn sharing(client: kube::Client, selection: Selection) -> Self {
        Self { pieces: Some(Pieces::default()), ..Self::new(client, selection) }
    }

    /// The next change; waits, retries and resumes as long as it takes. May be dropped and called again.
    pub async fn next(&mut self) -> Change {
        self.next_document().await.whole()
    }

    /// What has come already. Whoever asks so is not woken before [`next`](Self::next) waits again.
    pub fn now(&mut self) -> Option<Change> {
        self.body.as_ref()?;
        self.next().now_or_never()
    }

    /// As [`next`](Self::next), with objects in the pieces that they came in.
    pub(crate) async fn next_document(&mut self) -> Change<Document> {
        loop {
            match self.step().await {
                Ok(Some(change)) => return change,
                Ok(None) => {}
                Err(error) => self.broken(&error),
            }
        }
    }

    /// One step towards the next change.
    async fn step(&mut self) -> Result<Option<Change<Document>>, Broken> {
        if let Some(line) = self.take_line() {
            return self.read(&line);
        }
        let Some(body) = &mut self.body else { return self.open().await };
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return self.take_frame(data);
                }
            }
            Some(Err(error)) => return Err(Broken::Transport(error.to_string())),
            // The time it was asked for is over.
            None => self.close(),
        }
        Ok(None)
    }

    /// Lines, or a piece of one where the server has promised pieces.
    fn take_frame(&mut self, data: Bytes) -> Result<Option<Change<Document>>, Broken> {
        if !self.pieces.as_ref().is_some_and(Pieces::promised) {
            self.buffer.extend_from_slice(&data);
            return Ok(None);
        }
        if !data.ends_with(b"\n") {
            self.parts.push(data);
            return Ok(None);
        }
        let parts = std::mem::take(&mut self.parts);
        if let [head, rest] = &parts[..]
            && *data == *PIECE_END
            && let Some((kind, head)) = event_head(head)
        {
            let object = Document::shared(head, rest.clone());
            return self.event(kind == "DELETED", object).map(Some);
        }
        parts.iter().chain([&data]).for_each(|part| self.buffer.extend_from_slice(part));
        Ok(None)
    }

    fn close(&mut self) {
        self.body = None;
        self.buffer = BytesMut::new();
        self.parts.clear();
        if !self.synced {
            self.from = From::Nothing;
        }
    }

    fn broken(&mut self, error: &Broken) {
        self.close();
        if matches!(error, Broken::Status { code: 410, .. }) {
            tracing::debug!(path = self.selection.path, "watch is too old, starting anew");
            self.from = From::Nothing;
            return;
        }
        tracing::warn!(path = self.selection.path, %error, "watch failed, trying again");
        let pause = self.pause.map_or(FIRST_RETRY_INTERVAL, |p| (p * 2).min(MAX_RETRY_INTERVAL));
        self.pause = Some(pause);
        self.resume_at = Some(Instant::now() + pause.mul_f64(rand::rng().random_range(1.0..2.0)));
    }

    async fn open(&mut self) -> Result<Option<Change<Document>>, Broken> {
        if let Some(when) = self.resume_at {
            tokio::time::sleep_until(when).await;
        }
        let response =
            self.client.send(self.request()).await.map_err(|e| Broken::Transport(e.to_string()))?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            let answer = body.collect().await.map_err(|e| Broken::Transport(e.to_string()))?.to_bytes();
            let message =
                serde_json::from_slice::<Head>(&answer).map(|head| head.message).unwrap_or_default();
            return Err(Broken::Status { code: parts.status.as_u16(), message });
        }
        self.body = Some(body);
        if self.from != From::Nothing {
            return Ok(None);
        }
        self.synced = false;
        Ok(Some(Change::Restart))
    }

    fn request(&self) -> Request<Body> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("watch", "true").append_pair("allowWatchBookmarks", "true");
        query.append_pair("timeoutSeconds", &rand::rng().random_range(WATCH_SECONDS).to_string());
        match &self.from {
            From::Version(version) => query.append_pair("resourceVersion", version),
            From::Nothing => query
                .append_pair("sendInitialEvents", "true")
                .append_pair("resourceVersionMatch", "NotOlderThan"),
        };
        for (name, selector) in
            [("labelSelector", &self.selection.labels), ("fieldSelector", &self.selection.fields)]
        {
            if let Some(selector) = selector {
                query.append_pair(name, selector);
            }
        }
        let mut request = Request::new(Body::empty());
        // A path is ASCII and the query is encoded, so this is always a URI.
        *request.uri_mut() =
            format!("{}?{}", self.selection.path, query.finish()).parse().unwrap_or_default();
        let accept = if self.selection.metadata_only { METADATA_ONLY } else { "application/json" };
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(accept));
        if let Some(pieces) = &self.pieces {
            request.extensions_mut().insert(pieces.clone());
        }
        request
    }

    /// The next whole line of the answer, without its end.
    fn take_line(&mut self) -> Option<Bytes> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line = self.buffer.split_to(end).freeze();
        self.buffer.advance(1);
        if self.buffer.is_empty() {
            // An idle watch keeps no buffer.
            self.buffer = BytesMut::new();
        }
        Some(line)
    }

    fn read(&mut self, bytes: &Bytes) -> Result<Option<Change<Document>>, Broken> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let line: Line = serde_json::from_slice(bytes)?;
        let object = bytes.slice_ref(line.object.get().as_bytes());
        match line.kind.as_ref() {
            "ADDED" | "MODIFIED" => self.event(false, object.into()).map(Some),
            "DELETED" => self.event(true, object.into()).map(Some),
            "BOOKMARK" => self.bookmark(serde_json::from_slice(&object)?),
            _ => {
                let head: Head = serde_json::from_slice(&object)?;
                Err(Broken::Status { code: head.code, message: head.message })
            }
        }
    }

    fn event(&mut self, gone: bool, object: Document) -> Result<Change<Document>, Broken> {
        self.pause = None;
        if self.synced {
            let version = match object.first_version() {
                Some(version) => Some(version.to_owned()),
                None => serde_json::from_slice::<Head>(&object.bytes())?.metadata.resource_version,
            };
            self.from = version.map_or(From::Nothing, From::Version);
        }
        Ok(if gone { Change::Deleted(object) } else { Change::Applied(object) })
    }

    fn bookmark(&mut self, head: Head) -> Result<Option<Change<Document>>, Broken> {
        self.pause = None;
        let ends_copy = head.metadata.annotations.is_some_and(|a| a.contains_key(INITIAL_END));
        let first = ends_copy && !self.synced;
        self.synced |= ends_copy;
        if let Some(version) = head.metadata.resource_version.filter(|_| self.synced) {
            self.from = From::Version(version);
        }
        Ok(first.then_some(Change::Synced))
    }
}

/// The end of an event that comes in pieces ([`Pieces`]).
const PIECE_END: &[u8] = b"}\n";

/// The first piece of an event, taken apart: its type, and the beginning of its object.
fn event_head(head: &Bytes) -> Option<(&str, Bytes)> {
    let rest = head.strip_prefix(b"{\"type\":\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let object = rest[end..].strip_prefix(b"\",\"object\":")?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, head.slice_ref(object)))
}

#[cfg(test)]
#[path = "reflector_tests.rs"]
mod tests;
