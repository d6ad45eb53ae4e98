//! When each step of a request was done, and what the log says of it.

use super::request_context::RequestContext;
use coracle_component_base::traces::{Context, Part};
use http::{HeaderValue, StatusCode};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Requests that take longer are logged with their steps, as upstream traces them.
const SLOW_DURATION: Duration = Duration::from_millis(500);

/// What is done with a request, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Authenticated,
    Seated,
    Authorized,
    Answered,
}

const NAMES: [&str; 4] = ["authenticated", "dispatched", "authorized", "answered"];
/// The same as names of what is done, for traces.
const PARTS: [&str; 4] = ["authenticate", "dispatch", "authorize", "answer"];

/// Costs a reading of the clock a step.
pub struct LatencyTracker {
    began: Instant,
    done: [Option<Instant>; 4],
}

impl Default for LatencyTracker {
    fn default() -> Self {
        Self { began: Instant::now(), done: [None; 4] }
    }
}

impl LatencyTracker {
    pub fn done(&mut self, step: Step) {
        self.done[step as usize] = Some(Instant::now());
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Time until the answer began.
    pub fn answered(&self) -> Duration {
        self.done[Step::Answered as usize].map_or_else(|| self.elapsed(), |at| at - self.began)
    }

    /// The steps that were done.
    pub fn parts(&self) -> Vec<Part> {
        let mut from = Duration::ZERO;
        let part = |(name, at): (&&'static str, Option<Instant>)| {
            let to = at? - self.began;
            Some(Part { name, from: std::mem::replace(&mut from, to), to })
        };
        PARTS.iter().zip(self.done).filter_map(part).collect()
    }

    /// `authenticated 12µs, dispatched 3ms, ...`: what each step took.
    fn shown(&self) -> String {
        let (mut text, mut last) = (String::new(), self.began);
        for (name, at) in NAMES.iter().zip(self.done) {
            let Some(at) = at else { continue };
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(text, "{comma}{name} {:?}", at - last);
            last = at;
        }
        text
    }
}

/// Nothing but a look at the log's level, for ordinary requests.
pub fn log(context: &RequestContext, status: StatusCode, lasting: bool) {
    let failed = status.is_server_error() && !matches!(status.as_u16(), 503 | 504);
    let slow = !lasting && context.steps.answered() >= SLOW_DURATION;
    if failed {
        tracing::warn!(target: TARGET, "{}", line(context, status));
    } else if slow {
        tracing::info!(target: TARGET, steps = context.steps.shown(), "slow: {}", line(context, status));
    } else if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
        tracing::debug!(target: TARGET, "{}", line(context, status));
    }
}

/// Named apart, so that request logs can be turned on alone: `RUST_LOG=coracle_apiserver::requests=debug`.
const TARGET: &str = "coracle_apiserver::requests";

/// Upstream's fields of its own request log.
fn line(context: &RequestContext, status: StatusCode) -> String {
    let text = |value: &Option<HeaderValue>| {
        value.as_ref().and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
    };
    let info = &context.info;
    let uri = context.uri.as_deref().unwrap_or(&info.path);
    let mut line = format!(
        "HTTP verb={:?} URI={uri:?} latency=\"{:?}\" userAgent={:?} audit-ID={:?} resp={}",
        info.verb,
        context.steps.elapsed(),
        text(&context.headers.user_agent),
        context.audit_id.to_str().unwrap_or_default(),
        status.as_u16(),
    );
    if let Some(flow) = context.seats.flow() {
        // Writing to a String cannot fail.
        let _ = write!(line, " apf_fs={:?} apf_pl={:?}", flow.schema(), flow.level());
    }
    if let Some(context) = context.headers.trace_parent.as_ref().and_then(Context::parse) {
        let _ = write!(line, " traceID={:?}", context.trace_id());
    }
    line
}

/// Whether the log would show ordinary requests, for which their whole URI is kept.
pub fn verbose() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_show_what_each_took() {
        let mut steps = LatencyTracker::default();
        steps.done(Step::Authenticated);
        steps.done(Step::Answered);
        let shown = steps.shown();
        assert!(shown.starts_with("authenticated ") && shown.contains(", answered "), "{shown}");
        let parts = steps.parts();
        assert_eq!(parts.iter().map(|part| part.name).collect::<Vec<_>>(), ["authenticate", "answer"]);
        assert_eq!((parts[0].from, parts[0].to), (Duration::ZERO, parts[1].from));
    }
}
