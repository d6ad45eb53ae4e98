//! Making an object what its schema says, before anybody looks at it.

use super::numbers::whole;
use super::{CustomResource, Schema};
use coracle_api::decode::{DecodeError, Problems, conform};
use coracle_api::structural::{self, join};
use coracle_api::{Object, structural::field_of};
use serde_json::Value;

/// At most so many unknown fields are reported, as of built-in kinds.
const MAX_PROBLEMS: usize = 100;

impl Schema {
    /// Drops what is not specified, and nulls that count as not given. Where it stood comes back.
    pub(super) fn prune(&self, object: &mut Object) -> Vec<String> {
        let dropped = self.prune_unknown(object);
        if !self.preserve_all {
            structural::drop_nulls(object, &self.structural);
        }
        dropped
    }

    fn prune_unknown(&self, object: &mut Object) -> Vec<String> {
        if self.preserve_all { Vec::new() } else { structural::prune(object, &self.structural, true) }
    }

    /// Fills in defaults. What those say in the metadata of embedded objects is dropped where no metadata have it.
    pub(super) fn fill(&self, object: &mut Object) {
        structural::fill(object, &self.structural);
        if self.has_embedded() {
            // Values of a wrong type are refused where they are sent.
            let _ = structural::coerce(object, &self.structural, "");
        }
    }
}

impl CustomResource {
    /// Brings what a client sent into the form that it is kept in, but for defaults. `unknown field "spec.foo"` is what
    /// comes back, metadata first.
    ///
    /// # Errors
    /// Values in metadata, of the object or of one embedded in it, that are of a wrong type.
    pub fn coerce(&self, object: &mut Object) -> Result<Problems, DecodeError> {
        self.coerce_with(object, |schema, object| schema.prune(object))
    }

    /// As [`coerce`](Self::coerce), of what apply has made of an object: nobody decodes that, so a null counts as given,
    /// and validation refuses it where there may be none.
    ///
    /// # Errors
    /// As those of [`coerce`](Self::coerce).
    pub fn coerce_merged(&self, object: &mut Object) -> Result<Problems, DecodeError> {
        self.coerce_with(object, |schema, object| schema.prune_unknown(object))
    }

    fn coerce_with(
        &self,
        object: &mut Object,
        prune: impl Fn(&Schema, &mut Object) -> Vec<String>,
    ) -> Result<Problems, DecodeError> {
        whole(object);
        let mut unknown = Vec::new();
        if let (Some(metadata), Some(ty)) = (object.get_mut("metadata"), structural::object_meta()) {
            let found = conform(metadata, ty)?;
            unknown.extend(found.iter().filter_map(|p| field_of(p)).map(|field| join("metadata", field)));
        }
        let schema = self.schema();
        unknown.extend(prune(schema, object));
        if schema.has_embedded() {
            let found = structural::coerce(object, &schema.structural, "");
            unknown.extend(found.map_err(|error| DecodeError::Type(error.to_string()))?);
        }
        unknown.truncate(MAX_PROBLEMS);
        Ok(unknown.into_iter().map(|field| format!("unknown field \"{field}\"")).collect())
    }

    /// Idempotent: prunes and fills in defaults. Nulls that may not be are left to validation.
    pub(super) fn settle(&self, object: &mut Object) {
        let schema = self.schema();
        schema.prune_unknown(object);
        schema.fill(object);
    }
}

/// `kind` and `apiVersion` of an object.
pub(super) fn identity(object: &Object) -> (&str, &str) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    (text("kind"), text("apiVersion"))
}
