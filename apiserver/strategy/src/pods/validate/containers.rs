//! Containers, init containers and ephemeral containers.

use super::super::super::rules;
use super::super::super::value::*;
use super::{Context, claims, env, mounts, probes, resources, security};
use coracle_api::pod::restarts_as_sidecar;
use coracle_api::{FieldError, Origin};
use serde_json::Value;
use std::collections::HashSet;

/// Upstream's limits of the rules of a container, and of the exit codes of a rule.
const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Main,
    Init,
    /// An init container with restartPolicy Always.
    Sidecar,
    Ephemeral,
}

pub fn all(spec: &Value, path: &Path, context: &Context, errors: &mut Errors) {
    let mut names = HashSet::new();
    let mut host_ports = HashSet::new();
    if list_at(spec, "containers").is_empty() {
        errors.required(&path.field("containers"), "");
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, container) in list_at(spec, field).iter().enumerate() {
            let here = path.field(field).index(i);
            let kind = match field {
                "containers" => Kind::Main,
                "ephemeralContainers" => Kind::Ephemeral,
                _ if restarts_as_sidecar(container["restartPolicy"].as_str()) => Kind::Sidecar,
                _ => Kind::Init,
            };
            one(container, kind, &here, context, errors);
            let name = str_at(container, "name");
            if !name.is_empty() && !names.insert(name) {
                errors.duplicate(&here.field("name"), name);
            }
            match kind {
                Kind::Main => conflicts(container, &here, &mut host_ports, errors),
                // They run one by one, as far as this can be told.
                Kind::Init | Kind::Sidecar => conflicts(container, &here, &mut HashSet::new(), errors),
                Kind::Ephemeral => {}
            }
        }
    }
    ephemeral_targets(spec, path, errors);
}

fn one(container: &Value, kind: Kind, path: &Path, context: &Context, errors: &mut Errors) {
    match str_at(container, "name") {
        "" => errors.required(&path.field("name"), ""),
        name => rules::label(name, &path.field("name"), errors),
    }
    if str_at(container, "image").is_empty() {
        errors.required(&path.field("image"), "");
    }
    rules::one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, errors);
    restart_policy(container, kind, path, errors);
    ports(list_at(container, "ports"), &path.field("ports"), context, errors);
    env::all(container, context, path, errors);
    mounts::all(container, path, context, errors);
    rules::one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    let security = at(container, "securityContext");
    security::container(security, context.own_users, &path.field("securityContext"), errors);
    if let Some(found) = container.get("resources") {
        resources::requirements(found, &path.field("resources"), errors);
        claims::huge_pages(found, &path.field("resources"), errors);
    }
    resize_policies(container, context, &path.field("resizePolicy"), errors);
    if kind == Kind::Init {
        restarts_by_resize(container, &path.field("resizePolicy"), errors);
    }
    match kind {
        Kind::Main | Kind::Sidecar => probes::all(container, context, path, errors),
        Kind::Init => refuse_probes(container, path, errors),
        Kind::Ephemeral => ephemeral(container, path, errors),
    }
}

/// Of pods alone: templates may hold an image that somebody fills in.
pub fn images(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, container) in list_at(spec, field).iter().enumerate() {
            let image = str_at(container, "image");
            if image.trim() != image {
                let here = path.field(field).index(i).field("image");
                errors.invalid(&here, image, "must not have leading or trailing whitespace");
            }
        }
    }
}

/// Upstream says neither which policy it is nor which field.
fn of_policy(policy: &Value, field: &str, supported: &[&str], path: &Path, errors: &mut Errors) {
    match str_at(policy, field) {
        "" => errors.required(path, ""),
        other if !supported.contains(&other) => errors.not_supported(path, other, supported),
        _ => {}
    }
}

fn resize_policies(container: &Value, context: &Context, path: &Path, errors: &mut Errors) {
    let mut resized = HashSet::new();
    for (i, policy) in list_at(container, "resizePolicy").iter().enumerate() {
        let here = path.index(i);
        of_policy(policy, "resourceName", &["cpu", "memory"], path, errors);
        let resource = str_at(policy, "resourceName");
        if !resource.is_empty() && !resized.insert(resource) {
            errors.duplicate(&here, resource);
        }
        of_policy(policy, "restartPolicy", &["NotRequired", "RestartContainer"], path, errors);
        if context.runs_once && str_at(policy, "restartPolicy") == "RestartContainer" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.invalid(path, "RestartContainer", detail);
        }
    }
}

fn restarts_by_resize(container: &Value, path: &Path, errors: &mut Errors) {
    for (i, policy) in list_at(container, "resizePolicy").iter().enumerate() {
        if str_at(policy, "restartPolicy") == "RestartContainer" {
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            let here = path.index(i).field("restartPolicy");
            errors.with_origin(&Origin::InitContainerRestart, |errors| {
                errors.invalid(&here, "RestartContainer", detail);
            });
        }
    }
}

/// On update: init containers may be restarted by a resize where those of the old object were, in a pod or a template.
pub fn forgive_resizes(errors: &mut Vec<FieldError>, old: &Value) {
    let refused = |error: &FieldError| error.origin == Some(Origin::InitContainerRestart);
    if errors.iter().any(refused) && has_restarts(old) {
        errors.retain(|error| !refused(error));
    }
}

/// Whether the value is or holds the spec of a pod with such an init container.
fn has_restarts(value: &Value) -> bool {
    let mut found = Vec::new();
    for container in list_at(value, "initContainers") {
        if !restarts_as_sidecar(container["restartPolicy"].as_str()) {
            restarts_by_resize(container, &Path::root("resizePolicy"), &mut Errors(&mut found));
        }
    }
    !found.is_empty() || value.as_object().is_some_and(|fields| fields.values().any(has_restarts))
}

/// Its own policy, and rules by exit codes (KEP-5307).
fn restart_policy(container: &Value, kind: Kind, path: &Path, errors: &mut Errors) {
    let by_code = list_at(container, "restartPolicyRules");
    if kind == Kind::Ephemeral {
        for field in ["restartPolicy", "restartPolicyRules"].iter().filter(|field| has(container, field)) {
            errors.forbidden(&path.field(field), "cannot be set for an Ephemeral Container");
        }
        return;
    }
    if has(container, "restartPolicy") {
        rules::one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], path, errors);
    } else if !by_code.is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.required(&path.field("restartPolicy"), detail);
    }
    let path = path.field("restartPolicyRules");
    if by_code.len() > MAX_RESTART_RULES {
        errors.too_many(&path, by_code.len(), MAX_RESTART_RULES);
    }
    for (i, rule) in by_code.iter().enumerate() {
        let here = path.index(i);
        rules::one_of(rule, "action", &["Restart", "RestartAllContainers"], &here, errors);
        let (codes, here) = (at(rule, "exitCodes"), here.field("exitCodes"));
        if codes.is_null() {
            errors.required(&here, "must be specified");
            continue;
        }
        rules::one_of(codes, "operator", &["In", "NotIn"], &here, errors);
        match list_at(codes, "values").len() {
            0 => errors.required(&here.field("values"), "must have at least one value"),
            count if count > MAX_EXIT_CODES => errors.too_many(&here.field("values"), count, MAX_EXIT_CODES),
            _ => {}
        }
    }
}

fn refuse_probes(container: &Value, path: &Path, errors: &mut Errors) {
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if has(container, field) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&path.field(field), detail);
        }
    }
}

fn ephemeral(container: &Value, path: &Path, errors: &mut Errors) {
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "resizePolicy", "startupProbe", "ports"] {
        if has(container, field) && at(container, field) != &Value::Array(Vec::new()) {
            errors.forbidden(&path.field(field), "cannot be set for an Ephemeral Container");
        }
    }
    if entries_at(container, "resources").next().is_some() {
        errors.forbidden(&path.field("resources"), "cannot be set for an Ephemeral Container");
    }
    for (i, mount) in list_at(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !str_at(mount, field).is_empty() {
                let here = path.field("volumeMounts").index(i).field(field);
                errors.forbidden(&here, "cannot be set for an Ephemeral Container");
            }
        }
    }
}

fn ephemeral_targets(spec: &Value, path: &Path, errors: &mut Errors) {
    let known = |name: &str| {
        ["containers", "initContainers"]
            .iter()
            .any(|field| list_at(spec, field).iter().any(|c| str_at(c, "name") == name))
    };
    for (i, container) in list_at(spec, "ephemeralContainers").iter().enumerate() {
        let target = str_at(container, "targetContainerName");
        if !target.is_empty() && !known(target) {
            errors
                .not_found(&path.field("ephemeralContainers").index(i).field("targetContainerName"), target);
        }
    }
}

fn ports(ports: &[Value], path: &Path, context: &Context, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let here = path.index(i);
        let name = str_at(port, "name");
        if !name.is_empty() {
            rules::port_name(name, &here.field("name"), errors);
            if !names.insert(name) {
                errors.duplicate(&here.field("name"), name);
            }
        }
        let number = i64_at(port, "containerPort").unwrap_or(0);
        match number {
            0 => errors.required(&here.field("containerPort"), ""),
            number => rules::port(number, &here.field("containerPort"), errors),
        }
        if let Some(host_port) = i64_at(port, "hostPort").filter(|n| *n != 0) {
            rules::port(host_port, &here.field("hostPort"), errors);
            if context.host_network && host_port != number {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&here.field("hostPort"), host_port, detail);
            }
        }
        rules::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &here, errors);
    }
}

fn conflicts(container: &Value, path: &Path, taken: &mut HashSet<String>, errors: &mut Errors) {
    for (i, port) in list_at(container, "ports").iter().enumerate() {
        let Some(number) = i64_at(port, "hostPort").filter(|n| *n != 0) else { continue };
        let key = format!("{}/{}/{number}", str_at(port, "protocol"), str_at(port, "hostIP"));
        if !taken.insert(key.clone()) {
            errors.duplicate(&path.field("ports").index(i).field("hostPort"), key);
        }
    }
}
