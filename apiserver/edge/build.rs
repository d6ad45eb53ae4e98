//! Writes the descriptions of the built-in types and their fields to `$OUT_DIR/prose`, deflated.
//!
//! They are k8s-openapi's own, read from the source of the version that is locked: building its JSON schemas only to ask
//! them would compile the largest dependency a second time. Lines of `type<TAB>description` and `type
//! field<TAB>description`, sorted; a line break inside a description is the character U+0001.

use flate2::{Compression, write::DeflateEncoder};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The kinds that are served; what they contain is found from them.
const KINDS: &[(&str, &[&str])] = &[
    (
        "apimachinery.pkg.apis.meta.v1",
        &["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Patch", "Status"],
    ),
    ("apimachinery.pkg.version", &["Info"]),
    ("apiextensions_apiserver.pkg.apis.apiextensions.v1", &["CustomResourceDefinition"]),
    ("kube_aggregator.pkg.apis.apiregistration.v1", &["APIService"]),
    (
        "api.admissionregistration.v1",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("api.apps.v1", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("api.authentication.v1", &["SelfSubjectReview", "TokenRequest", "TokenReview"]),
    (
        "api.authorization.v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("api.autoscaling.v1", &["HorizontalPodAutoscaler", "Scale"]),
    ("api.autoscaling.v2", &["HorizontalPodAutoscaler"]),
    ("api.batch.v1", &["CronJob", "Job"]),
    ("api.certificates.v1", &["CertificateSigningRequest"]),
    ("api.coordination.v1", &["Lease"]),
    (
        "api.core.v1",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("api.discovery.v1", &["EndpointSlice"]),
    ("api.events.v1", &["Event"]),
    ("api.flowcontrol.v1", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("api.networking.v1", &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    ("api.node.v1", &["RuntimeClass"]),
    ("api.policy.v1", &["Eviction", "PodDisruptionBudget"]),
    ("api.rbac.v1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("api.resource.v1", &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"]),
    ("api.scheduling.v1", &["PriorityClass"]),
    (
        "api.storage.v1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

/// The place of Kubernetes' version in the source, as the features of k8s-openapi name it.
const VERSION: &str = "v1_36";

/// A type of the source: what it and its fields are for, and the Rust paths of the types in it.
#[derive(Default)]
struct Type {
    name: String,
    prose: Vec<String>,
    contains: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let mut types = BTreeMap::new();
    read_folder(&source()?, "crate", &mut types)?;
    let mut lines: Vec<&str> = reached(&types)?.iter().flat_map(|of| &of.prose).map(String::as_str).collect();
    lines.sort_unstable();
    let path = Path::new(&env::var("OUT_DIR")?).join("prose");
    let mut file = DeflateEncoder::new(fs::File::create(path)?, Compression::best());
    lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
    file.finish()?;
    Ok(())
}

/// The folder of k8s-openapi's source for our version, which cargo knows.
fn source() -> Result<PathBuf, Box<dyn Error>> {
    let cargo = Command::new(env::var("CARGO")?)
        .args(["metadata", "--offline", "--format-version", "1", "--filter-platform", &env::var("TARGET")?])
        .current_dir(env::var("CARGO_MANIFEST_DIR")?)
        .output()?;
    if !cargo.status.success() {
        return Err(String::from_utf8_lossy(&cargo.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&cargo.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == "k8s-openapi")
        .find_map(|package| package["manifest_path"].as_str())
        .ok_or("cargo knows no k8s-openapi")?;
    Ok(Path::new(manifest).with_file_name("src").join(VERSION))
}

/// Reads the types of a folder, which is the module `path`, and of those below it.
fn read_folder(folder: &Path, path: &str, into: &mut BTreeMap<String, Type>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read_folder(&entry.path(), &format!("{path}::{}", entry.file_name().to_string_lossy()), into)?;
        } else if let Some((name, of)) = read_type(&fs::read_to_string(entry.path())?) {
            into.insert(format!("{path}::{name}"), of);
        }
    }
    Ok(())
}

/// The type whose schema a file of the source holds, with its Rust name. The source is generated: what belongs to the type
/// stands twelve columns in, the names of its fields sixteen, what belongs to a field twenty.
fn read_type(source: &str) -> Option<(String, Type)> {
    let (_, schema) = source.split_once("impl crate::schemars::JsonSchema for ")?;
    let (rust_name, schema) = schema.split_once(' ')?;
    let mut of = Type { name: quoted(schema.lines().nth(2)?)?.0, ..Type::default() };
    let mut field = None;
    for line in schema.lines() {
        if let Some((_, of_type)) = line.split_once("subschema_for::<") {
            of.contains.push(of_type.split('>').next()?.to_owned());
        }
        let text = line.trim_start();
        let key = match line.len() - text.len() {
            12 => of.name.clone(),
            16 => {
                field = quoted(text).map(|(name, _)| name);
                continue;
            }
            20 => match &field {
                Some(field) => format!("{} {field}", of.name),
                None => continue,
            },
            _ => continue,
        };
        if let Some(text) = described(text) {
            of.prose.push(format!("{key}\t{}", text.replace('\n', "\u{1}")));
        }
    }
    Some((rust_name.to_owned(), of))
}

/// What a line says in `"description": "..."` or in `insert("description".into(), "...".into())`.
fn described(line: &str) -> Option<String> {
    let rest = line
        .strip_prefix("\"description\": ")
        .or_else(|| line.split_once("insert(\"description\".into(), ").map(|(_, rest)| rest))?;
    quoted(rest).map(|(text, _)| text)
}

/// The string literal that a text begins with, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.trim_start().strip_prefix('"')?.chars();
    let mut found = String::new();
    loop {
        match chars.next()? {
            '"' => return Some((found, chars.as_str())),
            '\\' => found.push(escaped(&mut chars)?),
            other => found.push(other),
        }
    }
}

fn escaped(chars: &mut std::str::Chars) -> Option<char> {
    match chars.next()? {
        'n' => Some('\n'),
        't' => Some('\t'),
        'u' => {
            let (digits, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
            *chars = rest.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        }
        same => Some(same),
    }
}

/// The served kinds and all that they contain. A type that has no file, like a map, has no prose.
fn reached(types: &BTreeMap<String, Type>) -> Result<Vec<&Type>, String> {
    let kinds = KINDS.iter().flat_map(|(group, kinds)| kinds.iter().map(move |kind| (group, kind)));
    let mut open: Vec<String> =
        kinds.map(|(group, kind)| format!("crate.{group}.{kind}").replace('.', "::")).collect();
    if let Some(missing) = open.iter().find(|path| !types.contains_key(*path)) {
        return Err(format!("k8s-openapi has no source of {missing}"));
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        let Some(of) = types.get(&path).filter(|_| !seen.contains(&path)) else { continue };
        open.extend(of.contains.iter().cloned());
        seen.insert(path);
        found.push(of);
    }
    Ok(found)
}
