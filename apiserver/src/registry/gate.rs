//! Admission's place in the generic path.

use super::{DeleteOptions, Scope, WriteOptions};
use coracle_api::{ApiError, Object, Resource, UserInfo};
use coracle_component_base::metrics;
use coracle_store::Store;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// As rules of webhooks and policies write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What the client asked for beside the object.
#[derive(Clone, Copy)]
pub enum Asked<'a> {
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
    /// Streams have no options.
    Nothing,
}

impl Asked<'_> {
    pub fn dry_run(&self) -> bool {
        match self {
            Self::Write(options) => options.dry_run,
            Self::Delete(options) => options.dry_run,
            Self::Nothing => false,
        }
    }

    pub fn is_patch(&self) -> bool {
        matches!(self, Self::Write(options) if options.patch)
    }

    /// CreateOptions, UpdateOptions or DeleteOptions of meta.k8s.io/v1. A patch is one of the first two by what it does,
    /// as upstream tells it.
    pub fn to_value(self, operation: Operation) -> Value {
        match self {
            Self::Write(options) => {
                let kind = if operation == Operation::Update { "UpdateOptions" } else { "CreateOptions" };
                options.to_value(kind)
            }
            Self::Delete(options) => options.to_value(),
            Self::Nothing => Value::Null,
        }
    }
}

/// The forms of one object: that of the registry, and those that clients, webhooks and policies see.
#[async_trait::async_trait]
pub trait Forms: Send + Sync {
    /// The resources that show the same objects, the request's own among them.
    fn equivalents(&self) -> Vec<Arc<Resource>>;

    /// What `to` shows of an object of the registry; through `scale` that is a Scale.
    async fn show<'o>(&self, object: &'o Object, to: &Resource) -> Result<Cow<'o, Object>, ApiError>;

    /// Takes back what somebody has made of an object in the form of `from`: decoded, pruned and defaulted like the body
    /// of a request. `before` is the same object in the form of the registry, unchanged.
    ///
    /// # Errors
    /// Values that the kind cannot have.
    async fn take(&self, changed: Object, from: &Resource, before: &Object) -> Result<Object, ApiError>;
}

/// What admission plugins may know of a request.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub user: &'a UserInfo,
    /// In the version that the client named.
    pub resource: &'a Arc<Resource>,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub dry_run: bool,
    pub asked: Asked<'a>,
    /// For the client, as `Warning` headers.
    pub warnings: &'a Mutex<Vec<String>>,
    /// For admission that keeps accounts (resource quota); absent in tests of the plugins.
    pub store: Option<&'a Arc<dyn Store>>,
    /// Absent in tests of the plugins, whose objects have one form.
    pub forms: Option<&'a dyn Forms>,
}

/// Group, version and kind.
pub type Kind<'a> = [&'a str; 3];

/// The kind that goes over the wire for a resource, or for a subresource of it.
pub fn kind_of<'a>(resource: &'a Resource, subresource: &str) -> Kind<'a> {
    match resource.subresource(subresource) {
        Some(sub) => [&sub.group, &sub.version, &sub.kind],
        None => [&resource.group, &resource.version, &resource.kind],
    }
}

impl Attributes<'_> {
    /// The kind that the client named.
    pub fn kind(&self) -> Kind<'_> {
        kind_of(self.resource, self.subresource)
    }

    /// As webhooks and policies see it: a Namespace is in the namespace of its own name.
    pub fn reviewed_namespace(&self) -> &str {
        if self.is_namespace() { self.name } else { self.namespace }
    }

    /// Whether the request is about a Namespace itself.
    pub fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.plural == "namespaces"
    }

    pub fn equivalents(&self) -> Vec<Arc<Resource>> {
        self.forms.map_or_else(|| vec![self.resource.clone()], Forms::equivalents)
    }

    /// What `to`, the request's resource or an equivalent one, shows of an object.
    pub async fn show<'o>(&self, object: &'o Object, to: &Resource) -> Result<Cow<'o, Object>, ApiError> {
        match self.forms {
            Some(forms) => forms.show(object, to).await,
            None => Ok(Cow::Borrowed(object)),
        }
    }

    /// See [`Forms::take`].
    pub async fn take(&self, changed: Object, from: &Resource, before: &Object) -> Result<Object, ApiError> {
        match self.forms {
            Some(forms) => forms.take(changed, from, before).await,
            None => Ok(changed),
        }
    }

    /// For the client; told once, however often the write is tried.
    pub fn warn(&self, warning: String) {
        let mut known = self.warnings.lock();
        if !known.contains(&warning) {
            known.push(warning);
        }
    }
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

/// Subresources whose body is admitted by itself, before what it makes of the object: that is the server's own doing.
const ADMITTED_BY_BODY: [&str; 2] = ["binding", "eviction"];

impl Scope<'_> {
    fn attributes<'a>(&'a self, operation: Operation, name: &'a str, asked: Asked<'a>) -> Attributes<'a> {
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
            forms: Some(self),
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
        self.mutate_as(operation, object, old, Asked::Write(options)).await
    }

    async fn mutate_as(
        &self,
        operation: Operation,
        object: &mut Object,
        old: Option<&Object>,
        asked: Asked<'_>,
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
        count(operation, "admit", outcome, began)
    }

    pub(super) async fn validate_admission(
        &self,
        operation: Operation,
        object: Option<&Object>,
        old: Option<&Object>,
        asked: Asked<'_>,
    ) -> Result<(), ApiError> {
        if self.follows_from_body(object) {
            return Ok(());
        }
        let name = match object.or(old).map_or("", |o| super::metadata::text(o, "name")) {
            "" => self.name,
            name => name,
        };
        let attributes = self.attributes(operation, name, asked);
        let began = Instant::now();
        let outcome = self.registry.admission.validate(&attributes, object, old).await;
        count(operation, "validate", outcome, began)
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
        asked: Asked<'_>,
    ) -> Result<Object, ApiError> {
        let mut body = body;
        self.mutate_as(operation, &mut body, None, asked).await?;
        self.validate_admission(operation, Some(&body), None, asked).await?;
        Ok(body)
    }
}

impl WriteOptions {
    /// As webhooks see them: what the client has sent.
    fn to_value(&self, kind: &str) -> Value {
        let mut value = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        for (field, text) in
            [("fieldManager", &self.sent.field_manager), ("fieldValidation", &self.sent.field_validation)]
        {
            if !text.is_empty() {
                value[field] = text.as_str().into();
            }
        }
        value
    }
}

fn count(
    operation: Operation,
    kind: &str,
    outcome: Result<(), ApiError>,
    began: Instant,
) -> Result<(), ApiError> {
    metrics::global().admission_step(operation.name(), kind, outcome.is_err(), began.elapsed());
    outcome
}
