//! Sources of volumes that lie outside the cluster: pods name them, and so do persistent volumes.

use super::super::super::rules;
use super::super::super::value::*;
use super::volumes::no_back_steps;
use serde_json::Value;

const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const LUN_RANGE: &str = "must be between 0 and 255, inclusive";
/// What an initiator's portal may be called, with the volume's name in front.
const PORTAL_MAX_BYTES: usize = 64;

/// Whose volume it is. Upstream asks for other things in each.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    pub in_pod: bool,
    /// Of the volume.
    pub name: &'a str,
}

/// Sources that pods' volumes and persistent volumes share; `kind` is the field that holds it.
pub fn source(kind: &str, source: &Value, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
    needed(kind).iter().for_each(|field| required(source, field, path, errors));
    match kind {
        "hostPath" => host_path(source, path, errors),
        "nfs" if !str_at(source, "path").starts_with('/') => {
            errors.invalid(&path.field("path"), str_at(source, "path"), "must be an absolute path");
        }
        "local" => no_back_steps(str_at(source, "path"), &path.field("path"), errors),
        "gitRepo" => super::volumes::relative(str_at(source, "directory"), &path.field("directory"), errors),
        "csi" => csi(source, holder, path, errors),
        "iscsi" => iscsi(source, holder, path, errors),
        "fc" => fibre_channel(source, path, errors),
        "flocker" => flocker(source, path, errors),
        "quobyte" => quobyte(source, path, errors),
        "storageos" => storage_os(source, holder, path, errors),
        "azureDisk" => azure_disk(source, path, errors),
        "flexVolume" => flex(source, path, errors),
        "rbd" | "cephfs" if list_at(source, "monitors").is_empty() => {
            errors.required(&path.field("monitors"), "");
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => partition(source, path, errors),
        "cinder" if has(source, "secretRef") => {
            secret(at(source, "secretRef"), holder, &path.field("secretRef"), errors);
        }
        "azureFile" if has(source, "secretNamespace") => required(source, "secretNamespace", path, errors),
        "glusterfs" if has(source, "endpointsNamespace") => endpoints_namespace(source, path, errors),
        _ => {}
    }
}

/// What a source cannot do without.
fn needed(kind: &str) -> &'static [&'static str] {
    match kind {
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "iscsi" => &["targetPortal", "iqn"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "rbd" => &["image"],
        "quobyte" => &["volume"],
        "flexVolume" => &["driver"],
        "azureFile" => &["secretName", "shareName"],
        "vsphereVolume" => &["volumePath"],
        "azureDisk" => &["diskName", "diskURI"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "photonPersistentDisk" => &["pdID"],
        "gitRepo" => &["repository"],
        "storageos" => &["volumeName"],
        _ => &[],
    }
}

pub fn required(source: &Value, field: &str, path: &Path, errors: &mut Errors) {
    if str_at(source, field).is_empty() {
        errors.required(&path.field(field), "");
    }
}

fn host_path(source: &Value, path: &Path, errors: &mut Errors) {
    no_back_steps(str_at(source, "path"), &path.field("path"), errors);
    let kind = str_at(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.not_supported(&path.field("type"), kind, HOST_PATH_TYPES);
    }
}

/// The name of a CSI driver, wherever it stands.
pub fn driver(name: &str, path: &Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    }
    if name.len() > coracle_api::validation::LABEL_MAX_BYTES {
        errors.too_long(path, coracle_api::validation::LABEL_MAX_BYTES);
    }
    for message in coracle_api::validation::dns1123_subdomain(&name.to_lowercase()) {
        errors.invalid(path, name, &message);
    }
}

fn csi(source: &Value, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
    driver(str_at(source, "driver"), &path.field("driver"), errors);
    if holder.in_pod {
        if has(source, "nodePublishSecretRef") {
            let (name, here) =
                (str_at(source, "nodePublishSecretRef.name"), path.field("nodePublishSecretRef"));
            named(name, &here.field("name"), errors);
        }
        return;
    }
    required(source, "volumeHandle", path, errors);
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let (reference, here) = (at(source, field), path.field(field));
        if reference.is_null() {
            continue;
        }
        named(str_at(reference, "name"), &here.field("name"), errors);
        match str_at(reference, "namespace") {
            "" => errors.required(&here.field("namespace"), ""),
            namespace => rules::label(namespace, &here.field("namespace"), errors),
        }
    }
}

fn named(name: &str, path: &Path, errors: &mut Errors) {
    match name {
        "" => errors.required(path, ""),
        name => rules::subdomain(name, path, errors),
    }
}

/// A persistent volume says in which namespace its secret is.
fn secret(reference: &Value, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
    required(reference, "name", path, errors);
    if !holder.in_pod {
        required(reference, "namespace", path, errors);
    }
}

fn iscsi(source: &Value, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
    let initiator_path = path.field("initiatorName");
    if !str_at(source, "iqn").is_empty() {
        initiator(str_at(source, "iqn"), holder, &path.field("iqn"), errors);
    }
    lun(source, path, errors);
    let authenticates = bool_at(source, "chapAuthDiscovery") || bool_at(source, "chapAuthSession");
    if authenticates && !has(source, "secretRef") {
        errors.required(&path.field("secretRef"), "");
    }
    if !holder.in_pod && has(source, "secretRef") {
        required(at(source, "secretRef"), "name", &path.field("secretRef"), errors);
    }
    if has(source, "initiatorName") {
        initiator(str_at(source, "initiatorName"), holder, &initiator_path, errors);
        let portal = str_at(source, "targetPortal");
        if holder.name.len() + 1 + portal.len() > PORTAL_MAX_BYTES {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                          iscsi.initiatorName is specified.";
            errors.invalid(&path.field("targetPortal"), portal, detail);
        }
    }
}

fn initiator(name: &str, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
    let good = match name.get(..3) {
        Some("iqn") => is_qualified(name),
        Some("eui") => is_identifier(name, 16),
        Some("naa") => is_identifier(name, 32),
        _ if holder.in_pod => {
            return errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa");
        }
        _ => false,
    };
    if !good {
        errors.invalid(path, name, "must be valid format");
    }
}

/// `iqn.<year>-<month>.<domain>:<name>` (RFC 3720).
fn is_qualified(name: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let parts = name.strip_prefix("iqn.").and_then(|rest| rest.split_once('.'));
    let Some((date, rest)) = parts else { return false };
    let dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    dated
        && rest.split_once(':').is_some_and(|(domain, own)| {
            !domain.is_empty()
                && domain.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
                && !own.is_empty()
                && !own.contains(|c: char| c.is_ascii_whitespace() || ",;*&$|".contains(c))
        })
}

/// Three letters, any byte, and a number of letters and digits.
fn is_identifier(name: &str, length: usize) -> bool {
    name.get(4..).is_some_and(|rest| rest.len() == length && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn lun(source: &Value, path: &Path, errors: &mut Errors) {
    if let Some(lun) = i64_at(source, "lun")
        && !(0..=255).contains(&lun)
    {
        errors.invalid(&path.field("lun"), lun, LUN_RANGE);
    }
}

fn fibre_channel(source: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("targetWWNs");
    let (targets, ids) = (!list_at(source, "targetWWNs").is_empty(), !list_at(source, "wwids").is_empty());
    if !targets && !ids {
        errors.required(&here, "must specify either targetWWNs or wwids, but not both");
    }
    if targets && ids {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&here, at(source, "targetWWNs").clone(), detail);
    }
    if targets {
        if !has(source, "lun") {
            errors.required(&path.field("lun"), "lun is required if targetWWNs is specified");
        }
        lun(source, path, errors);
    }
}

fn flocker(source: &Value, path: &Path, errors: &mut Errors) {
    let name = str_at(source, "datasetName");
    match (name.is_empty(), str_at(source, "datasetUUID").is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(
                path,
                "resource",
                "datasetName and datasetUUID can not be specified simultaneously",
            );
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.field("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(source: &Value, path: &Path, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, here) = (str_at(source, "registry"), path.field("registry"));
    if registry.is_empty() {
        errors.required(&here, PAIRS);
    } else if str_at(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.field("tenant"), detail);
    } else {
        let pair = |text: &str| {
            text.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'))
        };
        if !registry.split(',').all(pair) {
            errors.invalid(&here, registry, PAIRS);
        }
    }
}

fn storage_os(source: &Value, holder: Holder<'_>, path: &Path, errors: &mut Errors) {
    for field in ["volumeName", "volumeNamespace"] {
        let name = str_at(source, field);
        if !name.is_empty() {
            rules::label(name, &path.field(field), errors);
        }
    }
    if has(source, "secretRef") {
        secret(at(source, "secretRef"), holder, &path.field("secretRef"), errors);
    }
}

fn azure_disk(source: &Value, path: &Path, errors: &mut Errors) {
    rules::one_of_if_set(source, "cachingMode", &["None", "ReadOnly", "ReadWrite"], path, errors);
    rules::one_of_if_set(source, "kind", &["Dedicated", "Managed", "Shared"], path, errors);
    let (uri, here) = (str_at(source, "diskURI"), path.field("diskURI"));
    let (start, form) = match str_at(source, "kind") {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    if has(source, "kind") && !uri.starts_with(start) {
        errors.not_supported(&here, uri, &[form]);
    }
}

fn flex(source: &Value, path: &Path, errors: &mut Errors) {
    for (key, _) in entries_at(source, "options") {
        let owner =
            format!(".{}", key.split_once('/').map_or(key.as_str(), |(owner, _)| owner).to_lowercase());
        if owner.ends_with(".kubernetes.io") || owner.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.field("options").key(key), key.as_str(), detail);
        }
    }
}

fn partition(source: &Value, path: &Path, errors: &mut Errors) {
    if let Some(partition) = i64_at(source, "partition")
        && !(0..=255).contains(&partition)
    {
        errors.invalid(&path.field("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

fn endpoints_namespace(source: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("endpointsNamespace");
    match str_at(source, "endpointsNamespace") {
        "" => errors.invalid(&here, "", "if the endpointnamespace is set, it must be a valid namespace name"),
        namespace => rules::label(namespace, &here, errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(kind: &str, value: Value, in_pod: bool) -> Vec<String> {
        let mut errors = Vec::new();
        let holder = Holder { in_pod, name: "v" };
        source(kind, &value, holder, &Path::root(kind), &mut Errors(&mut errors));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mistakes_in_pods() {
        for (kind, value, want) in [
            (
                "iscsi",
                json!({ "targetPortal": "p", "iqn": "abc" }),
                "iscsi.iqn: Invalid value: \"abc\": must be valid format starting with iqn, eui, or naa",
            ),
            (
                "iscsi",
                json!({ "targetPortal": "p", "iqn": "iqn.2015-02.example.com:test", "lun": 256 }),
                "iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
            ),
            (
                "iscsi",
                json!({ "targetPortal": "p", "iqn": "eui.0123456789abcdef", "chapAuthSession": true }),
                "iscsi.secretRef: Required value",
            ),
            (
                "fc",
                json!({}),
                "fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both",
            ),
            (
                "fc",
                json!({ "targetWWNs": ["a"] }),
                "fc.lun: Required value: lun is required if targetWWNs is specified",
            ),
            ("flocker", json!({}), "flocker: Required value: one of datasetName and datasetUUID is required"),
            (
                "quobyte",
                json!({ "registry": "host", "volume": "v" }),
                "quobyte.registry: Invalid value: \"host\": must be a host:port pair or multiple pairs separated by commas",
            ),
            (
                "flexVolume",
                json!({ "driver": "d", "options": { "a.kubernetes.io/b": "c" } }),
                "flexVolume.options[a.kubernetes.io/b]: Invalid value: \"a.kubernetes.io/b\": kubernetes.io and k8s.io \
                 namespaces are reserved",
            ),
            (
                "csi",
                json!({ "driver": "d", "nodePublishSecretRef": {} }),
                "csi.nodePublishSecretRef.name: Required value",
            ),
            (
                "nfs",
                json!({ "server": "s", "path": "x" }),
                "nfs.path: Invalid value: \"x\": must be an absolute path",
            ),
        ] {
            assert_eq!(found(kind, value.clone(), true), [want], "{kind} {value}");
        }
    }

    #[test]
    fn what_only_persistent_volumes_must_say() {
        assert_eq!(found("csi", json!({ "driver": "d" }), false), ["csi.volumeHandle: Required value"]);
        let expands =
            json!({ "driver": "d", "volumeHandle": "h", "controllerExpandSecretRef": { "name": "n" } });
        assert_eq!(found("csi", expands, false), ["csi.controllerExpandSecretRef.namespace: Required value"]);
        let cinder = json!({ "volumeID": "v", "secretRef": { "name": "n" } });
        assert!(found("cinder", cinder.clone(), true).is_empty());
        assert_eq!(found("cinder", cinder, false), ["cinder.secretRef.namespace: Required value"]);
    }

    #[test]
    fn good_ones() {
        for (kind, value) in [
            (
                "iscsi",
                json!({ "targetPortal": "p", "iqn": "naa.0123456789abcdef0123456789abcdef", "lun": 0 }),
            ),
            ("fc", json!({ "targetWWNs": ["a"], "lun": 1 })),
            ("quobyte", json!({ "registry": "a:1,[::1]:2", "volume": "v" })),
            (
                "azureDisk",
                json!({ "diskName": "d", "diskURI": "https://x", "kind": "Shared", "cachingMode": "None" }),
            ),
            ("csi", json!({ "driver": "A.b" })),
        ] {
            assert!(
                found(kind, value.clone(), true).is_empty(),
                "{value}: {:?}",
                found(kind, value.clone(), true)
            );
        }
    }
}
