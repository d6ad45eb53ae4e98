//! From stored bytes to the object that a version shows.
//!
//! What is stored is pruned and filled in by the schema of the version it is stored in, because that schema may have
//! changed since, and then converted. Most objects are in order as they are: each remembers by which schema it was found
//! so, and is served from its bytes from then on.

use super::Conversion;
use super::CustomResource;
use super::coerce::identity;
use crate::cache::CachedObject;
use coracle_api::schema::TypeRef;
use coracle_api::{ApiError, Object};
use coracle_requests::CustomVersion;
use coracle_store::Revision;
use std::sync::Arc;

impl CustomResource {
    /// Whether the bytes are the object, as this version shows it.
    pub fn is_as_stored(&self, object: &CachedObject) -> bool {
        let schema = self.schema().id;
        object.is_settled(schema).unwrap_or_else(|| {
            let _ = self.settled(object, object.revision);
            object.is_settled(schema) == Some(true)
        })
    }

    /// Whether the metadata in the bytes is what this version shows.
    pub fn is_metadata_as_stored(&self, object: &CachedObject) -> bool {
        self.definition.conversion == Conversion::None || self.is_as_stored(object)
    }

    /// Decodes, prunes and fills in. Without a webhook the result is of this version, else of the one that it is stored
    /// in.
    fn settled(&self, cached: &CachedObject, revision: Revision) -> Object {
        let mut object = cached.decode_at(revision);
        let schema = self.schema();
        if cached.is_settled(schema.id) == Some(true) {
            return object;
        }
        let from = stored_version(&object);
        let Some(at) = self.definition.version(from) else {
            // Of a version that is gone, by somebody's hand: shown as if it were of this one.
            return self.relabelled_to(self.at, object);
        };
        let is_own = at == self.at;
        let before = is_own.then(|| object.clone());
        let stored_by = self.definition.schema(at);
        stored_by.prune(&mut object);
        stored_by.fill(&mut object);
        cached.set_settled(schema.id, before.as_ref() == Some(&object));
        match self.definition.conversion {
            Conversion::None if !is_own => self.relabelled_to(self.at, object),
            _ => object,
        }
    }

    /// What conversion without a webhook does: the object says another version, and what that version's schema does not
    /// specify is gone.
    pub(super) fn relabelled_to(&self, at: usize, object: Object) -> Object {
        let mut object = object;
        let version = &self.definition.versions[at].name;
        object["apiVersion"] = format!("{}/{version}", self.definition.group).into();
        object["kind"] = (*self.resource.kind).into();
        self.definition.schema(at).prune(&mut object);
        object
    }

    /// The objects as this version shows them, in their order.
    ///
    /// # Errors
    /// The conversion webhook's; one failure fails the whole list.
    pub async fn served<'c>(
        &self,
        cached: impl IntoIterator<Item = (&'c CachedObject, Revision)>,
    ) -> Result<Vec<Object>, ApiError> {
        let objects: Vec<Object> =
            cached.into_iter().map(|(object, revision)| self.settled(object, revision)).collect();
        let Conversion::Webhook(webhook) = &self.definition.conversion else { return Ok(objects) };
        let wanted = self.resource.api_version();
        if objects.iter().all(|object| identity(object).1 == wanted) {
            return Ok(objects);
        }
        let converter = &self.definition.converter;
        let asked = converter.many(webhook, objects, &wanted, &self.resource.list_kind);
        let mut objects = Box::pin(asked).await?;
        objects.iter_mut().for_each(|object| {
            self.schema().prune(object);
        });
        Ok(objects)
    }

    /// The object as this version shows it.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn shown(&self, cached: &CachedObject, revision: Revision) -> Result<Object, ApiError> {
        let object = self.settled(cached, revision);
        self.converted(object).await
    }

    /// The object as this version shows it; shared with others who decode it, where nothing is to be done.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn decoded(&self, cached: &CachedObject) -> Result<Arc<Object>, ApiError> {
        if cached.is_settled(self.schema().id) == Some(true) {
            return Ok(cached.decode());
        }
        self.shown(cached, cached.revision).await.map(Arc::new)
    }

    /// The object in this version, whatever version it is of.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn converted(&self, object: Object) -> Result<Object, ApiError> {
        self.converted_to(self.at, object).await
    }

    /// The object in the version that is stored.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn to_storage(&self, object: Object) -> Result<Object, ApiError> {
        let stored = self.definition.versions.iter().position(|version| version.storage);
        self.converted_to(stored.unwrap_or(self.at), object).await
    }

    /// Of an object as it will be stored, under another version than this one: how this version reads it back, which a
    /// webhook may see otherwise than as it was sent. `None` without a definition of the stored version.
    ///
    /// # Errors
    /// The conversion webhook's.
    pub async fn read_back(&self, stored: &Object) -> Result<Option<Object>, ApiError> {
        let Some(at) = self.definition.version(stored_version(stored)) else { return Ok(None) };
        let mut filled = stored.clone();
        self.definition.schema(at).fill(&mut filled);
        self.converted(filled).await.map(Some)
    }

    pub(super) async fn converted_to(&self, at: usize, object: Object) -> Result<Object, ApiError> {
        let definition = &self.definition;
        let wanted = format!("{}/{}", definition.group, definition.versions[at].name);
        if identity(&object).1 == wanted {
            return Ok(object);
        }
        let Conversion::Webhook(webhook) = &definition.conversion else {
            return Ok(self.relabelled_to(at, object));
        };
        let mut object = Box::pin(definition.converter.one(webhook, object, &wanted)).await?;
        definition.schema(at).prune(&mut object);
        Ok(object)
    }
}

/// `v1` of an object that says `example.com/v1`.
fn stored_version(object: &Object) -> &str {
    identity(object).1.rsplit('/').next().unwrap_or_default()
}

#[async_trait::async_trait]
impl CustomVersion for CustomResource {
    fn object_type(&self) -> TypeRef<'_> {
        TypeRef::dynamic(self.schema().ty())
    }

    async fn convert(&self, object: Object) -> Result<Object, ApiError> {
        self.converted(object).await
    }
}
