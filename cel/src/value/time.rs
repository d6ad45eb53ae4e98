//! The texts of moments and spans.

use jiff::{SignedDuration, Timestamp};

/// A moment in the form of RFC 3339, between the years 1 and 9999.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    const FIRST: i64 = -62_135_596_800;
    let shaped = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T');
    let time: Timestamp = text.parse().ok().filter(|_| shaped)?;
    (time.as_second() >= FIRST).then_some(time)
}

/// A span in Go's form, `1h30m`, `-1.5s`, `0`.
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 {
            return None;
        }
        let parse = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i128>().ok() };
        nanos = nanos.checked_add(parse(whole)?.checked_mul(unit)?)?;
        nanos += parse(fraction)? * unit / 10i128.pow(u32::try_from(fraction.len()).ok()?);
        rest = after;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

/// As the language writes spans: seconds, `5400s`, `1.500s`.
pub fn render_duration(span: SignedDuration) -> String {
    let nanos = span.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_go_reads_them() {
        let seconds = |text: &str| parse_duration(text).map(render_duration);
        assert_eq!(seconds("1h30m").as_deref(), Some("5400s"));
        assert_eq!(seconds("-1.5s").as_deref(), Some("-1.5s"));
        assert_eq!(seconds("100ms").as_deref(), Some("0.1s"));
        for wrong in ["", "1", "h", "1x", ".s", "9999999999h"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
