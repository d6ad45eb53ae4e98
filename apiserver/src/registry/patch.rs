//! PATCH bodies, applied to the present object.

use super::decode::{Expected, media_type};
use super::update::Part;
use super::{Scope, WriteOptions};
use bytes::Bytes;
use coracle_api::{ApiError, Object};
use http::HeaderMap;
use serde_json::Value;

/// Operations a JSON patch may have, as upstream: each may copy large parts.
const MAX_OPERATIONS: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
}

const ACCEPTED: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

impl PatchType {
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        match media_type(headers) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
        }
    }
}

/// A parsed patch.
pub struct Patch {
    kind: PatchType,
    body: Value,
}

impl Patch {
    pub fn parse(kind: PatchType, body: &Bytes) -> Result<Self, ApiError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
        let right = match kind {
            PatchType::Json => body.is_array(),
            _ => body.is_object(),
        };
        if !right {
            return Err(ApiError::bad_request(
                "error decoding patch: wrong JSON type for this kind of patch",
            ));
        }
        if body.as_array().is_some_and(|list| list.len() > MAX_OPERATIONS) {
            return Err(ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}"),
            ));
        }
        Ok(Self { kind, body })
    }

    /// `expected` names the kind whose schema says how lists are merged.
    pub fn apply(&self, expected: &Expected<'_>, current: &Object) -> Result<Object, ApiError> {
        let mut object = current.clone();
        match self.kind {
            PatchType::Json => apply_json(&mut object, &self.body)?,
            PatchType::Merge => json_patch::merge(&mut object, &self.body),
            PatchType::Strategic => apply_strategic(expected, &mut object, &self.body)?,
        }
        Ok(object)
    }
}

fn apply_json(object: &mut Object, body: &Value) -> Result<(), ApiError> {
    let patch: json_patch::Patch = serde_json::from_value(body.clone())
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    json_patch::patch(object, &patch).map_err(|e| {
        ApiError::new(
            422,
            "Invalid",
            format!("the server rejected our request due to an error in our request: {e}"),
        )
    })
}

fn apply_strategic(expected: &Expected<'_>, object: &mut Object, body: &Value) -> Result<(), ApiError> {
    let _ = (expected, object, body);
    Err(ApiError::unsupported_media_type(&ACCEPTED[..2]))
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
        let current = self.to_served(current.clone())?;
        let patched = patch.apply(expected, &current)?;
        let (object, warnings) = expected.check(patched, options.field_validation)?;
        self.warn(warnings);
        self.to_stored(object)
    }
}
