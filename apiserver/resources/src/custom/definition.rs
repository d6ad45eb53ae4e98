//! What serving needs of a CustomResourceDefinition. Schemas are read when they are first used.

use super::Schema;
use crate::cache::CachedObject;
use crate::conversion::Converter;
use coracle_api::Object;
use coracle_requests::value::{at, bool_at, i64_at, list_at, str_at, strings_at};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// How objects go from one version to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// They say another `apiVersion`, and lose what the other schema does not specify.
    None,
    /// `spec.conversion.webhook`.
    Webhook(Value),
}

/// `subresources.scale` of a version: fields below the object, from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub label_selector: Option<Vec<String>>,
}

/// One of `additionalPrinterColumns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

/// One of `spec.versions`.
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    /// What clients of a deprecated version are told, where the definition words it itself.
    pub deprecation_warning: Option<String>,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Vec<PrinterColumn>,
    /// Of `selectableFields`: `spec.color`.
    pub selectable: Vec<String>,
    pub(crate) schema: OnceLock<Arc<Schema>>,
}

/// One CustomResourceDefinition.
pub struct Definition {
    /// `<plural>.<group>`: its name, and where its objects are kept.
    pub key: String,
    /// As it is stored; [`CachedObject::decode`] shows the whole of it.
    pub object: Arc<CachedObject>,
    pub uid: String,
    /// `metadata.generation`: another one whenever `spec` has changed.
    pub generation: i64,
    pub group: String,
    pub plural: String,
    pub namespaced: bool,
    /// `status.acceptedNames`.
    pub names: Value,
    /// In the order of preference.
    pub versions: Vec<Version>,
    /// `status.storedVersions`: those that objects may be stored in.
    pub stored_versions: Vec<String>,
    pub conversion: Conversion,
    /// `spec.preserveUnknownFields`, which only old definitions have: nothing is pruned.
    pub preserve_unknown: bool,
    pub established: bool,
    /// It is being deleted: nothing new is created.
    pub terminating: bool,
    /// Of no other definition, and carried over by changes that change nothing of what is served.
    pub serial: u64,
    pub(crate) converter: Arc<Converter>,
}

/// `.spec.replicas` as its parts.
fn path_of(text: &str) -> Vec<String> {
    text.trim_start_matches('.').split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn scale(paths: &Value) -> Option<ScalePaths> {
    paths.is_object().then(|| ScalePaths {
        spec_replicas: path_of(str_at(paths, "specReplicasPath")),
        status_replicas: path_of(str_at(paths, "statusReplicasPath")),
        label_selector: Some(str_at(paths, "labelSelectorPath")).filter(|p| !p.is_empty()).map(path_of),
    })
}

fn column(column: &Value) -> PrinterColumn {
    let text = |field: &str| str_at(column, field).to_owned();
    PrinterColumn {
        name: text("name"),
        kind: text("type"),
        format: text("format"),
        description: text("description"),
        priority: i64_at(column, "priority").unwrap_or(0),
        json_path: text("jsonPath"),
    }
}

impl Version {
    fn of(version: &Value) -> Self {
        let warning = str_at(version, "deprecationWarning");
        Self {
            name: str_at(version, "name").to_owned(),
            served: bool_at(version, "served"),
            storage: bool_at(version, "storage"),
            deprecated: bool_at(version, "deprecated"),
            deprecation_warning: version.get("deprecationWarning").map(|_| warning.to_owned()),
            has_status: at(version, "subresources.status").is_object(),
            scale: scale(at(version, "subresources.scale")),
            columns: list_at(version, "additionalPrinterColumns").iter().map(column).collect(),
            selectable: list_at(version, "selectableFields")
                .iter()
                .map(|field| path_of(str_at(field, "jsonPath")).join("."))
                .collect(),
            schema: OnceLock::new(),
        }
    }
}

impl Definition {
    /// `None` for what was never a valid definition.
    pub(crate) fn of(object: &Arc<CachedObject>, serial: u64, converter: &Arc<Converter>) -> Option<Self> {
        let whole = object.decode();
        let spec = &whole["spec"];
        let mut versions: Vec<Version> = list_at(spec, "versions").iter().map(Version::of).collect();
        versions.sort_by(|a, b| newer_first(&a.name, &b.name));
        if versions.is_empty() {
            return None;
        }
        let is = |kind: &str| is_true(&whole, kind);
        Some(Self {
            key: object.name().to_owned(),
            object: object.clone(),
            uid: str_at(&whole, "metadata.uid").to_owned(),
            generation: i64_at(&whole["metadata"], "generation").unwrap_or(0),
            group: str_at(spec, "group").to_owned(),
            plural: str_at(spec, "names.plural").to_owned(),
            namespaced: str_at(spec, "scope") == "Namespaced",
            names: at(&whole, "status.acceptedNames").clone(),
            versions,
            stored_versions: strings_at(&whole, "status.storedVersions").map(str::to_owned).collect(),
            conversion: match str_at(spec, "conversion.strategy") {
                "Webhook" => Conversion::Webhook(at(spec, "conversion.webhook").clone()),
                _ => Conversion::None,
            },
            preserve_unknown: bool_at(spec, "preserveUnknownFields"),
            established: is("Established"),
            terminating: is("Terminating"),
            serial,
            converter: converter.clone(),
        })
    }

    pub fn name(&self, field: &str) -> &str {
        str_at(&self.names, field)
    }

    pub fn names(&self, field: &str) -> impl Iterator<Item = &str> {
        strings_at(&self.names, field)
    }

    /// The place of a version among [`versions`](Self::versions).
    pub fn version(&self, name: &str) -> Option<usize> {
        self.versions.iter().position(|version| version.name == name)
    }

    /// The schema of a version, read at its first use and shared from then on.
    pub fn schema(&self, version: usize) -> &Arc<Schema> {
        let version = &self.versions[version];
        version.schema.get_or_init(|| Arc::new(Schema::of(self, &version.name)))
    }

    /// The `openAPIV3Schema` of a version, as the definition has it.
    pub fn raw_schema(&self, version: &str) -> Value {
        raw_schema(&self.object.decode(), version).clone()
    }
}

pub(crate) fn raw_schema<'a>(definition: &'a Object, version: &str) -> &'a Value {
    let versions = list_at(&definition["spec"], "versions");
    let found = versions.iter().find(|v| str_at(v, "name") == version);
    found.map_or(&Value::Null, |version| at(version, "schema.openAPIV3Schema"))
}

fn is_true(definition: &Object, kind: &str) -> bool {
    list_at(definition, "status.conditions").iter().any(|c| c["type"] == kind && c["status"] == "True")
}

/// Kubernetes' order of versions: `v10`, `v2`, `v1`, `v11beta2`, `v1beta1`, `v3alpha1`, then other names.
pub fn newer_first(a: &str, b: &str) -> std::cmp::Ordering {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability (2 stable, 1 beta, 0 alpha), major and minor number.
fn parts(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let major: u32 = major.parse().ok().filter(|_| !major.starts_with('0'))?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    let minor: u32 = minor.parse().ok().filter(|_| !minor.starts_with('0'))?;
    Some((stability, major, minor))
}
