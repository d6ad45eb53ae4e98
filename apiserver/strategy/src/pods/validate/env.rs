//! Environment variables and their sources; also the field references of the downward API.

use super::super::super::rules;
use super::super::super::value::*;
use super::Context;
use super::volumes::file_path;
use serde_json::Value;

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// What can be read of a pod at all.
const CONVERTIBLE: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub fn all(container: &Value, context: &Context, path: &Path, errors: &mut Errors) {
    for (i, env) in list_at(container, "env").iter().enumerate() {
        let here = path.field("env").index(i);
        match str_at(env, "name") {
            "" => errors.required(&here.field("name"), ""),
            name => rules::env_name(name, &here.field("name"), errors),
        }
        if has(env, "valueFrom") {
            value_from(env, context, &here.field("valueFrom"), errors);
        }
    }
    for (i, source) in list_at(container, "envFrom").iter().enumerate() {
        env_from(source, (&path.field("envFrom"), i), errors);
    }
}

fn value_from(env: &Value, context: &Context, path: &Path, errors: &mut Errors) {
    let source = at(env, "valueFrom");
    let mut sources = 0;
    for field in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        if !has(source, field) {
            continue;
        }
        sources += 1;
        let (reference, here) = (at(source, field), path.field(field));
        match field {
            "fieldRef" => field_ref(reference, &here, ENV_FIELDS, errors),
            "resourceFieldRef" => resource_ref(reference, &here, false, errors),
            "fileKeyRef" => file_key(reference, context, &here, errors),
            _ => key_ref(reference, &here, errors),
        }
    }
    if !str_at(env, "value").is_empty() && sources > 0 {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    }
    match sources {
        0 => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            errors.invalid(path, "", detail);
        }
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
}

pub fn volume_field_ref(reference: &Value, path: &Path, errors: &mut Errors) {
    field_ref(reference, path, VOLUME_FIELDS, errors);
}

fn field_ref(reference: &Value, path: &Path, supported: &[&str], errors: &mut Errors) {
    let api_version = str_at(reference, "apiVersion");
    let field = str_at(reference, "fieldPath");
    if api_version.is_empty() {
        errors.required(&path.field("apiVersion"), "");
    } else if api_version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {api_version}");
        errors.invalid(&path.field("fieldPath"), field, &detail);
    } else if field.is_empty() {
        errors.required(&path.field("fieldPath"), "");
    } else if let Some((map, key)) = subscript(field) {
        match map {
            "metadata.annotations" => rules::qualified_name(&key.to_lowercase(), path, errors),
            _ => rules::qualified_name(key, path, errors),
        }
    } else if field.contains("['") && field.ends_with("']") {
        let detail = format!("error converting fieldPath: field label does not support subscript: {field}");
        errors.invalid(&path.field("fieldPath"), field, &detail);
    } else if !CONVERTIBLE.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        errors.invalid(&path.field("fieldPath"), field, &detail);
    } else if !supported.contains(&field) {
        errors.not_supported(&path.field("fieldPath"), field, supported);
    }
}

/// `metadata.labels['k']` as (`metadata.labels`, `k`).
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (map, key) = field.strip_suffix("']")?.split_once("['")?;
    matches!(map, "metadata.labels" | "metadata.annotations").then_some((map, key))
}

pub fn resource_ref(reference: &Value, path: &Path, in_volume: bool, errors: &mut Errors) {
    if in_volume && str_at(reference, "containerName").is_empty() {
        errors.required(&path.field("containerName"), "");
    }
    let resource = str_at(reference, "resource");
    if resource.is_empty() {
        errors.required(&path.field("resource"), "");
    } else if !RESOURCES.contains(&resource)
        && !resource.starts_with("limits.hugepages-")
        && !resource.starts_with("requests.hugepages-")
    {
        errors.not_supported(&path.field("resource"), resource, RESOURCES);
    } else {
        divisor(reference, resource, path, errors);
    }
}

/// The units a resource can be shown in.
fn divisor(reference: &Value, resource: &str, path: &Path, errors: &mut Errors) {
    let value = at(reference, "divisor");
    let text = rules::quantity_text(value);
    if value.is_null() || text == "0" {
        return;
    }
    let what = match resource.rsplit('.').next().unwrap_or_default() {
        what if what.starts_with("hugepages-") => "hugepages",
        "ephemeral-storage" => "local ephemeral storage",
        what => what,
    };
    let (units, shown): (&[&str], &str) = match what {
        "cpu" => (&["1m", "1"], "1m and 1"),
        _ => (
            &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"],
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei",
        ),
    };
    let same = |unit: &&str| rules::parse_quantity(value) == unit.parse().ok();
    if !units.iter().any(same) {
        let detail = format!("only divisor's values {shown} are supported with the {what} resource");
        errors.invalid(&path.field("divisor"), resource, &detail);
    }
}

fn key_ref(reference: &Value, path: &Path, errors: &mut Errors) {
    rules::subdomain(str_at(reference, "name"), &path.field("name"), errors);
    match str_at(reference, "key") {
        "" => errors.required(&path.field("key"), ""),
        key => rules::config_key(key, &path.field("key"), errors),
    }
}

/// A key of a file that another container left in a volume, which must be one that begins empty.
fn file_key(reference: &Value, context: &Context, path: &Path, errors: &mut Errors) {
    match str_at(reference, "key") {
        "" => errors.required(&path.field("key"), ""),
        key => rules::env_name(key, &path.field("key"), errors),
    }
    file_path(reference, path, errors);
    let here = path.field("volumeName");
    match str_at(reference, "volumeName") {
        "" => errors.required(&here, ""),
        name => match context.volumes.get(name) {
            None => errors.not_found(&here, name),
            Some(volume) if !has(volume, "emptyDir") => {
                errors.invalid(&here, name, "referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        },
    }
}

/// The source at an index of the list; upstream says of one without anything only in which list it stands.
fn env_from(source: &Value, (list, index): (&Path, usize), errors: &mut Errors) {
    let path = &list.index(index);
    let prefix = str_at(source, "prefix");
    if !prefix.is_empty() {
        rules::env_name(prefix, &path.field("prefix"), errors);
    }
    let mut sources = 0;
    for field in ["configMapRef", "secretRef"] {
        if has(source, field) {
            sources += 1;
            match str_at(at(source, field), "name") {
                "" => errors.required(&path.field(field).field("name"), ""),
                // Upstream takes it for the beginning of one.
                name => {
                    rules::subdomain(name.trim_end_matches('-'), &path.field(field).field("name"), errors)
                }
            }
        }
    }
    match sources {
        0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
}
