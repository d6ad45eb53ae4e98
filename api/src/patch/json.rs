//! JSON Patch, with upstream's limits.

use super::PatchError;
use crate::Object;
use crate::decode::Problems;
use json_patch::PatchOperation;
use serde_json::{Map, Value};

/// Upstream's limit, against patches that cost more than their size suggests.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that all `copy` operations together may add; upstream uses its limit for bodies. Without it a few dozen
/// copies double a document beyond memory.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// Levels of nesting, those that can be read again. Without it a few copies of the root into itself nest it so deep
/// that walking it overflows the stack.
const MAX_DEPTH: usize = 120;

/// The problems are members that no operation has, and members that are given twice.
pub(super) fn apply(current: &Object, patch: &[u8]) -> Result<(Object, Problems), PatchError> {
    let (operations, problems) = decode(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations { max: MAX_OPERATIONS, got: operations.len() });
    }
    let mut object = current.clone();
    let mut copied = 0;
    for operation in operations {
        let operation = typed(operation)?;
        if passes(&object, &operation) {
            continue;
        }
        if let PatchOperation::Copy(copy) = &operation {
            copied += object.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len());
            if copied > MAX_COPIED_BYTES {
                return Err(PatchError::TooLarge { max: MAX_COPIED_BYTES, got: copied });
            }
        }
        check_depth(&object, &operation)?;
        json_patch::patch_unsafe(&mut object, std::slice::from_ref(&operation))
            .map_err(|e| failed(&operation, &e))?;
    }
    Ok((object, problems))
}

/// The operations as JSON says them; whether they make sense is found when they are applied.
fn decode(patch: &[u8]) -> Result<(Vec<Map<String, Value>>, Problems), PatchError> {
    let (value, duplicates) = crate::decode::parse(patch)
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    let Value::Array(list) = value else {
        let what = crate::decode::json_kind(&value);
        let text = format!(
            "error decoding patch: json: cannot unmarshal {what} into Go value of type []handlers.jsonPatchOp"
        );
        return Err(PatchError::Malformed(text));
    };
    let mut problems: Problems = duplicates.iter().map(|text| format!("json patch {text}")).collect();
    let mut operations = Vec::with_capacity(list.len().min(MAX_OPERATIONS));
    for (i, operation) in list.into_iter().enumerate() {
        let Value::Object(operation) = operation else {
            let what = crate::decode::json_kind(&operation);
            let text = format!(
                "error decoding patch: json: cannot unmarshal {what} into Go value of type handlers.jsonPatchOp"
            );
            return Err(PatchError::Malformed(text));
        };
        for (key, value) in &operation {
            match (key.as_str(), value) {
                ("op" | "path" | "from", Value::String(_) | Value::Null) | ("value", _) => {}
                ("op" | "path" | "from", other) => {
                    let what = crate::decode::json_kind(other);
                    return Err(PatchError::Malformed(format!(
                        "error decoding patch: json: cannot unmarshal {what} into Go struct field jsonPatchOp.{key} of \
                         type string"
                    )));
                }
                _ => problems.push(format!("json patch unknown field \"[{i}].{key}\"")),
            }
        }
        operations.push(operation);
    }
    Ok((operations, problems))
}

fn typed(operation: Map<String, Value>) -> Result<PatchOperation, PatchError> {
    serde_json::from_value(Value::Object(operation)).map_err(|e| PatchError::Inapplicable(e.to_string()))
}

/// A test for null of something that is not there.
fn passes(object: &Value, operation: &PatchOperation) -> bool {
    match operation {
        PatchOperation::Test(test) => test.value.is_null() && object.pointer(test.path.as_str()).is_none(),
        _ => false,
    }
}

/// `object` is not too deep itself, so that walking it is safe.
fn check_depth(object: &Value, operation: &PatchOperation) -> Result<(), PatchError> {
    let (path, added) = match operation {
        PatchOperation::Add(add) => (add.path.as_str(), depth(&add.value)),
        PatchOperation::Replace(replace) => (replace.path.as_str(), depth(&replace.value)),
        PatchOperation::Copy(copy) => {
            (copy.path.as_str(), object.pointer(copy.from.as_str()).map_or(0, depth))
        }
        PatchOperation::Move(moved) => {
            (moved.path.as_str(), object.pointer(moved.from.as_str()).map_or(0, depth))
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    if path.matches('/').count() + added > MAX_DEPTH {
        return Err(PatchError::Inapplicable("exceeded max depth".to_owned()));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn failed(operation: &PatchOperation, error: &json_patch::PatchError) -> PatchError {
    let path = operation.path();
    PatchError::Inapplicable(match operation {
        PatchOperation::Test(_) => return PatchError::TestFailed(path.to_string()),
        PatchOperation::Remove(_) => {
            format!("remove operation does not apply: doc is missing path: {path}: missing value")
        }
        PatchOperation::Replace(_) => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        PatchOperation::Add(_) => {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        PatchOperation::Move(_) | PatchOperation::Copy(_) => format!("{path}: {}", error.kind),
    })
}
