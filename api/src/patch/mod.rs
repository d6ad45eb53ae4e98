//! Patches: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7396) and strategic merge patch.
//!
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply>. All of them work on the served
//! form of an object and return the patched one, which has still to be checked against its schema.

mod json;
mod lists;
mod strategic;

pub use strategic::strategic_merge;

use crate::decode::{self, Problems};
use crate::schema::TypeRef;
use crate::{ApiError, Object};
use serde_json::{Value, json};

/// The media types of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    StrategicMerge,
    /// Server-side apply, which is not a patch of this module.
    Apply,
}

impl PatchType {
    /// By the media type of the request's body, without its parameters.
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::StrategicMerge),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::StrategicMerge => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is no JSON, or not of the form its type asks for.
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {max}, got {got}")]
    TooManyOperations { max: usize, got: usize },
    /// Copies within the document add up to too many bytes.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {got}, exceeding the limit {max}"
    )]
    TooLarge { max: usize, got: usize },
    /// A strategic merge that does not fit the object. Upstream has no class for these.
    #[error("{0}")]
    Unmergeable(String),
    /// It cannot be applied to this object; a `test` that failed, a path that is not there.
    #[error("{0}")]
    Inapplicable(String),
    /// A `test` of a JSON patch: the value at this path is another one.
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
    /// No schema tells how to merge (custom resources), or the type is not for this module.
    #[error("patches of this type are not supported for this resource")]
    Unsupported(PatchType),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        let text = error.to_string();
        match error {
            PatchError::Malformed(_) => Self::bad_request(text),
            PatchError::Unmergeable(_) => Self::new(500, "", text),
            PatchError::TooManyOperations { .. } | PatchError::TooLarge { .. } => {
                Self::new(413, "RequestEntityTooLarge", text)
            }
            // Upstream does not say which operation it was.
            PatchError::Inapplicable(_) | PatchError::TestFailed(_) => {
                let message = "the server rejected our request due to an error in our request";
                Self::new(422, "Invalid", message).with_details(json!({}))
            }
            PatchError::Unsupported(_) => Self::unsupported_media_type(&[
                PatchType::Json.media_type(),
                PatchType::Merge.media_type(),
                PatchType::Apply.media_type(),
            ]),
        }
    }
}

/// Applies `patch` to `current`. The problems are duplicate fields in the patch itself.
///
/// The result may be anything JSON: the caller has to check it as it would a body.
pub fn apply(
    patch_type: PatchType,
    current: &Object,
    patch: &[u8],
    ty: TypeRef<'_>,
) -> Result<(Object, Problems), PatchError> {
    if patch_type == PatchType::Json {
        return json::apply(current, patch);
    }
    let (patch, problems) =
        decode::parse(patch).map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    if !patch.is_object() {
        let what = decode::json_kind(&patch);
        let prefix = if patch_type == PatchType::StrategicMerge { "" } else { "error decoding patch: " };
        return Err(PatchError::Malformed(format!(
            "{prefix}json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
        )));
    }
    let patched = match patch_type {
        PatchType::StrategicMerge if ty.is_built_in() => strategic_merge(current.clone(), patch, ty)?,
        PatchType::Merge => merge(current.clone(), &patch),
        other => return Err(PatchError::Unsupported(other)),
    };
    Ok((patched, problems))
}

/// JSON Merge Patch.
pub fn merge(mut current: Value, patch: &Value) -> Value {
    json_patch::merge(&mut current, patch);
    current
}

#[cfg(test)]
mod tests;
