//! Where load balancers say they can be reached, in the status of Services and Ingresses.

use super::super::value::*;
use super::{ip, one_of, subdomain};
use serde_json::Value;
use std::collections::BTreeSet;

/// `status.loadBalancer` of a Service or an Ingress; only the former says how an address is to be taken.
pub fn load_balancer(status: &Value, has_modes: bool, path: &Path, errors: &mut Errors) {
    for (i, ingress) in list_at(status, "ingress").iter().enumerate() {
        let here = path.field("ingress").index(i);
        let (address, host) = (str_at(ingress, "ip"), str_at(ingress, "hostname"));
        if !address.is_empty() {
            ip(address, &here.field("ip"), errors);
        }
        if has_modes && has(ingress, "ipMode") {
            if address.is_empty() {
                errors.forbidden(&here.field("ipMode"), "may not be specified when `ip` is not set");
            } else {
                one_of(ingress, "ipMode", &["Proxy", "VIP"], &here, errors);
            }
        }
        if !host.is_empty() {
            subdomain(host, &here.field("hostname"), errors);
            if host.parse::<std::net::IpAddr>().is_ok() {
                errors.invalid(&here.field("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// The addresses of `status.loadBalancer`, or names where there are none, as a table shows them.
pub fn addresses(object: &Value) -> BTreeSet<&str> {
    let address = |ingress| match str_at(ingress, "ip") {
        "" => str_at(ingress, "hostname"),
        ip => ip,
    };
    list_at(object, "status.loadBalancer.ingress")
        .iter()
        .map(address)
        .filter(|text| !text.is_empty())
        .collect()
}
