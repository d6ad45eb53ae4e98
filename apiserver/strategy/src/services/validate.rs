//! Validation of Services (upstream's `ValidateService`).

use super::super::rules;
use super::*;
use coracle_api::well_known;
use std::collections::HashSet;

/// Of the addresses and their families, before anything else of the Service is looked at.
pub fn addresses(object: &Object, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let (ips, here) = (list_at(spec, "clusterIPs"), path.field("clusterIPs"));
    if ips.first().is_some_and(|first| first != str_at(spec, "clusterIP")) {
        errors.invalid(&here, at(spec, "clusterIPs").clone(), "first value must match `clusterIP`");
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    rules::one_of_if_set(spec, "ipFamilyPolicy", policies, &path, errors);
    let mut seen = HashSet::new();
    for (i, family) in strings_at(spec, "ipFamilies").enumerate() {
        let here = path.field("ipFamilies").index(i);
        if !families::NAMES.contains(&family) {
            errors.not_supported(&here, family, families::NAMES);
        } else if !seen.insert(family) {
            errors.duplicate(&here, family);
        }
    }
    if single_addresses(spec, &here, errors) {
        of_families(spec, &here, errors);
    }
}

/// Each for itself; whether they are worth a look at what they are together.
fn single_addresses(spec: &Value, here: &Path, errors: &mut Errors) -> bool {
    let (ips, all) = (list_at(spec, "clusterIPs"), at(spec, "clusterIPs"));
    let before = errors.0.len();
    for (i, ip) in strings_at(spec, "clusterIPs").enumerate() {
        if ip == "None" && i == 0 {
            if ips.len() > 1 {
                errors.invalid(here, all.clone(), "'None' must be the first and only value");
            }
        } else {
            rules::ip(ip, &here.index(i), errors);
        }
    }
    let sound = errors.0.len() == before;
    if ips.len() > 2 {
        errors.invalid(here, all.clone(), "may only hold up to 2 values");
    }
    sound
}

const HINTS: &str = well_known::TOPOLOGY_AWARE_HINTS;
const MODE: &str = well_known::TOPOLOGY_MODE;

/// What is deprecated about the Service, or does nothing.
pub fn warnings(service: &Object) -> Vec<String> {
    let spec = &service["spec"];
    let external = kind(service) == "ExternalName";
    let headless = kind(service) == "ClusterIP" && is_headless(service);
    let hints = has(service, "metadata.annotations") && !service["metadata"]["annotations"][HINTS].is_null();
    let ips = !list_at(spec, "externalIPs").is_empty();
    let all = [
        (hints, format!("annotation {HINTS} is deprecated, please use {MODE} instead")),
        (
            headless && !str_at(spec, "loadBalancerIP").is_empty(),
            "spec.loadBalancerIP is ignored for headless services".into(),
        ),
        (headless && ips, "spec.externalIPs is ignored for headless services".into()),
        (
            headless && str_at(spec, "sessionAffinity") != "None",
            "spec.SessionAffinity is ignored for headless services".into(),
        ),
        (
            ips && !headless && !external,
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".into(),
        ),
        (ips && external, "spec.externalIPs is ignored when spec.type is \"ExternalName\"".into()),
        (
            !external && !str_at(spec, "externalName").is_empty(),
            "spec.externalName is ignored when spec.type is not \"ExternalName\"".into(),
        ),
        (
            str_at(spec, "trafficDistribution") == "PreferClose",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into(),
        ),
    ];
    let said = all.into_iter().filter(|(said, _)| *said).map(|(_, text)| text);
    said.chain(uncanonical(spec)).collect()
}

/// Of addresses that are not written in their canonical form.
fn uncanonical(spec: &Value) -> Vec<String> {
    let path = Path::root("spec");
    let mut found = Vec::new();
    for field in ["clusterIPs", "externalIPs"] {
        let here = path.field(field);
        found.extend(
            strings_at(spec, field).enumerate().filter_map(|(i, ip)| rules::ip_warning(ip, &here.index(i))),
        );
    }
    found.extend(rules::ip_warning(str_at(spec, "loadBalancerIP"), &path.field("loadBalancerIP")));
    let here = path.field("loadBalancerSourceRanges");
    let ranges = strings_at(spec, "loadBalancerSourceRanges").enumerate();
    found.extend(ranges.filter_map(|(i, range)| rules::cidr_warning(range, &here.index(i))));
    found
}

/// The old and the new name of one annotation must not contradict one another.
fn topology(object: &Object, errors: &mut Errors) {
    let annotations = at(object, "metadata.annotations");
    if let (Some(hints), Some(mode)) = (annotations.get(HINTS), annotations.get(MODE))
        && hints != mode
    {
        let path = Path::root("metadata").field("annotations").key(MODE);
        errors.invalid(
            &path,
            mode.clone(),
            &format!("must match annotations[{HINTS}] when both are specified"),
        );
    }
}

pub fn service(object: &Object, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    topology(object, errors);
    let ports = list_at(spec, "ports");
    if ports.is_empty() && !is_headless(object) && kind(object) != "ExternalName" {
        errors.required(&path.field("ports"), "");
    }
    by_type(object, &path, errors);
    self::ports(ports, &path.field("ports"), errors);
    rules::labels(at(spec, "selector"), &path.field("selector"), errors);
    rules::one_of(spec, "sessionAffinity", &["ClientIP", "None"], &path, errors);
    affinity(spec, &path, errors);
    for (i, ip) in strings_at(spec, "externalIPs").enumerate() {
        rules::ip(ip, &path.field("externalIPs").index(i), errors);
        rules::not_special(ip, &path.field("externalIPs").index(i), errors);
    }
    rules::one_of(spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], &path, errors);
    port_numbers(object, ports, &path.field("ports"), errors);
    source_ranges(object, &path, errors);
    policies(object, &path, errors);
}

fn by_type(object: &Object, path: &Path, errors: &mut Errors) {
    let here = path.field("clusterIPs");
    match kind(object) {
        "ExternalName" => {
            match str_at(object, "spec.externalName").trim_end_matches('.') {
                "" => errors.required(&path.field("externalName"), ""),
                host => rules::subdomain(host, &path.field("externalName"), errors),
            }
            if !list_at(object, "spec.clusterIPs").is_empty() {
                errors.forbidden(&here, "may not be set for ExternalName services");
            }
            for field in ["ipFamilies", "ipFamilyPolicy"] {
                if has(&object["spec"], field) {
                    errors.forbidden(&path.field(field), "may not be set for ExternalName services");
                }
            }
        }
        kind @ ("NodePort" | "LoadBalancer") if is_headless(object) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&here.index(0), "None", &detail);
        }
        _ => {}
    }
}

fn ports(ports: &[Value], path: &Path, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let here = path.index(i);
        match str_at(port, "name") {
            "" if ports.len() > 1 => errors.required(&here.field("name"), ""),
            "" => {}
            name => {
                rules::label(name, &here.field("name"), errors);
                if !names.insert(name) {
                    errors.duplicate(&here.field("name"), name);
                }
            }
        }
        rules::port(i64_at(port, "port").unwrap_or(0), &here.field("port"), errors);
        rules::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &here, errors);
        rules::int_or_name_port(at(port, "targetPort"), &here.field("targetPort"), errors);
        if has(port, "appProtocol") {
            rules::qualified_name(str_at(port, "appProtocol"), &here.field("appProtocol"), errors);
        }
    }
}

/// No two ports are the same, here or at the nodes.
fn port_numbers(object: &Object, ports: &[Value], path: &Path, errors: &mut Errors) {
    let node_port = |port: &Value| i64_at(port, "nodePort").filter(|n| *n != 0);
    if kind(object) == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, port)| node_port(port).is_some()) {
            let here = path.index(i).field("nodePort");
            errors.forbidden(&here, "may not be used when `type` is 'ClusterIP'");
        }
    }
    let (mut pairs, mut node_ports) = (HashSet::new(), HashSet::new());
    for (i, port) in ports.iter().enumerate() {
        if let Some(number) = node_port(port)
            && !node_ports.insert((str_at(port, "protocol"), number))
        {
            errors.duplicate(&path.index(i).field("nodePort"), number);
        }
    }
    for (i, port) in ports.iter().enumerate() {
        let (protocol, number) = (str_at(port, "protocol"), i64_at(port, "port").unwrap_or(0));
        if !pairs.insert((protocol, number)) {
            let pair = json!({ "port": number, "protocol": protocol });
            let shown = rules::internal::shown(&pair, rules::internal::SERVICE_PORT);
            errors.0.push(FieldError::duplicate_as(path.index(i), &shown));
        }
    }
}

/// One address of each family, in the order of the families.
fn of_families(spec: &Value, here: &Path, errors: &mut Errors) {
    let ips: Vec<&str> = strings_at(spec, "clusterIPs").filter(|ip| *ip != "None").collect();
    let has = |family: &str| ips.iter().any(|ip| families::of(ip) == family);
    if ips.len() > 1 && !families::NAMES.iter().all(|family| has(family)) {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(here, at(spec, "clusterIPs").clone(), detail);
    }
    for (i, (ip, family)) in ips.iter().zip(strings_at(spec, "ipFamilies")).enumerate() {
        if families::NAMES.contains(&family) && families::of(ip) != family {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.invalid(&here.index(i), *ip, &detail);
        }
    }
}

/// Whom a load balancer lets in: a field, or the annotation that was before it.
fn source_ranges(object: &Object, path: &Path, errors: &mut Errors) {
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let field = path.field("LoadBalancerSourceRanges");
    let annotated = Path::root("metadata").field("annotations").key(ANNOTATION);
    let said = at(object, "metadata.annotations").get(ANNOTATION).and_then(Value::as_str);
    let ranges: Vec<(Path, &str)> = if !list_at(object, "spec.loadBalancerSourceRanges").is_empty() {
        let each = strings_at(object, "spec.loadBalancerSourceRanges").enumerate();
        each.map(|(i, range)| (field.index(i), range)).collect()
    } else {
        let each = said.into_iter().filter(|said| !said.trim().is_empty()).flat_map(|said| said.split(','));
        each.map(|range| (annotated.clone(), range)).collect()
    };
    if kind(object) != "LoadBalancer" && (!ranges.is_empty() || said.is_some()) {
        let here =
            if list_at(object, "spec.loadBalancerSourceRanges").is_empty() { annotated } else { field };
        errors.forbidden(&here, "may only be used when `type` is 'LoadBalancer'");
    }
    for (here, range) in ranges {
        rules::cidr(range.trim(), &here, errors);
    }
}

fn affinity(spec: &Value, path: &Path, errors: &mut Errors) {
    let config = path.field("sessionAffinityConfig");
    match (str_at(spec, "sessionAffinity"), has(spec, "sessionAffinityConfig")) {
        ("None", true) => errors.forbidden(&config, "must not be set when session affinity is None"),
        ("ClientIP", false) => errors.required(&config, "when session affinity type is ClientIP"),
        _ => {}
    }
    let here = path.field("sessionAffinityConfig").field("clientIP").field("timeoutSeconds");
    if let Some(seconds) = i64_at(spec, "sessionAffinityConfig.clientIP.timeoutSeconds")
        && !(1..=86_400).contains(&seconds)
    {
        errors.invalid(&here, seconds, "must be greater than 0 and less than 86400");
    }
}

fn policies(object: &Object, path: &Path, errors: &mut Errors) {
    let spec = &object["spec"];
    rules::one_of_if_set(spec, "internalTrafficPolicy", &["Cluster", "Local"], path, errors);
    rules::one_of_if_set(spec, "externalTrafficPolicy", &["Cluster", "Local"], path, errors);
    let distributions = &["PreferClose", "PreferSameNode", "PreferSameZone"];
    rules::one_of_if_set(spec, "trafficDistribution", distributions, path, errors);
    let policy = str_at(spec, "externalTrafficPolicy");
    if !policy.is_empty() && !is_external(object) {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(&path.field("externalTrafficPolicy"), policy, detail);
    }
    if let Some(port) = i64_at(spec, "healthCheckNodePort").filter(|n| *n != 0)
        && !needs_health_check_port(object)
    {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&path.field("healthCheckNodePort"), port, detail);
    }
    if has(spec, "allocateLoadBalancerNodePorts") && kind(object) != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.forbidden(&path.field("allocateLoadBalancerNodePorts"), detail);
    }
    let class = str_at(spec, "loadBalancerClass");
    if !class.is_empty() {
        rules::qualified_name(class, &path.field("loadBalancerClass"), errors);
        if kind(object) != "LoadBalancer" {
            let detail = "may only be used when `type` is 'LoadBalancer'";
            errors.forbidden(&path.field("loadBalancerClass"), detail);
        }
    }
}

/// A second address or family may come and go, the first never changes. `one`: what an element is called.
fn lists_of_update(new: &Object, old: &Object, list: &str, one: &str, errors: &mut Errors) {
    let (spec, path) = (&new["spec"], Path::root("spec"));
    let (now, before) = (list_at(spec, list), list_at(&old["spec"], list));
    let first = path.field(list).index(0);
    let all = || at(spec, list).clone();
    if now.is_empty() && !before.is_empty() {
        errors.invalid(&first, json!([]), &format!("primary {one} can not be unset"));
    }
    // Upstream shows addresses in the place of families where the number of these changes, and names the first of them
    // whichever has changed.
    let shown = if now.len() == before.len() { all() } else { at(spec, "clusterIPs").clone() };
    for (i, _) in now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before) {
        if now.len() == before.len() || i == 0 {
            let here = if list == "clusterIPs" { path.field(list).index(i) } else { first.clone() };
            errors.invalid(&here, shown.clone(), "may not change once set");
        }
    }
    if now.len() == 1 && before.len() > 1 && str_at(spec, "ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {one}");
        errors.invalid(&path.field("ipFamilyPolicy"), at(spec, "ipFamilyPolicy").clone(), &detail);
    }
}

pub fn update(new: &Object, old: &Object, errors: &mut Errors) {
    let path = Path::root("spec");
    if needs_cluster_ip(new) && needs_cluster_ip(old) && !(is_headless(new) && is_headless(old)) {
        lists_of_update(new, old, "clusterIPs", "clusterIP", errors);
        if is_headless(new) == is_headless(old) {
            lists_of_update(new, old, "ipFamilies", "ipFamily", errors);
        }
    }
    if kind(new) == "LoadBalancer" && kind(old) == "LoadBalancer" {
        let classes = (at(new, "spec.loadBalancerClass"), at(old, "spec.loadBalancerClass"));
        if classes.0 != classes.1 {
            errors.invalid(&path.field("loadBalancerClass"), classes.0.clone(), "may not change once set");
        }
    }
    if needs_health_check_port(new) && needs_health_check_port(old) {
        let port = |service| i64_at(service, "spec.healthCheckNodePort").unwrap_or(0);
        if port(new) != port(old) {
            let why = "cannot change healthCheckNodePort on loadBalancer service with externalTraffic=Local during update";
            errors.invalid(&path.field("healthCheckNodePort"), port(new), why);
        }
    }
}
