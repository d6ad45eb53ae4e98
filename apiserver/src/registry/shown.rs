//! The forms of an object that admission by webhooks and policies works on.

use super::gate::Forms;
use super::metadata::of;
use super::{Scope, scale};
use coracle_api::catalogue::catalogue;
use coracle_api::decode::conform;
use coracle_api::{ApiError, Object, Resource, convert, schema};
use std::borrow::Cow;
use std::sync::Arc;

#[async_trait::async_trait]
impl Forms for Scope<'_> {
    fn equivalents(&self) -> Vec<Arc<Resource>> {
        let same = |r: &&Arc<Resource>| r.storage.key == self.resource.storage.key;
        catalogue().iter().filter(same).cloned().collect()
    }

    async fn show<'o>(&self, object: &'o Object, to: &Resource) -> Result<Cow<'o, Object>, ApiError> {
        if object["kind"] != *self.resource.kind {
            return Ok(Cow::Borrowed(object));
        }
        if self.subresource == "scale" {
            return Ok(Cow::Owned(scale::scale_of(object)));
        }
        if object["apiVersion"] == to.api_version() {
            return Ok(Cow::Borrowed(object));
        }
        let mut object = object.clone();
        convert::from_storage(to, &mut object);
        Ok(Cow::Owned(object))
    }

    async fn take(&self, changed: Object, from: &Resource, before: &Object) -> Result<Object, ApiError> {
        let mut changed = changed;
        conform_to_kind(&mut changed)?;
        if before["kind"] != *self.resource.kind {
            return Ok(changed);
        }
        if self.subresource == "scale" {
            let mut object = before.clone();
            object["spec"]["replicas"] = changed["spec"]["replicas"].as_i64().unwrap_or(0).into();
            return Ok(object);
        }
        if before["apiVersion"] != from.api_version() {
            convert::to_storage(from, &mut changed);
        }
        of(&mut changed);
        self.strategy.defaults(&mut changed);
        Ok(changed)
    }
}

/// Drops what the kind does not have.
fn conform_to_kind(object: &mut Object) -> Result<(), ApiError> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = coracle_api::catalogue::split_api_version(version).unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some(ty) = schema::root(group, version, kind) else { return Ok(()) };
    conform(object, ty).map(|_| ()).map_err(ApiError::internal)
}
