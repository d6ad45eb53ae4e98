//! Devices of a ResourceSlice: attributes, capacities, taints.

use super::super::pods::validate::node_selector;
use super::*;
use coracle_cel::devices::{ID_MAX, NAMES_MAX, VALUE_MAX};

/// Upstream's numbers: taints of one device, conditions of binding, sets of counters that it draws on, counters of one set.
const TAINTS_MAX: usize = 16;
const CONDITIONS_MAX: usize = 4;
const CONSUMED_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;

/// Of taints and tolerations.
pub const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// `domain/id`, both needed.
pub fn full_name(name: &str, path: &Path, errors: &mut Errors) {
    qualified(name, path, errors);
    if !name.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// `id` or `domain/id`.
pub fn qualified(name: &str, path: &Path, errors: &mut Errors) {
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            match domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                _ => driver(domain, path, errors),
            }
            match id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                _ => identifier(id, path, errors),
            }
        }
        _ => errors.invalid(path, name, "must not contain more than one slash"),
    }
}

fn identifier(id: &str, path: &Path, errors: &mut Errors) {
    if id.len() > ID_MAX {
        errors.too_long(path, ID_MAX);
    }
    for message in validation::c_identifier(id) {
        errors.invalid(path, id, &message);
    }
}

/// A device of a slice. `old` is the device of that name in the slice that is updated.
pub fn check(device: &Value, old: Option<&Value>, path: &Path, per_device_nodes: bool, errors: &mut Errors) {
    rules::label(str_at(device, "name"), &path.field("name"), errors);
    let (attributes, capacities) = (at(device, "attributes"), at(device, "capacity"));
    let count = [attributes, capacities]
        .iter()
        .filter_map(|m| m.as_object())
        .map(serde_json::Map::len)
        .sum::<usize>();
    if count > NAMES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {NAMES_MAX}");
        errors.invalid(path, count, &detail);
    }
    for (name, value) in entries_at(device, "attributes") {
        let here = path.field("attributes").key(name);
        qualified(name, &here, errors);
        attribute(value, &here, errors);
    }
    let as_before = |field: &str| old.is_some_and(|old| at(old, field) == at(device, field));
    if !as_before("capacity") {
        capacity::check(device, &path.field("capacity"), errors);
    }
    if !as_before("taints") {
        each(list_at(device, "taints"), TAINTS_MAX, &path.field("taints"), no_key, errors, &mut taint);
    }
    let (consumed, here) = (list_at(device, "consumesCounters"), path.field("consumesCounters"));
    each(consumed, CONSUMED_MAX, &here, set_name, errors, &mut |item, here, errors| {
        counters(item, "counterSet", here, errors);
    });
    nodes(device, path, per_device_nodes, errors);
    binding(device, path, errors);
}

fn set_name(consumed: &Value) -> Option<&str> {
    consumed.get("counterSet").and_then(Value::as_str)
}

/// A set of counters, or what a device takes of one; `name` is the field that names it.
pub fn counters(set: &Value, name: &str, path: &Path, errors: &mut Errors) {
    match str_at(set, name) {
        "" => errors.required(&path.field(name), ""),
        text => rules::label(text, &path.field(name), errors),
    }
    let here = path.field("counters");
    match entries_at(set, "counters").count() {
        0 => errors.required(&here, ""),
        n if n > COUNTERS_MAX => errors.too_many(&here, n, COUNTERS_MAX),
        _ => {
            for (counter, value) in entries_at(set, "counters") {
                let here = here.key(counter);
                rules::label(counter, &here, errors);
                if let Some(mistake) = rules::quantity_mistake(at(value, "value")) {
                    errors.invalid(&here.field("value"), at(value, "value").clone(), &mistake);
                }
            }
        }
    }
}

/// What has to become true, or must not, before a pod is bound: of a device or of what was allocated.
pub fn binding(holder: &Value, path: &Path, errors: &mut Errors) {
    const GOOD: &str = "bindingConditions";
    const BAD: &str = "bindingFailureConditions";
    for field in [GOOD, BAD] {
        let here = path.field(field);
        each(list_at(holder, field), CONDITIONS_MAX, &here, text, errors, &mut |condition, here, errors| {
            rules::qualified_name(condition.as_str().unwrap_or_default(), here, errors);
        });
    }
    let (good, bad) = (list_at(holder, GOOD), list_at(holder, BAD));
    for (i, condition) in bad.iter().enumerate().filter(|(_, condition)| good.contains(condition)) {
        let detail = "bindingFailureConditions must not overlap with bindingConditions";
        errors.invalid(&path.field(BAD).index(i), condition.clone(), detail);
    }
    for (field, other, missing) in
        [(GOOD, BAD, good.is_empty() && !bad.is_empty()), (BAD, GOOD, bad.is_empty() && !good.is_empty())]
    {
        if missing {
            errors.invalid(&path.field(field), json!([]), &format!("{field} are required to use {other}"));
        }
    }
}

fn attribute(value: &Value, path: &Path, errors: &mut Errors) {
    const KINDS: [&str; 4] = ["bool", "int", "string", "version"];
    for kind in ["string", "version"] {
        if str_at(value, kind).len() > VALUE_MAX {
            errors.too_long(&path.field(kind), VALUE_MAX);
        }
    }
    let version = str_at(value, "version");
    if has(value, "version") && !is_semver(version) {
        let detail = "must be a string compatible with semver.org spec 2.0.0";
        errors.invalid(&path.field("version"), version, detail);
    }
    match KINDS.iter().filter(|kind| has(value, kind)).count() {
        0 => errors.invalid(path, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(path, value.clone(), "exactly one value must be specified"),
    }
}

/// <https://semver.org/spec/v2.0.0.html>
fn is_semver(version: &str) -> bool {
    let (version, build) = match version.split_once('+') {
        Some((version, build)) => (version, Some(build)),
        None => (version, None),
    };
    let (core, pre) = match version.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (version, None),
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let is_number =
        |part: &str| is_word(part) && is_digits(part) && (part.len() == 1 || !part.starts_with('0'));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(|p| is_word(p) && (!is_digits(p) || is_number(p))))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// Where the device is: on the nodes of its slice, unless the slice leaves that to its devices.
fn nodes(device: &Value, path: &Path, per_device: bool, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` \
                       is set to true in the ResourceSlice spec";
    const PLACE: Place =
        Place { flags: &["allNodes"], unnamed: "must not be empty", none: ONE, several: ONE };
    if per_device {
        PLACE.check(device, path, errors);
    } else if PLACE.fields().any(|field| has(device, field)) {
        let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                      true in the ResourceSlice spec";
        errors.invalid(path, Value::Null, detail);
    }
}

/// How a slice or a device says where it is: by exactly one of `nodeName`, `nodeSelector` and some flags.
pub struct Place {
    pub flags: &'static [&'static str],
    /// What is said of an empty `nodeName`, of none of the fields, and of several.
    pub unnamed: &'static str,
    pub none: &'static str,
    pub several: &'static str,
}

impl Place {
    fn fields(&self) -> impl Iterator<Item = &'static str> {
        ["nodeName", "nodeSelector"].into_iter().chain(self.flags.iter().copied())
    }

    pub fn check(&self, holder: &Value, path: &Path, errors: &mut Errors) {
        if has(holder, "nodeName") {
            let here = path.field("nodeName");
            match str_at(holder, "nodeName") {
                "" => errors.invalid(&here, "", self.unnamed),
                node => rules::subdomain(node, &here, errors),
            }
        }
        if has(holder, "nodeSelector") {
            node_selector(at(holder, "nodeSelector"), &path.field("nodeSelector"), errors);
        }
        for flag in self.flags.iter().filter(|flag| *at(holder, flag) == false) {
            errors.invalid(&path.field(flag), false, "must be either unset or set to true");
        }
        match &self.fields().filter(|field| says(holder, field)).collect::<Vec<_>>()[..] {
            [] => errors.required(path, self.none),
            [_] => {}
            several => errors.invalid(path, listed(several), self.several),
        }
    }
}

/// Whether a field says something: an empty name and `false` do not.
fn says(holder: &Value, field: &str) -> bool {
    has(holder, field) && !matches!(at(holder, field).as_str(), Some("")) && *at(holder, field) != false
}

/// As upstream shows several fields: {`a`, `b`}
fn listed(fields: &[&str]) -> String {
    format!("{{{}}}", fields.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", "))
}

fn taint(taint: &Value, path: &Path, errors: &mut Errors) {
    rules::qualified_name(str_at(taint, "key"), &path.field("key"), errors);
    rules::label_value(str_at(taint, "value"), &path.field("value"), errors);
    rules::one_of(taint, "effect", EFFECTS, path, errors);
}
