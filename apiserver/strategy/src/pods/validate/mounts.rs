//! Where containers mount volumes, and which they take as devices.

use super::super::super::rules;
use super::super::super::value::*;
use super::Context;
use super::volumes::relative;
use serde_json::Value;
use std::collections::HashSet;

/// The mounts and devices of one container.
pub fn all(container: &Value, path: &Path, context: &Context, errors: &mut Errors) {
    let (mounts, devices) = (list_at(container, "volumeMounts"), list_at(container, "volumeDevices"));
    let mut points = HashSet::new();
    for (i, mount) in mounts.iter().enumerate() {
        let here = path.field("volumeMounts").index(i);
        known(mount, &here, context, errors);
        let (name, point) = (str_at(mount, "name"), str_at(mount, "mountPath"));
        if point.is_empty() {
            errors.required(&here.field("mountPath"), "");
        } else if !points.insert(point) {
            errors.invalid(&here.field("mountPath"), point, "must be unique");
        }
        apart((name, "name"), devices, "name", "in volumeDevices", &here, errors);
        apart((point, "mountPath"), devices, "devicePath", "as a path in volumeDevices", &here, errors);
        recursive(mount, &path.field("volumeMounts"), errors);
        sub_path(mount, &here, &path.field("volumeMounts"), context, errors);
        propagation(container, mount, &path.field("volumeMounts"), errors);
    }
    let (mut names, mut points) = (HashSet::new(), HashSet::new());
    for (i, device) in devices.iter().enumerate() {
        let here = path.field("volumeDevices").index(i);
        self::device(device, &here, context, errors);
        let (name, point) = (str_at(device, "name"), str_at(device, "devicePath"));
        if !name.is_empty() && !names.insert(name) {
            errors.invalid(&here.field("name"), name, "must be unique");
        }
        if !point.is_empty() && !points.insert(point) {
            errors.invalid(&here.field("devicePath"), point, "must be unique");
        }
        apart((name, "name"), mounts, "name", "in volumeMounts", &here, errors);
        apart((point, "devicePath"), mounts, "mountPath", "as a path in volumeMounts", &here, errors);
    }
}

/// A volume is mounted or taken as a device; `theirs` is the field of the other list that may not say the same.
fn apart(
    (value, field): (&str, &str),
    others: &[Value],
    theirs: &str,
    place: &str,
    path: &Path,
    errors: &mut Errors,
) {
    if !value.is_empty() && others.iter().any(|other| str_at(other, theirs) == value) {
        errors.invalid(&path.field(field), value, &format!("must not already exist {place}"));
    }
}

/// Only claims can be block devices.
fn device(device: &Value, path: &Path, context: &Context, errors: &mut Errors) {
    known(device, path, context, errors);
    let (name, point) = (str_at(device, "name"), str_at(device, "devicePath"));
    let claimed = |volume: &&Value| has(volume, "persistentVolumeClaim") || has(volume, "ephemeral");
    if context.volumes.get(name).is_some_and(|volume| !claimed(volume)) {
        let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
        errors.invalid(&path.field("name"), name, detail);
    }
    if point.is_empty() {
        errors.required(&path.field("devicePath"), "");
    } else if point.split('/').any(|part| part == "..") {
        errors.invalid(&path.field("devicePath"), point, "can not contain backsteps ('..')");
    }
}

/// `path` is that of the list: upstream does not say which mount it is.
fn recursive(mount: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("recursiveReadOnly");
    let wish = str_at(mount, "recursiveReadOnly");
    let supported = &["Disabled", "Enabled", "IfPossible"];
    rules::one_of_if_set(mount, "recursiveReadOnly", supported, path, errors);
    if !matches!(wish, "Enabled" | "IfPossible") {
        return;
    }
    if !bool_at(mount, "readOnly") {
        errors.forbidden(&here, "may only be specified when readOnly is true");
    }
    if !matches!(str_at(mount, "mountPropagation"), "" | "None") {
        errors.forbidden(&here, "may only be specified when mountPropagation is None or not specified");
    }
}

fn known(mount: &Value, path: &Path, context: &Context, errors: &mut Errors) {
    match str_at(mount, "name") {
        "" => errors.required(&path.field("name"), ""),
        name if !context.volumes.contains_key(name) => errors.not_found(&path.field("name"), name),
        _ => {}
    }
}

/// Of a path that leads elsewhere upstream does not say to which mount in `list` it belongs.
fn sub_path(mount: &Value, path: &Path, list: &Path, context: &Context, errors: &mut Errors) {
    let of_image = context.volumes.get(str_at(mount, "name")).is_some_and(|volume| has(volume, "image"));
    for field in ["subPath", "subPathExpr"] {
        let wish = str_at(mount, field);
        if of_image && !wish.is_empty() {
            errors.invalid(&path.field(field), wish, "not allowed in image volume sources");
        }
        relative(str_at(mount, field), &list.field(field), errors);
    }
    if !str_at(mount, "subPath").is_empty() && !str_at(mount, "subPathExpr").is_empty() {
        let value = str_at(mount, "subPathExpr");
        errors.invalid(&path.field("subPathExpr"), value, "subPathExpr and subPath are mutually exclusive");
    }
}

/// `path` is that of the list: upstream does not say which mount it is.
fn propagation(container: &Value, mount: &Value, path: &Path, errors: &mut Errors) {
    let supported = &["Bidirectional", "HostToContainer", "None"];
    rules::one_of_if_set(mount, "mountPropagation", supported, path, errors);
    if str_at(mount, "mountPropagation") == "Bidirectional"
        && !bool_at(container, "securityContext.privileged")
    {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&path.field("mountPropagation"), detail);
    }
}
