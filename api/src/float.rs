//! Floating-point numbers as Go writes them in JSON.

use serde_json::Number;

/// Whole numbers have no point, so that they are integers when they are read again. `None` for what JSON has no number for.
pub(crate) fn number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 {
        // The shortest digits that say which number it is, then zeros.
        if let Ok(whole) = value.to_string().parse::<i64>() {
            return Some(whole.into());
        }
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn whole_numbers_are_integers() {
        for (value, wanted) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (-3.0, "-3"),
            (1e15, "1000000000000000"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(number(value).unwrap().to_string(), wanted);
        }
        assert!(number(f64::NAN).is_none() && number(f64::INFINITY).is_none());
    }
}
