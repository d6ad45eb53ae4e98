//! One request against one plugin.

use super::Plugin;
pub(crate) use super::Request;
pub use coracle_access::authz::testing::World;
use coracle_api::{ApiError, Object, UserInfo};
use coracle_component_base::metrics::Metrics;
pub use coracle_requests::admission::Operation;

/// A write of `<resource>.<group>[/<subresource>]`; name and namespace come from the object.
pub struct Try<'a> {
    pub world: &'a World,
    pub user: UserInfo,
    pub operation: Operation,
    pub resource: &'static str,
    /// What the client would be warned of.
    pub warnings: parking_lot::Mutex<Vec<String>>,
    pub metrics: Metrics,
}

impl<'a> Try<'a> {
    pub fn create(world: &'a World, resource: &'static str) -> Self {
        let user = UserInfo::authenticated("jane", &[]);
        let (operation, warnings) = (Operation::Create, parking_lot::Mutex::default());
        Self { world, user, operation, resource, warnings, metrics: Metrics::default() }
    }

    pub fn with<T>(&self, object: &Object, run: impl FnOnce(&Request<'_>) -> T) -> T {
        let (full, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let (resource, group) = full.split_once('.').expect("<plural>.<group>");
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        run(&Request {
            operation: self.operation,
            group,
            resource,
            subresource,
            namespace: text("namespace"),
            name: text("name"),
            user: &self.user,
            dry_run: false,
            read: self.world,
            authorizer: None,
            metrics: &self.metrics,
            warnings: &self.warnings,
        })
    }

    /// The object as the plugin leaves it.
    pub fn mutate(&self, plugin: &dyn Plugin, object: Object) -> Result<Object, ApiError> {
        let mut new = object;
        let before = new.clone();
        self.with(&before, |request| plugin.mutate(request, &mut new, None))?;
        Ok(new)
    }

    pub fn validate(
        &self,
        plugin: &dyn Plugin,
        object: &Object,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let new = (self.operation != Operation::Delete).then_some(object);
        self.with(object, |request| plugin.validate(request, new, old))
    }
}

/// A pod of one container in namespace `a`.
pub fn pod() -> Object {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "a" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}
