//! Resource quantities: `100m`, `1.5Gi`, `1e3`.
//!
//! The canonical form and the limits are those of
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>: nothing finer than a nano
//! (rounded away from zero), no magnitude above 2^63-1 (capped).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// How a quantity was written, which its printed form keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// An exact number of nanos, with the format it is printed in. Equality and order look at the number only.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

const NANOS: i128 = 1_000_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    fn capped(nanos: i128, format: Format) -> Self {
        Self { nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS), format }
    }

    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANOS, format: Format::DecimalSi }
    }

    pub fn from_milli(milli: i64) -> Self {
        Self { nanos: i128::from(milli) * (NANOS / 1000), format: Format::DecimalSi }
    }

    /// Bytes, printed with binary suffixes.
    pub fn from_bytes(bytes: i64) -> Self {
        Self { format: Format::BinarySi, ..Self::from_units(bytes) }
    }

    pub fn format(self) -> Format {
        self.format
    }

    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whole units, rounded away from zero (upstream's `Value`).
    pub fn units(self) -> i64 {
        saturate(div_away(self.nanos, NANOS))
    }

    /// Thousandths, rounded away from zero, at most `i64::MAX` (upstream's `MilliValue`).
    pub fn milli(self) -> i64 {
        saturate(div_away(self.nanos, NANOS / 1000))
    }

    /// How often `divisor` goes into it, rounded up; 0 if the divisor is not above zero.
    pub fn div_ceil(self, divisor: Self) -> i64 {
        if divisor.nanos <= 0 {
            return 0;
        }
        let rest = self.nanos.rem_euclid(divisor.nanos);
        saturate(self.nanos.div_euclid(divisor.nanos) + i128::from(rest != 0))
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is a whole number of units.
    pub fn is_integer(self) -> bool {
        self.nanos % NANOS == 0
    }

    fn canonical_decimal(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut exponent) = (self.nanos, -9);
        while value != 0 && value % 1000 == 0 {
            value /= 1000;
            exponent += 3;
        }
        if value == 0 {
            return f.write_str("0");
        }
        match (self.format, exponent) {
            (_, 0) => write!(f, "{value}"),
            (Format::DecimalExponent, e) => write!(f, "{value}e{e}"),
            (_, e) => write!(f, "{value}{}", DECIMAL_SUFFIXES.iter().find(|s| s.1 == e).map_or("", |s| s.0)),
        }
    }

    fn canonical_binary(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut power) = (self.nanos / NANOS, 0);
        while value % 1024 == 0 && power < BINARY_SUFFIXES.len() {
            value /= 1024;
            power += 1;
        }
        write!(f, "{value}{}", power.checked_sub(1).map_or("", |p| BINARY_SUFFIXES[p]))
    }
}

fn div_away(value: i128, by: i128) -> i128 {
    let rest = value % by;
    value / by + rest.signum()
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

const DECIMAL_SUFFIXES: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY_SUFFIXES: &[&str] = &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that keeps the value exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.nanos.abs() < 1024 * NANOS;
        match self.format {
            Format::BinarySi if !small && self.is_integer() => self.canonical_binary(f),
            Format::BinarySi => Self { format: Format::DecimalSi, ..*self }.canonical_decimal(f),
            _ => self.canonical_decimal(f),
        }
    }
}

/// What a suffix multiplies with, and the format it implies.
enum Scale {
    Ten(i32),
    Two(u32),
}

fn suffix(text: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some(&(_, exponent)) = DECIMAL_SUFFIXES.iter().find(|s| s.0 == text) {
        return Ok((Scale::Ten(exponent), Format::DecimalSi));
    }
    if let Some(power) = BINARY_SUFFIXES.iter().position(|s| *s == text) {
        let power = u32::try_from(power).map_err(|_| QuantityError::Suffix)? + 1;
        return Ok((Scale::Two(power * 10), Format::BinarySi));
    }
    let exponent = text.strip_prefix(['e', 'E']).and_then(|n| n.parse::<i64>().ok());
    // Beyond 60 decimal places either way every value is capped or rounded to one nano.
    let exponent = exponent.ok_or(QuantityError::Suffix)?.clamp(-60, 60);
    Ok((Scale::Ten(i32::try_from(exponent).unwrap_or_default()), Format::DecimalExponent))
}

/// Splits off sign, digits and suffix; refuses what the regular expression of the error would.
fn split(text: &str) -> Result<(bool, &str, &str, &str), QuantityError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    let misplaced = !digits.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || misplaced {
        return Err(QuantityError::Format);
    }
    Ok((text.starts_with('-'), whole, fraction, suffix))
}

/// The value of `digits` times 10^`exponent`, in nanos, rounded up; saturates far above the cap.
fn scale_ten(digits: &str, exponent: i64) -> i128 {
    let digits = digits.trim_start_matches('0');
    let keep = i64::try_from(digits.len()).unwrap_or(i64::MAX).saturating_add(exponent);
    if digits.is_empty() {
        return 0;
    }
    if keep > 36 {
        return i128::MAX;
    }
    let kept = usize::try_from(keep.max(0)).unwrap_or_default();
    let (head, tail) = digits.split_at(kept.min(digits.len()));
    let mut value: i128 = head.parse().unwrap_or_default();
    for _ in digits.len()..kept {
        value *= 10;
    }
    value + i128::from(tail.bytes().any(|b| b != b'0'))
}

/// The value of `whole.fraction` times 2^`power`, in nanos, rounded up.
///
/// The fraction counts to 18 places, what follows only as "more than that": scaled with at most 2^60 it stays
/// below 2^120, so it cannot overflow.
fn scale_two(whole: &str, fraction: &str, power: u32) -> i128 {
    let whole = scale_ten(whole, 0).checked_mul(NANOS << power).unwrap_or(i128::MAX);
    let (head, rest) = fraction.split_at(fraction.len().min(18));
    let scaled = scale_ten(head, 18 - i64::try_from(head.len()).unwrap_or_default()) << power;
    let more = scaled % NANOS != 0 || rest.bytes().any(|b| b != b'0');
    whole.saturating_add(scaled / NANOS + i128::from(more))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, whole, fraction, ending) = split(text)?;
        let (scale, format) = suffix(ending)?;
        let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let nanos = match scale {
            Scale::Ten(exponent) => {
                let digits = if fraction.is_empty() {
                    Cow::from(whole)
                } else {
                    Cow::from([whole, fraction].concat())
                };
                scale_ten(&digits, i64::from(exponent).saturating_sub(places) + 9)
            }
            Scale::Two(power) => scale_two(whole, fraction, power),
        };
        Ok(Self::capped(if negative { -nanos } else { nanos }, format))
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// Keeps the format of the left side, or of the right one where the left is zero.
    fn add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::capped(self.nanos + other.nanos, format)
    }
}

impl std::ops::Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: -self.nanos, ..self }
    }
}

impl std::ops::Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl std::ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn canonical_forms() {
        for (text, expected) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("0.1", "100m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1500", "1500"),
            ("10000", "10k"),
            ("100k", "100k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("512Gi", "512Gi"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12.5e3", "12500"),
            ("1e-3", "1e-3"),
            ("1E", "1E"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("1.0000000001", "1000000001n"),
            ("-1.5", "-1500m"),
            ("8Ei", "9223372036854775807"),
            ("100E", "9223372036854775807"),
            ("1e99999", "9223372036854775807"),
            ("1e-99999", "1e-9"),
            ("9223372036854775807", "9223372036854775807"),
            ("7Ei", "7Ei"),
        ] {
            let shown = parse(text).to_string();
            assert_eq!(shown, expected, "{text}");
        }
    }

    #[test]
    fn refused() {
        for bad in
            ["", "x", "1x", "1 ", " 1", "1.2.3", "--1", "1ki", "1e", "1e+", "m", ".", "1Kii", "1e3k", "0x1"]
        {
            assert!(bad.parse::<Quantity>().is_err(), "{bad:?}");
        }
        assert_eq!("1ki".parse::<Quantity>(), Err(QuantityError::Suffix));
        assert_eq!("1,5".parse::<Quantity>(), Err(QuantityError::Format));
    }

    #[test]
    fn whole_numbers_round_away_from_zero() {
        assert_eq!((parse("1500m").units(), parse("-1500m").units()), (2, -2));
        assert_eq!((parse("1500u").milli(), parse("2").milli()), (2, 2000));
        assert_eq!(parse("100E").milli(), i64::MAX);
        assert_eq!(parse("1Gi"), Quantity::from_bytes(1 << 30));
    }

    #[test]
    fn quotients_round_up() {
        for (whole, divisor, expected) in [
            ("64Mi", "1Mi", 64),
            ("125m", "1m", 125),
            ("125m", "1", 1),
            ("0", "1", 0),
            ("1", "0", 0),
            ("12E", "1m", i64::MAX),
        ] {
            assert_eq!(parse(whole).div_ceil(parse(divisor)), expected, "{whole} / {divisor}");
        }
    }

    #[test]
    fn sums_keep_the_format() {
        assert_eq!((parse("1Gi") + parse("1Ki")).to_string(), "1048577Ki");
        assert_eq!((Quantity::ZERO + parse("1Mi")).to_string(), "1Mi");
        assert_eq!((parse("1") - parse("250m")).to_string(), "750m");
    }

    proptest! {
        #[test]
        fn printing_keeps_the_value(nanos in any::<i64>(), format in 0..3) {
            let format = [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent][usize::try_from(format).unwrap()];
            for nanos in [i128::from(nanos), i128::from(nanos) * 1024 * 1024 * 512] {
                let quantity = Quantity { nanos, format };
                let printed = quantity.to_string();
                let again = parse(&printed);
                prop_assert_eq!(again, quantity);
                prop_assert_eq!(again.to_string(), printed);
            }
        }

        #[test]
        fn any_text_parses_or_fails(text in "[-+]?[0-9.]{0,40}[a-zA-Z]{0,3}[-+]?[0-9]{0,12}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                prop_assert_eq!(parse(&quantity.to_string()), quantity);
            }
        }

        #[test]
        fn decimals_are_exact(whole in 0i64..1_000_000_000, milli in 0i64..1000) {
            let text = format!("{whole}.{milli:03}");
            prop_assert_eq!(parse(&text).milli(), whole * 1000 + milli);
        }
    }
}
