//! What a claim asks for: `spec.devices` of claims and templates.

use super::*;

/// Upstream's numbers.
const REQUESTS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
const CONFIG_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;

fn exact_default(request: &mut Value) {
    default_str(request, "allocationMode", "ExactCount");
    if str_at(request, "allocationMode") == "ExactCount" {
        default_number(request, "count", 1);
    }
    each_mut(request, "tolerations").for_each(|toleration| default_str(toleration, "operator", "Equal"));
}

/// Of the spec of a claim.
pub fn defaults(spec: &mut Value) {
    for request in each_mut(spec, "devices.requests") {
        if let Some(exactly) = at_mut(request, "exactly") {
            exact_default(exactly);
        }
        each_mut(request, "firstAvailable").for_each(exact_default);
    }
}

/// Names that constraints, configurations and results may refer to: `request` and `request/alternative`.
pub fn names(spec: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for request in list_at(spec, "devices.requests") {
        let name = str_at(request, "name");
        names.insert(name.to_owned());
        for alternative in list_at(request, "firstAvailable") {
            names.insert(format!("{name}/{}", str_at(alternative, "name")));
        }
    }
    names
}

/// Where the first request for an administrator's access stands; upstream names the path so for templates too.
pub fn asks_for_admin_access(spec: &Value) -> Option<Path> {
    let asks = |request: &Value| bool_at(request, "exactly.adminAccess");
    let first = list_at(spec, "devices.requests").iter().position(asks)?;
    let requests = Path::root("spec").field("devices").field("requests");
    Some(requests.index(first).field("adminAccess"))
}

pub fn check(spec: &Value, path: &Path, errors: &mut Errors) {
    let (devices, path) = (at(spec, "devices"), path.field("devices"));
    let names = names(spec);
    each(list_at(devices, "requests"), REQUESTS_MAX, &path.field("requests"), own_name, errors, &mut request);
    let constraints = list_at(devices, "constraints");
    each(
        constraints,
        CONSTRAINTS_MAX,
        &path.field("constraints"),
        no_key,
        errors,
        &mut |constraint, here, errors| {
            references(constraint, &names, here, errors);
            let detail = match (has(constraint, "matchAttribute"), has(constraint, "distinctAttribute")) {
                (false, false) => "",
                (true, true) => ", but multiple fields are set",
                _ => return attributes(constraint, here, errors),
            };
            let detail =
                format!(r#"exactly one of "matchAttribute" or "distinctAttribute" is required{detail}"#);
            match has(constraint, "matchAttribute") {
                true => errors.invalid(here, Value::Null, &detail),
                false => errors.required(here, &detail),
            }
        },
    );
    let config = list_at(devices, "config");
    each(config, CONFIG_MAX, &path.field("config"), no_key, errors, &mut |config, here, errors| {
        references(config, &names, here, errors);
        configuration(config, here, errors);
    });
}

fn attributes(constraint: &Value, path: &Path, errors: &mut Errors) {
    for field in ["matchAttribute", "distinctAttribute"] {
        if has(constraint, field) {
            devices::full_name(str_at(constraint, field), &path.field(field), errors);
        }
    }
}

/// `requests` of constraints and configurations.
pub fn references(holder: &Value, names: &BTreeSet<String>, path: &Path, errors: &mut Errors) {
    let here = path.field("requests");
    each(list_at(holder, "requests"), REQUESTS_MAX, &here, text, errors, &mut |name, here, errors| {
        reference(name.as_str().unwrap_or_default(), names, here, errors);
    });
}

/// `request` or `request/alternative`.
pub fn reference(name: &str, names: &BTreeSet<String>, path: &Path, errors: &mut Errors) {
    let few = name.matches('/').count() < 2;
    if few {
        name.split('/').for_each(|part| rules::label(part, path, errors));
    }
    if !few || !names.contains(name) {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated \
                      by '/'";
        errors.invalid(path, name, detail);
    }
}

fn request(request: &Value, path: &Path, errors: &mut Errors) {
    rules::label(str_at(request, "name"), &path.field("name"), errors);
    let alternatives = list_at(request, "firstAvailable");
    match (has(request, "exactly"), !alternatives.is_empty()) {
        (false, false) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, Value::Null, detail);
        }
        (true, false) => exact(at(request, "exactly"), &path.field("exactly"), errors),
        (false, true) => {
            let here = path.field("firstAvailable");
            each(
                alternatives,
                ALTERNATIVES_MAX,
                &here,
                own_name,
                errors,
                &mut |alternative, here, errors| {
                    rules::label(str_at(alternative, "name"), &here.field("name"), errors);
                    exact(alternative, here, errors);
                },
            );
        }
    }
}

fn exact(request: &Value, path: &Path, errors: &mut Errors) {
    match str_at(request, "deviceClassName") {
        "" => errors.required(&path.field("deviceClassName"), ""),
        class => rules::subdomain(class, &path.field("deviceClassName"), errors),
    }
    selectors(request, path, errors);
    let count = i64_at(request, "count").unwrap_or(0);
    let here = path.field("count");
    match str_at(request, "allocationMode") {
        "All" if count != 0 => {
            errors.invalid(&here, count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => errors.invalid(&here, count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => errors.not_supported(&path.field("allocationMode"), other, &["All", "ExactCount"]),
    }
    tolerations(request, path, errors);
}

/// Of requests and of what was allocated for them.
pub fn tolerations(holder: &Value, path: &Path, errors: &mut Errors) {
    /// Upstream's number.
    const MAX: usize = 16;
    let list = list_at(holder, "tolerations");
    each(list, MAX, &path.field("tolerations"), no_key, errors, &mut toleration);
}

fn toleration(toleration: &Value, path: &Path, errors: &mut Errors) {
    let key = str_at(toleration, "key");
    if !key.is_empty() {
        rules::qualified_name(key, &path.field("key"), errors);
    }
    let value = str_at(toleration, "value");
    match str_at(toleration, "operator") {
        "" => errors.required(&path.field("operator"), ""),
        "Exists" if !value.is_empty() => {
            errors.invalid(&path.field("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => rules::label_value(value, &path.field("value"), errors),
        other => errors.not_supported(&path.field("operator"), other, &["Equal", "Exists"]),
    }
    rules::one_of_if_set(toleration, "effect", devices::EFFECTS, path, errors);
}
