//! The row of a Service in `kubectl get services`.

use super::super::table::{self, cell_or_none, labels};
use super::*;

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Type", "How the service is reached"),
    table::string("Cluster-IP", "Address inside the cluster"),
    table::string("External-IP", "Addresses outside the cluster"),
    table::string("Port(s)", "Ports, with node ports and protocols"),
    table::AGE,
    table::WIDE_SELECTOR,
];

pub fn row(service: &Object, age: String) -> Vec<Value> {
    vec![
        name(service).into(),
        kind(service).into(),
        cell_or_none(strings_at(service, "spec.clusterIPs").next().unwrap_or_default()),
        external(service).into(),
        cell_or_none(&ports(service)),
        age.into(),
        labels(at(service, "spec.selector")).into(),
    ]
}

fn external(service: &Object) -> String {
    let listed: Vec<&str> = strings_at(service, "spec.externalIPs").collect();
    match kind(service) {
        "ExternalName" => str_at(service, "spec.externalName").to_owned(),
        "LoadBalancer" => {
            let balanced = super::super::rules::addresses(service).into_iter();
            let all: Vec<&str> = balanced.chain(listed).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if listed.is_empty() => "<none>".to_owned(),
        _ => listed.join(","),
    }
}

fn ports(service: &Object) -> String {
    let one = |port: &Value| {
        let (number, protocol) = (i64_at(port, "port").unwrap_or(0), str_at(port, "protocol"));
        match i64_at(port, "nodePort") {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    list_at(service, "spec.ports").iter().map(one).collect::<Vec<_>>().join(",")
}
