//! Go's notation of durations, in nanoseconds.

/// As Go prints a `time.Duration` of whole milliseconds: `1h0m0s`, `1m30s`, `0s`, `1.5s`.
pub fn format(nanos: i64) -> String {
    let (sign, total) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (seconds, rest) = (total / 1_000_000_000, total % 1_000_000_000);
    let fraction = format!("{rest:09}");
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = sign.to_owned();
    if hours > 0 {
        text = format!("{text}{hours}h");
    }
    if seconds >= 60 {
        text = format!("{text}{minutes}m");
    }
    format!("{text}{}{dot}{fraction}s", seconds % 60)
}

/// What Go's `ParseDuration` takes: numbers with units, the largest first or not.
pub fn parse(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0i128;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        total = total.checked_add(scaled(number, nanos_of(unit)?)?)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn nanos_of(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        total = total.checked_add(i128::from(digit - b'0') * scale)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_gos() {
        for (nanos, text) in [
            (0, "0s"),
            (90_000_000_000, "1m30s"),
            (3_600_000_000_000, "1h0m0s"),
            (1_500_000_000, "1.5s"),
            (-1_500_000_000, "-1.5s"),
        ] {
            assert_eq!(format(nanos), text);
            assert_eq!(parse(text.as_bytes()), Some(nanos));
        }
        for (text, nanos) in [("300ms", 300_000_000), (".5s", 500_000_000), ("2us1ns", 2001), ("0", 0)] {
            assert_eq!(parse(text.as_bytes()), Some(nanos), "{text}");
        }
        for bad in ["", "1", "s", "1x", "-", "1.2.3s", ".s", "9999999999999h"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
