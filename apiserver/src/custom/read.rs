//! From stored bytes to the object that a version shows.
//!
//! What is stored is pruned and filled in by the schema of the version it is stored in, because that schema may have
//! changed since, and then converted. Most objects are in order as they are: each remembers by which schema it was found
//! so, and is served from its bytes from then on.

use super::CustomResource;
use super::coerce::identity;
use crate::cache::CachedObject;
use crate::catalogue::Conversion;
use crate::store::Revision;
use coracle_api::{ApiError, Object};
use std::sync::Arc;

/// An object on its way to a version: already there, or still of the version it is stored in.
pub(crate) enum Stored {
    Ready(Object),
    /// To be converted by the definition's webhook.
    Foreign(Object),
}

impl CustomResource {
    /// Whether the bytes are the object, as this version shows it.
    pub fn is_as_stored(&self, object: &CachedObject) -> bool {
        let schema = self.schema();
        match object.is_settled(schema.id) {
            Some(settled) => settled,
            None => {
                let _ = self.settled(object, object.revision);
                object.is_settled(schema.id) == Some(true)
            }
        }
    }

    /// Decodes; what can be done without asking a webhook is done.
    pub(crate) fn settled(&self, cached: &CachedObject, revision: Revision) -> Stored {
        let mut object = cached.decode_at(revision);
        let known = self.schema().id;
        if cached.is_settled(known) == Some(true) {
            return Stored::Ready(object);
        }
        let from = stored_version(&object);
        let Some(at) = self.definition.version(&from) else {
            // Of a version that is gone: shown as if it were of this one, as nothing better is known.
            return Stored::Ready(self.relabelled(object));
        };
        let schema = self.definition.schema(at);
        let before = object.clone();
        schema.prune(&mut object);
        schema.fill(&mut object);
        if from == self.version().name {
            cached.set_settled(known, before == object);
            return Stored::Ready(object);
        }
        cached.set_settled(known, false);
        match self.definition.conversion {
            Conversion::None => Stored::Ready(self.relabelled(object)),
            Conversion::Webhook(_) => Stored::Foreign(object),
        }
    }

    /// What conversion without a webhook does: another version, and what its schema does not specify is gone.
    pub(crate) fn relabelled(&self, object: Object) -> Object {
        let mut object = object;
        object["apiVersion"] = self.resource.api_version().into();
        object["kind"] = (*self.resource.kind).into();
        self.schema().prune(&mut object);
        object
    }

    /// The objects as this version shows them, in their order.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn served(
        &self,
        cached: impl IntoIterator<Item = (&Arc<CachedObject>, Revision)>,
    ) -> Result<Vec<Object>, ApiError> {
        let stored: Vec<Stored> =
            cached.into_iter().map(|(object, revision)| self.settled(object, revision)).collect();
        self.ready(stored).await
    }

    async fn ready(&self, stored: Vec<Stored>) -> Result<Vec<Object>, ApiError> {
        let mut ready = Vec::with_capacity(stored.len());
        for object in stored {
            match object {
                Stored::Ready(object) => ready.push(object),
                Stored::Foreign(object) => ready.push(self.converted(object).await?),
            }
        }
        Ok(ready)
    }

    /// The object in this version, whatever version it is of.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn converted(&self, object: Object) -> Result<Object, ApiError> {
        let wanted = self.resource.api_version();
        if identity(&object).1 == wanted {
            return Ok(object);
        }
        match self.definition.conversion {
            Conversion::None => Ok(self.relabelled(object)),
            Conversion::Webhook(_) => Err(ApiError::internal(format!(
                "conversion webhook for {}, Kind={} to {wanted}: not supported by this server yet",
                identity(&object).1,
                self.resource.kind
            ))),
        }
    }
}

/// `v1` of an object that says `example.com/v1`.
fn stored_version(object: &Object) -> String {
    let version = identity(object).1;
    version.rsplit('/').next().unwrap_or_default().to_owned()
}
