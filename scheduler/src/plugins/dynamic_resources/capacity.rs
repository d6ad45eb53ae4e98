//! Consumable capacity (KEP-5075): how much of a device a request takes, by the device's own policy.

use coracle_api::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Amounts by full name (`domain/name`).
pub type Amounts = BTreeMap<String, Quantity>;

/// A name without a domain belongs to the driver.
pub fn qualified(driver: &str, name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{driver}/{name}") }
}

pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn amounts(driver: &str, values: &Value, read: impl Fn(&Value) -> Option<Quantity>) -> Amounts {
    let entries = values.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((qualified(driver, name), read(value)?))).collect()
}

/// What an allocation's result says that it consumes.
pub fn consumed_by(driver: &str, result: &Value) -> Amounts {
    amounts(driver, &result["consumedCapacity"], quantity)
}

/// The smallest value of the range that is not below `wanted`.
fn round_up(wanted: Quantity, range: &Value) -> Quantity {
    let Some(least) = quantity(&range["min"]) else { return wanted };
    if wanted <= least {
        return least;
    }
    let Some(step) = quantity(&range["step"]).map(Quantity::nanos).filter(|step| *step > 0) else {
        return wanted;
    };
    let above = wanted.nanos() - least.nanos();
    let missing = (step - above % step) % step;
    // Nanos of whole steps are exact; a step that is finer cannot be written.
    wanted + nanos(missing)
}

fn nanos(amount: i128) -> Quantity {
    format!("{amount}n").parse().unwrap_or(Quantity::ZERO)
}

/// How much of one capacity a request takes; `None` where the policy has no such amount.
fn taken(wanted: Option<Quantity>, capacity: &Value) -> Option<Quantity> {
    let (value, policy) = (quantity(&capacity["value"])?, &capacity["requestPolicy"]);
    let default = quantity(&policy["default"]);
    let Some(wanted) = wanted else { return Some(default.unwrap_or(value)) };
    if Some(wanted) == default {
        return Some(wanted);
    }
    let range = &policy["validRange"];
    if range.is_object() {
        let rounded = round_up(wanted, range);
        let most = quantity(&range["max"]);
        return Some(rounded).filter(|amount| most.is_none_or(|most| *amount <= most));
    }
    match policy["validValues"].as_array() {
        Some(values) => values.iter().filter_map(quantity).filter(|v| *v >= wanted).min(),
        None => Some(wanted),
    }
}

/// What a request takes of every capacity of the device. `None` when the device has not what is asked for, or not in
/// such amounts.
pub fn taken_by(driver: &str, request: &Value, device: &Value) -> Option<Amounts> {
    let asked = amounts(driver, &request["capacity"]["requests"], quantity);
    let mut all = Amounts::new();
    for (name, capacity) in device["capacity"].as_object().into_iter().flatten() {
        let name = qualified(driver, name);
        let amount = taken(asked.get(&name).copied(), capacity)?;
        all.insert(name, amount);
    }
    asked.keys().all(|name| all.contains_key(name)).then_some(all)
}

/// Whether the device still has `wanted` when so much is `used`.
pub fn suffices(driver: &str, device: &Value, used: &[&Amounts], wanted: &Amounts) -> bool {
    device["capacity"].as_object().into_iter().flatten().all(|(name, capacity)| {
        let name = qualified(driver, name);
        let Some(value) = quantity(&capacity["value"]) else { return false };
        let all = used.iter().copied().chain([wanted]).filter_map(|amounts| amounts.get(&name));
        all.fold(Quantity::ZERO, |sum, amount| sum + *amount) <= value
    })
}

/// `consumedCapacity` of a result, under the names that the device has.
pub fn written(driver: &str, device: &Value, amounts: &Amounts) -> Value {
    let names = device["capacity"].as_object().into_iter().flatten().map(|(name, _)| name);
    let entries = names.filter_map(|name| {
        let amount = amounts.get(&qualified(driver, name))?;
        Some((name.clone(), json!(amount.to_string())))
    });
    Value::Object(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_up_default_and_refuse() {
        let range = json!({"default": "1", "validRange": {"min": "2", "max": "8", "step": "2"}});
        let values = json!({"default": "1", "validValues": ["1", "4", "16"]});
        for (wanted, policy, expected) in [
            (None, Value::Null, Some("10")),
            (Some("3"), Value::Null, Some("3")),
            (None, range.clone(), Some("1")),
            (Some("1"), range.clone(), Some("1")),
            (Some("1500m"), range.clone(), Some("2")),
            (Some("4"), range.clone(), Some("4")),
            (Some("5"), range.clone(), Some("6")),
            (Some("9"), range, None),
            (Some("3"), values.clone(), Some("4")),
            (Some("17"), values, None),
        ] {
            let capacity = json!({"value": "10", "requestPolicy": policy});
            let wanted_quantity = wanted.map(|w| w.parse().expect("a quantity"));
            let given = taken(wanted_quantity, &capacity).map(|q| q.to_string());
            assert_eq!(given.as_deref(), expected, "{wanted:?} of {capacity}");
        }
    }

    #[test]
    fn names_may_leave_the_driver_out() {
        let device = json!({"capacity": {"memory": {"value": "8Gi"}, "other.org/lanes": {"value": "4"}}});
        let asks = |name: &str| json!({"capacity": {"requests": {name: "1"}}});
        for (name, known) in [
            ("memory", true),
            ("d/memory", true),
            ("x/memory", false),
            ("lanes", false),
            ("other.org/lanes", true),
        ] {
            assert_eq!(taken_by("d", &asks(name), &device).is_some(), known, "{name}");
        }
        let half = taken_by(
            "d",
            &json!({"capacity": {"requests": {"memory": "4Gi", "other.org/lanes": "2"}}}),
            &device,
        );
        let half = half.expect("both there");
        assert!(suffices("d", &device, &[&half], &half));
        assert!(!suffices("d", &device, &[&half, &half], &half));
        assert_eq!(written("d", &device, &half), json!({"memory": "4Gi", "other.org/lanes": "2"}));
    }
}
