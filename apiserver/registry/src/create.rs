//! POST to a collection.

use super::commit::{Raced, Written};
use super::metadata::{Moment, generate_name, of, text};
use super::ownership::Owners;
use super::{Operation, RequestOptions};
use super::{Scope, WriteOptions};
use coracle_api::{ApiError, FieldError, Object};

/// Attempts to find a generated name that is free, as upstream's `maxNameGenerationCreateAttempts`.
const NAME_ATTEMPTS: usize = 8;

impl Scope<'_> {
    /// Creates the object of the body and returns it as stored.
    pub async fn create(&self, object: Object, options: &WriteOptions) -> Result<Written, ApiError> {
        self.create_owned(object, Owners::Follow, options).await
    }

    pub(super) async fn create_owned(
        &self,
        object: Object,
        owners: Owners,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let mut object = object;
        self.refuse_terminating()?;
        self.check_identity(&mut object)?;
        let base = text(&object, "generateName").to_owned();
        let named = !text(&object, "name").is_empty();
        if named || base.is_empty() {
            return match Box::pin(self.create_named(object, owners, options)).await? {
                Ok(stored) => Ok(stored),
                Err((name, Raced)) => Err(self.already_exists(&name)),
            };
        }
        for _ in 0..NAME_ATTEMPTS {
            if let Ok(stored) = Box::pin(self.create_named(object.clone(), owners, options)).await? {
                return Ok(stored);
            }
        }
        let mut error = ApiError::already_exists(&self.resource.group, &self.resource.plural, &base);
        error.message =
            format!("{}, the server was not able to generate a unique name for the object", error.message);
        Err(error)
    }

    /// Of a definition that is going away nothing new is made.
    fn refuse_terminating(&self) -> Result<(), ApiError> {
        if !self.strategy.custom().is_some_and(|custom| custom.definition.terminating) {
            return Ok(());
        }
        let message = "create not allowed while custom resource definition is terminating";
        let details = serde_json::json!({ "group": self.resource.group, "kind": self.resource.plural });
        Err(ApiError::new(405, "MethodNotAllowed", message).with_details(details))
    }

    fn already_exists(&self, name: &str) -> ApiError {
        ApiError::already_exists(&self.resource.group, &self.resource.plural, name)
    }

    async fn create_named(
        &self,
        object: Object,
        owners: Owners,
        options: &WriteOptions,
    ) -> Result<Result<Written, (String, Raced)>, ApiError> {
        let mut object = object;
        let version = text(&object, "resourceVersion").to_owned();
        let sent_labels = object["metadata"]["labels"].clone();
        let sent_generation = object["metadata"]["generation"].as_i64();
        self.wipe_new(&mut object);
        self.dedup_owners(&mut object, Moment::Sent);
        self.strategy.defaults(&mut object);
        let mut sent_errors = Vec::new();
        self.strategy.validate_sent(&object, &mut sent_errors);
        self.settle(&mut object);
        self.own(owners, options, &mut object, None).await?;
        self.mutate(Operation::Create, &mut object, None, options).await?;
        self.dedup_owners(&mut object, Moment::Mutated);
        // Those who mutate see neither what the server decides about a new object nor a name that it makes up.
        self.check_identity(&mut object)?;
        self.stamp_new(&mut object);
        let base = text(&object, "generateName").to_owned();
        if text(&object, "name").is_empty() && !base.is_empty() {
            of(&mut object).insert("name".into(), generate_name(&base).into());
        }
        self.strategy.defaults(&mut object);
        self.strategy.prepare_create(&mut object, &self.env());
        self.strategy.complete_labels(&mut object, &sent_labels);
        keep_generation(&mut object, sent_generation);
        self.settle(&mut object);
        let mut errors: Vec<FieldError> = self.metadata_errors(&object);
        self.strategy.validate(&object, &self.env(), &mut errors);
        self.strategy.validate_create(&object, &self.env(), &mut errors);
        errors.append(&mut sent_errors);
        if errors.is_empty() {
            errors = self.last_metadata_errors(&object);
        }
        let name = text(&object, "name").to_owned();
        if !errors.is_empty() {
            return Err(ApiError::invalid(&self.resource.group, &self.resource.kind, &name, &errors));
        }
        self.warn(self.strategy.warnings(&object, None));
        self.validate_admission(Operation::Create, Some(&object), None, RequestOptions::Write(options))
            .await?;
        if !options.dry_run {
            refuse_version(&version)?;
        }
        self.strategy.complete_judged(&mut object);
        let taken = self.registry.cache.find(&self.resource.storage.key, self.namespace, &name).is_some();
        if taken {
            return Ok(Err((name, Raced)));
        }
        Ok(self.put(&name, object, None, options.dry_run).await?.map_err(|raced| (name, raced)))
    }
}

/// Of kinds whose changes are not counted, upstream takes what the client sent.
fn keep_generation(object: &mut Object, sent: Option<i64>) {
    if let Some(sent) = sent.filter(|generation| *generation != 0)
        && object["metadata"]["generation"].is_null()
    {
        of(object).insert("generation".into(), sent.into());
    }
}

/// A new object has no version yet. As upstream, the store says so, after all who judge what the object holds; what is no
/// number counts as none.
fn refuse_version(version: &str) -> Result<(), ApiError> {
    match version.parse::<u64>() {
        Ok(version) if version != 0 => {
            Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"))
        }
        _ => Ok(()),
    }
}
