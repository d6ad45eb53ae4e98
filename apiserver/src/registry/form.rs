//! Between the form that is served and the one that is stored, for resources that are kept under another version.

use super::Scope;
use coracle_api::{ApiError, FieldError, Object};

/// Turns stored objects into served ones, where the two differ.
pub fn converter(
    _resource: &std::sync::Arc<coracle_api::Resource>,
) -> Option<crate::http::watch_body::Convert> {
    None
}

impl Scope<'_> {
    pub fn to_stored(&self, object: Object) -> Result<Object, ApiError> {
        Ok(object)
    }

    pub fn to_served(&self, object: Object) -> Result<Object, ApiError> {
        Ok(object)
    }

    pub(super) fn metadata_errors(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        coracle_api::meta::validate(self.resource, object, &mut errors);
        errors
    }

    pub(super) fn metadata_update_errors(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        coracle_api::meta::validate_update(new, old, &mut errors);
        errors
    }
}
