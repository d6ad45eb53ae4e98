//! Admission's place in the generic path.

use super::{Attributes, Operation, RequestOptions, Scope, WriteOptions};
use coracle_api::{ApiError, FieldError, Object};
use std::time::Instant;

/// Subresources whose body is admitted by itself, before what it makes of the object: that is the server's own doing.
const ADMITTED_BY_BODY: [&str; 2] = ["binding", "eviction"];

impl Scope<'_> {
    fn attributes<'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        asked: RequestOptions<'a>,
    ) -> Attributes<'a> {
        Attributes {
            operation,
            user: self.user,
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name,
            dry_run: asked.dry_run(),
            asked,
            warnings: &self.warnings,
            store: Some(&self.registry.store),
            versions: Some(self),
        }
    }

    /// Whether a write of the object itself is only what follows from a body that was admitted.
    fn follows_from_body(&self, object: Option<&Object>) -> bool {
        ADMITTED_BY_BODY.contains(&self.subresource)
            && object.is_none_or(|object| object["kind"] == *self.resource.kind)
    }

    /// Mutating admission of what will be stored, or of the body of a request.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn mutate(
        &self,
        operation: Operation,
        object: &mut Object,
        old: Option<&Object>,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        self.mutate_as(operation, object, old, RequestOptions::Write(options)).await
    }

    async fn mutate_as(
        &self,
        operation: Operation,
        object: &mut Object,
        old: Option<&Object>,
        asked: RequestOptions<'_>,
    ) -> Result<(), ApiError> {
        if self.follows_from_body(Some(object)) {
            return Ok(());
        }
        let name = match super::metadata::text(object, "name") {
            "" => self.name.to_owned(),
            name => name.to_owned(),
        };
        let attributes = self.attributes(operation, &name, asked);
        let began = Instant::now();
        let outcome = self.registry.admission.mutate(&attributes, object, old).await;
        self.count(operation, "admit", outcome, began)
    }

    pub(super) async fn validate_admission(
        &self,
        operation: Operation,
        object: Option<&Object>,
        old: Option<&Object>,
        asked: RequestOptions<'_>,
    ) -> Result<(), ApiError> {
        if self.follows_from_body(object) {
            return Ok(());
        }
        let name = match object.or(old).map_or("", |o| super::metadata::text(o, "name")) {
            _ if matches!(asked, RequestOptions::DeleteCollection(_)) => "",
            "" => self.name,
            name => name,
        };
        let attributes = self.attributes(operation, name, asked);
        let began = Instant::now();
        let outcome = self.registry.admission.validate(&attributes, object, old).await;
        self.count(operation, "validate", outcome, began)
    }

    /// What an update that is not valid is refused for besides.
    pub(super) async fn missing_rights(
        &self,
        new: &Object,
        old: &Object,
        options: &WriteOptions,
    ) -> Result<Vec<FieldError>, ApiError> {
        let attributes = self.attributes(Operation::Update, self.name, RequestOptions::Write(options));
        self.registry.admission.missing_rights(&attributes, new, old).await
    }

    /// Admission of what is not stored: a review, a request for a token, the options of a stream. Returns what it has
    /// become.
    ///
    /// # Errors
    /// The refusal.
    pub async fn admit_body(
        &self,
        operation: Operation,
        body: Object,
        asked: RequestOptions<'_>,
    ) -> Result<Object, ApiError> {
        let mut body = body;
        self.mutate_as(operation, &mut body, None, asked).await?;
        self.validate_admission(operation, Some(&body), None, asked).await?;
        Ok(body)
    }

    fn count(
        &self,
        operation: Operation,
        kind: &str,
        outcome: Result<(), ApiError>,
        began: Instant,
    ) -> Result<(), ApiError> {
        let metrics = self.registry.cache.metrics();
        metrics.admission_step(operation.name(), kind, outcome.is_err(), began.elapsed());
        outcome
    }
}
