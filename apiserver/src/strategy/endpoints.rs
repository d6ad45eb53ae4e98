//! Endpoints and EndpointSlices.

use super::value::*;
use super::{Column, Env, Strategy, rules, table};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;
use std::net::IpAddr;

pub struct Endpoints;
pub struct EndpointSlices;

/// Entries that a cell shows before it says how many more there are.
const SHOWN: usize = 3;

impl Strategy for Endpoints {
    fn defaults(&self, object: &mut Object) {
        for subset in each_mut(object, "subsets") {
            for port in each_mut(subset, "ports") {
                default_str(port, "protocol", "TCP");
            }
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        for (i, subset) in list_at(object, "subsets").iter().enumerate() {
            let path = Path::root("subsets").index(i);
            let (ready, unready) = (list_at(subset, "addresses"), list_at(subset, "notReadyAddresses"));
            if ready.is_empty() && unready.is_empty() {
                errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
            }
            for field in ["addresses", "notReadyAddresses"] {
                for (j, address) in list_at(subset, field).iter().enumerate() {
                    rules::ip(str_at(address, "ip"), &path.field(field).index(j).field("ip"), errors);
                }
            }
            let ports = list_at(subset, "ports");
            for (j, port) in ports.iter().enumerate() {
                let here = path.field("ports").index(j);
                match str_at(port, "name") {
                    "" if ports.len() > 1 => errors.required(&here.field("name"), ""),
                    "" => {}
                    name => rules::label(name, &here.field("name"), errors),
                }
                rules::port(i64_at(port, "port").unwrap_or(0), &here.field("port"), errors);
                rules::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &here, errors);
            }
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Endpoints", "Addresses and ports that take traffic"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let mut all = Vec::new();
        for subset in list_at(object, "subsets") {
            let addresses = || list_at(subset, "addresses").iter().map(|a| str_at(a, "ip"));
            let ports = list_at(subset, "ports");
            if ports.is_empty() {
                all.extend(addresses().map(str::to_owned));
            }
            for port in ports {
                let number = i64_at(port, "port").unwrap_or(0);
                all.extend(addresses().map(|ip| host_port(ip, number)));
            }
        }
        let none = list_at(object, "subsets").is_empty();
        let cell = if none { "<none>".to_owned() } else { first_few(&all) };
        vec![name(object).into(), cell.into(), table::age(object, now)]
    }
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn first_few(all: &[String]) -> String {
    let shown = all[..all.len().min(SHOWN)].join(",");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

impl Strategy for EndpointSlices {
    fn defaults(&self, object: &mut Object) {
        for port in each_mut(object, "ports") {
            default(port, "name", "");
            default(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::one_of(object, "addressType", &["FQDN", "IPv4", "IPv6"], &Path::root(""), errors);
        for (i, endpoint) in list_at(object, "endpoints").iter().enumerate() {
            let path = Path::root("endpoints").index(i).field("addresses");
            if list_at(endpoint, "addresses").is_empty() {
                errors.required(&path, "must contain at least 1 address");
            }
            for (j, address) in strings_at(endpoint, "addresses").enumerate() {
                self::address(address, str_at(object, "addressType"), &path.index(j), errors);
            }
        }
        for (i, port) in list_at(object, "ports").iter().enumerate() {
            let path = Path::root("ports").index(i);
            rules::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
            let name = str_at(port, "name");
            if !name.is_empty() {
                rules::label(name, &path.field("name"), errors);
            }
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["addressType"], &mut Errors(errors));
    }

    /// Everything but the metadata counts, and the labels.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        let labels = |object| at(object, "metadata.labels");
        ["addressType", "endpoints", "ports"].iter().any(|f| at(new, f) != at(old, f))
            || labels(new) != labels(old)
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("AddressType", "Family of the addresses"),
                table::string("Ports", "Ports that take traffic"),
                table::string("Endpoints", "Addresses that take traffic"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let port = |port: &Value| match (i64_at(port, "port"), port.get("name").and_then(Value::as_str)) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        };
        let ports: Vec<String> = list_at(object, "ports").iter().map(port).collect();
        let endpoints = list_at(object, "endpoints").iter();
        let addresses: Vec<String> =
            endpoints.flat_map(|e| strings_at(e, "addresses")).map(str::to_owned).collect();
        vec![
            name(object).into(),
            str_at(object, "addressType").into(),
            table::cell_or_unset(&first_few(&ports)),
            table::cell_or_unset(&first_few(&addresses)),
            table::age(object, now),
        ]
    }

    fn fields(&self, _object: &Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

fn address(address: &str, kind: &str, path: &Path, errors: &mut Errors) {
    match (kind, address.parse::<IpAddr>()) {
        ("IPv4", Ok(IpAddr::V4(_))) | ("IPv6", Ok(IpAddr::V6(_))) => {}
        ("IPv4", Ok(_)) => errors.invalid(path, address, "must be an IPv4 address"),
        ("IPv6", Ok(_)) => errors.invalid(path, address, "must be an IPv6 address"),
        ("IPv4" | "IPv6", Err(_)) => rules::ip(address, path, errors),
        ("FQDN", _) => rules::subdomain(address, path, errors),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows() {
        let now = Timestamp::UNIX_EPOCH;
        let addresses: Vec<Value> = (1..=4).map(|i| json!({ "ip": format!("10.0.0.{i}") })).collect();
        let object = json!({ "metadata": { "name": "e" }, "subsets": [{ "addresses": addresses, "ports": [{ "port": 80 }] }] });
        assert_eq!(Endpoints.row(&object, now)[1], "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...");
        assert_eq!(Endpoints.row(&json!({ "metadata": {} }), now)[1], "<none>");
        let slice = json!({ "metadata": { "name": "s" }, "addressType": "IPv4", "ports": [{ "port": 80 }],
            "endpoints": [{ "addresses": ["10.0.0.1"] }] });
        assert_eq!(EndpointSlices.row(&slice, now), ["s", "IPv4", "80", "10.0.0.1", "<unknown>"]);
        let empty = json!({ "metadata": { "name": "s" }, "addressType": "IPv4" });
        assert_eq!(EndpointSlices.row(&empty, now)[2..4], ["<unset>", "<unset>"]);
    }
}
