//! Bytes as hexadecimal digits.

use std::fmt::Write;

/// Two lower-case digits for each byte.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of so many pairs of digits, of either case; `None` for anything else.
#[must_use]
pub fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(text(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(bytes("000aFf"), Some(vec![0, 0x0a, 0xff]));
        for bad in ["0", "0g", "é0", " 00"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
