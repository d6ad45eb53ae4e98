//! One request as a span.

use super::Tracer;
use super::context::Context;
use http::HeaderValue;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Number(u64),
}

pub type Attributes = Vec<(&'static str, Attribute)>;

/// A part of a request: what was done, and when from the request's beginning.
#[derive(Debug)]
pub struct Part {
    pub name: &'static str,
    pub from: Duration,
    pub to: Duration,
}

#[derive(Debug)]
pub struct Step {
    pub id: [u8; 8],
    pub name: &'static str,
    pub began: u64,
    pub ended: u64,
}

/// A span as it is sent. Times are nanoseconds since 1970.
#[derive(Debug)]
pub struct Finished {
    pub context: Context,
    pub parent: Option<[u8; 8]>,
    /// The trace of a client that may not have its requests in it.
    pub link: Option<Context>,
    pub name: String,
    pub began: u64,
    pub ended: u64,
    pub attributes: Attributes,
    pub steps: Vec<Step>,
    pub failed: bool,
}

/// A request under way that is being traced.
pub struct Span {
    pub(super) tracer: Arc<Tracer>,
    pub(super) context: Context,
    pub(super) parent: Option<[u8; 8]>,
    pub(super) link: Option<Context>,
    pub(super) name: String,
    pub(super) attributes: Attributes,
}

impl Span {
    /// What those are told whom the request leads to.
    pub fn header(&self) -> HeaderValue {
        self.context.header()
    }

    /// The request has ended, `took` after its beginning; without a code, because the client went.
    pub fn finish(mut self, took: Duration, code: Option<u16>, parts: &[Part]) {
        let ended = SystemTime::now();
        let began = ended.checked_sub(took).unwrap_or(ended);
        let at = |after: Duration| nanos(began + after);
        let step = |part: &Part| Step {
            id: rand::random(),
            name: part.name,
            began: at(part.from),
            ended: at(part.to),
        };
        if let Some(code) = code {
            self.attributes.push(("http.response.status_code", Attribute::Number(code.into())));
        }
        let finished = Finished {
            context: self.context,
            parent: self.parent,
            link: self.link,
            name: self.name,
            began: nanos(began),
            ended: nanos(ended),
            attributes: self.attributes,
            steps: parts.iter().map(step).collect(),
            failed: code.is_none_or(|code| code >= 500),
        };
        self.tracer.send(finished);
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
