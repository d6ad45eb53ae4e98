//! POSTs that store nothing of their own: bindings, evictions, tokens and reviews.

use super::resources::Call;
use super::respond::Reply;
use crate::registry::Scope;
use crate::registry::subresource::Sub;
use axum::body::Body;
use coracle_api::{ApiError, Object, catalogue};
use http::StatusCode;

impl Call<'_> {
    pub(super) fn is_sub(&self, name: &str) -> bool {
        self.route.subresource.is_some_and(|s| s.name == name)
    }

    /// The subresource that shows its object in part, if the request is to one.
    pub(super) fn sub(&self) -> Option<Sub> {
        Sub::find(&self.route.subresource?.name).filter(|sub| sub.shows_object())
    }

    pub(super) async fn special_create(&self, scope: &Scope<'_>, body: Body) -> Result<Reply, ApiError> {
        let options = self.query.write_options("CreateOptions")?;
        let object = self.decode(scope, body, "CreateOptions").await?;
        match (&*scope.resource.plural, self.route.subresource.map_or("", |s| &*s.name)) {
            ("pods", "binding") => Ok(Reply::json(StatusCode::CREATED, scope.bind(&object, &options).await?)),
            ("bindings", "") => self.bind_by_name(scope, &object).await,
            ("pods", "eviction") => {
                let deleted = scope.evict(&object, &options).await?;
                let status = deleted.status("", "pods");
                Ok(Reply::json(StatusCode::CREATED, without_details(status)))
            }
            _ => Err(ApiError::page_not_found()),
        }
    }

    /// `POST .../bindings`: the pod's name is the binding's.
    async fn bind_by_name(&self, scope: &Scope<'_>, binding: &Object) -> Result<Reply, ApiError> {
        let Some(pods) = catalogue::by_plural("", "v1", "pods") else {
            return Err(ApiError::page_not_found());
        };
        let options = self.query.write_options("CreateOptions")?;
        let name = binding["metadata"]["name"].as_str().unwrap_or_default();
        let pod = Scope {
            registry: scope.registry,
            resource: pods,
            strategy: crate::strategy::for_resource("", "pods"),
            namespace: scope.namespace,
            name,
            subresource: "binding",
            user: scope.user,
            now: scope.now,
            warnings: parking_lot::Mutex::default(),
        };
        Ok(Reply::json(StatusCode::CREATED, pod.bind(binding, &options).await?))
    }
}

fn without_details(status: Object) -> Object {
    let mut status = status;
    if let Some(fields) = status.as_object_mut() {
        fields.remove("details");
    }
    status["code"] = 201.into();
    status
}
