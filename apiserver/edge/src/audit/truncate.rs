//! What becomes of events that are too large: upstream's `--audit-*-truncate-*`.

use super::sink::line;
use serde_json::{Value, json};

/// Sizes in bytes of JSON, those of upstream by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Of one event; one that is larger loses its request and its response.
    pub max_event_bytes: usize,
    /// Of the events that are sent together; several hundred bytes come on top.
    pub max_batch_bytes: usize,
}

impl Default for Truncation {
    fn default() -> Self {
        Self { max_event_bytes: 100 << 10, max_batch_bytes: 10 << 20 }
    }
}

/// What the event tells of its loss.
const ANNOTATION: &str = "audit.k8s.io/truncated";

/// The event as a line of JSON; `None` if it is too large even so.
pub(super) fn fitting(event: &Value, truncation: Option<Truncation>) -> Option<Vec<u8>> {
    let whole = line(event);
    let Some(Truncation { max_event_bytes: most, .. }) =
        truncation.filter(|t| whole.len() > t.max_event_bytes)
    else {
        return Some(whole);
    };
    let mut event = event.clone();
    let fields = event.as_object_mut()?;
    let request = fields.remove("requestObject");
    let response = fields.remove("responseObject");
    // Without them there is nothing to leave out.
    request.or(response)?;
    match event["annotations"].as_object_mut() {
        Some(annotations) => drop(annotations.insert(ANNOTATION.to_owned(), "true".into())),
        None => event["annotations"] = json!({ ANNOTATION: "true" }),
    }
    Some(line(&event)).filter(|shorter| shorter.len() <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> Value {
        json!({ "level": "Request", "annotations": { "a": "b" }, "requestObject": "x".repeat(bytes) })
    }

    #[test]
    fn the_largest_parts_go_first() {
        let at_most = |max_event_bytes| Some(Truncation { max_event_bytes, ..Truncation::default() });
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(read(&fitting(&event(500), None).unwrap()), event(500));
        assert_eq!(read(&fitting(&event(50), at_most(200)).unwrap()), event(50));
        let short = read(&fitting(&event(500), at_most(200)).unwrap());
        assert_eq!(short["annotations"], json!({ "a": "b", ANNOTATION: "true" }));
        assert!(short["requestObject"].is_null(), "{short}");
        assert_eq!(fitting(&event(500), at_most(60)), None);
        assert_eq!(fitting(&json!({ "user": "x".repeat(300) }), at_most(200)), None, "nothing to leave out");
        let plain = fitting(&json!({ "responseObject": "x".repeat(300) }), at_most(200)).unwrap();
        assert_eq!(read(&plain)["annotations"][ANNOTATION], "true");
    }
}
