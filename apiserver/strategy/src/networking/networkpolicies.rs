//! Network policies.

use super::*;
use crate::Facts;
use ipnet::IpNet;

pub struct NetworkPolicies;

impl ResourceFacts for NetworkPolicies {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for NetworkPolicies {
    /// A policy is about incoming traffic, and about outgoing traffic where it has rules for it.
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "podSelector", json!({}));
        if list_at(spec, "policyTypes").is_empty() {
            let out = !list_at(spec, "egress").is_empty();
            set(spec, "policyTypes", if out { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
        }
        for direction in ["ingress", "egress"] {
            for rule in each_mut(spec, direction) {
                for port in each_mut(rule, "ports") {
                    default(port, "protocol", "TCP");
                }
            }
        }
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let (spec, path) = (&new["spec"], Path::root("spec"));
        let mut found = Vec::new();
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (i, rule) in list_at(spec, direction).iter().enumerate() {
                for (j, peer) in list_at(rule, peers).iter().enumerate() {
                    let here = path.field(direction).index(i).field(peers).index(j).field("ipBlock");
                    found.extend(rules::cidr_warning(str_at(peer, "ipBlock.cidr"), &here.field("cidr")));
                    let exceptions = strings_at(peer, "ipBlock.except").enumerate();
                    found.extend(exceptions.filter_map(|(k, except)| {
                        rules::cidr_warning(except, &here.field("except").index(k))
                    }));
                }
            }
        }
        found
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        rules::label_selector(at(spec, "podSelector"), &path.field("podSelector"), errors);
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            for (i, rule) in list_at(spec, direction).iter().enumerate() {
                let here = path.field(direction).index(i);
                for (j, port) in list_at(rule, "ports").iter().enumerate() {
                    self::port(port, &here.field("ports").index(j), errors);
                }
                for (j, peer) in list_at(rule, peers).iter().enumerate() {
                    self::peer(peer, &here.field(peers).index(j), errors);
                }
            }
        }
        if list_at(spec, "policyTypes").len() > 2 {
            let detail = "may not specify more than two policyTypes";
            return errors.invalid(&path.field("policyTypes"), at(spec, "policyTypes").clone(), detail);
        }
        for (i, kind) in strings_at(spec, "policyTypes").enumerate() {
            if !matches!(kind, "Ingress" | "Egress") {
                errors.not_supported(&path.field("policyTypes").index(i), kind, &["Ingress", "Egress"]);
            }
        }
    }
}

impl TableConvertor for NetworkPolicies {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("Pod-Selector", "Pods that the policy is about"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let selector = table::selector(at(object, "spec.podSelector"));
        vec![name(object).into(), selector.into(), table::age(object, now)]
    }
}

crate::usual!(NetworkPolicies: UpdateStrategy, StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn port(port: &Value, path: &Path, errors: &mut Errors) {
    let protocol = str_at(port, "protocol");
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        errors.not_supported(&path.field("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let (first, end, here) = (at(port, "port"), i64_at(port, "endPort"), path.field("endPort"));
    if let Some(end) = end {
        match first {
            Value::Null => errors.invalid(&here, end, "may not be specified when `port` is not specified"),
            Value::String(_) => errors.invalid(&here, end, "may not be specified when `port` is non-numeric"),
            first => {
                if let Some(first) = first.as_i64().filter(|first| end < *first) {
                    errors.invalid(&here, first, "must be greater than or equal to `port`");
                }
                rules::port(end, &here, errors);
            }
        }
    }
    if !first.is_null() {
        rules::int_or_name_port(first, &path.field("port"), errors);
    }
}

fn peer(peer: &Value, path: &Path, errors: &mut Errors) {
    for field in ["podSelector", "namespaceSelector"] {
        rules::label_selector(at(peer, field), &path.field(field), errors);
    }
    let selects = has(peer, "podSelector") || has(peer, "namespaceSelector");
    if !has(peer, "ipBlock") {
        if !selects {
            errors.required(path, "must specify a peer");
        }
        return;
    }
    if selects {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
    let here = path.field("ipBlock");
    let cidr = str_at(peer, "ipBlock.cidr");
    match cidr {
        "" => errors.required(&here.field("cidr"), ""),
        cidr => rules::cidr(cidr, &here.field("cidr"), errors),
    }
    let Ok(whole) = cidr.parse::<IpNet>() else { return };
    for (i, except) in strings_at(peer, "ipBlock.except").enumerate() {
        let here = here.field("except").index(i);
        rules::cidr(except, &here, errors);
        let Ok(part) = except.parse::<IpNet>() else { continue };
        if !whole.contains(&part.addr()) || whole.prefix_len() >= part.prefix_len() {
            errors.invalid(&here, except, "must be a strict subset of `cidr`");
        }
    }
}
