//! DELETE of a collection.

use super::{DeleteOptions, ListOptions, Page, RequestOptions, Scope};
use coracle_api::ApiError;

impl Scope<'_> {
    /// Deletes what the list options select, and returns what was selected. Objects that others delete meanwhile
    /// are no error. With a limit, one page goes, and the answer tells where the next begins.
    pub async fn delete_collection(
        &self,
        delete: &DeleteOptions,
        list: &ListOptions,
    ) -> Result<Page, ApiError> {
        self.warn_of_orphans(delete);
        let page = self.list(list).await?;
        for item in &page.items {
            let inner = Scope {
                registry: self.registry,
                resource: self.resource,
                strategy: self.strategy.clone(),
                namespace: item.namespace(),
                name: item.name(),
                subresource: self.subresource,
                user: self.user,
                now: self.now,
                warnings: parking_lot::Mutex::default(),
            };
            let deleted = inner.delete_as(delete, RequestOptions::DeleteCollection(delete)).await;
            self.warn_once(inner.warnings.into_inner());
            match deleted {
                Ok(_) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }
}
