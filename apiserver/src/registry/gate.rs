//! Admission's place in the generic path.

use super::Scope;
use crate::metrics;
use crate::store::Store;
use coracle_api::{ApiError, Object, UserInfo};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// What admission plugins may know of a request.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub user: &'a UserInfo,
    pub resource: &'a coracle_api::Resource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub dry_run: bool,
    /// For the client, as `Warning` headers.
    pub warnings: &'a Mutex<Vec<String>>,
    /// For admission that keeps accounts (resource quota); absent in tests of the plugins.
    pub store: Option<&'a Arc<dyn Store>>,
}

/// Plugins in their order. Mutation comes first, validation sees what will be stored.
#[async_trait::async_trait]
pub trait Admission: Send + Sync {
    async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), ApiError>;

    async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError>;
}

/// Lets everything through, for tests of the machinery alone.
pub struct AdmitAll;

#[async_trait::async_trait]
impl Admission for AdmitAll {
    async fn mutate(&self, _: &Attributes<'_>, _: &mut Object, _: Option<&Object>) -> Result<(), ApiError> {
        Ok(())
    }

    async fn validate(
        &self,
        _: &Attributes<'_>,
        _: Option<&Object>,
        _: Option<&Object>,
    ) -> Result<(), ApiError> {
        Ok(())
    }
}

impl Scope<'_> {
    fn attributes<'a>(&'a self, operation: Operation, name: &'a str, dry_run: bool) -> Attributes<'a> {
        Attributes {
            operation,
            user: self.user,
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name,
            dry_run,
            warnings: &self.warnings,
            store: Some(&self.registry.store),
        }
    }

    pub(super) async fn mutate(
        &self,
        operation: Operation,
        object: &mut Object,
        old: Option<&Object>,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let name = super::metadata::text(object, "name").to_owned();
        let attributes = self.attributes(operation, &name, dry_run);
        let began = Instant::now();
        let outcome = self.registry.admission.mutate(&attributes, object, old).await;
        count(operation, "admit", outcome, began)
    }

    pub(super) async fn validate_admission(
        &self,
        operation: Operation,
        object: Option<&Object>,
        old: Option<&Object>,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let name = object.or(old).map_or("", |o| super::metadata::text(o, "name"));
        let attributes = self.attributes(operation, name, dry_run);
        let began = Instant::now();
        let outcome = self.registry.admission.validate(&attributes, object, old).await;
        count(operation, "validate", outcome, began)
    }
}

fn count(
    operation: Operation,
    kind: &str,
    outcome: Result<(), ApiError>,
    began: Instant,
) -> Result<(), ApiError> {
    let name = match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    };
    metrics::global().admission_step(name, kind, outcome.is_err(), began.elapsed());
    outcome
}
