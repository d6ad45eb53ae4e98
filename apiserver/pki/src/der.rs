//! The few pieces of DER that a certificate is put together from (X.690, RFC 5280).

/// One value: tag, length, contents.
pub(super) fn value(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = contents.len();
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|b| *b == 0).collect();
            // At most eight bytes, the width of a length.
            out.push(0x80 | u8::try_from(bytes.len()).unwrap_or(8));
            out.extend(bytes);
        }
    }
    out.extend_from_slice(contents);
    out
}

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(0x30, &parts.concat())
}

/// Dotted numbers, as `[2, 5, 29, 15]`.
pub(super) fn oid(arcs: &[u32]) -> Vec<u8> {
    let (first, rest) = arcs.split_at(2.min(arcs.len()));
    let mut body = Vec::new();
    let head = first.iter().fold(0, |sum, arc| sum * 40 + arc);
    for arc in std::iter::once(head).chain(rest.iter().copied()) {
        let mut groups = vec![low_seven(arc)];
        let mut left = arc >> 7;
        while left > 0 {
            groups.push(low_seven(left) | 0x80);
            left >>= 7;
        }
        body.extend(groups.into_iter().rev());
    }
    value(0x06, &body)
}

fn low_seven(number: u32) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or_default()
}

/// A positive INTEGER of big-endian bytes.
pub(super) fn positive(bytes: &[u8]) -> Vec<u8> {
    let mut body: Vec<u8> = bytes.iter().copied().skip_while(|b| *b == 0).collect();
    if body.first().is_none_or(|b| b & 0x80 != 0) {
        body.insert(0, 0);
    }
    value(0x02, &body)
}

pub(super) fn bit_string(bytes: &[u8], unused_bits: u8) -> Vec<u8> {
    let mut body = vec![unused_bits];
    body.extend_from_slice(bytes);
    value(0x03, &body)
}

/// Flags by number, 0 first: a named bit list without its trailing zeros.
pub(super) fn flags(set: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut bits = [0u8; 2];
    let mut highest = 0;
    for flag in set {
        bits[usize::from(flag / 8)] |= 0x80 >> (flag % 8);
        highest = highest.max(flag);
    }
    let bytes = usize::from(highest / 8) + 1;
    bit_string(&bits[..bytes], 7 - highest % 8)
}

/// UTCTime until 2049, GeneralizedTime after (RFC 5280, 4.1.2.5).
pub(super) fn time(at: jiff::Timestamp) -> Vec<u8> {
    let civil = at.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let year = civil.year();
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    if (1950..2050).contains(&year) {
        value(0x17, format!("{:02}{rest}", year % 100).as_bytes())
    } else {
        value(0x18, format!("{year:04}{rest}").as_bytes())
    }
}

/// One `Extension` of a certificate.
pub(super) fn extension(id: &[u32], critical: bool, contents: &[u8]) -> Vec<u8> {
    let id = oid(id);
    let contents = value(0x04, contents);
    if critical { sequence(&[&id, &[0x01, 0x01, 0xff], &contents]) } else { sequence(&[&id, &contents]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_numbers_and_flags() {
        assert_eq!(value(0x04, &[1]), [0x04, 1, 1]);
        assert_eq!(value(0x04, &[0; 200])[..3], [0x04, 0x81, 200]);
        assert_eq!(value(0x04, &[0; 300])[..4], [0x04, 0x82, 1, 44]);
        assert_eq!(oid(&[2, 5, 29, 15]), [0x06, 3, 0x55, 0x1d, 0x0f]);
        assert_eq!(oid(&[1, 2, 840, 10045]), [0x06, 5, 0x2a, 0x86, 0x48, 0xce, 0x3d]);
        assert_eq!(positive(&[0, 0x80]), [0x02, 2, 0, 0x80]);
        assert_eq!(positive(&[]), [0x02, 1, 0]);
        assert_eq!(flags([0, 2]), [0x03, 2, 5, 0xa0]);
        assert_eq!(flags([8]), [0x03, 3, 7, 0, 0x80]);
    }

    #[test]
    fn times_change_their_form_in_2050() {
        let at = |text: &str| time(text.parse().expect("a timestamp"));
        assert_eq!(at("2049-12-31T23:59:59Z"), [&[0x17, 13][..], b"491231235959Z"].concat());
        assert_eq!(at("2050-01-01T00:00:00Z"), [&[0x18, 15][..], b"20500101000000Z"].concat());
    }
}
