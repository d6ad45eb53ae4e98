//! How long a request may take.

use super::RequestInfo;
use coracle_api::{ApiError, duration};
use coracle_registry::Query;
use serde_json::json;
use std::time::Duration;

/// Upstream's `--request-timeout`.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Watches and streams last as long as they like, those of aggregated servers too: upstream goes by these names.
pub fn is_long_running(info: &RequestInfo) -> bool {
    let streams = matches!(&*info.subresource, "attach" | "exec" | "log" | "portforward" | "proxy");
    info.verb == "watch" || (info.is_resource && streams)
}

/// The time that a request has: the server's, or less where the client asks so in the query.
pub fn deadline(query: &Query, longest: Duration) -> Result<Duration, ApiError> {
    let Some(asked) = query.get("timeout").filter(|asked| !asked.is_empty()) else { return Ok(longest) };
    let Some(time) = duration::parse(asked) else {
        let why = format!("time: invalid duration {asked:?}");
        return Err(ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}")));
    };
    Ok(if time.is_zero() { longest } else { time.min(longest) })
}

/// The answer to a request whose time is over; what it began may still happen.
pub fn timed_out() -> ApiError {
    let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    ApiError::timeout(why).with_details(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_ask_for_less() {
        let of = |query: &str| deadline(&Query::new(Some(query)), REQUEST_TIMEOUT);
        assert_eq!(of("timeout=5s").unwrap().as_secs(), 5);
        assert_eq!(of("timeout=5m").unwrap(), REQUEST_TIMEOUT);
        assert_eq!(of("timeout=0s").unwrap(), REQUEST_TIMEOUT);
        assert_eq!(of("limit=5").unwrap(), REQUEST_TIMEOUT);
        let error = of("timeout=soon").unwrap_err();
        assert_eq!(error.code, 400);
        assert_eq!(
            error.message,
            "invalid timeout specified in the request URL - time: invalid duration \"soon\""
        );
    }
}
