//! Quantities in untyped objects: strings or plain numbers.

use super::super::value::{Errors, Path};
use coracle_api::Quantity;
use serde_json::Value;

/// `None` if the value is no quantity.
pub fn parse_quantity(value: &Value) -> Option<Quantity> {
    quantity_text(value).parse().ok()
}

/// The message for a malformed quantity, `None` if it is well formed.
pub fn quantity_mistake(value: &Value) -> Option<String> {
    quantity_text(value).parse::<Quantity>().err().map(|e| e.to_string())
}

/// A quantity that is more than nothing.
pub fn positive(value: &Value, path: &Path, errors: &mut Errors) {
    match quantity_text(value).parse::<Quantity>() {
        Err(mistake) => errors.invalid(path, value.clone(), &mistake.to_string()),
        Ok(quantity) if quantity.is_negative() || quantity.is_zero() => {
            errors.invalid(path, quantity_text(value), "must be greater than zero");
        }
        Ok(_) => {}
    }
}

pub fn quantity_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_and_numbers_are_quantities() {
        assert_eq!(parse_quantity(&json!("1000m")), parse_quantity(&json!(1)));
        assert_eq!(parse_quantity(&json!("1.5Gi")).map(Quantity::units), Some(3 << 29));
        assert!(quantity_mistake(&json!("1x")).is_some());
        assert!(quantity_mistake(&Value::Null).is_some());
    }
}
