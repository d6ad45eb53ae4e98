//! POSTs that store nothing of their own: bindings, evictions, tokens and reviews.

use super::resources::Call;
use super::table::Tables;
use crate::wire::negotiation::Shape;
use crate::wire::respond::Reply;
use crate::wire::shape::metadata_only;
use axum::body::Body;
use coracle_access::authz::Authorizer;
use coracle_access::reviews::{self, TokenContext};
use coracle_api::{ApiError, Object, catalogue};
use coracle_registry::subresource::Sub;
use coracle_registry::{Operation, RequestOptions, Scope};
use coracle_strategy::{Scales, Strategy};
use http::StatusCode;
use serde_json::json;

impl Call<'_> {
    pub(super) fn is_sub(&self, name: &str) -> bool {
        self.route.subresource().is_some_and(|s| s.name == name)
    }

    /// The subresource that shows its object in part, if the request is to one.
    pub(super) fn sub(&self) -> Option<Sub> {
        Sub::find(&self.route.subresource()?.name).filter(|sub| sub.shows_object())
    }

    /// Refuses a write to a subresource that is none of an object's parts, such as `pods/log`: it must never become a write of
    /// the whole object.
    pub(super) fn refuse_unserved(&self) -> Result<(), ApiError> {
        match self.route.subresource() {
            Some(sub) if self.sub().is_none() && !self.is_sub("scale") => {
                let mut error = ApiError::method_not_allowed();
                error.message = format!("{}: {} is not served by this server", error.message, sub.name);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// A Scale as the client wants to see it.
    pub(super) fn shown_scale(&self, scope: &Scope<'_>, scale: Object) -> Result<Reply, ApiError> {
        let value = match self.wanted.shape {
            Shape::Object => scale,
            Shape::Metadata => metadata_only(&scale, self.wanted.meta_version()),
            Shape::Table => {
                let strategy: &'static dyn Strategy = &Scales;
                Tables { strategy: strategy.into(), ..self.tables(scope)? }.single(&scale)
            }
        };
        Ok(Reply::ok(value))
    }

    pub(super) async fn special_create(&self, scope: &Scope<'_>, body: Body) -> Result<Reply, ApiError> {
        let options = self.info.query.write_options("CreateOptions")?;
        let object = self.decode(scope, body, "CreateOptions").await?;
        match (&*scope.resource.plural, self.route.subresource().map_or("", |s| &*s.name)) {
            ("pods", "binding") => Ok(Reply::json(StatusCode::CREATED, scope.bind(&object, &options).await?)),
            ("bindings", "") => self.bind_by_name(scope, &object).await,
            ("pods", "eviction") => {
                let deleted = scope.evict(&object, &options).await?;
                let status = deleted.status("", "pods");
                Ok(Reply::json(StatusCode::CREATED, without_details(status)))
            }
            ("serviceaccounts", "token") => {
                let object =
                    scope.admit_body(Operation::Create, object, RequestOptions::Write(&options)).await?;
                self.token(scope, object).await
            }
            (_, "") => {
                self.wanted.shapeless()?;
                let object =
                    scope.admit_body(Operation::Create, object, RequestOptions::Write(&options)).await?;
                Ok(Reply::json(StatusCode::CREATED, self.review(scope, object).await?))
            }
            _ => Err(ApiError::page_not_found()),
        }
    }

    async fn token(&self, scope: &Scope<'_>, request: Object) -> Result<Reply, ApiError> {
        let Some(authenticator) = &self.server.authenticator else {
            return Err(ApiError::unavailable("this server has no key for service account tokens"));
        };
        let work = |authorizer: &dyn Authorizer| {
            let context = TokenContext {
                tokens: authenticator.tokens(),
                read: &*self.server.registry.cache,
                user: self.user,
                authorizer,
                now: scope.now,
            };
            reviews::token_request(request.clone(), scope.namespace, scope.name, &context)
        };
        let granted = self.server.authorizer.settle(work).await?;
        scope.warn(granted.warning);
        Ok(Reply::json(StatusCode::CREATED, granted.answer))
    }

    /// The kinds that are asked and answered, but not kept.
    async fn review(&self, scope: &Scope<'_>, review: Object) -> Result<Object, ApiError> {
        let gate = &self.server.authorizer;
        match &*scope.resource.kind {
            "SelfSubjectReview" => reviews::self_subject_review(review, self.user),
            "SelfSubjectAccessReview" => {
                let ask =
                    |by: &dyn Authorizer| reviews::self_subject_access_review(review.clone(), self.user, by);
                gate.settle(ask).await
            }
            "SelfSubjectRulesReview" => {
                let ask =
                    |by: &dyn Authorizer| reviews::self_subject_rules_review(review.clone(), self.user, by);
                gate.settle(ask).await
            }
            "SubjectAccessReview" => {
                let answer = gate.settle(|by| reviews::subject_access_review(review.clone(), by)).await;
                answer.map(|answer| self.unless_revoked(answer))
            }
            "LocalSubjectAccessReview" => {
                let ask = |by: &dyn Authorizer| {
                    reviews::local_subject_access_review(review.clone(), scope.namespace, by)
                };
                gate.settle(ask).await
            }
            "TokenReview" => match &self.server.authenticator {
                Some(authenticator) => Box::pin(reviews::token_review(review, authenticator)).await,
                None => Err(ApiError::unavailable("this server authenticates nobody")),
            },
            _ => Err(ApiError::page_not_found()),
        }
    }

    /// Kubelets judge certificates by themselves and ask here what the holder may: nothing, with one that was revoked.
    fn unless_revoked(&self, review: Object) -> Object {
        let mut review = review;
        let authenticator = self.server.authenticator.as_ref();
        if authenticator.is_some_and(|a| a.is_revoked(&review["spec"]["extra"])) {
            let reason = "the client certificate was revoked";
            review["status"] = json!({ "allowed": false, "denied": true, "reason": reason });
        }
        review
    }

    /// `POST .../bindings`: the pod's name is the binding's.
    async fn bind_by_name(&self, scope: &Scope<'_>, binding: &Object) -> Result<Reply, ApiError> {
        let Some(pods) = catalogue::by_plural("", "v1", "pods") else {
            return Err(ApiError::page_not_found());
        };
        let options = self.info.query.write_options("CreateOptions")?;
        let admitted =
            scope.admit_body(Operation::Create, binding.clone(), RequestOptions::Write(&options)).await?;
        let binding = &admitted;
        let name = binding["metadata"]["name"].as_str().unwrap_or_default();
        let pod = Scope {
            registry: scope.registry,
            resource: pods,
            strategy: coracle_strategy::for_resource("", "pods").into(),
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
