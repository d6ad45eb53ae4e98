//! PUT and PATCH, of an object or of a part of it: read, transform, check, compare and swap.

use super::commit::{Raced, Written};
use super::metadata::{Moment, finalizers, is_deleting, text};
use super::ownership::Owners;
use super::{Operation, RequestOptions};
use super::{Scope, WriteOptions};
use coracle_api::{ApiError, FieldError, Object};
use coracle_resources::cache::CachedObject;
use serde_json::Value;
use std::sync::Arc;

/// Which rules an update follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object without its status.
    Main,
    Status,
    /// The conditions by which a certificate request is approved or denied.
    Approval,
    /// Changes that a subresource has made to an object which is valid already; the strategy's update rules do
    /// not apply, its validation does.
    Internal,
}

impl Part {
    /// What such a write of this subresource does to the owners.
    pub(super) fn owners(self, subresource: &str) -> Owners {
        match (self, subresource) {
            (Self::Main | Self::Status | Self::Approval, _) => Owners::Follow,
            (Self::Internal, "finalize" | "ephemeralcontainers" | "resize") => Owners::Follow,
            (Self::Internal, _) => Owners::Keep,
        }
    }
}

/// How an update is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub part: Part,
    pub owners: Owners,
    /// Whether a name that does not exist is created.
    pub creates: bool,
}

/// Attempts of an update that names no version. Upstream tries on for as long as the request lives; every failure
/// means that another write was successful.
pub(super) const RETRIES: usize = 256;

impl Scope<'_> {
    /// Replaces the object by what `transform` makes of the present one. Retries when somebody else was quicker,
    /// unless the result of `transform` names a resourceVersion. The flag is true if the object was created.
    pub async fn update<F>(
        &self,
        part: Part,
        options: &WriteOptions,
        transform: F,
    ) -> Result<(Written, bool), ApiError>
    where
        F: FnMut(Option<&Object>) -> Result<Object, ApiError> + Send,
    {
        let owners = part.owners(self.subresource);
        let creates = part == Part::Main && self.strategy.create_on_update();
        self.update_as(How { part, owners, creates }, options, transform).await
    }

    /// As [`update`](Self::update), for writes that treat the owners of fields in a way of their own.
    pub(super) async fn update_as<F>(
        &self,
        how: How,
        options: &WriteOptions,
        mut transform: F,
    ) -> Result<(Written, bool), ApiError>
    where
        F: FnMut(Option<&Object>) -> Result<Object, ApiError> + Send,
    {
        for attempt in 0..RETRIES {
            let fresh = attempt > 0;
            let Some(cached) = self.current(self.name, fresh).await? else {
                if !fresh {
                    continue;
                }
                let created = Box::pin(self.create_by_update(how, options, &mut transform)).await;
                return created.map(|object| (object, true));
            };
            let old = self.working(&cached).await?;
            let mut new = transform(Some(&old))?;
            self.check_identity(&mut new)?;
            let pinned = match self.check_preconditions(&new, &old) {
                // The cache can be behind a client that has been told of a write by another server.
                Err(_) if !fresh => continue,
                checked => checked?,
            };
            match Box::pin(self.replace(how, options, new, &cached, &old)).await? {
                Ok(stored) => return Ok((stored, false)),
                Err(Raced) if pinned => return Err(self.modified(self.name)),
                Err(Raced) => {}
            }
        }
        Err(self.modified(self.name))
    }

    async fn create_by_update<F>(
        &self,
        how: How,
        options: &WriteOptions,
        transform: &mut F,
    ) -> Result<Written, ApiError>
    where
        F: FnMut(Option<&Object>) -> Result<Object, ApiError> + Send,
    {
        if !how.creates {
            return Err(self.not_found(self.name));
        }
        let mut object = transform(None)?;
        self.check_identity(&mut object)?;
        if !text(&object, "resourceVersion").is_empty() && !text(&object, "uid").is_empty() {
            return Err(self.not_found(self.name));
        }
        super::metadata::of(&mut object).insert("name".into(), self.name.into());
        super::metadata::of(&mut object).remove("resourceVersion");
        self.create_owned(object, how.owners, options).await
    }

    /// Refuses what a PUT sent for another object than that of the URL, whether or not that one exists.
    pub fn check_name(&self, sent: &Object) -> Result<(), ApiError> {
        match text(sent, "name") {
            "" => Err(self.nameless()),
            name if name != self.name => Err(self.misnamed(name)),
            _ => Ok(()),
        }
    }

    /// Refuses a PUT of `new` that is not allowed without naming a version.
    pub fn check_replacement(&self, new: &Object, old: Option<&Object>) -> Result<(), ApiError> {
        if text(new, "name").is_empty() {
            return Err(self.nameless());
        }
        let names_version = !matches!(text(new, "resourceVersion"), "" | "0");
        if old.is_some() && !names_version && !self.strategy.facts().unconditional_update {
            // Upstream shows the number that is missing as Go prints an unsigned one.
            let detail = "must be specified for an update";
            let error = FieldError::invalid_as("metadata.resourceVersion", "0x0", detail);
            return Err(self.invalid(&[error]));
        }
        Ok(())
    }

    /// Whether the new object is bound to the version it was derived from.
    fn check_preconditions(&self, new: &Object, old: &Object) -> Result<bool, ApiError> {
        let (sent, have) = (text(new, "uid"), text(old, "uid"));
        if !sent.is_empty() && sent != have {
            let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {have}");
            return Err(self.conflict(self.name, &why));
        }
        match text(new, "resourceVersion") {
            "" | "0" => Ok(false),
            version if version == text(old, "resourceVersion") => Ok(true),
            // What Go says of it, and upstream hands on without a class.
            version if version.parse::<u64>().is_err() => {
                let text = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
                Err(ApiError::new(500, "", text))
            }
            _ => Err(self.modified(self.name)),
        }
    }

    pub(super) fn invalid(&self, errors: &[FieldError]) -> ApiError {
        ApiError::invalid(&self.resource.group, &self.resource.kind, self.name, errors)
    }

    async fn replace(
        &self,
        how: How,
        options: &WriteOptions,
        new: Object,
        cached: &Arc<CachedObject>,
        old: &Object,
    ) -> Result<Result<Written, Raced>, ApiError> {
        let How { part, owners, .. } = how;
        let mut new = new;
        self.dedup_owners(&mut new, Moment::Sent);
        self.strategy.defaults(&mut new);
        let mut sent_errors = Vec::new();
        if matches!(part, Part::Main) {
            self.strategy.validate_sent(&new, &mut sent_errors);
        }
        self.settle(&mut new);
        self.own(owners, options, &mut new, Some(old)).await?;
        self.mutate(Operation::Update, &mut new, Some(old), options).await?;
        self.dedup_owners(&mut new, Moment::Mutated);
        self.strategy.defaults(&mut new);
        self.keep_system_fields(&mut new, old);
        match part {
            Part::Main => self.strategy.prepare_update(&mut new, old, &self.env()),
            Part::Status => self.strategy.prepare_status_update(&mut new, old, &self.env()),
            Part::Approval => self.strategy.prepare_approval_update(&mut new, old, &self.env()),
            Part::Internal => {}
        }
        self.settle(&mut new);
        if !matches!(part, Part::Status | Part::Approval) {
            self.count_generation(&mut new, old);
        }
        self.forget_noise(&mut new, old);
        let mut errors = self.update_errors(part, &new, old);
        errors.append(&mut sent_errors);
        if !errors.is_empty() {
            let mut all = self.missing_rights(&new, old, options).await?;
            all.append(&mut errors);
            return Err(self.invalid(&all));
        }
        if part == Part::Main {
            self.warn(self.strategy.warnings(&new, Some(old)));
        }
        self.validate_admission(Operation::Update, Some(&new), Some(old), RequestOptions::Write(options))
            .await?;
        if self.is_finished(&new) {
            let removed = self.remove(self.name, cached, &new, options.dry_run).await?;
            return Ok(removed.map(|revision| {
                super::commit::set_version(&mut new, revision);
                new.into()
            }));
        }
        let counts = part == Part::Status && !options.dry_run;
        let issued = counts.then(|| self.strategy.issued(&new, old)).flatten();
        let put = self.put(self.name, new, Some((cached, Some(old))), options.dry_run).await?;
        if let Some(issued) = issued.filter(|_| put.is_ok()) {
            self.registry.cache.metrics().certificate_issued(&issued.signer, issued.honored);
        }
        Ok(put)
    }

    fn update_errors(&self, part: Part, new: &Object, old: &Object) -> Vec<FieldError> {
        let mut errors = self.metadata_update_errors(new, old);
        let env = self.env();
        match part {
            Part::Main => {
                self.strategy.validate_changed(new, old, &env, &mut errors);
                self.strategy.validate_update(new, old, &env, &mut errors);
            }
            Part::Status => self.strategy.validate_status_update(new, old, &env, &mut errors),
            Part::Approval => self.strategy.validate_approval_update(new, old, &env, &mut errors),
            Part::Internal => self.strategy.validate_changed(new, old, &env, &mut errors),
        }
        coracle_strategy::forgive_addresses(&mut errors, old);
        coracle_strategy::forgive_contexts(&mut errors, new, old);
        coracle_strategy::forgive_resizes(&mut errors, old);
        errors
    }

    /// An object that is being deleted and that nothing holds back any more.
    fn is_finished(&self, object: &Object) -> bool {
        is_deleting(object)
            && finalizers(object).is_empty()
            && !self.is_held(object)
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
    }

    /// Namespaces are held by `spec.finalizers` too, which the namespace controller empties through `finalize`.
    pub(super) fn is_held(&self, object: &Object) -> bool {
        &*self.resource.storage.key == "namespaces."
            && object["spec"]["finalizers"].as_array().is_some_and(|list: &Vec<Value>| !list.is_empty())
    }
}
