//! Between the form that is served and the one that is stored, for resources that are kept under another version.

use super::Scope;
use coracle_api::decode::settle;
use coracle_api::schema::{self, TypeRef};
use coracle_api::{ApiError, FieldError, Object, Resource, convert, encode};
use coracle_resources::cache::CachedObject;
use coracle_resources::catalogue::StrategyRef;
use std::sync::Arc;

/// Turns an object from its stored into its served form.
pub type Convert = Arc<dyn Fn(Object) -> Object + Send + Sync>;

/// Turns stored objects into served ones, where the two differ.
pub fn converter(resource: &Arc<Resource>, strategy: &StrategyRef) -> Option<Convert> {
    if !resource.needs_conversion() || strategy.custom().is_some() {
        return None;
    }
    let resource = resource.clone();
    Some(Arc::new(move |mut object| {
        convert::from_storage(&resource, &mut object);
        settle_served(&resource, &mut object);
        object
    }))
}

/// What the served type writes of a converted object.
pub(super) fn settle_served(resource: &Resource, object: &mut Object) {
    if let Some(ty) = schema::root(&resource.group, &resource.version, &resource.kind) {
        settle(object, ty);
    }
}

impl Scope<'_> {
    /// Whether objects change their form at the edge. Custom resources do so where they are read and written.
    pub(super) fn is_converted(&self) -> bool {
        self.resource.needs_conversion() && self.strategy.custom().is_none()
    }

    /// The stored object as writes work on it: custom resources in the version of the request, built-in ones in the one
    /// that is stored.
    ///
    /// # Errors
    /// A conversion webhook's.
    pub(super) async fn working(&self, cached: &CachedObject) -> Result<Arc<Object>, ApiError> {
        match self.strategy.custom() {
            None if encode::is_in_order(&cached.raw.bytes()) => Ok(cached.decode()),
            // From before objects were kept as their types write them.
            None => {
                let mut object = Arc::unwrap_or_clone(cached.decode());
                self.strategy.defaults(&mut object);
                self.settle(&mut object);
                Ok(Arc::new(object))
            }
            Some(custom) => custom.decoded(cached).await,
        }
    }

    /// Gives an object of a built-in kind, in the form that writes work on, what its type writes and takes what it does
    /// not. Custom resources are what their schemas say.
    pub(super) fn settle(&self, object: &mut Object) {
        if let Some(ty) = self.stored_type() {
            settle(object, ty);
        }
    }

    fn stored_type(&self) -> Option<TypeRef<'static>> {
        let stored = &self.resource.storage;
        let built_in = self.strategy.custom().is_none();
        built_in.then(|| schema::root(&stored.group, &stored.version, &stored.kind)).flatten()
    }

    pub fn to_stored(&self, object: Object) -> Object {
        if !self.is_converted() {
            return object;
        }
        let mut object = object;
        convert::to_storage(self.resource, &mut object);
        object
    }

    pub fn to_served(&self, object: Object) -> Object {
        if !self.is_converted() {
            return object;
        }
        let mut object = object;
        convert::from_storage(self.resource, &mut object);
        settle_served(self.resource, &mut object);
        object
    }

    pub(super) fn metadata_errors(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        coracle_api::meta::validate(self.resource, self.strategy.name_rule(), object, &mut errors);
        if self.strategy.custom().is_none() {
            coracle_api::meta::validate_kube_finalizers(self.resource, object, &mut errors);
        }
        errors
    }

    /// Of an object in which nothing else is wrong.
    pub(super) fn last_metadata_errors(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        coracle_api::meta::validate_last(self.resource, object, &mut errors);
        errors
    }

    pub(super) fn metadata_update_errors(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        coracle_api::meta::validate_update(new, old, &mut errors);
        errors
    }
}
