//! Strategic merge patch:
//! <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md>
//!
//! Objects merge field by field. Lists merge where the schema says so, by a key or as sets; else they are replaced.
//! Directives in the patch change that: `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/x`,
//! `$setElementOrder/x`. Fields that the schema does not know merge as in JSON Merge Patch and are left to the
//! check of the result.

use super::PatchError;
use super::lists::{self, ListPatch};
use crate::go;
use crate::schema::{FieldRef, Kind, TypeRef};
use serde_json::{Map, Value};

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `original`, whose type is `ty`.
pub fn strategic_merge(original: Value, patch: Value, ty: TypeRef<'_>) -> Result<Value, PatchError> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => {
            merge_maps(original, patch, Some(ty)).map(Value::Object)
        }
        (_, patch) => Ok(patch),
    }
}

pub(super) fn merge_maps(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    ty: Option<TypeRef<'_>>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.remove(PATCH).as_ref().map(directive).transpose()? {
        Some("replace") => return Ok(patch),
        Some("delete") => return Ok(Map::new()),
        None | Some("merge") => {}
        Some(other) => return Err(bad_directive(other, &patch)),
    }
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain(&mut original, &patch, &keys)?;
    }
    let mut lists = take_list_directives(&mut patch)?;
    for (key, value) in patch {
        let field = ty.and_then(|ty| Facts::of(ty, &key));
        if field.as_ref().is_some_and(Facts::is_merged_list) && value.is_array() {
            lists.entry(&key).items = Some(value);
        } else {
            merge_field(&mut original, key, value, field.as_ref())?;
        }
    }
    for (key, list) in lists.0 {
        let facts = ty.and_then(|ty| Facts::of(ty, &key));
        let (merge_key, element) = facts.as_ref().map_or((None, None), |f| (f.merge_key(), f.ty.element()));
        lists::merge(&mut original, &key, list, merge_key, element)?;
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    facts: Option<&Facts<'_>>,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let replaces = facts.and_then(|f| f.field).is_some_and(FieldRef::replaces);
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) if !replaces => {
            Value::Object(merge_maps(old, new, facts.map(|f| f.ty))?)
        }
        (_, value) => without_directives(value),
    };
    original.insert(key, merged);
    Ok(())
}

/// What the schema says of a key: a field of a struct, or an entry of a map, which has no facts but its type.
struct Facts<'a> {
    field: Option<FieldRef<'a>>,
    ty: TypeRef<'a>,
}

impl<'a> Facts<'a> {
    fn of(ty: TypeRef<'a>, key: &str) -> Option<Self> {
        match ty.kind() {
            Kind::Map => ty.element().map(|ty| Self { field: None, ty }),
            _ => ty.field(key).map(|field| Self { field: Some(field), ty: field.ty() }),
        }
    }

    fn is_merged_list(&self) -> bool {
        self.field.is_some_and(|f| f.merges() && f.ty().kind() == Kind::List)
    }

    fn merge_key(&self) -> Option<&'static str> {
        self.field.and_then(FieldRef::merge_key)
    }
}

/// The patches of merged lists, gathered from the field itself and its directives.
#[derive(Default)]
struct Lists(Vec<(String, ListPatch)>);

impl Lists {
    fn entry(&mut self, key: &str) -> &mut ListPatch {
        let at = self.0.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
            self.0.push((key.to_owned(), ListPatch::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

fn take_list_directives(patch: &mut Map<String, Value>) -> Result<Lists, PatchError> {
    let mut lists = Lists::default();
    let names: Vec<String> = patch.keys().filter(|k| k.starts_with('$')).cloned().collect();
    for name in names {
        let (key, deletes) = match (name.strip_prefix(DELETE_FROM_LIST), name.strip_prefix(ELEMENT_ORDER)) {
            (Some(key), _) => (key, true),
            (_, Some(key)) => (key, false),
            _ => continue,
        };
        let Some(Value::Array(values)) = patch.remove(&name) else {
            return Err(PatchError::Malformed(format!("invalid patch format of {name}: it must be a list")));
        };
        let list = lists.entry(key);
        if deletes {
            list.delete = values;
        } else {
            list.order = Some(values);
        }
    }
    Ok(lists)
}

pub(super) fn directive(value: &Value) -> Result<&str, PatchError> {
    value.as_str().ok_or_else(|| PatchError::Malformed(format!("unknown patch type: {value}")))
}

pub(super) fn bad_directive(name: &str, map: &Map<String, Value>) -> PatchError {
    let map = Value::Object(map.clone());
    PatchError::Unmergeable(format!("unknown patch type: {name} in map: {}", go::value(&map)))
}

/// Drops from the original what `$retainKeys` does not name.
fn retain(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    keys: &Value,
) -> Result<(), PatchError> {
    let Value::Array(keys) = keys else {
        return Err(PatchError::Malformed("invalid patch format of retainKeys".to_owned()));
    };
    let retained = |key: &String| keys.iter().any(|k| k == key.as_str());
    let stray = |(key, value): (&String, &Value)| !value.is_null() && !key.starts_with('$') && !retained(key);
    if patch.iter().any(stray) {
        return Err(PatchError::Malformed("invalid patch format of retainKeys".to_owned()));
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

/// A value that is new to the object: directives have nothing to act on and nulls nothing to remove.
pub(super) fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, value)| {
                let directive = key == PATCH
                    || key == RETAIN_KEYS
                    || key.starts_with(DELETE_FROM_LIST)
                    || key.starts_with(ELEMENT_ORDER);
                !directive && !value.is_null()
            });
            Value::Object(kept.map(|(key, value)| (key, without_directives(value))).collect())
        }
        Value::Array(list) => {
            let kept = list.into_iter().filter(|item| item.get(PATCH).is_none());
            Value::Array(kept.map(without_directives).collect())
        }
        other => other,
    }
}
