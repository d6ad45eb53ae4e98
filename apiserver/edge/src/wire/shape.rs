//! Shapes of objects beside their own that need no strategy.

use coracle_api::{ApiError, Object};
use serde_json::{Value, json};

/// What a table row carries beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    Nothing,
    #[default]
    Metadata,
    Object,
}

impl Include {
    pub fn from_query(value: Option<&str>) -> Result<Self, ApiError> {
        match value {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::Nothing),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: \"{other}\" (supported: None, Metadata, Object)"
            ))),
        }
    }
}

/// `version` is the group and version of the answer.
pub fn metadata_only(object: &Object, version: &str) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": version, "metadata": object["metadata"] })
}
