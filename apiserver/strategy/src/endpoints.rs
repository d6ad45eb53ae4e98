//! Endpoints and EndpointSlices.

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, TableConvertor, UpdateStrategy, rules,
    table,
};
use crate::Facts;
use coracle_api::validation::{self, AddressMistake};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

pub struct Endpoints;
pub struct EndpointSlices;

/// Upstream's limits of what one slice, and one endpoint in it, has.
const MAX_ENDPOINTS: usize = 1000;
const MAX_PORTS: usize = 20_000;
const MAX_ADDRESSES: usize = 100;
const MAX_HINTS: usize = 8;
/// Entries that a cell shows before it says how many more there are.
const SHOWN: usize = 3;

impl ResourceFacts for Endpoints {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for Endpoints {
    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut found = Vec::new();
        for (i, subset) in list_at(new, "subsets").iter().enumerate() {
            for field in ["addresses", "notReadyAddresses"] {
                let path = Path::root("subsets").index(i).field(field);
                let addresses = list_at(subset, field).iter().enumerate();
                found.extend(addresses.filter_map(|(j, address)| {
                    rules::ip_warning(str_at(address, "ip"), &path.index(j).field("ip"))
                }));
            }
        }
        found
    }

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
                    named_address(address, &path.field(field).index(j), errors);
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
                app_protocol(port, &here, errors);
            }
        }
    }
}

impl UpdateStrategy for Endpoints {
    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl TableConvertor for Endpoints {
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

crate::usual!(Endpoints: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn named_address(address: &Value, path: &Path, errors: &mut Errors) {
    let ip = str_at(address, "ip");
    rules::ip(ip, &path.field("ip"), errors);
    if let Some(AddressMistake::Unreadable(_)) = validation::ip(ip) {
        errors.invalid(&path.field("ip"), ip, "must be a valid IP address");
    }
    rules::not_special(ip, &path.field("ip"), errors);
    let host = str_at(address, "hostname");
    if !host.is_empty() {
        rules::label(host, &path.field("hostname"), errors);
    }
    if has(address, "nodeName") {
        rules::subdomain(str_at(address, "nodeName"), &path.field("nodeName"), errors);
    }
}

fn app_protocol(port: &Value, path: &Path, errors: &mut Errors) {
    if has(port, "appProtocol") {
        rules::qualified_name(str_at(port, "appProtocol"), &path.field("appProtocol"), errors);
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

impl ResourceFacts for EndpointSlices {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for EndpointSlices {
    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        if str_at(new, "addressType") == "FQDN" {
            return vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()];
        }
        let mut found = Vec::new();
        for (i, endpoint) in list_at(new, "endpoints").iter().enumerate() {
            let path = Path::root("endpoints").index(i).field("addresses");
            let addresses = strings_at(endpoint, "addresses").enumerate();
            found.extend(addresses.filter_map(|(j, ip)| rules::ip_warning(ip, &path.index(j))));
        }
        found
    }

    fn defaults(&self, object: &mut Object) {
        for port in each_mut(object, "ports") {
            default(port, "name", "");
            default(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::one_of(object, "addressType", &["FQDN", "IPv4", "IPv6"], &Path::root(""), errors);
        let (endpoints, ports) = (list_at(object, "endpoints"), list_at(object, "ports"));
        at_most(endpoints.len(), MAX_ENDPOINTS, &Path::root("endpoints"), errors);
        at_most(ports.len(), MAX_PORTS, &Path::root("ports"), errors);
        for (i, one) in endpoints.iter().enumerate() {
            endpoint(one, str_at(object, "addressType"), &Path::root("endpoints").index(i), errors);
        }
        let mut names = HashSet::new();
        for (i, port) in ports.iter().enumerate() {
            let path = Path::root("ports").index(i);
            rules::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
            app_protocol(port, &path, errors);
            let name = str_at(port, "name");
            if !name.is_empty() {
                rules::label(name, &path.field("name"), errors);
            }
            if !names.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
    }
}

impl UpdateStrategy for EndpointSlices {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["addressType"], &mut Errors(errors));
    }

    /// Everything but the metadata counts, and the labels.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        let labels = |object| at(object, "metadata.labels");
        ["addressType", "endpoints", "ports"].iter().any(|f| at(new, f) != at(old, f))
            || labels(new) != labels(old)
    }
}

impl TableConvertor for EndpointSlices {
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
}

impl SelectableFields for EndpointSlices {
    fn fields(&self, _object: &Object) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

crate::usual!(EndpointSlices: StatusStrategy, DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

fn at_most(count: usize, limit: usize, path: &Path, errors: &mut Errors) {
    if count > limit {
        errors.too_many(path, count, limit);
    }
}

fn endpoint(endpoint: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let here = path.field("addresses");
    let addresses = list_at(endpoint, "addresses");
    if addresses.is_empty() {
        errors.required(&here, "must contain at least 1 address");
    }
    at_most(addresses.len(), MAX_ADDRESSES, &here, errors);
    for (i, address) in strings_at(endpoint, "addresses").enumerate() {
        self::address(address, kind, &here.index(i), errors);
    }
    for field in ["hostname", "zone"] {
        let text = str_at(endpoint, field);
        match (has(endpoint, field), field) {
            (true, "hostname") => rules::label(text, &path.field(field), errors),
            (true, _) => rules::label_value(text, &path.field(field), errors),
            _ => {}
        }
    }
    if has(endpoint, "nodeName") {
        rules::subdomain(str_at(endpoint, "nodeName"), &path.field("nodeName"), errors);
    }
    for field in ["forZones", "forNodes"] {
        let (hints, here) = (list_at(at(endpoint, "hints"), field), path.field("hints").field(field));
        at_most(hints.len(), MAX_HINTS, &here, errors);
        let mut seen = HashSet::new();
        for (i, hint) in hints.iter().enumerate() {
            let name = str_at(hint, "name");
            if !seen.insert(name) {
                errors.duplicate(&here.index(i).field("name"), name);
            }
            match field {
                "forZones" => rules::label_value(name, &here.index(i).field("name"), errors),
                _ => rules::subdomain(name, &here.index(i).field("name"), errors),
            }
        }
    }
}

fn address(address: &str, kind: &str, path: &Path, errors: &mut Errors) {
    match (kind, address.parse::<IpAddr>()) {
        ("IPv4", Ok(IpAddr::V4(_))) | ("IPv6", Ok(IpAddr::V6(_))) => {
            rules::not_special(address, path, errors)
        }
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
    use crate::testing::errors;
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

    #[test]
    fn addresses_that_lead_nowhere() {
        let old = |ip: &str| errors(&Endpoints, json!({ "subsets": [{ "addresses": [{ "ip": ip }] }] }));
        assert!(old("10.0.0.1").is_empty());
        let at = "subsets[0].addresses[0].ip: Invalid value";
        for (ip, want) in [
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("169.254.169.254", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ] {
            assert_eq!(old(ip), [format!("{at}: \"{ip}\": {want}")]);
            let kind = if ip.contains(':') { "IPv6" } else { "IPv4" };
            let slice = json!({ "addressType": kind, "endpoints": [{ "addresses": [ip] }] });
            let at = "endpoints[0].addresses[0]: Invalid value";
            assert_eq!(errors(&EndpointSlices, slice), [format!("{at}: \"{ip}\": {want}")]);
        }
        let mapped = json!({ "addressType": "IPv6", "endpoints": [{ "addresses": ["::ffff:127.0.0.1"] }] });
        assert!(!errors(&EndpointSlices, mapped).is_empty(), "loopback in the clothes of IPv6");
    }

    #[test]
    fn slices_have_limits() {
        let slice = |patch: Value| {
            let mut object = json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }] });
            crate::testing::merge(&mut object, &patch);
            errors(&EndpointSlices, object)
        };
        assert!(slice(json!({})).is_empty());
        let many = vec![json!({ "addresses": ["10.0.0.1"] }); MAX_ENDPOINTS + 1];
        assert_eq!(
            slice(json!({ "endpoints": many })),
            ["endpoints: Too many: 1001: must have at most 1000 items"]
        );
        assert_eq!(
            slice(json!({ "ports": [{ "name": "a", "port": 1 }, { "name": "a", "port": 2 }] })),
            ["ports[1].name: Duplicate value: \"a\""]
        );
        let zones = json!([{ "name": "a" }, { "name": "a" }]);
        assert_eq!(
            slice(json!({ "endpoints": [{ "addresses": ["10.0.0.1"], "hostname": "A", "hints": { "forZones": zones } }] })).len(),
            2
        );
    }
}
