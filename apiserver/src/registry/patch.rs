//! PATCH bodies, applied to the present object.

use super::decode::{Expected, media_type};
use super::metadata::{of, text};
use super::update::Part;
use super::{Scope, WriteOptions};
use bytes::Bytes;
use coracle_api::patch::{self, PatchType};
use coracle_api::{ApiError, Object};
use http::HeaderMap;
use serde_json::Value;

const ACCEPTED: [PatchType; 3] = [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge];

/// A patch as it came in.
pub struct Patch {
    kind: PatchType,
    body: Bytes,
    /// Whether it says which version it is for, so that a conflict is the client's business.
    names_version: bool,
}

impl Patch {
    /// 415 for other media types, server-side apply among them.
    pub fn new(headers: &HeaderMap, body: Bytes) -> Result<Self, ApiError> {
        let kind = PatchType::from_media_type(media_type(headers)).filter(|kind| ACCEPTED.contains(kind));
        let Some(kind) = kind else {
            return Err(ApiError::unsupported_media_type(&ACCEPTED.map(PatchType::media_type)));
        };
        let names_version = names_version(&serde_json::from_slice(&body).unwrap_or(Value::Null));
        Ok(Self { kind, body, names_version })
    }

    /// `expected` names the kind whose schema says how lists are merged. The warnings are about the patch itself.
    pub fn apply(
        &self,
        expected: &Expected<'_>,
        current: &Object,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let (mut object, problems) = patch::apply(self.kind, current, &self.body, expected.schema()?)?;
        let unchanged = text(&object, "resourceVersion") == text(current, "resourceVersion");
        if unchanged && !self.names_version && object["metadata"].is_object() {
            of(&mut object).remove("resourceVersion");
        }
        Ok((object, problems))
    }
}

fn names_version(patch: &Value) -> bool {
    let path = "/metadata/resourceVersion";
    match patch {
        Value::Array(operations) => operations.iter().any(|o| o["path"] == path),
        _ => patch.pointer(path).is_some(),
    }
}

impl Scope<'_> {
    /// Patches the object itself.
    pub async fn patch(
        &self,
        patch: &Patch,
        expected: &Expected<'_>,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let apply = |current: Option<&Object>| {
            let current = current.ok_or_else(|| self.not_found(self.name))?;
            self.patched(patch, expected, current, options)
        };
        self.update(Part::Main, options, apply).await.map(|(object, _)| object)
    }

    /// The patched form of an object, checked like the body of an update.
    pub fn patched(
        &self,
        patch: &Patch,
        expected: &Expected<'_>,
        current: &Object,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let validation = options.field_validation;
        let (object, problems) = if self.resource.needs_conversion() {
            patch.apply(expected, &self.to_served(current.clone()))?
        } else {
            patch.apply(expected, current)?
        };
        let (object, warnings) = expected.check(object, problems, validation)?;
        self.warn_once(warnings);
        Ok(self.to_stored(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_in_patches() {
        assert!(names_version(&json!({"metadata": {"resourceVersion": "1"}})));
        assert!(names_version(&json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}])));
        assert!(!names_version(&json!({"metadata": {"labels": {}}})));
    }
}
