//! resource.k8s.io/v1: dynamic resource allocation.

mod claims;
mod devices;
mod requests;
mod slices;
mod status;
#[cfg(test)]
mod tests;

pub use claims::{DeviceClasses, ResourceClaimTemplates, ResourceClaims};
pub use slices::ResourceSlices;

use super::value::*;
use super::{Column, Env, Strategy, conditions, copy_field, rules, table};
use coracle_api::{FieldError, Object, validation};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Bytes of a driver's name, of a pool's, and of an expression; upstream's.
const DRIVER_MAX: usize = 63;
const POOL_MAX: usize = 253;
const EXPRESSION_MAX: usize = 10 * 1024;
/// Bytes of the parameters that a driver gets.
const PARAMETERS_MAX: usize = 10 * 1024;

/// Calls `check` for each element of a list that may have at most `max`, and names elements that come twice by `key`.
fn each(
    list: &[Value],
    max: usize,
    path: &Path,
    key: fn(&Value) -> Option<&str>,
    errors: &mut Errors,
    check: &mut dyn FnMut(&Value, &Path, &mut Errors),
) {
    if list.len() > max {
        errors.0.push(FieldError::too_many(path, list.len(), max));
    }
    let mut seen = BTreeSet::new();
    for (i, item) in list.iter().enumerate() {
        let here = path.index(i);
        check(item, &here, errors);
        if let Some(key) = key(item).filter(|key| !seen.insert((*key).to_owned())) {
            errors.duplicate(&here, key);
        }
    }
}

fn own_name(item: &Value) -> Option<&str> {
    item.get("name").and_then(Value::as_str)
}

fn text(item: &Value) -> Option<&str> {
    item.as_str()
}

fn no_key(_item: &Value) -> Option<&str> {
    None
}

fn driver(name: &str, path: &Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > DRIVER_MAX {
        errors.too_long(path, DRIVER_MAX);
    }
    rules::subdomain(&name.to_lowercase(), path, errors);
}

fn pool(name: &str, path: &Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > POOL_MAX {
        errors.too_long(path, POOL_MAX);
    }
    name.split('/').for_each(|part| rules::subdomain(part, path, errors));
}

/// `selectors` of requests and classes.
fn selectors(holder: &Value, path: &Path, errors: &mut Errors) {
    /// Upstream's number.
    const MAX: usize = 32;
    each(
        list_at(holder, "selectors"),
        MAX,
        &path.field("selectors"),
        no_key,
        errors,
        &mut |selector, here, errors| {
            let here = here.field("cel");
            if !has(selector, "cel") {
                errors.required(&here, "");
                return;
            }
            let expression = str_at(selector, "cel.expression");
            let here = here.field("expression");
            if expression.len() > EXPRESSION_MAX {
                errors.too_long(&here, EXPRESSION_MAX);
            } else if let Some(why) = coracle_cel::devices::mistake(expression) {
                errors.invalid(&here, expression, &why);
            }
        },
    );
}

/// `opaque` of a configuration.
fn configuration(config: &Value, path: &Path, errors: &mut Errors) {
    let (opaque, here) = (at(config, "opaque"), path.field("opaque"));
    if opaque.is_null() {
        errors.required(&here, "");
        return;
    }
    driver(str_at(opaque, "driver"), &here.field("driver"), errors);
    let (parameters, here) = (at(opaque, "parameters"), here.field("parameters"));
    match parameters {
        Value::Null => errors.required(&here, ""),
        Value::Object(_) if parameters.to_string().len() > PARAMETERS_MAX => {
            errors.too_long(&here, PARAMETERS_MAX)
        }
        Value::Object(_) => {}
        other => errors.invalid(&here, other.to_string(), "must be a valid JSON object"),
    }
}
