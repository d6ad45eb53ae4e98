//! What a mutation makes of an object.

use coracle_api::managed::{merge, validate};
use coracle_api::patch::{self, PatchError, PatchType};
use coracle_api::schema::{self, Dynamic, Kind, ListType, MapType, TypeRef};
use coracle_api::{ApiError, Object, Resource};
use coracle_cel::{Map, Value, to_json};
use coracle_requests::ObjectReader;
use serde_json::Value as Json;

/// Patches of this kind ask no schema.
static ANY: Dynamic = Dynamic::of(Kind::Any);

/// Why a mutation was not made: a message for the policy's refusal, or an answer of its own.
#[derive(Debug)]
pub enum Refused {
    Message(String),
    Status(ApiError),
}

impl From<String> for Refused {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

/// Merges `configuration`, the value of an `applyConfiguration`, into `live` as server-side apply would, without
/// taking notice of owners.
pub fn apply(
    read: &dyn ObjectReader,
    resource: &Resource,
    kind: [&str; 3],
    live: &Object,
    configuration: &Value<'_>,
) -> Result<Object, Refused> {
    check_names(configuration).map_err(|error| format!("type mismatch: {error}"))?;
    let mut config = to_json(configuration).map_err(|error| format!("invalid return type: {error}"))?;
    config["apiVersion"] = live["apiVersion"].clone();
    config["kind"] = live["kind"].clone();
    let [group, version, kind] = kind;
    if let Some(of) = schema::root(group, version, kind) {
        return merged(live, &config, of);
    }
    let custom = read.custom_version(group, version, &resource.plural).ok_or_else(|| {
        Refused::Status(ApiError::unavailable(format!(
            "Resource kind {group}/{version}, Kind={kind} not found. There can be a delay between when \
             CustomResourceDefinitions are created and when they are available."
        )))
    })?;
    merged(live, &config, custom.object_type())
}

fn merged(live: &Object, config: &Json, of: TypeRef<'_>) -> Result<Object, Refused> {
    let failed = |what: String| Refused::Message(format!("error applying patch: {what}"));
    if let Some(why) = validate(config, of) {
        return Err(failed(format!("failed to convert patch object to typed object: {why}")));
    }
    let mut atomic = Vec::new();
    find_atomic(config, of, &mut String::new(), &mut atomic);
    if !atomic.is_empty() {
        return Err(failed(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        )));
    }
    merge(live, config, of).map_err(|error| failed(format!("failed to merge patch: {error}")))
}

/// Paths of what would be replaced as a whole: whoever wants to change a part of it would lose the rest.
fn find_atomic(value: &Json, of: TypeRef<'_>, path: &mut String, found: &mut Vec<String>) {
    let Json::Object(map) = value else { return };
    let element = of.element().filter(|_| of.kind() == Kind::Map);
    for (name, value) in map {
        let length = path.len();
        path.push('.');
        path.push_str(name);
        if let Some(element) = element {
            find_atomic(value, element, path, found);
        } else if let Some(field) = of.field(name) {
            in_field(value, &field, path, found);
        }
        path.truncate(length);
    }
}

fn in_field(value: &Json, field: &schema::FieldRef<'_>, path: &mut String, found: &mut Vec<String>) {
    let of = field.ty();
    match value {
        Json::Object(_) if matches!(of.kind(), Kind::Map | Kind::Struct) => {
            if field.map_type() == Some(MapType::Atomic) {
                found.push(path.clone());
            }
            find_atomic(value, of, path, found);
        }
        Json::Array(items) if of.kind() == Kind::List => {
            if !matches!(field.list_type(), Some(ListType::Set | ListType::Map)) {
                found.push(path.clone());
            }
            let Some(element) = of.element() else { return };
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                find_atomic(item, element, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Applies the operations that a `jsonPatch` expression made. A `test` that fails leaves the object as it is.
pub fn json_patch(live: &Object, operations: &Value<'_>) -> Result<Object, Refused> {
    let Value::List(list) = operations else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned().into());
    };
    let operations: Vec<Json> = list.iter().map(|item| operation(&item)).collect::<Result<_, _>>()?;
    let text = serde_json::to_vec(&operations).map_err(|error| error.to_string())?;
    match patch::apply(PatchType::Json, live, &text, TypeRef::dynamic(&ANY)) {
        Ok((object, _)) => Ok(object),
        Err(PatchError::TestFailed(_)) => Ok(live.clone()),
        Err(error) => Err(format!("JSONPath: {error}").into()),
    }
}

fn operation(item: &Value<'_>) -> Result<Json, String> {
    let Value::Map(map @ Map::Structure { .. }) = item else {
        let what = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
        return Err(format!("{what}, got element of {}", item.type_name()));
    };
    let mut out = serde_json::Map::new();
    for (name, value) in map.entries() {
        let name = name.as_str().unwrap_or_default();
        if name == "from" && value.as_str() == Some("") {
            continue;
        }
        check_names(&value).map_err(|error| format!("type mismatch: {error}"))?;
        let value = to_json(&value).map_err(|error| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}")
        })?;
        out.insert(name.to_owned(), value);
    }
    for field in ["op", "path"] {
        out.entry(field).or_insert_with(|| Json::from(""));
    }
    Ok(Json::Object(out))
}

/// Structures must be named by where they stand: `Object.spec` in the field `spec` of an `Object`. A value that is no
/// structure of its own is the beginning of a path.
fn check_names(value: &Value<'_>) -> Result<(), String> {
    let mut wrong = Vec::new();
    if let Value::Map(Map::Structure { name, .. }) = value {
        named(value, name, &mut wrong);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn named(value: &Value<'_>, path: &str, wrong: &mut Vec<String>) {
    match value {
        Value::Map(map) => {
            let structure = if let Map::Structure { name, .. } = map { Some(*name) } else { None };
            if let Some(name) = structure.filter(|name| *name != path) {
                wrong.push(format!(
                    "unexpected type name \"{name}\", expected \"{path}\", which matches field name path from root Object type"
                ));
            }
            // What stands in a map or list is named as that is.
            for (key, value) in map.entries() {
                match (structure, key.as_str()) {
                    (Some(_), Some(key)) => named(&value, &format!("{path}.{key}"), wrong),
                    _ => named(&value, path, wrong),
                }
            }
        }
        Value::List(list) => list.iter().for_each(|item| named(&item, path, wrong)),
        _ => {}
    }
}
