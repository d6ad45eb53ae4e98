//! resource.k8s.io/v1: dynamic resource allocation.

mod capacity;
mod claims;
mod devices;
mod requests;
mod slices;
mod status;
#[cfg(test)]
mod tests;

pub use claims::{DeviceClasses, ResourceClaimTemplates, ResourceClaims};
pub use slices::ResourceSlices;

use super::pods::validate::sources::driver;
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor,
    UpdateStrategy, conditions, copy_field, rules, table,
};
use coracle_api::{FieldError, Object, validation};
use coracle_cel::devices::Mistake;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Bytes of a pool's name, and of an expression; upstream's.
const POOL_MAX: usize = 253;
const EXPRESSION_MAX: usize = 10 * 1024;
/// Bytes of the parameters that a driver gets, and of the data that it tells of a device.
const PARAMETERS_MAX: usize = 10 * 1024;

/// Calls `check` for each element of a list that may have at most `max`, and names elements that come twice by `key`. Of
/// a list that is too long nothing else is said.
fn each(
    list: &[Value],
    max: usize,
    path: &Path,
    key: fn(&Value) -> Option<&str>,
    errors: &mut Errors,
    check: &mut dyn FnMut(&Value, &Path, &mut Errors),
) {
    if list.len() > max {
        errors.too_many(path, list.len(), max);
        return;
    }
    for (i, item) in list.iter().enumerate() {
        check(item, &path.index(i), errors);
    }
    let mut seen = BTreeSet::new();
    for (i, item) in list.iter().enumerate() {
        if let Some(key) = key(item).filter(|key| !seen.insert(*key)) {
            errors.duplicate(&path.index(i), key);
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
                return;
            }
            match coracle_cel::devices::mistake(expression) {
                None => {}
                Some(Mistake::Invalid(why)) => errors.invalid(&here, expression, &why),
                Some(Mistake::TooComplex) => errors.forbidden(&here, "too complex, exceeds cost limit"),
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
    raw(at(opaque, "parameters"), &here.field("parameters"), errors);
}

/// What a driver understands: an object of a bounded size.
fn raw(data: &Value, path: &Path, errors: &mut Errors) {
    match data {
        Value::Null => errors.required(path, ""),
        _ if data.to_string().len() > PARAMETERS_MAX => errors.too_long(path, PARAMETERS_MAX),
        Value::Object(_) => {}
        _ => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";

/// Administrators' access to devices that others use is for namespaces that are labelled for it. `asking` is where the
/// first request or result stands that asks for it.
fn admin_access(object: &Object, asking: Option<Path>, env: &Env, errors: &mut Errors) {
    let Some(path) = asking else { return };
    let labels = env.read.labels("namespaces.", "", namespace(object), &[ADMIN_LABEL]);
    let labelled = matches!(&labels[..], [(_, label)] if label == "true");
    if !labelled {
        let detail = format!(
            "admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
        );
        errors.forbidden(&path, &detail);
    }
}
