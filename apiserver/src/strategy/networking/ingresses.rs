//! Ingresses and their classes.

use super::*;

pub struct Ingresses;
pub struct IngressClasses;

impl Strategy for Ingresses {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "loadBalancer": {} }));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        if list_at(spec, "rules").is_empty() && !has(spec, "defaultBackend") {
            errors.invalid(&path, json!([]), "either `defaultBackend` or `rules` must be specified");
        }
        if has(spec, "defaultBackend") {
            backend(at(spec, "defaultBackend"), &path.field("defaultBackend"), errors);
        }
        for (i, rule) in list_at(spec, "rules").iter().enumerate() {
            self::rule(rule, &path.field("rules").index(i), errors);
        }
        let class = str_at(spec, "ingressClassName");
        if !class.is_empty() {
            rules::subdomain(class, &path.field("ingressClassName"), errors);
        }
        for (i, tls) in list_at(spec, "tls").iter().enumerate() {
            for (j, name) in strings_at(tls, "hosts").enumerate() {
                host(name, &path.field("tls").index(i).field("hosts").index(j), errors);
            }
        }
    }

    fn has_status(&self) -> bool {
        true
    }

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
        let ingress = list_at(object, "status.loadBalancer.ingress").iter();
        let addresses: Vec<&str> = ingress
            .map(|i| if str_at(i, "ip").is_empty() { str_at(i, "hostname") } else { str_at(i, "ip") })
            .filter(|a| !a.is_empty())
            .collect();
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

/// Three hosts at most; a rule without one stands for all.
fn hosts(ingress: &Object) -> String {
    let all: Vec<&str> = list_at(ingress, "spec.rules").iter().map(|r| str_at(r, "host")).collect();
    let named: Vec<&str> = all.iter().copied().filter(|h| !h.is_empty()).collect();
    match named.len() {
        0 => "*".to_owned(),
        n if n > 3 => format!("{} + {} more...", named[..3].join(","), n - 3),
        _ => named.join(","),
    }
}

fn host(name: &str, path: &Path, errors: &mut Errors) {
    if name.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(path, name, "must be a DNS name, not an IP address");
    }
    rules::subdomain(name.strip_prefix("*.").unwrap_or(name), path, errors);
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
        let here = here.index(i);
        let (kind, text) = (str_at(entry, "pathType"), str_at(entry, "path"));
        if kind.is_empty() {
            errors.required(&here.field("pathType"), "pathType must be specified");
        } else {
            rules::one_of(entry, "pathType", &["Exact", "ImplementationSpecific", "Prefix"], &here, errors);
        }
        let absolute = text.starts_with('/') || (kind == "ImplementationSpecific" && text.is_empty());
        if !absolute {
            errors.invalid(&here.field("path"), text, "must be an absolute path");
        }
        backend(at(entry, "backend"), &here.field("backend"), errors);
    }
}

fn backend(backend: &Value, path: &Path, errors: &mut Errors) {
    match (has(backend, "service"), has(backend, "resource")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
        (false, true) => {}
        (true, false) => {
            let (service, here) = (at(backend, "service"), path.field("service"));
            match str_at(service, "name") {
                "" => errors.required(&here.field("name"), ""),
                name => rules::label_1035(name, &here.field("name"), errors),
            }
            let (name, number) = (str_at(service, "port.name"), i64_at(service, "port.number").unwrap_or(0));
            match (name, number) {
                ("", 0) => errors.required(&here, "port name or number is required"),
                ("", number) => rules::port(number, &here.field("port").field("number"), errors),
                (name, 0) => rules::port_name(name, &here.field("port").field("name"), errors),
                _ => errors.invalid(&here, "", "cannot set both port name & port number"),
            }
        }
    }
}

impl Strategy for IngressClasses {
    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let controller = str_at(object, "spec.controller");
        let path = Path::root("spec").field("controller");
        if !controller.contains('/') {
            errors.invalid(&path, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.controller"], &mut Errors(errors));
    }

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
        vec![
            name(object).into(),
            str_at(object, "spec.controller").into(),
            text.into(),
            table::age(object, now),
        ]
    }
}
