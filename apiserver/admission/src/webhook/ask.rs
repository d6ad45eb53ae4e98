//! One webhook and one request: whether it concerns it, and what it says.

use super::denial::denial;
use super::hook::Hook;
use super::metrics::Labels;
use super::review::{Nonsense, Shown, Verdict};
use crate::policy::asker;
use crate::{Write, annotations, deadline};
use bytes::Bytes;
use coracle_api::{ApiError, Object, Resource, validation};
use coracle_strategy::expression::{Input, Matched};
use coracle_webhook::{Call, CallError, Client, Target, TransportError};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Why a webhook did not let a request through.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no answer that could be believed: the failure policy decides. `code` is what metrics count.
    Call { why: String, code: u16 },
    /// It was asked and has denied.
    Rejected(ApiError),
    /// Neither: a patch that does not apply, a dry run that it is not made for.
    Internal(ApiError),
}

/// All calls of one request.
pub(super) struct Asking<'a> {
    pub client: &'a Client,
    pub write: &'a Write<'a>,
    pub mutating: bool,
}

impl<'a> Asking<'a> {
    pub fn labels<'h>(&'h self, hook: &'h Hook) -> Labels<'h> {
        let kind = if self.mutating { "admit" } else { "validating" };
        let operation = self.write.attributes.operation.name();
        Labels { metrics: self.write.metrics, name: &hook.name, kind, operation }
    }

    /// The resource in whose version the webhook is to see the request, by its rules and selectors.
    ///
    /// # Errors
    /// A namespace that is gone, or selectors that cannot be read.
    pub fn matched(
        &self,
        hook: &Hook,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<Option<Arc<Resource>>, ApiError> {
        let matcher = hook.matcher.as_ref().map_err(ApiError::internal)?;
        let attributes = self.write.attributes;
        if attributes.subresource == "scale" {
            // A Scale has no labels of its own.
            let bare = json!({ "metadata": {} });
            return matcher.matches(
                attributes,
                object.map(|_| &bare),
                old.map(|_| &bare),
                &**self.write.read,
            );
        }
        matcher.matches(attributes, object, old, &**self.write.read)
    }

    /// Whether the match conditions let the webhook be asked.
    ///
    /// # Errors
    /// 403 if they cannot be evaluated and the webhook must be asked.
    pub async fn wanted(&self, hook: &Hook, shown: &Shown<'_>) -> Result<bool, ApiError> {
        if hook.conditions.is_empty() {
            return Ok(true);
        }
        let asker = asker(self.write);
        let input = Input {
            object: shown.object.as_deref(),
            old_object: shown.old.as_deref(),
            request: &shown.request,
            params: None,
            namespace: None,
            authorizer: asker.as_ref(),
            metrics: Some(self.write.metrics),
        };
        match self.write.settle(|| hook.conditions.matches(&input)).await {
            Ok(Matched::Yes) => Ok(true),
            Ok(Matched::No(_)) => {
                self.labels(hook).excluded();
                Ok(false)
            }
            Err(why) => {
                self.labels(hook).condition_failed();
                if hook.fails_open {
                    return Ok(false);
                }
                let attributes = self.write.attributes;
                let resource = attributes.resource;
                Err(ApiError::forbidden(&resource.group, &resource.plural, attributes.name, &why.to_string()))
            }
        }
    }

    /// Calls the webhook. Its warnings and annotations are passed on whatever it says.
    pub async fn ask(&self, hook: &Hook, shown: &Shown<'_>) -> Result<Verdict, Failure> {
        self.check_dry_run(hook)?;
        let Some(version) = hook.review_version else {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(self.unasked("could not create admission objects", why));
        };
        let target = hook.target(self.client).map_err(|e| self.unasked("could not get REST client", e))?;
        let uid = Uuid::new_v4().to_string();
        let answer = match deadline::remaining().filter(|left| *left < hook.timeout) {
            None => self.call(target, hook.timeout, shown.review(version, &uid)).await,
            Some(left) => match self.call(target, left, shown.review(version, &uid)).await {
                // The request is over, and whoever gives it up says so: it is not the webhook's failure.
                Err(CallError::Transport { source: TransportError::Deadline(_), .. }) => {
                    std::future::pending().await
                }
                answer => answer,
            },
        };
        let answer = answer.map_err(failed)?;
        let verdict =
            Verdict::read(&answer, version, &uid, self.mutating).map_err(|nonsense| match nonsense {
                Nonsense::Types(why) => {
                    Failure::Call { why: format!("failed to call webhook: {why}"), code: 503 }
                }
                Nonsense::Content(why) => {
                    Failure::Call { why: format!("received invalid webhook response: {why}"), code: 503 }
                }
            })?;
        self.pass_on(hook, &verdict);
        if verdict.allowed {
            Ok(verdict)
        } else {
            Err(Failure::Rejected(denial(&hook.name, &verdict.status)))
        }
    }

    /// Boxed, because it carries a whole handshake, and most requests ask nobody.
    fn call<'c>(
        &'c self,
        target: &'c Target,
        timeout: Duration,
        review: Bytes,
    ) -> BoxFuture<'c, Result<Value, CallError>> {
        Box::pin(self.client.post(target, Call::new(timeout, review)))
    }

    /// A webhook that may do something else than answer is not asked about what will not happen.
    fn check_dry_run(&self, hook: &Hook) -> Result<(), Failure> {
        if !self.write.attributes.dry_run {
            return Ok(());
        }
        match hook.side_effects.as_deref() {
            Some("None" | "NoneOnDryRun") => Ok(()),
            None => {
                let why = "Webhook SideEffects is nil".to_owned();
                Err(Failure::Call { why, code: 400 })
            }
            Some(_) => {
                let why = format!("admission webhook {:?} does not support dry run", hook.name);
                Err(Failure::Internal(ApiError::bad_request(why)))
            }
        }
    }

    fn unasked(&self, what: &str, why: impl std::fmt::Display) -> Failure {
        Failure::Call { why: format!("{what}: {why}"), code: 400 }
    }

    fn pass_on(&self, hook: &Hook, verdict: &Verdict) {
        for (key, value) in &verdict.annotations {
            let key = format!("{}/{key}", hook.name);
            if validation::qualified_name(&key).is_empty() {
                annotations::annotate(&key, value.as_str());
            } else {
                tracing::warn!(
                    webhook = hook.name,
                    key,
                    "a webhook's audit annotation has a key of no valid form"
                );
            }
        }
        for warning in verdict.warnings.iter().filter(|warning| !warning.is_empty()) {
            self.write.attributes.warn(warning.clone());
        }
    }

    /// Counts the outcome of a call and applies the failure policy: `Ok(None)` for a failure that is let pass.
    pub fn judge<T>(
        &self,
        hook: &Hook,
        outcome: Result<T, Failure>,
        took: Duration,
    ) -> Result<Option<T>, ApiError> {
        self.labels(hook).asked(outcome.as_ref().err(), hook.fails_open, took);
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(Failure::Rejected(error) | Failure::Internal(error)) => Err(error),
            Err(Failure::Call { why, .. }) => {
                let why = format!("failed calling webhook {:?}: {why}", hook.name);
                tracing::warn!(
                    webhook = hook.name,
                    open = hook.fails_open,
                    why,
                    "a webhook could not be asked"
                );
                if hook.fails_open { Ok(None) } else { Err(ApiError::internal(why)) }
            }
        }
    }
}

fn failed(error: CallError) -> Failure {
    Failure::Call { code: error.code(), why: format!("failed to call webhook: {error}") }
}
