//! How long a request may take.

use super::RequestInfo;
use coracle_api::ApiError;
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
pub fn deadline(query: Option<&str>, longest: Duration) -> Result<Duration, ApiError> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let Some((_, asked)) = pairs.find(|(name, _)| name == "timeout") else { return Ok(longest) };
    if asked.is_empty() {
        return Ok(longest);
    }
    let Some(time) = go_duration(&asked) else {
        let why = format!("time: invalid duration {asked:?}");
        return Err(ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}")));
    };
    Ok(if time.is_zero() { longest } else { time.min(longest) })
}

/// A duration as Go prints and reads it: `1h2m3.5s`, `300ms`, `0`. Negative ones are none.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(seconds).ok()
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
    fn durations_are_gos() {
        let table = [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1h", Some(3_600_000)),
            ("1.5s", Some(1500)),
            ("250ms", Some(250)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("", None),
            ("30", None),
            ("s", None),
            ("-3s", None),
            ("3 s", None),
        ];
        for (text, millis) in table {
            assert_eq!(go_duration(text).map(|d| d.as_millis()), millis, "{text:?}");
        }
    }

    #[test]
    fn clients_may_ask_for_less() {
        let of = |query: &str| deadline(Some(query), REQUEST_TIMEOUT);
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
