//! MutatingAdmissionPolicies against a request.

use super::compiled::{Binding, Mutating, Mutation};
use super::patch::{self, Refused};
use super::set::{Bound, Cached};
use super::{asker, params, request_of, shown_name};
use crate::matching::{Matcher, is_exempt_from_policies};
use crate::{MutatingStep, Operation, Round, Write, kind_of};
use coracle_api::{ApiError, Object, Resource};
use coracle_cel::Value;
use coracle_strategy::expression::{Asker, Composed, Expression, Input, Matched, POLICY_BUDGET, Run};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All MutatingAdmissionPolicies of this server.
#[derive(Default)]
pub struct MutatingPolicies(Cached<Mutating>);

/// One policy with one binding and one parameter.
struct Invocation<'s> {
    policy: &'s Mutating,
    binding: &'s Binding,
    param: Option<Arc<Object>>,
    matched: Arc<Resource>,
}

/// Policy, binding, namespace and name of the parameter.
type Key = [String; 4];

/// What is remembered from the first round of a request to the second.
#[derive(Default)]
struct Notes {
    /// Those with `reinvocationPolicy: IfNeeded` that have run since somebody else changed the object.
    ran: BTreeSet<Key>,
    /// Those that are to run again.
    again: BTreeSet<Key>,
    last: Option<Object>,
}

impl Notes {
    /// The object has changed: whoever has run and may run again has to.
    fn changed(&mut self) {
        self.again.append(&mut self.ran);
    }
}

/// Why a policy refuses a request; which it does only with `failurePolicy: Fail`.
struct Problem {
    policy: String,
    binding: Option<String>,
    message: String,
    /// Upstream answers 403 to a policy that cannot be configured.
    reason: &'static str,
}

struct Dispatch<'r, 's> {
    write: &'r Write<'r>,
    old: Option<&'r Object>,
    problems: Vec<Problem>,
    invocations: Vec<Invocation<'s>>,
}

#[async_trait::async_trait]
impl MutatingStep for MutatingPolicies {
    fn name(&self) -> &'static str {
        super::MUTATING
    }

    async fn mutate(
        &self,
        write: &Write<'_>,
        object: Option<&mut Object>,
        old: Option<&Object>,
        round: &mut Round,
    ) -> Result<(), ApiError> {
        let Some(set) = self.0.get(&**write.read, write.metrics) else { return Ok(()) };
        // What goes is not changed: `*` stands for all other operations.
        if is_exempt_from_policies(write.attributes) || write.attributes.operation == Operation::Delete {
            return Ok(());
        }
        let mut dispatch = Dispatch { write, old, problems: Vec::new(), invocations: Vec::new() };
        for bound in set.iter() {
            dispatch.collect(bound, object.as_deref()).await;
        }
        let name = shown_name(write.attributes, object.as_deref()).to_owned();
        Box::pin(dispatch.run(object, round)).await?;
        match dispatch.problems.is_empty() {
            true => Ok(()),
            false => Err(refusal(write, &name, &dispatch.problems)),
        }
    }
}

impl<'s> Dispatch<'_, 's> {
    fn problem(
        &mut self,
        policy: &Mutating,
        binding: Option<&Binding>,
        message: String,
        reason: &'static str,
    ) {
        if policy.common.fail {
            let binding = binding.map(|binding| binding.name.clone());
            self.problems.push(Problem { policy: policy.common.name.clone(), binding, message, reason });
        }
    }

    fn misconfigured(&mut self, policy: &Mutating, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.problem(policy, binding, format!("failed to configure {what}: {why}"), "Forbidden");
    }

    fn matches(
        &self,
        matcher: &Result<Matcher, String>,
        object: Option<&Object>,
    ) -> Result<Option<Arc<Resource>>, String> {
        let matcher = matcher.as_ref().map_err(Clone::clone)?;
        let found = matcher.matches(self.write.attributes, object, self.old, &**self.write.read);
        found.map_err(|error| error.message)
    }

    /// The invocations of one policy, before any mutation is made: upstream too decides on the object as it came.
    async fn collect(&mut self, bound: &'s Bound<Mutating>, object: Option<&Object>) {
        let policy = &*bound.policy;
        let matched = match self.matches(&policy.common.constraints, object) {
            Ok(Some(matched)) => matched,
            Ok(None) => return,
            Err(why) => return self.misconfigured(policy, None, &why),
        };
        let read = &**self.write.read;
        let resource = match policy.common.param_kind.as_ref().map(|kind| kind.resource(read)).transpose() {
            Ok(resource) => resource,
            Err(why) => return self.misconfigured(policy, None, &why),
        };
        for binding in &bound.bindings {
            match binding.resources.as_ref().map(|resources| self.matches(resources, object)) {
                None | Some(Ok(Some(_))) => {}
                Some(Ok(None)) => continue,
                Some(Err(why)) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            }
            let namespace = self.write.attributes.reviewed_namespace();
            match params::collect(read, resource.as_deref(), binding.params.as_ref(), namespace).await {
                Ok(params) => self.invocations.extend(params.into_iter().map(|param| Invocation {
                    policy,
                    binding,
                    param,
                    matched: matched.clone(),
                })),
                Err(why) => self.misconfigured(policy, Some(binding), &why),
            }
        }
    }

    async fn run(&mut self, object: Option<&mut Object>, round: &mut Round) -> Result<(), ApiError> {
        if self.invocations.is_empty() {
            return Ok(());
        }
        let namespace = super::namespace(self.write)?;
        let asker = asker(self.write);
        let mut object = object;
        let second = round.is_second();
        let notes = round.notes::<Notes>(super::MUTATING);
        if second && notes.last.as_ref() != object.as_deref() {
            notes.changed();
        }
        let mut changed = false;
        for invocation in std::mem::take(&mut self.invocations) {
            let key = invocation.key();
            let skipped = second && !notes.again.contains(&key);
            let invoked = Invoked {
                invocation: &invocation,
                write: self.write,
                old: self.old,
                namespace: namespace.as_ref(),
                asker: asker.as_ref(),
            };
            let before = object.as_deref().cloned();
            match Box::pin(invoked.run(object.as_deref_mut(), skipped)).await? {
                None => continue,
                Some(problems) => {
                    for message in problems {
                        self.problem(invocation.policy, Some(invocation.binding), message, "Invalid");
                    }
                }
            }
            if before.as_ref() != object.as_deref() {
                notes.changed();
                changed = true;
            }
            if invocation.policy.reinvoke {
                notes.ran.insert(key);
            }
        }
        notes.last = object.as_deref().cloned();
        if changed {
            round.ask_again();
        }
        Ok(())
    }
}

impl Invocation<'_> {
    fn key(&self) -> Key {
        let of = |field: &str| {
            let text = self.param.as_ref().and_then(|param| param["metadata"][field].as_str());
            text.unwrap_or_default().to_owned()
        };
        [self.policy.common.name.clone(), self.binding.name.clone(), of("namespace"), of("name")]
    }
}

/// One invocation with what it sees.
struct Invoked<'r> {
    invocation: &'r Invocation<'r>,
    write: &'r Write<'r>,
    old: Option<&'r Object>,
    namespace: Option<&'r Object>,
    asker: Option<&'r Asker>,
}

impl Invoked<'_> {
    /// The mutations in order; each sees what those before it have made. `None` if the policy does not want the request.
    ///
    /// # Errors
    /// Answers that are no refusal of the policy's.
    async fn run(&self, object: Option<&mut Object>, skipped: bool) -> Result<Option<Vec<String>>, ApiError> {
        let policy = self.invocation.policy;
        match self.wanted(object.as_deref()).await {
            Ok(Matched::Yes) if !skipped => {}
            Ok(_) => return Ok(None),
            Err(_) if !policy.common.fail => return Ok(None),
            Err(error) => return Ok(Some(vec![error])),
        }
        let Some(object) = object else { return Ok(Some(Vec::new())) };
        let mut problems = Vec::new();
        for mutation in &policy.mutations {
            match self.mutate(mutation, object).await {
                Ok(changed) => *object = changed,
                Err(Refused::Message(message)) => problems.push(message),
                Err(Refused::Status(error)) => return Err(error),
            }
        }
        Ok(Some(problems))
    }

    async fn wanted(&self, object: Option<&Object>) -> Result<Matched, String> {
        let common = &self.invocation.policy.common;
        if common.conditions.is_empty() {
            return Ok(Matched::Yes);
        }
        let shown = match object {
            Some(object) => Some(self.show(object).await.map_err(|error| error.message)?),
            None => None,
        };
        let old = self.shown_old().await.map_err(|error| error.message)?;
        let request = request_of(self.write.attributes, &self.invocation.matched);
        // Conditions see no namespace, as upstream's see none.
        let input = Input { namespace: None, ..self.input(shown.as_deref(), old.as_deref(), &request) };
        let matched =
            self.write.settle(|| common.conditions.matches_with(&input, Some(&common.composed))).await;
        matched.map_err(|error| error.to_string())
    }

    async fn mutate(&self, mutation: &Mutation, object: &Object) -> Result<Object, Refused> {
        let attributes = self.write.attributes;
        let matched = &*self.invocation.matched;
        let patched = {
            let shown = self.show(object).await.map_err(Refused::Status)?;
            let old = self.shown_old().await.map_err(Refused::Status)?;
            let request = request_of(attributes, matched);
            let input = self.input(Some(&*shown), old.as_deref(), &request);
            let (Mutation::Apply(expression) | Mutation::JsonPatch(expression)) = mutation;
            let composed = &self.invocation.policy.common.composed;
            let value = self.write.settle(|| Self::evaluate(composed, expression, &input)).await?;
            let kind = kind_of(matched, attributes.subresource);
            match mutation {
                Mutation::Apply(_) => patch::apply(&**self.write.read, matched, kind, &shown, &value)?,
                Mutation::JsonPatch(_) => patch::json_patch(&shown, &value)?,
            }
        };
        attributes.to_internal(patched, matched, object).await.map_err(Refused::Status)
    }

    fn evaluate<'i>(
        composed: &'i Composed,
        expression: &'i Expression,
        input: &'i Input<'i>,
    ) -> Result<Value<'i>, Refused> {
        if let Err(error) = &expression.program {
            return Err(error.clone().into());
        }
        let outcome = Run::new(input, Some(composed), POLICY_BUDGET).eval(expression);
        outcome.map_err(|spent| spent.to_string())?.map_err(|error| Refused::Message(error.to_string()))
    }

    async fn show<'o>(&self, object: &'o Object) -> Result<std::borrow::Cow<'o, Object>, ApiError> {
        self.write.attributes.to_version(object, &self.invocation.matched).await
    }

    async fn shown_old(&self) -> Result<Option<std::borrow::Cow<'_, Object>>, ApiError> {
        match self.old {
            Some(old) => self.write.attributes.to_version(old, &self.invocation.matched).await.map(Some),
            None => Ok(None),
        }
    }

    fn input<'i>(
        &'i self,
        object: Option<&'i Object>,
        old_object: Option<&'i Object>,
        request: &'i serde_json::Value,
    ) -> Input<'i> {
        Input {
            object,
            old_object,
            request,
            params: self.invocation.param.as_deref(),
            namespace: self.namespace,
            authorizer: self.asker,
            metrics: Some(self.write.metrics),
        }
    }
}

/// The refusal of a request: the first problem is what the client reads, all of them are its causes.
fn refusal(write: &Write<'_>, name: &str, problems: &[Problem]) -> ApiError {
    let shown = |problem: &Problem| match &problem.binding {
        Some(binding) => {
            format!(
                "policy '{}' with binding '{binding}' denied request: {}",
                problem.policy, problem.message
            )
        }
        None => format!("policy \"{}\" denied request: {}", problem.policy, problem.message),
    };
    let resource = write.attributes.resource;
    let messages: Vec<String> = problems.iter().map(shown).collect();
    let mut error = ApiError::forbidden(&resource.group, &resource.plural, name, "");
    // The code stays that of a refusal, whatever the reason: upstream changes the reason alone.
    error.reason = problems[0].reason;
    error.message.clone_from(&messages[0]);
    let causes: Vec<serde_json::Value> =
        messages.iter().map(|message| json!({ "message": message })).collect();
    error.details["causes"] = causes.into();
    error
}
