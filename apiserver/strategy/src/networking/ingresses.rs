//! Ingresses and their classes.

use super::*;
use crate::Facts;

pub struct Ingresses;
pub struct IngressClasses;

/// The annotation that named the class before there was a field, and upstream's limit of a controller's name.
const OLD_CLASS: &str = "kubernetes.io/ingress.class";
const CONTROLLER_MAX_BYTES: usize = 250;
const DEFAULT_MARK: &str = "ingressclass.kubernetes.io/is-default-class";

impl ResourceFacts for Ingresses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for Ingresses {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        if old.is_some() || at(new, "metadata.annotations").get(OLD_CLASS).is_none() {
            return Vec::new();
        }
        vec![format!("annotation {OLD_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead")]
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "loadBalancer": {} }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        if list_at(spec, "rules").is_empty() && !has(spec, "defaultBackend") {
            errors.invalid(
                &path,
                at(spec, "rules").clone(),
                "either `defaultBackend` or `rules` must be specified",
            );
        }
        if has(spec, "defaultBackend") {
            backend(at(spec, "defaultBackend"), &path.field("defaultBackend"), errors);
        }
        for (i, rule) in list_at(spec, "rules").iter().enumerate() {
            self::rule(rule, &path.field("rules").index(i), errors);
        }
        for (i, tls) in list_at(spec, "tls").iter().enumerate() {
            let here = path.field("tls").index(i);
            for (j, name) in strings_at(tls, "hosts").enumerate() {
                wildcard_or_name(name, &here.field("hosts").index(j), errors);
            }
            let secret = str_at(tls, "secretName");
            if !secret.is_empty() {
                rules::subdomain(secret, &here.field("secretName"), errors);
            }
        }
        if has(spec, "ingressClassName") {
            rules::subdomain(str_at(spec, "ingressClassName"), &path.field("ingressClassName"), errors);
        }
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let annotation = at(object, "metadata.annotations").get(OLD_CLASS);
        let class = at(object, "spec.ingressClassName");
        if let Some(old) = annotation.filter(|old| !class.is_null() && *old != class) {
            // Upstream's path begins here.
            let here = Path::root("annotations").field(OLD_CLASS);
            Errors(errors).invalid(
                &here,
                old.clone(),
                "must match `ingressClassName` when both are specified",
            );
        }
    }
}

impl StatusStrategy for Ingresses {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let path = Path::root("status").field("loadBalancer");
        rules::load_balancer(at(new, "status.loadBalancer"), false, &path, &mut Errors(errors));
    }
}

impl TableConvertor for Ingresses {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Class", "Controller that implements the ingress"),
                table::string("Hosts", "Hosts of the rules"),
                table::string("Address", "Addresses of the load balancer"),
                table::string("Ports", "Ports of the hosts"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let ports = if list_at(object, "spec.tls").is_empty() { "80" } else { "80, 443" };
        let addresses: Vec<&str> = rules::addresses(object).into_iter().collect();
        vec![
            name(object).into(),
            table::cell_or_none(str_at(object, "spec.ingressClassName")),
            hosts(object).into(),
            addresses.join(",").into(),
            ports.into(),
            table::age(object, now),
        ]
    }
}

crate::usual!(Ingresses: UpdateStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// Three hosts at most; upstream says of all rules behind them that there are more, with a host or not.
fn hosts(ingress: &Object) -> String {
    const SHOWN: usize = 3;
    let all: Vec<&str> = list_at(ingress, "spec.rules").iter().map(|r| str_at(r, "host")).collect();
    let named = |hosts: &[&str]| hosts.iter().filter(|host| !host.is_empty()).count();
    let shown: Vec<&str> = all.iter().copied().filter(|host| !host.is_empty()).take(SHOWN).collect();
    let more = (0..all.len()).any(|i| named(&all[..i]) >= SHOWN);
    match shown.join(",") {
        none if none.is_empty() => "*".to_owned(),
        hosts if more => format!("{hosts} + {} more...", all.len() - SHOWN),
        hosts => hosts,
    }
}

fn host(name: &str, path: &Path, errors: &mut Errors) {
    if name.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(path, name, "must be a DNS name, not an IP address");
    }
    wildcard_or_name(name, path, errors);
}

fn wildcard_or_name(name: &str, path: &Path, errors: &mut Errors) {
    if !name.contains('*') {
        return rules::subdomain(name, path, errors);
    }
    for message in coracle_api::validation::wildcard_dns1123_subdomain(name) {
        errors.invalid(path, name, &message);
    }
}

fn rule(rule: &Value, path: &Path, errors: &mut Errors) {
    let name = str_at(rule, "host");
    if !name.is_empty() {
        host(name, &path.field("host"), errors);
    }
    if !has(rule, "http") {
        return;
    }
    let here = path.field("http").field("paths");
    if list_at(rule, "http.paths").is_empty() {
        errors.required(&here, "");
    }
    for (i, entry) in list_at(rule, "http.paths").iter().enumerate() {
        http_path(entry, &here.index(i), errors);
    }
}

fn http_path(entry: &Value, path: &Path, errors: &mut Errors) {
    const KINDS: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
    if !has(entry, "pathType") {
        return errors.required(&path.field("pathType"), "pathType must be specified");
    }
    let (kind, text, here) = (str_at(entry, "pathType"), str_at(entry, "path"), path.field("path"));
    let exact = matches!(kind, "Exact" | "Prefix");
    if !KINDS.contains(&kind) {
        errors.not_supported(&path.field("pathType"), kind, &KINDS);
    } else if !text.starts_with('/') && (exact || !text.is_empty()) {
        errors.invalid(&here, text, "must be an absolute path");
    }
    if exact {
        canonical(text, &here, errors);
    }
    backend(at(entry, "backend"), &path.field("backend"), errors);
}

/// What one request could write in several ways is refused.
fn canonical(text: &str, path: &Path, errors: &mut Errors) {
    for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| text.contains(**part)) {
        errors.invalid(path, text, &format!("must not contain '{part}'"));
    }
    for end in ["/..", "/."].iter().filter(|end| text.ends_with(**end)) {
        errors.invalid(path, text, &format!("cannot end with '{end}'"));
    }
}

/// Another object that takes the traffic, or that has parameters.
fn object_reference(reference: &Value, path: &Path, errors: &mut Errors) {
    if has(reference, "apiGroup") {
        rules::subdomain(str_at(reference, "apiGroup"), &path.field("apiGroup"), errors);
    }
    for field in ["kind", "name"] {
        rules::path_segment(str_at(reference, field), &path.field(field), errors);
    }
}

/// Where a class's parameters are: an object of the cluster, or of a namespace.
fn parameters(parameters: &Value, path: &Path, errors: &mut Errors) {
    object_reference(parameters, path, errors);
    rules::one_of(parameters, "scope", &["Cluster", "Namespace"], path, errors);
    let (here, named) = (path.field("namespace"), has(parameters, "namespace"));
    match (str_at(parameters, "scope"), str_at(parameters, "namespace")) {
        ("Namespace", _) if !named => errors.required(&here, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", namespace) => rules::label(namespace, &here, errors),
        ("Cluster", _) if named => errors.forbidden(&here, "`parameters.scope` is set to 'Cluster'"),
        _ => {}
    }
}

fn backend(backend: &Value, path: &Path, errors: &mut Errors) {
    match (has(backend, "service"), has(backend, "resource")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
        (false, true) => object_reference(at(backend, "resource"), &path.field("resource"), errors),
        (true, false) => {
            let (service, here) = (at(backend, "service"), path.field("service"));
            match str_at(service, "name") {
                "" => errors.required(&here.field("name"), ""),
                name => rules::label(name, &here.field("name"), errors),
            }
            let (name, number) = (str_at(service, "port.name"), i64_at(service, "port.number").unwrap_or(0));
            match (name, number) {
                ("", 0) => errors.required(path, "port name or number is required"),
                ("", number) => rules::port(number, &here.field("port").field("number"), errors),
                (name, 0) => rules::port_name(name, &here.field("port").field("name"), errors),
                _ => errors.invalid(path, "", "cannot set both port name & port number"),
            }
        }
    }
}

impl ResourceFacts for IngressClasses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for IngressClasses {
    fn defaults(&self, object: &mut Object) {
        if let Some(parameters) = at_mut(object, "spec.parameters") {
            default(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let controller = str_at(object, "spec.controller");
        let path = Path::root("spec").field("controller");
        if controller.len() > CONTROLLER_MAX_BYTES {
            errors.too_long(&path, CONTROLLER_MAX_BYTES);
        }
        match controller {
            "" => errors.required(&path, ""),
            _ => {
                for (part, message) in coracle_api::validation::domain_prefixed_path_parts(controller) {
                    errors.invalid(&path, part, &message);
                }
            }
        }
        if has(object, "spec.parameters") {
            parameters(at(object, "spec.parameters"), &Path::root("spec").field("parameters"), errors);
        }
    }
}

impl UpdateStrategy for IngressClasses {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.controller"], &mut Errors(errors));
    }
}

impl TableConvertor for IngressClasses {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Controller", "Controller of the class"),
                table::string("Parameters", "Object with the controller's parameters"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let parameters = at(object, "spec.parameters");
        let group = match str_at(parameters, "apiGroup") {
            "" => String::new(),
            group => format!(".{group}"),
        };
        let text = match parameters.is_null() {
            true => "<none>".to_owned(),
            false => format!("{}{group}/{}", str_at(parameters, "kind"), str_at(parameters, "name")),
        };
        let default = at(object, "metadata.annotations").get(DEFAULT_MARK).is_some_and(|v| v == "true");
        vec![
            format!("{}{}", name(object), if default { " (default)" } else { "" }).into(),
            str_at(object, "spec.controller").into(),
            text.into(),
            table::age(object, now),
        ]
    }
}

crate::usual!(IngressClasses: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
