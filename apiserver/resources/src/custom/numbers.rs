//! Numbers as Go's decoder of untyped JSON keeps them.

use serde_json::Value;

/// Up to here every whole double is exactly one integer.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// `1.0` and `1e3` become integers, as they are written by upstream.
pub(super) fn whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let Some(float) = number.as_f64() else { return };
            if float.fract() == 0.0 && float.abs() < EXACT {
                #[allow(clippy::cast_possible_truncation, reason = "whole and in range")]
                let integer = float as i64;
                *value = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Object(map) => map.values_mut().for_each(whole),
        _ => {}
    }
}
