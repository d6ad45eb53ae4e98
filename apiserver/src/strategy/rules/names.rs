//! Names, ports and addresses.

use super::super::value::*;
use serde_json::Value;
use std::net::IpAddr;

const LABEL_FORM: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_1035_FORM: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_FORM: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY_FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENV_FORM: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| inner(b) || b == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// An RFC 1123 label, as container names are.
pub fn label(text: &str, path: &Path, errors: &mut Errors) {
    if text.len() > 63 {
        errors.invalid(path, text, &too_long(63));
    }
    if !is_label(text) {
        errors.invalid(path, text, LABEL_FORM);
    }
}

/// An RFC 1123 subdomain, as most names of objects are.
pub fn subdomain(text: &str, path: &Path, errors: &mut Errors) {
    if text.len() > 253 {
        errors.invalid(path, text, &too_long(253));
    }
    if !text.split('.').all(is_label) {
        errors.invalid(path, text, SUBDOMAIN_FORM);
    }
}

/// An RFC 1035 label, as names of Services were before they became RFC 1123 labels.
pub fn label_1035(text: &str, path: &Path, errors: &mut Errors) {
    if text.len() > 63 {
        errors.invalid(path, text, &too_long(63));
    }
    if !is_label(text) || !text.bytes().next().is_some_and(|b| b.is_ascii_lowercase()) {
        errors.invalid(path, text, NAME_1035_FORM);
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// A key of a label: a name, with an optional DNS prefix.
pub fn qualified_name(text: &str, path: &Path, errors: &mut Errors) {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    match prefix {
        Some("") => errors.invalid(path, text, "prefix part must be non-empty"),
        Some(prefix) if !is_subdomain(prefix) => {
            errors.invalid(path, text, &format!("prefix part {SUBDOMAIN_FORM}"));
        }
        _ => {}
    }
    if name.is_empty() {
        errors.invalid(path, text, "name part must be non-empty");
    } else if name.len() > 63 {
        errors.invalid(path, text, &format!("name part {}", too_long(63)));
    }
    if !is_word(name) {
        errors.invalid(path, text, QUALIFIED_FORM);
    }
}

pub fn label_value(text: &str, path: &Path, errors: &mut Errors) {
    if text.len() > 63 {
        errors.invalid(path, text, &too_long(63));
    }
    if !text.is_empty() && !is_word(text) {
        errors.invalid(path, text, VALUE_FORM);
    }
}

/// A map of labels; errors stand at the map itself.
pub fn labels(map: &Value, path: &Path, errors: &mut Errors) {
    for (key, value) in map.as_object().into_iter().flatten() {
        qualified_name(key, path, errors);
        label_value(value.as_str().unwrap_or_default(), path, errors);
    }
}

/// A key of a ConfigMap or Secret.
pub fn config_key(key: &str, path: &Path, errors: &mut Errors) {
    if key.len() > 253 {
        errors.invalid(path, key, &too_long(253));
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        errors.invalid(path, key, CONFIG_KEY_FORM);
    }
    if key == "." || key == ".." {
        errors.invalid(path, key, &format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        errors.invalid(path, key, "must not start with '..'");
    }
}

pub fn env_name(name: &str, path: &Path, errors: &mut Errors) {
    if !name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        errors.invalid(path, name, ENV_FORM);
    }
}

pub fn ip(text: &str, path: &Path, errors: &mut Errors) {
    if text.parse::<IpAddr>().is_err() {
        errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}

pub fn cidr(text: &str, path: &Path, errors: &mut Errors) {
    if text.parse::<ipnet::IpNet>().is_err() {
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
}

pub fn port(number: i64, path: &Path, errors: &mut Errors) {
    if !(1..=65535).contains(&number) {
        errors.invalid(path, number, "must be between 1 and 65535, inclusive");
    }
}

/// The name of a container's port: an IANA service name.
pub fn port_name(name: &str, path: &Path, errors: &mut Errors) {
    let mut check = |bad: bool, detail: &str| {
        if bad {
            errors.invalid(path, name, detail);
        }
    };
    check(name.len() > 15, "must be no more than 15 characters");
    let charset = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    check(
        !name.bytes().all(charset),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(!name.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    check(name.contains("--"), "must not contain consecutive hyphens");
    check(name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen");
}

/// A port that is given by number or by the name of a container's port.
pub fn int_or_name_port(value: &Value, path: &Path, errors: &mut Errors) {
    match value {
        Value::String(name) => port_name(name, path, errors),
        other => port(other.as_i64().unwrap_or(0), path, errors),
    }
}
