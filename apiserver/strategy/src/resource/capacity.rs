//! Capacities of a device, and how much of them one request may take when several claims share the device.

use super::*;
use coracle_api::Quantity;

/// Upstream's number of values that a request may choose from.
const VALUES_MAX: usize = 10;

pub fn check(device: &Value, path: &Path, errors: &mut Errors) {
    let shared = bool_at(device, "allowMultipleAllocations");
    for (name, capacity) in entries_at(device, "capacity") {
        let here = path.key(name);
        devices::qualified(name, &here, errors);
        let value = at(capacity, "value");
        let Some(most) = rules::parse_quantity(value) else {
            let mistake = rules::quantity_mistake(value).unwrap_or_default();
            errors.invalid(&here.field("value"), value.clone(), &mistake);
            continue;
        };
        let (policy, here) = (at(capacity, "requestPolicy"), here.field("requestPolicy"));
        if policy.is_null() {
            continue;
        }
        match shared {
            true => request_policy(policy, most, &here, errors),
            false => errors.forbidden(&here, "allowMultipleAllocations must be true"),
        }
    }
}

fn request_policy(policy: &Value, most: Quantity, path: &Path, errors: &mut Errors) {
    let values = list_at(policy, "validValues");
    let field = match (values.is_empty(), has(policy, "validRange")) {
        (false, true) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                          same time";
            return errors.forbidden(path, detail);
        }
        (false, false) => "validValues",
        (true, true) => "validRange",
        (true, false) => return,
    };
    let Some(default) = rules::parse_quantity(at(policy, "default")) else {
        return errors.required(&path.field("default"), &format!("required when {field} is defined"));
    };
    match field {
        "validValues" => valid_values(values, default, most, &path.field(field), errors),
        _ => valid_range(at(policy, field), default, most, &path.field(field), errors),
    }
}

fn valid_values(values: &[Value], default: Quantity, most: Quantity, path: &Path, errors: &mut Errors) {
    let values: Vec<Quantity> = values.iter().filter_map(rules::parse_quantity).collect();
    for (i, pair) in values.windows(2).enumerate().filter(|(_, pair)| pair[0] > pair[1]) {
        let detail = "values must be sorted in ascending order";
        errors.invalid(&path.index(i + 1), pair[1].to_string(), detail);
    }
    if values.len() > VALUES_MAX {
        errors.too_many(path, values.len(), VALUES_MAX);
    } else {
        let mut seen = BTreeSet::new();
        for (i, value) in values.iter().enumerate() {
            let here = path.index(i);
            if *value > most {
                let detail = format!("option is larger than capacity value: {most}");
                errors.invalid(&here, value.to_string(), &detail);
            }
            if !seen.insert(value.units()) {
                errors.duplicate(&here, value.units().to_string());
            }
        }
    }
    if values.len() > VALUES_MAX || !values.contains(&default) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, default.to_string(), detail);
    }
}

fn valid_range(range: &Value, default: Quantity, most: Quantity, path: &Path, errors: &mut Errors) {
    let of = |field: &str| rules::parse_quantity(at(range, field));
    let Some(min) = of("min") else {
        return errors.required(&path.field("min"), "required when validRange is defined");
    };
    let mut refuse = |field: &str, value: Quantity, detail: String| {
        errors.invalid(&path.field(field), value.to_string(), &detail);
    };
    if min > most {
        refuse("min", min, format!("min is larger than capacity value: {most}"));
    }
    if default < min {
        refuse("min", default, format!("default is less than min: {min}"));
    }
    let max = of("max");
    if let Some(max) = max {
        if min > max {
            refuse("max", min, format!("min is larger than max: {max}"));
        }
        if max > most {
            refuse("max", max, format!("max is larger than capacity value: {most}"));
        }
        if default > max {
            refuse("max", default, format!("default is more than max: {max}"));
        }
    }
    let Some(step) = of("step") else { return };
    if step.is_negative() || step.is_zero() {
        return refuse("step", step, "must be greater than zero".to_owned());
    }
    if min + step > most {
        refuse("step", step, format!("one step {} is larger than capacity value: {most}", min + step));
    }
    for value in [Some(default), max].into_iter().flatten() {
        let distance = i128::from(value.units()) - i128::from(min.units());
        if distance % i128::from(step.units()) != 0 {
            refuse("step", value, format!("value is not a multiple of a given step ({step}) from ({min})"));
        }
    }
}
