//! Volumes, and where containers mount them.

use super::super::super::rules;
use super::super::super::value::*;
use super::{Context, env};
use serde_json::Value;
use std::collections::HashSet;

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const MODE_RANGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates the volumes of a pod and returns their names.
pub fn all<'a>(volumes: &'a [Value], path: &Path, errors: &mut Errors) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let here = path.index(i);
        let name = str_at(volume, "name");
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            rules::label(name, &here.field("name"), errors);
            if !names.insert(name) {
                errors.duplicate(&here.field("name"), name);
            }
        }
        source(volume, &here, errors);
    }
    names
}

fn source(volume: &Value, path: &Path, errors: &mut Errors) {
    let mut count = 0;
    for (kind, source) in volume.as_object().into_iter().flatten() {
        if kind == "name" || source.is_null() {
            continue;
        }
        let here = path.field(kind);
        count += 1;
        if count > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type");
            continue;
        }
        one(kind, source, &here, errors);
    }
    if count == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn one(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    match kind {
        "emptyDir" => {
            if rules::parse_quantity(at(source, "sizeLimit")).is_some_and(coracle_api::Quantity::is_negative)
            {
                errors
                    .forbidden(&path.field("sizeLimit"), "SizeLimit field must be a valid resource quantity");
            }
        }
        "secret" => {
            required(source, "secretName", path, errors);
            files(source, path, errors);
        }
        "configMap" => {
            required(source, "name", path, errors);
            files(source, path, errors);
        }
        "persistentVolumeClaim" => required(source, "claimName", path, errors),
        "downwardAPI" => {
            mode(source, "defaultMode", path, errors);
            downward(source, path, errors);
        }
        "projected" => projected(source, path, errors),
        "ephemeral" if !has(source, "volumeClaimTemplate") => {
            errors.required(&path.field("volumeClaimTemplate"), "")
        }
        "ephemeral" => {
            let here = path.field("volumeClaimTemplate").field("spec");
            super::super::super::claims::spec(at(source, "volumeClaimTemplate.spec"), &here, errors);
        }
        "image" => {
            required(source, "reference", path, errors);
            rules::one_of(source, "pullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
        }
        _ => persistent_source(kind, source, path, errors),
    }
}

/// Sources that pods' volumes and persistent volumes share.
pub fn persistent_source(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    match kind {
        "hostPath" => host_path(source, path, errors),
        "nfs" => {
            required(source, "server", path, errors);
            required(source, "path", path, errors);
            if !str_at(source, "path").is_empty() && !str_at(source, "path").starts_with('/') {
                errors.invalid(&path.field("path"), str_at(source, "path"), "must be an absolute path");
            }
        }
        "local" => required(source, "path", path, errors),
        "csi" => required(source, "driver", path, errors),
        "iscsi" => {
            required(source, "targetPortal", path, errors);
            required(source, "iqn", path, errors);
        }
        _ => plugin(kind, source, path, errors),
    }
}

/// What the other plugins cannot do without.
fn plugin(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    let needed: &[&str] = match kind {
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "rbd" => &["image"],
        "quobyte" => &["registry", "volume"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "vsphereVolume" => &["volumePath"],
        "azureDisk" => &["diskName", "diskURI"],
        "portworxVolume" => &["volumeID"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "photonPersistentDisk" => &["pdID"],
        "gitRepo" => &["repository"],
        _ => &[],
    };
    needed.iter().for_each(|field| required(source, field, path, errors));
    if matches!(kind, "rbd" | "cephfs") && list_at(source, "monitors").is_empty() {
        errors.required(&path.field("monitors"), "");
    }
    if matches!(kind, "gcePersistentDisk" | "awsElasticBlockStore")
        && let Some(partition) = i64_at(source, "partition")
        && !(0..=255).contains(&partition)
    {
        errors.invalid(&path.field("partition"), partition, "must be between 0 and 255, inclusive");
    }
}

fn host_path(source: &Value, path: &Path, errors: &mut Errors) {
    required(source, "path", path, errors);
    no_back_steps(str_at(source, "path"), &path.field("path"), errors);
    let kind = str_at(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.not_supported(&path.field("type"), kind, HOST_PATH_TYPES);
    }
}

fn required(source: &Value, field: &str, path: &Path, errors: &mut Errors) {
    if str_at(source, field).is_empty() {
        errors.required(&path.field(field), "");
    }
}

fn mode(holder: &Value, field: &str, path: &Path, errors: &mut Errors) {
    if let Some(mode) = i64_at(holder, field)
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(&path.field(field), mode, MODE_RANGE);
    }
}

/// `defaultMode` and `items` of a source whose keys become files.
fn files(source: &Value, path: &Path, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    for (i, item) in list_at(source, "items").iter().enumerate() {
        let here = path.field("items").index(i);
        required(item, "key", &here, errors);
        file_path(item, &here, errors);
        mode(item, "mode", &here, errors);
    }
}

fn file_path(item: &Value, path: &Path, errors: &mut Errors) {
    let file = str_at(item, "path");
    let here = path.field("path");
    if file.is_empty() {
        errors.required(&here, "");
        return;
    }
    relative(file, &here, errors);
    if file.starts_with("..") && !file.starts_with("../") && file != ".." {
        errors.invalid(&here, file, "must not start with '..'");
    }
}

fn relative(file: &str, path: &Path, errors: &mut Errors) {
    if file.starts_with('/') {
        errors.invalid(path, file, "must be a relative path");
    }
    no_back_steps(file, path, errors);
}

fn no_back_steps(file: &str, path: &Path, errors: &mut Errors) {
    if file.split('/').any(|part| part == "..") {
        errors.invalid(path, file, "must not contain '..'");
    }
}

fn downward(source: &Value, path: &Path, errors: &mut Errors) {
    for (i, item) in list_at(source, "items").iter().enumerate() {
        let here = path.field("items").index(i);
        file_path(item, &here, errors);
        mode(item, "mode", &here, errors);
        match (has(item, "fieldRef"), has(item, "resourceFieldRef")) {
            (true, true) => {
                errors.invalid(
                    &here,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
            (true, false) => env::volume_field_ref(at(item, "fieldRef"), &here.field("fieldRef"), errors),
            (false, true) => {
                env::resource_ref(
                    at(item, "resourceFieldRef"),
                    &here.field("resourceFieldRef"),
                    true,
                    errors,
                );
            }
            (false, false) => errors.required(&here, "one of fieldRef and resourceFieldRef is required"),
        }
    }
}

fn projected(source: &Value, path: &Path, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    for (i, part) in list_at(source, "sources").iter().enumerate() {
        let here = path.field("sources").index(i);
        let mut count = 0;
        for (kind, projection) in part.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
            let at_kind = here.field(kind);
            count += 1;
            if count > 1 {
                errors.forbidden(&at_kind, "may not specify more than 1 volume type");
                continue;
            }
            projection_source(kind, projection, &at_kind, errors);
        }
        if count == 0 {
            errors.required(&here, "must specify a volume type");
        }
    }
}

fn projection_source(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    match kind {
        "secret" | "configMap" => {
            required(source, "name", path, errors);
            files(source, path, errors);
        }
        "downwardAPI" => downward(source, path, errors),
        "serviceAccountToken" => {
            file_path(source, path, errors);
            let seconds = i64_at(source, "expirationSeconds").unwrap_or(0);
            if seconds < 600 {
                let detail = "may not specify a duration less than 10 minutes";
                errors.invalid(&path.field("expirationSeconds"), seconds, detail);
            } else if seconds > 1 << 32 {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.invalid(&path.field("expirationSeconds"), seconds, detail);
            }
        }
        _ => {}
    }
}

/// The mounts and devices of one container.
pub fn mounts(container: &Value, path: &Path, context: &Context, errors: &mut Errors) {
    let volumes = &context.volumes;
    let mut points = HashSet::new();
    for (i, mount) in list_at(container, "volumeMounts").iter().enumerate() {
        let here = path.field("volumeMounts").index(i);
        known(mount, &here, volumes, errors);
        let point = str_at(mount, "mountPath");
        if point.is_empty() {
            errors.required(&here.field("mountPath"), "");
        } else if !points.insert(point) {
            errors.invalid(&here.field("mountPath"), point, "must be unique");
        }
        recursive(mount, &here, errors);
        sub_path(mount, &here, errors);
        propagation(container, mount, &here, errors);
    }
    for (i, device) in list_at(container, "volumeDevices").iter().enumerate() {
        let here = path.field("volumeDevices").index(i);
        known(device, &here, volumes, errors);
        let name = str_at(device, "name");
        if volumes.contains(name) && !context.blocks.contains(name) {
            let detail =
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            errors.invalid(&here.field("name"), name, detail);
        }
        let point = str_at(device, "devicePath");
        if point.is_empty() {
            errors.required(&here.field("devicePath"), "");
        } else if !points.insert(point) {
            errors.invalid(&here.field("devicePath"), point, "must be unique");
        }
    }
}

/// Volumes that come as claims, and so may be block devices.
pub fn blocks(volumes: &[Value]) -> HashSet<&str> {
    let claimed = |v: &&Value| has(v, "persistentVolumeClaim") || has(v, "ephemeral");
    volumes.iter().filter(claimed).map(|v| str_at(v, "name")).collect()
}

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

fn known(mount: &Value, path: &Path, volumes: &HashSet<&str>, errors: &mut Errors) {
    match str_at(mount, "name") {
        "" => errors.required(&path.field("name"), ""),
        name if !volumes.contains(name) => errors.not_found(&path.field("name"), name),
        _ => {}
    }
}

fn sub_path(mount: &Value, path: &Path, errors: &mut Errors) {
    for field in ["subPath", "subPathExpr"] {
        relative(str_at(mount, field), &path.field(field), errors);
    }
    if !str_at(mount, "subPath").is_empty() && !str_at(mount, "subPathExpr").is_empty() {
        let value = str_at(mount, "subPathExpr");
        errors.invalid(&path.field("subPathExpr"), value, "subPathExpr and subPath are mutually exclusive");
    }
}

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
