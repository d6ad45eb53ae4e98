//! Schemas of a version: structural, publishable, with defaults and rules that work.
//!
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>

mod complete;
mod defaults;
mod keywords;
mod lists;
mod nested;
mod structural;
mod validations;

use super::*;
use coracle_api::structural::parse;

pub use coracle_api::structural::field_path::{Step, follow};

/// Levels of schemas in schemas. Upstream's limit is the size of a request; the recursion here runs on a thread of 2 MiB,
/// of which a level takes less than 2 KiB in each walk.
pub(super) const DEEPEST: usize = 200;

/// What is asked of a schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The version has a status of its own, so the root must be taken apart.
    pub status: bool,
    /// The schema is as it was before the update. It was judged when it was written, maybe by a server that knew less,
    /// and an update of something else must not fail for it.
    pub unchanged: bool,
}

/// Fields that the root may have beside a status subresource, as Go calls them and as JSON does.
const AT_ROOT: [(&str, &str); 22] = [
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
    ("XValidations", "x-kubernetes-validations"),
];

/// Whether a keyword says nothing, as Go's zero values do.
pub(super) fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Everything that is wrong with the schema of a version. `holder` is its `schema`.
pub fn check(holder: &Value, options: Options, path: &Path, errors: &mut Errors) {
    let (schema, path) = (at(holder, "openAPIV3Schema"), path.field("openAPIV3Schema"));
    if !schema.is_object() {
        return;
    }
    if depth(schema) > DEEPEST {
        errors.forbidden(&path, &format!("schemas are nested more than {DEEPEST} levels deep"));
        return;
    }
    let before = errors.0.len();
    if options.status {
        root_fields(schema, &path, errors);
    }
    if options.unchanged {
        return;
    }
    if bool_at(schema, "nullable") {
        errors.forbidden(&path.field("nullable"), "nullable cannot be true at the root");
    }
    let is_structural = structural_errors(schema, &path, errors);
    let parsed = is_structural.then(|| parse(schema));
    if let Some(parsed) = &parsed {
        defaults::check(parsed, &path, errors);
    }
    keywords::check(schema, &path, &keywords::Place::root(), errors);
    if let Some(parsed) = parsed.filter(|_| errors.0.len() == before) {
        let path: String = (&path).into();
        errors.0.extend(coracle_cel::rules::check(&parsed, &path));
    }
}

/// Only then can a schema be read, and its defaults and rules be tried.
fn structural_errors(schema: &Value, path: &Path, errors: &mut Errors) -> bool {
    let mut found = Vec::new();
    let mut list = Errors(&mut found);
    structural::check(schema, structural::Level::Root, path, &mut list);
    complete::check(schema, path, &mut list);
    found.sort_by_cached_key(ToString::to_string);
    let none = found.is_empty();
    errors.0.extend(found);
    none
}

fn root_fields(schema: &Value, path: &Path, errors: &mut Errors) {
    if !matches!(str_at(schema, "type"), "" | "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.invalid(&path.field("type"), str_at(schema, "type"), detail);
        return;
    }
    let other = schema
        .as_object()
        .into_iter()
        .flatten()
        .any(|(word, value)| !is_unset(value) && !AT_ROOT.iter().any(|(_, known)| known == word));
    if other {
        let known: Vec<&str> = AT_ROOT.iter().map(|(name, _)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            known.join(" ")
        );
        errors.invalid(path, schema.clone(), &detail);
    }
}

/// What keeps the schemas of a definition from being structural; empty for everything that was created here.
pub fn non_structural(definition: &Object) -> Vec<String> {
    let mut found = Vec::new();
    for (i, version) in list_at(definition, "spec.versions").iter().enumerate() {
        let path = Path::root("spec").field("versions").index(i).field("schema").field("openAPIV3Schema");
        let schema = at(version, "schema.openAPIV3Schema");
        if schema.is_object() && depth(schema) <= DEEPEST {
            structural_errors(schema, &path, &mut Errors(&mut found));
        }
    }
    found.iter().map(ToString::to_string).collect()
}

/// Every schema directly below one.
pub(super) fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let maps = ["properties", "patternProperties", "definitions", "dependencies"];
    let lists = ["allOf", "anyOf", "oneOf", "items"];
    let ones = ["items", "additionalProperties", "additionalItems", "not"];
    let of_maps = maps.into_iter().flat_map(|word| entries_at(schema, word)).map(|(_, below)| below);
    let of_lists = lists.into_iter().flat_map(|word| list_at(schema, word));
    let single = ones.into_iter().map(|word| at(schema, word));
    of_maps.chain(of_lists).chain(single).filter(|below| below.is_object())
}

/// Counted without recursion, since it guards what recurses.
fn depth(schema: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(schema, 1)];
    while let Some((schema, level)) = open.pop() {
        deepest = deepest.max(level);
        if deepest > DEEPEST {
            break;
        }
        open.extend(below(schema).map(|inner| (inner, level + 1)));
    }
    deepest
}

/// For formats that nothing knows.
pub fn warnings(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in list_at(spec, "versions") {
        let mut open = vec![at(version, "schema.openAPIV3Schema")];
        while let Some(schema) = open.pop().filter(|_| found.len() < 64) {
            let format = str_at(schema, "format");
            let warning = format!("unrecognized format {format:?}");
            if !format.is_empty() && !FORMATS.contains(&format) && !found.contains(&warning) {
                found.push(warning);
            }
            open.extend(below(schema));
        }
    }
    found
}

/// Formats that texts are checked against, and those that only tell clients what to do. Upstream knows none of numbers.
const FORMATS: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];
