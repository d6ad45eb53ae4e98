//! Validation of pod specs, in pods and in templates (upstream's `ValidatePodSpec`).
//!
//! Messages are upstream's, because people and tools know them.

pub mod annotations;
mod claims;
pub mod containers;
mod env;
mod mounts;
mod os;
mod probes;
pub mod resources;
mod scheduling;
pub mod security;
pub mod sources;
pub mod status;
pub mod update;
pub mod volumes;

use super::super::rules;
use super::super::value::*;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

pub use scheduling::{node_selector, toleration};

/// What the checks of one pod spec need to know of the whole of it.
pub struct Context<'a> {
    /// By their names.
    pub volumes: HashMap<&'a str, &'a Value>,
    pub host_network: bool,
    /// Whether the pod has a user namespace of its own.
    pub own_users: bool,
    pub grace_seconds: Option<i64>,
    /// Whether containers never run again, unless they say otherwise.
    pub runs_once: bool,
}

/// Of all search domains together, as the resolver's file takes them.
const SEARCHES_MAX_BYTES: usize = 2048;

/// A spec of a pod or of a template; `path` is where it stands.
pub fn pod_spec(spec: &Value, path: &Path, errors: &mut Errors) {
    pod_spec_with(spec, &[], path, errors);
}

/// As [`pod_spec`], of pods that have these volumes too.
pub fn pod_spec_with(spec: &Value, more: &[Value], path: &Path, errors: &mut Errors) {
    let mut volumes = volumes::all(list_at(spec, "volumes"), &path.field("volumes"), errors);
    volumes.extend(more.iter().map(|volume| (str_at(volume, "name"), volume)));
    let context = Context {
        volumes,
        host_network: bool_at(spec, "hostNetwork"),
        own_users: at(spec, "hostUsers") == &Value::Bool(false),
        grace_seconds: i64_at(spec, "terminationGracePeriodSeconds"),
        runs_once: str_at(spec, "restartPolicy") == "Never",
    };
    containers::all(spec, path, &context, errors);
    rules::one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    dns(spec, path, errors);
    names(spec, path, errors);
    numbers(spec, path, errors);
    lists(spec, path, errors);
    scheduling::all(spec, path, errors);
    security::pod(at(spec, "securityContext"), &path.field("securityContext"), errors);
    security::shared_sysctls(spec, path, errors);
    os::all(spec, path, errors);
    claims::all(spec, path, errors);
    if let Some(resources) = spec.get("resources") {
        resources::requirements_of(resources, claims::name_for_pods, &path.field("resources"), errors);
    }
    let overhead = path.field("overhead");
    for (name, quantity) in entries_at(spec, "overhead") {
        resources::name(name, &overhead.key(name), errors);
        resources::non_negative(quantity, &overhead.key(name), errors);
    }
}

fn dns(spec: &Value, path: &Path, errors: &mut Errors) {
    rules::one_of(
        spec,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        path,
        errors,
    );
    let (config, path) = (at(spec, "dnsConfig"), path.field("dnsConfig"));
    let servers = list_at(config, "nameservers");
    if str_at(spec, "dnsPolicy") == "None" && config.is_null() {
        errors.required(&path, "must provide `dnsConfig` when `dnsPolicy` is None");
    } else if str_at(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.required(&path.field("nameservers"), detail);
    }
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid(&path.field("nameservers"), at(config, "nameservers").clone(), detail);
    }
    for (i, server) in strings_at(config, "nameservers").enumerate() {
        rules::ip(server, &path.field("nameservers").index(i), errors);
    }
    let searches = path.field("searches");
    if list_at(config, "searches").len() > 32 {
        errors.invalid(&searches, at(config, "searches").clone(), "must not have more than 32 search paths");
    }
    for (i, search) in strings_at(config, "searches").enumerate() {
        let trimmed = search.strip_suffix('.').unwrap_or(search);
        if search != "." {
            rules::search_domain(trimmed, &searches.index(i), errors);
        }
    }
    let length: usize = strings_at(config, "searches").map(|s| s.len() + 1).sum();
    if length > SEARCHES_MAX_BYTES + 1 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&searches, at(config, "searches").clone(), detail);
    }
    for (i, option) in list_at(config, "options").iter().enumerate() {
        if str_at(option, "name").is_empty() {
            errors.required(&path.field("options").index(i), "must not be empty");
        }
    }
}

fn names(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        let value = str_at(spec, field);
        if !value.is_empty() {
            rules::subdomain(value, &path.field(field), errors);
        }
    }
    for field in ["hostname", "subdomain"] {
        let value = str_at(spec, field);
        if !value.is_empty() {
            rules::label(value, &path.field(field), errors);
        }
    }
    let name = str_at(spec, "hostnameOverride");
    if !name.is_empty() {
        rules::subdomain(name, &path.field("hostnameOverride"), errors);
        // The kernel's limit of a host's name.
        if name.len() > 64 {
            errors.too_long(&path.field("hostnameOverride"), 64);
        }
        if bool_at(spec, "setHostnameAsFQDN") {
            let detail = "may not be specified when setHostnameAsFQDN is true";
            errors.forbidden(&path.field("hostnameOverride"), detail);
        }
        if bool_at(spec, "hostNetwork") {
            let detail = "may not be specified when hostNetwork is true";
            errors.forbidden(&path.field("hostnameOverride"), detail);
        }
    }
    let os = path.field("os").field("name");
    match str_at(spec, "os.name") {
        "" if has(spec, "os") => errors.required(&os, "cannot be empty"),
        "" | "linux" | "windows" => {}
        other => errors.not_supported(&path.field("os"), other, &["linux", "windows"]),
    }
    rules::one_of_if_set(spec, "preemptionPolicy", &["Never", "PreemptLowerPriority"], path, errors);
}

fn numbers(spec: &Value, path: &Path, errors: &mut Errors) {
    if let Some(seconds) = i64_at(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(&path.field("activeDeadlineSeconds"), seconds, detail);
    }
    if bool_at(spec, "shareProcessNamespace") && bool_at(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("securityContext").field("shareProcessNamespace"), true, detail);
    }
    if at(spec, "hostUsers") == &Value::Bool(false) {
        // Upstream's names of two of the places.
        for (field, place) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
        {
            if bool_at(spec, field) {
                errors.forbidden(&path.field(place), "when `pod.Spec.HostUsers` is false");
            }
        }
    }
}

fn lists(spec: &Value, path: &Path, errors: &mut Errors) {
    for (i, alias) in list_at(spec, "hostAliases").iter().enumerate() {
        let here = path.field("hostAliases").index(i);
        rules::ip(str_at(alias, "ip"), &here.field("ip"), errors);
        for (j, name) in strings_at(alias, "hostnames").enumerate() {
            rules::subdomain(name, &here.field("hostnames").index(j), errors);
        }
    }
    for (i, gate) in list_at(spec, "readinessGates").iter().enumerate() {
        let here = path.field("readinessGates").index(i).field("conditionType");
        rules::qualified_name(str_at(gate, "conditionType"), &here, errors);
    }
    let mut seen = HashSet::new();
    for (i, gate) in list_at(spec, "schedulingGates").iter().enumerate() {
        let here = path.field("schedulingGates").index(i);
        rules::qualified_name(str_at(gate, "name"), &here, errors);
        if !seen.insert(str_at(gate, "name")) {
            errors.duplicate(&here, str_at(gate, "name"));
        }
    }
}

/// A new pod has no node while gates keep it.
pub fn gated(spec: &Value, errors: &mut Errors) {
    if !list_at(spec, "schedulingGates").is_empty() && !str_at(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&Path::root("spec").field("nodeName"), detail);
    }
}

/// What is asked of pods and not of their templates.
pub fn only_in_pods(pod: &Value, path: &Path, errors: &mut Errors) {
    let spec = at(pod, "spec");
    containers::images(spec, path, errors);
    volumes::named_after_pod(pod, errors);
    if !str_at(spec, "serviceAccountName").is_empty() {
        return;
    }
    for (i, volume) in list_at(spec, "volumes").iter().enumerate() {
        for (j, source) in list_at(volume, "projected.sources").iter().enumerate() {
            if has(source, "serviceAccountToken") {
                let here = path.field("volumes").index(i).field("projected").field("sources").index(j);
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&here.field("serviceAccountToken"), detail);
            }
        }
    }
}
