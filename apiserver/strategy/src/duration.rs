//! Ages as `kubectl get` shows them (`k8s.io/apimachinery/pkg/util/duration`).

use jiff::Timestamp;
use serde_json::Value;

/// The time since an RFC 3339 timestamp; `<unknown>` where there is none.
pub fn age(since: &Value, now: Timestamp) -> String {
    match timestamp(since) {
        Some(then) => duration(now.as_second() - then.as_second()),
        None => "<unknown>".to_owned(),
    }
}

pub fn timestamp(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Two significant parts at most: `59s`, `5m10s`, `7h5m`, `3d4h`, `2y11d`. More than a second in the future is
/// `<invalid>`.
pub fn duration(seconds: i64) -> String {
    const HOUR: i64 = 60;
    const DAY: i64 = 24;
    const YEAR: i64 = 365;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / DAY;
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 3 * HOUR => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 2 * DAY => format!("{hours}h"),
        () if hours < 8 * DAY => pair(days, "d", hours % DAY, "h"),
        () if hours < 2 * YEAR * DAY => format!("{days}d"),
        () if hours < 8 * YEAR * DAY => pair(days / YEAR, "y", days % YEAR, "d"),
        () => format!("{}y", days / YEAR),
    }
}

fn pair(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_at_the_edges() {
        const D: i64 = 86_400;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (2 * D - 1, "47h"),
            (2 * D, "2d"),
            (2 * D + 3600, "2d1h"),
            (8 * D, "8d"),
            (730 * D - 1, "729d"),
            (730 * D, "2y"),
            (731 * D, "2y1d"),
            (8 * 365 * D, "8y"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn no_timestamp_is_unknown() {
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        assert_eq!(age(&Value::Null, now), "<unknown>");
        assert_eq!(age(&"2026-01-01T00:00:00Z".into(), now), "5m");
    }
}
