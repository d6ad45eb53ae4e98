//! Quantities as far as validation compares them.

use serde_json::Value;

pub const QUANTITY_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Billionths, the finest that Kubernetes keeps; saturates far above any limit it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub i128);

const UNIT: i128 = 1_000_000_000;

/// A quantity is a string or a plain number; `None` if it is neither or malformed.
pub fn parse_quantity(value: &Value) -> Option<Nanos> {
    let text = quantity_text(value);
    let digits = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (numerator, denominator) = scale(suffix)?;
    let nanos = decimal(number)?.checked_mul(numerator)?;
    // Finer than a billionth rounds away from zero, as upstream rounds up.
    Some(Nanos(nanos / denominator + (nanos % denominator).signum()))
}

pub fn quantity_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    let exponent = |n: u32| 10_i128.checked_pow(n);
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, UNIT),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (exponent(6)?, 1),
        "G" => (exponent(9)?, 1),
        "T" => (exponent(12)?, 1),
        "P" => (exponent(15)?, 1),
        "E" => (exponent(18)?, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = exponent(power.unsigned_abs())?;
            if power < 0 { (1, factor) } else { (factor, 1) }
        }
    })
}

/// A signed decimal number in billionths.
fn decimal(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fine: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanos = whole.checked_mul(UNIT)?.checked_add(fine.parse().ok()?)?;
    Some(if negative { -nanos } else { nanos })
}

/// `None` if the value is no quantity. An absent one is not negative.
pub fn is_negative_quantity(value: &Value) -> Option<bool> {
    if value.is_null() {
        return Some(false);
    }
    parse_quantity(value).map(|q| q.0 < 0)
}

pub fn is_whole_quantity(value: &Value) -> Option<bool> {
    parse_quantity(value).map(|q| q.0 % UNIT == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_every_suffix() {
        for (text, nanos) in [
            ("1", UNIT),
            ("100m", UNIT / 10),
            ("1.5", 3 * UNIT / 2),
            ("1Ki", 1024 * UNIT),
            ("1e3", 1000 * UNIT),
            ("1E-3", UNIT / 1000),
            ("2E", 2 * 10_i128.pow(18) * UNIT),
            ("-1", -UNIT),
            (".5", UNIT / 2),
        ] {
            assert_eq!(parse_quantity(&text.into()), Some(Nanos(nanos)), "{text}");
        }
        for text in ["", "m", "1x", "1.2.3", "--1", "1 Gi", "."] {
            assert_eq!(parse_quantity(&text.into()), None, "{text}");
        }
        assert_eq!(parse_quantity(&serde_json::json!(2)), Some(Nanos(2 * UNIT)));
    }
}
