//! Between JSON and values.

use super::{List, Map, Text, Value};
use crate::error::EvalError;
use crate::types::{ListKind, ListType, MapType, Type};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map as JsonMap, Value as Json};

static DYN_LIST: ListType = ListType { element: Type::Dyn, kind: ListKind::Atomic, max_items: None };
static DYN_MAP: MapType = MapType { key: Type::STRING, value: Type::Dyn, max_properties: None };

/// The JSON value as one of type `of`; what does not fit its type is taken as it stands.
pub fn typed<'a>(json: &'a Json, of: &'a Type) -> Value<'a> {
    match (json, of) {
        (Json::String(text), Type::Timestamp) => moment(text).map_or(Value::Null, Value::Timestamp),
        (Json::String(text), Type::Duration) => {
            super::parse_duration(text).map_or(Value::Null, Value::Duration)
        }
        (Json::String(text), Type::Bytes(_)) => {
            STANDARD.decode(text).map_or(Value::Null, |bytes| Value::Bytes(bytes.into()))
        }
        (Json::Number(number), Type::Double) => number.as_f64().map_or(Value::Null, Value::Double),
        (Json::Array(items), Type::List(list)) => Value::List(List::Json { items, of: list }),
        (Json::Object(map), Type::Map(of)) => Value::Map(Map::Json { map, of }),
        (Json::Object(map), Type::Object(of)) => Value::Map(Map::Object { map, of }),
        _ => plain(json),
    }
}

/// A moment, or the beginning of a day.
fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| format!("{text}T00:00:00Z").parse().ok())
}

/// JSON without a schema.
fn plain(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::Int(value),
            (None, Some(value)) => Value::Uint(value),
            _ => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Text::Borrowed(text)),
        Json::Array(items) => Value::List(List::Json { items, of: &DYN_LIST }),
        Json::Object(map) => Value::Map(Map::Json { map, of: &DYN_MAP }),
    }
}

/// The value as JSON, as an admission mutation or a message needs it.
///
/// # Errors
/// Names a value that JSON has no form for: a type, an address, a map whose keys are no text.
pub fn to_json(value: &Value<'_>) -> Result<Json, EvalError> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => Json::from(*value),
        Value::String(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(STANDARD.encode(bytes)),
        Value::Timestamp(time) => Json::from(time.to_string()),
        Value::Duration(span) => Json::from(super::render_duration(*span)),
        Value::List(list) => Json::Array(list.iter().map(|item| to_json(&item)).collect::<Result<_, _>>()?),
        Value::Map(Map::Json { map, .. } | Map::Object { map, .. }) => Json::Object((*map).clone()),
        Value::Map(map) => {
            let mut out = JsonMap::new();
            for (key, value) in map.entries() {
                let Some(key) = key.as_str() else {
                    return EvalError::of(format!("a key of type {} has no form in JSON", key.type_name()));
                };
                out.insert(key.to_owned(), to_json(&value)?);
            }
            Json::Object(out)
        }
        Value::Optional(Some(value)) => to_json(value)?,
        Value::Optional(None) => Json::Null,
        Value::Library(library) => match library.as_ref() {
            super::Library::Quantity(quantity) => Json::from(quantity.to_string()),
            other => return EvalError::of(format!("{} has no form in JSON", other.type_name())),
        },
        Value::Type(_) | Value::External(_) => {
            return EvalError::of(format!("{} has no form in JSON", value.type_name()));
        }
    })
}
