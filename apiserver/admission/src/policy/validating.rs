//! ValidatingAdmissionPolicies against a request.

use super::compiled::{Binding, Validating};
use super::set::{Bound, Cached};
use super::validator::{Annotation, Decision, Verdict, validate};
use super::{asker, params, request_of, shown_name};
use crate::annotations::annotate;
use crate::matching::{Matcher, is_exempt_from_policies};
use crate::{Attributes, ValidatingStep, Write};
use coracle_api::{ApiError, Object, Resource};
use coracle_strategy::expression::{Asker, Input};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Audit annotations of one policy: what its bindings say under each key.
type AuditValues = BTreeMap<String, Vec<String>>;
type Shown<'o> = Option<Cow<'o, Object>>;

/// Both objects in the form of `to`.
async fn shown<'o>(
    attributes: &Attributes<'_>,
    object: Option<&'o Object>,
    old: Option<&'o Object>,
    to: &Resource,
) -> Result<(Shown<'o>, Shown<'o>), ApiError> {
    let object = match object {
        Some(object) => Some(attributes.to_version(object, to).await?),
        None => None,
    };
    let old = match old {
        Some(old) => Some(attributes.to_version(old, to).await?),
        None => None,
    };
    Ok((object, old))
}

const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";
/// Longer values of audit annotations are cut off.
const ANNOTATION_MAX_BYTES: usize = 10 << 10;

/// The first denial decides what the client is told.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: &'static str,
}

/// One element of [`FAILURE_ANNOTATION`], in the order in which upstream writes its fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FailureValue<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// All ValidatingAdmissionPolicies of this server.
#[derive(Default)]
pub struct ValidatingPolicies(Cached<Validating>);

/// One request on its way through all policies.
struct Dispatch<'r> {
    write: &'r Write<'r>,
    object: Option<&'r Object>,
    old: Option<&'r Object>,
    /// Made for the first policy that names them.
    asker: Option<Option<Asker>>,
    namespace: Option<Option<Object>>,
    denials: Vec<Denial>,
}

#[async_trait::async_trait]
impl ValidatingStep for ValidatingPolicies {
    fn name(&self) -> &'static str {
        super::VALIDATING
    }

    async fn validate(
        &self,
        write: &Write<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let Some(set) = self.0.get(&**write.read, write.metrics) else { return Ok(()) };
        if is_exempt_from_policies(write.attributes) {
            return Ok(());
        }
        let mut dispatch = Dispatch { write, object, old, asker: None, namespace: None, denials: Vec::new() };
        for bound in set.iter() {
            dispatch.policy(bound).await?;
        }
        match dispatch.denials.into_iter().next() {
            Some(denial) => Err(denial.error(write.attributes, object)),
            None => Ok(()),
        }
    }
}

impl Dispatch<'_> {
    /// What keeps a policy from being asked denies the request, or with `failurePolicy: Ignore` nothing.
    fn misconfigured(&mut self, policy: &Validating, binding: Option<&Binding>, why: &str) {
        if policy.common.fail {
            let what = if binding.is_some() { "binding" } else { "policy" };
            self.denials.push(Denial {
                policy: policy.common.name.clone(),
                binding: binding.map(|binding| binding.name.clone()),
                message: format!("failed to configure {what}: {why}"),
                reason: "",
            });
        }
    }

    fn matches(&self, matcher: &Result<Matcher, String>) -> Result<Option<Arc<Resource>>, String> {
        let matcher = matcher.as_ref().map_err(Clone::clone)?;
        let found = matcher.matches(self.write.attributes, self.object, self.old, &**self.write.read);
        found.map_err(|error| error.message)
    }

    async fn policy(&mut self, bound: &Bound<Validating>) -> Result<(), ApiError> {
        let policy = &*bound.policy;
        let matched = match self.matches(&policy.common.constraints) {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        // Boxed, so that what only a matching policy needs takes no room in the future of every write.
        Box::pin(self.ask(bound, &matched)).await
    }

    /// Asks a policy that matches.
    async fn ask(&mut self, bound: &Bound<Validating>, matched: &Resource) -> Result<(), ApiError> {
        let policy = &*bound.policy;
        let kind = policy.common.param_kind.as_ref();
        let params = match kind.map(|kind| kind.resource(&**self.write.read)).transpose() {
            Ok(params) => params,
            Err(why) => {
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let attributes = self.write.attributes;
        let (object, old) = match shown(attributes, self.object, self.old, matched).await {
            Ok(both) => both,
            Err(error) => {
                let why = format!("failed to convert object version: {}", error.message);
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let request = if policy.needs.request { request_of(attributes, matched) } else { Value::Null };
        let input = Input {
            object: object.as_deref(),
            old_object: old.as_deref(),
            request: &request,
            params: None,
            namespace: None,
            authorizer: None,
            metrics: Some(self.write.metrics),
        };
        let mut audit_values = AuditValues::new();
        for binding in &bound.bindings {
            self.binding(policy, binding, params.as_deref(), &input, &mut audit_values).await?;
        }
        for (key, values) in audit_values {
            annotate(&format!("{}/{key}", policy.common.name), values.join(", "));
        }
        Ok(())
    }

    async fn binding(
        &mut self,
        policy: &Validating,
        binding: &Binding,
        params: Option<&Resource>,
        input: &Input<'_>,
        audit_values: &mut AuditValues,
    ) -> Result<(), ApiError> {
        match binding.resources.as_ref().map(|resources| self.matches(resources)) {
            None | Some(Ok(Some(_))) => {}
            Some(Ok(None)) => return Ok(()),
            Some(Err(why)) => {
                self.misconfigured(policy, Some(binding), &why);
                return Ok(());
            }
        }
        let namespace = self.write.attributes.reviewed_namespace();
        let found = params::collect(&**self.write.read, params, binding.params.as_ref(), namespace).await;
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.misconfigured(policy, Some(binding), &why);
                return Ok(());
            }
        };
        if policy.needs.namespace && self.namespace.is_none() {
            self.namespace = Some(super::namespace(self.write)?);
        }
        if policy.needs.authorizer && self.asker.is_none() {
            self.asker = Some(asker(self.write));
        }
        for param in &found {
            let began = Instant::now();
            let input = Input {
                params: param.as_deref(),
                namespace: self.namespace.as_ref().and_then(Option::as_ref),
                authorizer: self.asker.as_ref().and_then(Option::as_ref),
                ..*input
            };
            let verdict = self.write.settle(|| validate(policy, &input)).await;
            self.enforce(policy, binding, verdict, audit_values, began.elapsed());
        }
        Ok(())
    }

    fn enforce(
        &mut self,
        policy: &Validating,
        binding: &Binding,
        verdict: Verdict,
        audit_values: &mut AuditValues,
        took: Duration,
    ) {
        let metrics = self.write.metrics;
        let count = |action: &str, error: &str| {
            metrics.policy_checked(&policy.common.name, &binding.name, action, error, took);
        };
        for (index, decision) in verdict.decisions.into_iter().enumerate() {
            let (message, reason, error) = match decision {
                Decision::Admit => continue,
                Decision::Ignore(error) => {
                    count("allow", error);
                    continue;
                }
                Decision::Deny { message, reason, error } => (message, reason, error),
            };
            for action in &binding.actions {
                count(&action.to_lowercase(), error);
                match action.as_str() {
                    "Deny" => self.denials.push(Denial::of(policy, binding, message.clone(), reason)),
                    "Audit" => note_failure(policy, binding, index, &message),
                    "Warn" => self.warn(policy, binding, &message),
                    // Nothing else passes validation.
                    _ => {}
                }
            }
        }
        for annotation in verdict.annotations {
            match annotation {
                Annotation::Exclude => {}
                Annotation::Error(message) => self.denials.push(Denial::of(policy, binding, message, "")),
                Annotation::Publish { key, value } => {
                    let value = cut(&value, ANNOTATION_MAX_BYTES).to_owned();
                    let values = audit_values.entry(key).or_default();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
        }
    }

    fn warn(&self, policy: &Validating, binding: &Binding, message: &str) {
        let warning = format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
            policy.common.name, binding.name
        );
        self.write.attributes.warn(warning);
    }
}

fn note_failure(policy: &Validating, binding: &Binding, expression_index: usize, message: &str) {
    let failure = FailureValue {
        message,
        policy: &policy.common.name,
        binding: &binding.name,
        expression_index,
        validation_actions: &binding.actions,
    };
    // Strings and numbers only: it cannot fail.
    let text = serde_json::to_string(&[failure]).unwrap_or_default();
    // As Go's encoder writes it.
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    annotate(FAILURE_ANNOTATION, text);
}

fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

impl Denial {
    fn of(policy: &Validating, binding: &Binding, message: String, reason: &'static str) -> Self {
        let binding = Some(binding.name.clone());
        Self { policy: policy.common.name.clone(), binding, message, reason }
    }

    fn error(self, attributes: &Attributes<'_>, object: Option<&Object>) -> ApiError {
        let binding = self.binding.map(|name| format!(" with binding '{name}'")).unwrap_or_default();
        let message =
            format!("ValidatingAdmissionPolicy '{}'{binding} denied request: {}", self.policy, self.message);
        let (group, plural) = (&attributes.resource.group, &attributes.resource.plural);
        let mut error = ApiError::forbidden(group, plural, shown_name(attributes, object), &message);
        (error.reason, error.code) = match self.reason {
            "Unauthorized" => ("Unauthorized", 401),
            "Forbidden" => ("Forbidden", 403),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
            _ => ("Invalid", 422),
        };
        error.details["causes"] = serde_json::json!([{ "message": message }]);
        error
    }
}
