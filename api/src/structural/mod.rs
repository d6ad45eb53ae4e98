//! Schemas of custom resources at work: what is pruned, what is filled in, what is wrong.
//!
//! Mirrors <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>. A
//! [`Structural`] is read once from a CustomResourceDefinition that has been accepted, and then serves every request.

mod defaults;
mod dynamic;
mod embedded;
pub mod field_path;
mod formats;
mod parse;
mod pattern;
mod prune;
mod unique;
mod validate;

#[cfg(test)]
mod tests;

use crate::schema::{ListType, MapType};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use defaults::{drop_nulls, fill};
pub use dynamic::{dynamic, object_type};
pub use embedded::{check as check_embedded, coerce, field_of, has_embedded, object_meta};
pub use parse::parse;
pub use pattern::Pattern;
pub use prune::prune;
pub use unique::{duplicates, has_unique};
pub use validate::validate;

/// `type` of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl JsonType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }
}

/// One rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: String,
    pub field_path: String,
    pub optional_old_self: bool,
}

impl Rule {
    /// How errors name the rule: by its message, else by itself.
    pub fn shown(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }
}

/// What keywords ask of a value.
#[derive(Clone, Debug, Default)]
pub struct Keywords {
    pub format: String,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
    pub one_of_these: Vec<Value>,
    pub all_of: Vec<Structural>,
    pub any_of: Vec<Structural>,
    pub one_of: Vec<Structural>,
    pub not: Option<Box<Structural>>,
}

/// A schema, or a part of one below `allOf` and its like.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    pub kind: Option<JsonType>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Structural>,
    /// The schema of values under any other key. `additionalProperties: true` is a schema that preserves all.
    pub additional: Option<Box<Structural>>,
    pub items: Option<Box<Structural>>,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    pub list_type: Option<ListType>,
    pub list_map_keys: Vec<String>,
    pub map_type: Option<MapType>,
    /// Most places of a schema have none, and share that.
    pub keywords: Arc<Keywords>,
    pub rules: Vec<Rule>,
}

impl Structural {
    /// The schema of what stands under `key` of an object.
    pub fn below(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(self.additional.as_deref())
    }

    /// Where the value of `key` stands: `path.key` for a field, `path[key]` for an entry of a map.
    fn place(&self, path: &str, key: &str) -> String {
        if self.properties.contains_key(key) { join(path, key) } else { format!("{path}[{key}]") }
    }
}

/// Fields that every object has, which no schema of a custom resource specifies.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// `path.key`, or `key` at the root; a key that is no plain name goes into brackets.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
