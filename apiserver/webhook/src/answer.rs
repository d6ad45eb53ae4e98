//! What a webhook's HTTP answer means.

use super::error::CallError;
use super::pool::Received;
use http::header::CONTENT_TYPE;
use serde_json::Value;

/// Bytes of an error's text that are passed on, as upstream.
const SHOWN_BYTES: usize = 2048;

/// Whether an answer says that it is one.
pub(super) fn successful(received: &Received) -> Result<(), CallError> {
    let code = received.status.as_u16();
    if (200..=206).contains(&code) {
        return Ok(());
    }
    Err(CallError::Answered { code, message: explain(code, received) })
}

/// The JSON of a successful answer.
pub(super) fn read(received: Received) -> Result<Value, CallError> {
    successful(&received)?;
    serde_json::from_slice(&received.body).map_err(|e| CallError::NotJson(e.to_string()))
}

/// A Status in the body speaks for itself; everything else is worded by its code, as upstream's client does.
fn explain(code: u16, received: &Received) -> String {
    let status: Value = serde_json::from_slice(&received.body).unwrap_or_default();
    if status["kind"] == "Status"
        && let Some(message) = status["message"].as_str().filter(|message| !message.is_empty())
    {
        return message.to_owned();
    }
    let words = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        403 | 406 | 415 => return text(received),
        500.. => {
            return format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                text(received)
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    words.to_owned()
}

fn text(received: &Received) -> String {
    let kind = received.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| !kind.starts_with("text/")) {
        return "unknown".to_owned();
    }
    let shown = &received.body[..received.body.len().min(SHOWN_BYTES)];
    String::from_utf8_lossy(shown).trim().to_owned()
}
