//! Devices of a ResourceSlice: attributes, capacities, taints.

use super::*;

/// Upstream's numbers: attributes and capacities of one device together, taints, bytes of the parts of a name, of a
/// string value.
const ATTRIBUTES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const DOMAIN_MAX: usize = 63;
const ID_MAX: usize = 32;
const VALUE_MAX: usize = 64;

/// `domain/id`, both needed.
pub fn full_name(name: &str, path: &Path, errors: &mut Errors) {
    match name.split_once('/') {
        None if name.is_empty() => errors.required(path, "name must not be empty"),
        None => errors.invalid(path, name, "must include a domain"),
        Some(_) => qualified(name, path, errors),
    }
}

/// `id` or `domain/id`.
fn qualified(name: &str, path: &Path, errors: &mut Errors) {
    let (domain, id) = name.rsplit_once('/').unwrap_or(("", name));
    if name.contains('/') {
        if domain.is_empty() {
            errors.required(path, "the domain must not be empty");
        } else {
            if domain.len() > DOMAIN_MAX {
                errors.too_long(path, DOMAIN_MAX);
            }
            rules::subdomain(domain, path, errors);
        }
    }
    if id.is_empty() {
        errors.required(path, "the name must not be empty");
        return;
    }
    if id.len() > ID_MAX {
        errors.too_long(path, ID_MAX);
    }
    for message in validation::c_identifier(id) {
        errors.invalid(path, id, &message);
    }
}

pub fn check(device: &Value, path: &Path, per_device_nodes: bool, errors: &mut Errors) {
    match str_at(device, "name") {
        "" => errors.required(&path.field("name"), ""),
        name => rules::label(name, &path.field("name"), errors),
    }
    let (attributes, capacity) = (at(device, "attributes"), at(device, "capacity"));
    let count =
        [attributes, capacity].iter().filter_map(|m| m.as_object()).map(serde_json::Map::len).sum::<usize>();
    if count > ATTRIBUTES_MAX {
        let detail =
            format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        errors.invalid(path, count, &detail);
    }
    for (name, value) in entries_at(device, "attributes") {
        let here = path.field("attributes").key(name);
        qualified(name, &here, errors);
        attribute(value, &here, errors);
    }
    for (name, value) in entries_at(device, "capacity") {
        let here = path.field("capacity").key(name);
        qualified(name, &here, errors);
        if let Some(mistake) = rules::quantity_mistake(at(value, "value")) {
            errors.invalid(&here.field("value"), at(value, "value").clone(), &mistake);
        }
    }
    nodes(device, path, per_device_nodes, errors);
    each(list_at(device, "taints"), TAINTS_MAX, &path.field("taints"), no_key, errors, &mut taint);
}

fn attribute(value: &Value, path: &Path, errors: &mut Errors) {
    const KINDS: [&str; 8] = ["bool", "bools", "int", "ints", "string", "strings", "version", "versions"];
    match KINDS.iter().filter(|kind| has(value, kind)).count() {
        0 => errors.required(path, "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, value.clone(), "exactly one value must be specified"),
    }
    let singles = ["string", "version"].map(|kind| (path.field(kind), str_at(value, kind)));
    let lists = ["strings", "versions"].iter().flat_map(|kind| {
        let here = path.field(kind);
        strings_at(value, kind).enumerate().map(move |(i, item)| (here.index(i), item))
    });
    for (here, item) in singles.into_iter().chain(lists) {
        if item.len() > VALUE_MAX {
            errors.too_long(&here, VALUE_MAX);
        }
    }
    let version = str_at(value, "version");
    if has(value, "version") && !is_semver(version) {
        let detail = "must be a string compatible with semver.org spec 2.0.0";
        errors.invalid(&path.field("version"), version, detail);
    }
}

fn is_semver(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = core.split('.').collect();
    parts.len() == 3
        && parts.iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_digit())
                && (part.len() == 1 || !part.starts_with('0'))
        })
}

/// Where the device is: on the nodes of its slice, unless the slice leaves that to its devices.
fn nodes(device: &Value, path: &Path, per_device: bool, errors: &mut Errors) {
    let given: Vec<&str> =
        ["nodeName", "nodeSelector", "allNodes"].into_iter().filter(|f| has(device, f)).collect();
    if !per_device {
        for field in given {
            errors.invalid(
                &path.field(field),
                at(device, field).clone(),
                "must not be set if `spec.perDeviceNodeSelection` is not true",
            );
        }
        return;
    }
    match given.len() {
        0 => errors.required(path, "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice"),
        1 => {}
        _ => errors.invalid(path, json!(given), "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice"),
    }
}

fn taint(taint: &Value, path: &Path, errors: &mut Errors) {
    rules::qualified_name(str_at(taint, "key"), &path.field("key"), errors);
    rules::label_value(str_at(taint, "value"), &path.field("value"), errors);
    rules::one_of(taint, "effect", &["NoExecute", "NoSchedule", "None"], path, errors);
}
