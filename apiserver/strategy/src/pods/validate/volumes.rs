//! Volumes, and where containers mount them.

use super::super::super::rules;
use super::super::super::value::*;
use super::env;
use super::sources::{self, Holder, required};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const MODE_RANGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates the volumes of a pod and returns by their names those in which nothing is wrong: only these can be mounted.
pub fn all<'a>(volumes: &'a [Value], path: &Path, errors: &mut Errors) -> HashMap<&'a str, &'a Value> {
    let mut names = HashMap::new();
    for (i, volume) in volumes.iter().enumerate() {
        let here = path.index(i);
        let (name, before) = (str_at(volume, "name"), errors.0.len());
        source(volume, &here, errors);
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            rules::label(name, &here.field("name"), errors);
        }
        if names.contains_key(name) {
            errors.duplicate(&here.field("name"), name);
        }
        if errors.0.len() == before {
            names.insert(name, volume);
        }
    }
    names
}

/// Which of several sources counts, and so which are refused.
const KINDS: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

fn source(volume: &Value, path: &Path, errors: &mut Errors) {
    let holder = Holder { in_pod: true, name: str_at(volume, "name") };
    let mut given = KINDS.iter().filter(|kind| has(volume, kind));
    match given.next() {
        Some(kind) => one(kind, at(volume, kind), holder, &path.field(kind), errors),
        None => errors.required(path, "must specify a volume type"),
    }
    given.for_each(|kind| errors.forbidden(&path.field(kind), "may not specify more than 1 volume type"));
}

fn one(kind: &str, source: &Value, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
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
            let here = path.field("volumeClaimTemplate");
            template_metadata(at(source, "volumeClaimTemplate.metadata"), &here.field("metadata"), errors);
            crate::claim_spec::spec(at(source, "volumeClaimTemplate.spec"), &here.field("spec"), errors);
        }
        "image" => {
            required(source, "reference", path, errors);
            rules::one_of(source, "pullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
        }
        _ => sources::source(kind, source, holder, path, errors),
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

pub fn file_path(item: &Value, path: &Path, errors: &mut Errors) {
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

pub fn relative(file: &str, path: &Path, errors: &mut Errors) {
    if file.starts_with('/') {
        errors.invalid(path, file, "must be a relative path");
    }
    no_back_steps(file, path, errors);
}

pub fn no_back_steps(file: &str, path: &Path, errors: &mut Errors) {
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

/// Of an object that is made after a template: only labels and annotations are the template's to choose.
pub fn template_metadata(metadata: &Value, path: &Path, errors: &mut Errors) {
    rules::labels(at(metadata, "labels"), &path.field("labels"), errors);
    rules::annotations(at(metadata, "annotations"), &path.field("annotations"), errors);
    for (field, _) in metadata.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        if !matches!(field.as_str(), "labels" | "annotations") {
            errors.forbidden(&path.field(field), "cannot be set");
        }
    }
}

/// What a pod's name adds: the claims of its ephemeral volumes are named after both.
pub fn named_after_pod(pod: &Value, errors: &mut Errors) {
    let (pod_name, volumes) = (name(pod), list_at(pod, "spec.volumes"));
    if pod_name.is_empty() {
        return;
    }
    let claim = |volume: &Value| format!("{pod_name}-{}", str_at(volume, "name"));
    let made: HashSet<String> = volumes.iter().filter(|v| has(v, "ephemeral")).map(claim).collect();
    for (i, volume) in volumes.iter().enumerate() {
        let here = Path::root("spec").field("volumes").index(i);
        let asked = str_at(volume, "persistentVolumeClaim.claimName");
        if made.contains(asked) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&here.field("persistentVolumeClaim").field("claimName"), asked, detail);
        }
        if has(volume, "ephemeral") {
            let claim = claim(volume);
            for message in coracle_api::validation::dns1123_subdomain(&claim) {
                let detail = format!("PVC name \"{claim}\": {message}");
                errors.invalid(&here.field("name"), str_at(volume, "name"), &detail);
            }
        }
    }
}

fn projected(source: &Value, path: &Path, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let mut files = HashSet::new();
    for (i, part) in list_at(source, "sources").iter().enumerate() {
        let here = path.field("sources").index(i);
        let given = || part.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null());
        for (kind, projection) in given() {
            projection_source(kind, projection, &here.field(kind), errors);
            for file in paths(projection).filter(|file| !file.is_empty()) {
                if !files.insert(file) {
                    let whose = match kind.as_str() {
                        "secret" | "configMap" => str_at(projection, "name"),
                        _ => file,
                    };
                    errors.invalid(path, whose, "conflicting duplicate paths");
                }
            }
        }
        if given().count() > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type per source");
        }
    }
}

/// Which files a projection makes; of a token upstream does not look.
fn paths(projection: &Value) -> impl Iterator<Item = &str> {
    list_at(projection, "items").iter().map(|item| str_at(item, "path"))
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
            rules::token_seconds(seconds, &path.field("expirationSeconds"), errors);
        }
        // Sources of gates that are off were dropped before.
        _ => {}
    }
}
