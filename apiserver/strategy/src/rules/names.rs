//! Names, ports and addresses: the checks of [`coracle_api::validation`], each message an error at its path.

use super::super::value::*;
use coracle_api::validation::AddressMistake;
use coracle_api::{FieldError, Origin, validation};
use serde_json::Value;

fn each(messages: Vec<String>, value: impl Into<Value> + Clone, path: &Path, errors: &mut Errors) {
    for message in messages {
        errors.invalid(path, value.clone(), &message);
    }
}

/// An RFC 1123 label, as container names are.
pub fn label(text: &str, path: &Path, errors: &mut Errors) {
    each(validation::dns1123_label(text), text, path, errors);
}

/// An RFC 1123 subdomain, as most names of objects are.
pub fn subdomain(text: &str, path: &Path, errors: &mut Errors) {
    each(validation::dns1123_subdomain(text), text, path, errors);
}

/// A domain that a pod's names are looked up in.
pub fn search_domain(text: &str, path: &Path, errors: &mut Errors) {
    each(validation::dns1123_subdomain_with_underscore(text), text, path, errors);
}

/// A name that can stand in a URL, and is there.
pub fn path_segment(text: &str, path: &Path, errors: &mut Errors) {
    if text.is_empty() {
        return errors.required(path, "");
    }
    each(validation::path_segment_name(text), text, path, errors);
}

/// A key of a label: a name, with an optional DNS prefix.
pub fn qualified_name(text: &str, path: &Path, errors: &mut Errors) {
    each(validation::qualified_name(text), text, path, errors);
}

pub fn label_value(text: &str, path: &Path, errors: &mut Errors) {
    each(validation::label_value(text), text, path, errors);
}

/// A map of labels; errors stand at the map itself.
pub fn labels(map: &Value, path: &Path, errors: &mut Errors) {
    for (key, value) in map.as_object().into_iter().flatten() {
        qualified_name(key, path, errors);
        label_value(value.as_str().unwrap_or_default(), path, errors);
    }
}

/// A map of annotations; errors stand at the map itself.
pub fn annotations(map: &Value, path: &Path, errors: &mut Errors) {
    coracle_api::meta::validate_annotations(map, &path.to_string(), errors.0);
}

/// A key of a ConfigMap or Secret.
pub fn config_key(key: &str, path: &Path, errors: &mut Errors) {
    each(validation::config_map_key(key), key, path, errors);
}

pub fn env_name(name: &str, path: &Path, errors: &mut Errors) {
    each(validation::relaxed_env_var_name(name), name, path, errors);
}

pub fn header_name(name: &str, path: &Path, errors: &mut Errors) {
    each(validation::http_header_name(name), name, path, errors);
}

pub fn ip(text: &str, path: &Path, errors: &mut Errors) {
    address(validation::ip(text), text, path, errors);
}

fn address(mistake: Option<AddressMistake>, text: &str, path: &Path, errors: &mut Errors) {
    match mistake {
        None => {}
        Some(AddressMistake::Unreadable(detail)) => errors.invalid(path, text, detail),
        Some(AddressMistake::Form(detail)) => {
            let origin = Origin::AddressForm(text.to_owned());
            errors.with_origin(&origin, |errors| errors.invalid(path, text, detail));
        }
    }
}

/// An address that something outside of the cluster can be reached at.
pub fn not_special(text: &str, path: &Path, errors: &mut Errors) {
    use std::net::IpAddr;
    let Ok(ip) = text.parse::<IpAddr>().map(|ip| ip.to_canonical()) else { return };
    if ip.is_unspecified() {
        errors.invalid(path, text, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (local, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if local {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid(path, text, detail);
    }
}

/// On update: what is wrong with addresses only as they are written is forgiven where the old object has the same ones.
pub fn forgive_addresses(errors: &mut Vec<FieldError>, old: &Value) {
    errors.retain(|error| match &error.origin {
        Some(Origin::AddressForm(text)) => !strings(old).any(|was| was == text),
        _ => true,
    });
}

fn strings(value: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Value::String(text) => Box::new(std::iter::once(text.as_str())),
        Value::Array(items) => Box::new(items.iter().flat_map(strings)),
        Value::Object(fields) => Box::new(fields.values().flat_map(strings)),
        _ => Box::new(std::iter::empty()),
    }
}

pub fn cidr(text: &str, path: &Path, errors: &mut Errors) {
    address(validation::cidr(text), text, path, errors);
}

/// What a client is warned of that writes an IPv6 address in another than the canonical form.
pub fn ip_warning(text: &str, path: &Path) -> Option<String> {
    validation::ip_warning(text).map(|warning| format!("{path}: {warning}"))
}

pub fn cidr_warning(text: &str, path: &Path) -> Option<String> {
    validation::cidr_warning(text).map(|warning| format!("{path}: {warning}"))
}

pub fn port(number: i64, path: &Path, errors: &mut Errors) {
    each(validation::port_number(number), number, path, errors);
}

/// The name of a container's port: an IANA service name.
pub fn port_name(name: &str, path: &Path, errors: &mut Errors) {
    each(validation::port_name(name), name, path, errors);
}

/// A port that is given by number or by the name of a container's port.
pub fn int_or_name_port(value: &Value, path: &Path, errors: &mut Errors) {
    match value {
        Value::String(name) => port_name(name, path, errors),
        other => port(other.as_i64().unwrap_or(0), path, errors),
    }
}

/// Of the name of a new object that becomes (part of) a host's name: DNS has labels there, not domains.
pub fn name_warnings(object: &Value, used: &str) -> Vec<String> {
    let wrong = validation::dns1123_label(name(object));
    if wrong.is_empty() {
        return Vec::new();
    }
    let wrong = wrong.join(" ");
    vec![format!(
        "metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: [{wrong}]"
    )]
}
