//! Between the form that is served and the one that is stored, for resources that are kept under another version.

use super::Scope;
use crate::http::watch_body::Convert;
use coracle_api::{FieldError, Object, Resource, convert};
use std::sync::Arc;

/// Turns stored objects into served ones, where the two differ.
pub fn converter(resource: &Arc<Resource>) -> Option<Convert> {
    if !resource.needs_conversion() {
        return None;
    }
    let resource = resource.clone();
    Some(Arc::new(move |mut object| {
        convert::from_storage(&resource, &mut object);
        object
    }))
}

impl Scope<'_> {
    pub fn to_stored(&self, object: Object) -> Object {
        let mut object = object;
        convert::to_storage(self.resource, &mut object);
        object
    }

    pub fn to_served(&self, object: Object) -> Object {
        let mut object = object;
        convert::from_storage(self.resource, &mut object);
        object
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
