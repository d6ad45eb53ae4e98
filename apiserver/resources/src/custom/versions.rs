//! The other versions of a resource, for those who own fields there.

use super::Conversion;
use super::CustomResource;
use coracle_api::managed::Versions;
use coracle_api::schema::TypeRef;
use coracle_api::{ApiError, Object};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Field ownership is worked out without waiting, and webhooks have to be waited for. What it misses is written down
/// here; whoever asked fetches that and works it out once more.
#[derive(Default)]
pub struct Memo {
    /// By the object's text, which says its version, and the place of the version it is wanted in.
    known: Mutex<HashMap<(String, usize), Object>>,
    missing: Mutex<Vec<(Object, usize)>>,
}

impl Memo {
    pub fn is_complete(&self) -> bool {
        self.missing.lock().is_empty()
    }

    /// Converts what was missed. At the end of it a result that was found before is worth nothing.
    ///
    /// # Errors
    /// The webhook's.
    pub async fn complete(&self, custom: &CustomResource) -> Result<(), ApiError> {
        let missing = std::mem::take(&mut *self.missing.lock());
        for (object, at) in missing {
            let key = (object.to_string(), at);
            let converted = custom.converted_to(at, object).await?;
            self.known.lock().insert(key, converted);
        }
        Ok(())
    }
}

pub struct OtherVersions<'a> {
    pub custom: &'a CustomResource,
    pub memo: &'a Memo,
}

impl OtherVersions<'_> {
    /// Versions that are not served any more are nobody's.
    fn place(&self, api_version: &str) -> Option<usize> {
        let definition = &self.custom.definition;
        let version = api_version.strip_prefix(&*definition.group)?.strip_prefix('/')?;
        definition.version(version).filter(|at| definition.versions[*at].served)
    }
}

impl Versions for OtherVersions<'_> {
    fn convert(&self, object: &Object, _: &str, to: &str) -> Option<Object> {
        let at = self.place(to)?;
        if self.custom.definition.conversion == Conversion::None {
            return Some(self.custom.relabelled_to(at, object.clone()));
        }
        let key = (object.to_string(), at);
        if let Some(known) = self.memo.known.lock().get(&key) {
            return Some(known.clone());
        }
        self.memo.missing.lock().push((object.clone(), at));
        None
    }

    fn schema(&self, version: &str) -> Option<TypeRef<'_>> {
        let at = self.place(version)?;
        Some(TypeRef::dynamic(self.custom.definition.schema(at).ty()))
    }
}
