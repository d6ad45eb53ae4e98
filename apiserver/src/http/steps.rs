//! When each step of a request was done, and what the log says of it.

use super::exchange::Exchange;
use http::{HeaderValue, StatusCode};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Requests that take longer are logged with their steps, as upstream traces them.
const SLOW: Duration = Duration::from_millis(500);

/// What is done with a request, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Authenticated,
    Seated,
    Authorized,
    Answered,
}

const NAMES: [&str; 4] = ["authenticated", "seats found", "authorized", "answered"];

/// Costs a reading of the clock a step.
pub struct Steps {
    began: Instant,
    done: [Option<Instant>; 4],
}

impl Default for Steps {
    fn default() -> Self {
        Self { began: Instant::now(), done: [None; 4] }
    }
}

impl Steps {
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

    /// `authenticated 12µs, seats found 3ms, ...`: what each step took.
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

/// The trace that the client says its request belongs to: the second field of a W3C `traceparent`.
fn trace_id(parent: Option<&HeaderValue>) -> &str {
    let text = parent.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split('-').nth(1).filter(|id| id.len() == 32).unwrap_or_default()
}

/// Nothing but a look at the log's level, for ordinary requests.
pub fn log(exchange: &Exchange, status: StatusCode, lasting: bool) {
    let failed = status.is_server_error() && !matches!(status.as_u16(), 503 | 504);
    let slow = !lasting && exchange.steps.answered() >= SLOW;
    if failed {
        tracing::warn!(target: TARGET, "{}", line(exchange, status));
    } else if slow {
        tracing::info!(target: TARGET, steps = exchange.steps.shown(), "slow: {}", line(exchange, status));
    } else if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
        tracing::debug!(target: TARGET, "{}", line(exchange, status));
    }
}

/// Named apart, so that request logs can be turned on alone: `RUST_LOG=coracle_apiserver::requests=debug`.
const TARGET: &str = "coracle_apiserver::requests";

/// Upstream's fields of its own request log.
fn line(exchange: &Exchange, status: StatusCode) -> String {
    let text = |value: &Option<HeaderValue>| {
        value.as_ref().and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
    };
    let info = &exchange.info;
    let uri = exchange.uri.as_deref().unwrap_or(&info.path);
    let mut line = format!(
        "HTTP verb={:?} URI={uri:?} latency=\"{:?}\" userAgent={:?} audit-ID={:?} resp={}",
        info.verb,
        exchange.steps.elapsed(),
        text(&exchange.user_agent),
        exchange.audit_id.to_str().unwrap_or_default(),
        status.as_u16(),
    );
    if let Some(flow) = &exchange.flow {
        // Writing to a String cannot fail.
        let _ = write!(line, " apf_fs={:?} apf_pl={:?}", flow.schema(), flow.level());
    }
    let trace = trace_id(exchange.trace_parent.as_ref());
    if !trace.is_empty() {
        let _ = write!(line, " traceID={trace:?}");
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
    fn traces_are_named_by_the_client() {
        let parent = HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(trace_id(Some(&parent)), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(trace_id(Some(&HeaderValue::from_static("nonsense"))), "");
        assert_eq!(trace_id(None), "");
    }

    #[test]
    fn steps_show_what_each_took() {
        let mut steps = Steps::default();
        steps.done(Step::Authenticated);
        steps.done(Step::Answered);
        let shown = steps.shown();
        assert!(shown.starts_with("authenticated ") && shown.contains(", answered "), "{shown}");
    }
}
