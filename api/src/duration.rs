//! Durations as Go writes and reads them: `1h2m3.5s`, `300ms`, `0`.

use std::time::Duration;

/// Negative durations are none, nor are numbers without a unit, except 0.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
        rest = &rest[end..];
    }
    (!text.is_empty()).then_some(total)
}

/// To a millisecond.
pub fn written(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.subsec_millis());
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let fraction = format!("{millis:03}");
    let fraction = match fraction.trim_end_matches('0') {
        "" => String::new(),
        digits => format!(".{digits}"),
    };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("5s", Some(5000)),
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
        ] {
            assert_eq!(parse(text).map(|d| d.as_millis()), millis, "{text:?}");
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (millis, text) in [
            (500, "500ms"),
            (3000, "3s"),
            (1500, "1.5s"),
            (90_000, "1m30s"),
            (300_000, "5m0s"),
            (3_600_000, "1h0m0s"),
            (0, "0s"),
        ] {
            assert_eq!(written(Duration::from_millis(millis)), text);
        }
    }
}
