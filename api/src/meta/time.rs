//! The two forms of time in the API: RFC 3339 with seconds (`Time`) and with microseconds (`MicroTime`).

use jiff::Timestamp;

/// `2006-01-02T15:04:05Z`; fractions of a second are cut off.
pub fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `2006-01-02T15:04:05.000000Z`
pub fn format_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// RFC 3339 with any offset and any fraction; nothing looser (no space for the `T`, no missing seconds).
pub fn parse(text: &str) -> Option<Timestamp> {
    let shape = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let head = bytes.get(..shape.len())?;
    let fits = head.iter().zip(shape).all(|(b, s)| if *s == b'0' { b.is_ascii_digit() } else { b == s });
    let offset = text.get(shape.len()..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let offset_fits = match offset.as_bytes() {
        b"Z" => true,
        [b'+' | b'-', hours @ .., b':', a, b] if hours.len() == 2 => {
            hours.iter().chain([a, b]).all(u8::is_ascii_digit)
        }
        _ => false,
    };
    if fits && offset_fits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        let time = parse("2024-02-29T12:00:00.123456789+02:00").unwrap();
        assert_eq!(format_seconds(time), "2024-02-29T10:00:00Z");
        assert_eq!(format_micros(time), "2024-02-29T10:00:00.123456Z");
        for bad in [
            "",
            "x",
            "2024-02-29",
            "2024-02-29 10:00:00Z",
            "2024-02-29T10:00:00",
            "2024-02-30T10:00:00Z",
            "2024-02-29T10:00:00+2",
            "2024-02-29T10:00Z",
            "2024-02-29T10:00:00Z[UTC]",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_agree(seconds in 0i64..4_000_000_000, micros in 0i32..1_000_000) {
            let time = Timestamp::new(seconds, micros * 1000).unwrap();
            prop_assert_eq!(parse(&format_micros(time)), Some(time));
            prop_assert_eq!(parse(&format_seconds(time)).map(|t| t.as_second()), Some(seconds));
        }
    }
}
