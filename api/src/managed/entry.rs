//! `metadata.managedFields`.

use super::fields::{parse_fields, write_fields};
use super::set::Set;
use crate::meta::time;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Apply before Update, as upstream orders entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One manager and what it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub manager: Cow<'a, str>,
    pub operation: Operation,
    /// Empty for the main resource.
    pub subresource: Cow<'a, str>,
    pub api_version: Cow<'a, str>,
    /// RFC 3339 with seconds.
    pub time: Option<Cow<'a, str>>,
    pub fields: Set<'a>,
}

impl Entry<'_> {
    /// Whether both stand for the same manager doing the same thing. Who applies is the same in every version.
    pub fn same_owner(&self, other: &Entry<'_>) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    pub(super) fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(time::parse).map_or(0, |t| t.as_second())
    }
}

/// What is wrong with managedFields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    #[error("error decoding versioned set for manager {manager:?}: {why}")]
    Fields { manager: String, why: String },
}

/// Reads the list. Null and absent are the empty list. Of entries with the same owner the last one counts.
pub fn decode(list: &Value) -> Result<Vec<Entry<'_>>, ManagedFieldsError> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (i, entry) in list.as_array().into_iter().flatten().enumerate() {
        let entry = decode_entry(i, entry)?;
        match entries.iter_mut().find(|known| known.same_owner(&entry)) {
            Some(known) => *known = entry,
            None => entries.push(entry),
        }
    }
    Ok(entries)
}

fn decode_entry(i: usize, entry: &Value) -> Result<Entry<'_>, ManagedFieldsError> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(ManagedFieldsError::Operation),
    };
    if text("apiVersion").is_empty() {
        return Err(ManagedFieldsError::ApiVersion);
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(ManagedFieldsError::NoFieldsType(i)),
        other => return Err(ManagedFieldsError::FieldsType(i, other.to_owned())),
    }
    let fields = parse_fields(&entry["fieldsV1"])
        .map_err(|why| ManagedFieldsError::Fields { manager: text("manager").to_owned(), why })?;
    Ok(Entry {
        manager: text("manager").into(),
        operation,
        subresource: text("subresource").into(),
        api_version: text("apiVersion").into(),
        time: entry["time"].as_str().map(Cow::Borrowed),
        fields,
    })
}

/// Writes the list in upstream's order; `None` for no entries.
pub fn encode(mut entries: Vec<Entry<'_>>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|a, b| {
        let key = |e: &Entry<'_>| (e.operation, e.seconds());
        key(a).cmp(&key(b)).then_with(|| {
            (&a.manager, &a.api_version, &a.subresource).cmp(&(&b.manager, &b.api_version, &b.subresource))
        })
    });
    Some(entries.iter().map(encode_entry).collect())
}

fn encode_entry(entry: &Entry<'_>) -> Value {
    let mut map = Map::new();
    let mut put = |field: &str, text: &str| {
        if !text.is_empty() {
            map.insert(field.to_owned(), text.into());
        }
    };
    put("manager", &entry.manager);
    put("operation", entry.operation.name());
    put("apiVersion", &entry.api_version);
    put("time", entry.time.as_deref().unwrap_or_default());
    put("fieldsType", "FieldsV1");
    put("subresource", &entry.subresource);
    map.insert("fieldsV1".to_owned(), write_fields(&entry.fields));
    Value::Object(map)
}
