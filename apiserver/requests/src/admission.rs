//! What admission is told of a request, and what it may do: the contract between the generic path and the plugins.

use super::{DeleteOptions, WriteOptions};
use coracle_api::{ApiError, FieldError, Object, Resource, UserInfo};
use coracle_store::Store;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

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
pub enum RequestOptions<'a> {
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
    /// The same of an object that goes with others: the request names none.
    DeleteCollection(&'a DeleteOptions),
    /// Streams have no options.
    Nothing,
}

impl RequestOptions<'_> {
    pub fn dry_run(&self) -> bool {
        match self {
            Self::Write(options) => options.dry_run,
            Self::Delete(options) | Self::DeleteCollection(options) => options.dry_run,
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
            Self::Delete(options) | Self::DeleteCollection(options) => options.to_value(),
            Self::Nothing => Value::Null,
        }
    }
}

/// Between the versions of one object: the one that the registry works on, and those that clients, webhooks and policies
/// see.
#[async_trait::async_trait]
pub trait VersionConverter: Send + Sync {
    /// The resources that show the same objects, the request's own among them.
    fn equivalents(&self) -> Vec<Arc<Resource>>;

    /// What `to` shows of an object of the registry; through `scale` that is a Scale.
    async fn to_version<'o>(&self, object: &'o Object, to: &Resource) -> Result<Cow<'o, Object>, ApiError>;

    /// Takes back what somebody has made of an object in the form of `from`: decoded, pruned and defaulted like the body
    /// of a request. `before` is the same object in the form of the registry, unchanged.
    ///
    /// # Errors
    /// Values that the kind cannot have.
    async fn to_internal(
        &self,
        changed: Object,
        from: &Resource,
        before: &Object,
    ) -> Result<Object, ApiError>;
}

/// What admission plugins may know of a request.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub user: &'a UserInfo,
    /// In the version that the client named.
    pub resource: &'a Arc<Resource>,
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// Empty where nobody knows it yet, and for the objects of a collection that is deleted.
    pub name: &'a str,
    pub dry_run: bool,
    pub asked: RequestOptions<'a>,
    /// For the client, as `Warning` headers.
    pub warnings: &'a Mutex<Vec<String>>,
    /// For admission that keeps accounts (resource quota); absent in tests of the plugins.
    pub store: Option<&'a Arc<dyn Store>>,
    /// Absent in tests of the plugins, whose objects have one form.
    pub versions: Option<&'a dyn VersionConverter>,
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
        self.versions.map_or_else(|| vec![self.resource.clone()], VersionConverter::equivalents)
    }

    /// What `to`, the request's resource or an equivalent one, shows of an object.
    pub async fn to_version<'o>(
        &self,
        object: &'o Object,
        to: &Resource,
    ) -> Result<Cow<'o, Object>, ApiError> {
        match self.versions {
            Some(versions) => versions.to_version(object, to).await,
            None => Ok(Cow::Borrowed(object)),
        }
    }

    /// See [`VersionConverter::to_internal`].
    pub async fn to_internal(
        &self,
        changed: Object,
        from: &Resource,
        before: &Object,
    ) -> Result<Object, ApiError> {
        match self.versions {
            Some(versions) => versions.to_internal(changed, from, before).await,
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

    /// Rights that an update lacks beside that to write the object, to be told together with the mistakes of a new
    /// object that is not valid, and so never reaches [`Self::validate`], which refuses for the same.
    ///
    /// # Errors
    /// Why it could not be found out.
    async fn missing_rights(
        &self,
        _attributes: &Attributes<'_>,
        _new: &Object,
        _old: &Object,
    ) -> Result<Vec<FieldError>, ApiError> {
        Ok(Vec::new())
    }
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
