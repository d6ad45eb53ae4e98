//! JSON Patch, with upstream's limits.

use super::PatchError;
use crate::Object;
use json_patch::{Patch, PatchOperation};

/// Upstream's limit, against patches that cost more than their size suggests.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that all `copy` operations together may add; upstream uses its limit for bodies. Without it a few dozen
/// copies double a document beyond memory.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

pub(super) fn apply(current: &Object, patch: &[u8]) -> Result<Object, PatchError> {
    let patch: Patch = serde_json::from_slice(patch).map_err(|e| PatchError::Malformed(e.to_string()))?;
    if patch.0.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations { max: MAX_OPERATIONS, got: patch.0.len() });
    }
    let mut object = current.clone();
    let mut copied = 0;
    for operation in &patch.0 {
        if let PatchOperation::Copy(copy) = operation {
            let source = object.pointer(copy.from.as_str());
            copied += source.map_or(0, |value| value.to_string().len());
            if copied > MAX_COPIED_BYTES {
                return Err(PatchError::TooLarge { max: MAX_COPIED_BYTES, got: copied });
            }
        }
        json_patch::patch_unsafe(&mut object, std::slice::from_ref(operation))
            .map_err(|e| PatchError::Inapplicable(words(operation, &e)))?;
    }
    Ok(object)
}

fn words(operation: &PatchOperation, error: &json_patch::PatchError) -> String {
    let path = operation.path();
    match operation {
        PatchOperation::Test(_) => format!("testing value {path} failed: test failed"),
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
    }
}
