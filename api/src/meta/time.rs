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

/// Whether the text is certainly what [`format_seconds`] writes; a few times of that kind are not recognized.
pub(crate) fn is_plain_seconds(text: &str) -> bool {
    let [y, _, c, d, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', i0, i1, b':', s0, s1, b'Z'] =
        *text.as_bytes()
    else {
        return false;
    };
    let digit = |byte: u8| byte.wrapping_sub(b'0');
    let number = |tens: u8, ones: u8| match (digit(tens), digit(ones)) {
        (tens @ 0..=9, ones @ 0..=9) => tens * 10 + ones,
        _ => u8::MAX,
    };
    let year = matches!(y, b'1' | b'2') && text.as_bytes()[1].is_ascii_digit() && number(c, d) < 100;
    // Every month has 28 days.
    let date = (1..=12).contains(&number(m0, m1)) && (1..=28).contains(&number(d0, d1));
    year && date && number(h0, h1) < 24 && number(i0, i1) < 60 && number(s0, s1) < 60
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
        fn plain_times_are_canonical(text in "[0-3][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
            if is_plain_seconds(&text) {
                prop_assert_eq!(parse(&text).map(format_seconds), Some(text));
            }
        }

        #[test]
        fn most_times_are_plain(seconds in 0i64..4_000_000_000) {
            let text = format_seconds(Timestamp::from_second(seconds).unwrap());
            let late = matches!(&text[8..10], "29" | "30" | "31");
            prop_assert_eq!(is_plain_seconds(&text), !late);
        }

        #[test]
        fn printing_and_parsing_agree(seconds in 0i64..4_000_000_000, micros in 0i32..1_000_000) {
            let time = Timestamp::new(seconds, micros * 1000).unwrap();
            prop_assert_eq!(parse(&format_micros(time)), Some(time));
            prop_assert_eq!(parse(&format_seconds(time)).map(|t| t.as_second()), Some(seconds));
        }
    }
}
