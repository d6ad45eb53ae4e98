//! MutatingAdmissionWebhook: one webhook after the other, each sees what those before it have made.

use super::MUTATING;
use super::ask::{Asking, Failure};
use super::audit::Place;
use super::hook::Hook;
use super::hooks::Hooks;
use super::review::Shown;
use crate::matching::is_exempt;
use crate::{MutatingStep, Round, Write};
use coracle_api::patch::{self, PatchType};
use coracle_api::schema::{Dynamic, Kind, TypeRef};
use coracle_api::{ApiError, Object, Resource, managed};
use coracle_requests::ObjectReader;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// JSON patches ask no schema.
static ANY: Dynamic = Dynamic::of(Kind::Any);

pub struct Mutating(Hooks);

/// What is remembered from the first round of a request to the second.
#[derive(Default)]
struct Notes {
    /// Webhooks with `reinvocationPolicy: IfNeeded` that were asked since somebody else changed the object.
    asked: BTreeSet<String>,
    /// Those that are to be asked again.
    again: BTreeSet<String>,
    /// The object as the last round left it; kept only if somebody can be asked again.
    last: Option<Object>,
}

impl Notes {
    /// The object has changed: whoever was asked and can be asked again has to be.
    fn changed(&mut self) {
        self.again.append(&mut self.asked);
    }
}

impl Mutating {
    pub fn new(read: Arc<dyn ObjectReader>) -> Self {
        Self(Hooks::new(read, "mutatingwebhookconfigurations.admissionregistration.k8s.io"))
    }
}

#[async_trait::async_trait]
impl MutatingStep for Mutating {
    fn name(&self) -> &'static str {
        MUTATING
    }

    async fn mutate(
        &self,
        write: &Write<'_>,
        mut object: Option<&mut Object>,
        old: Option<&Object>,
        round: &mut Round,
    ) -> Result<(), ApiError> {
        let Some(compiled) = self.0.now(write.metrics) else { return Ok(()) };
        if is_exempt(write.attributes) {
            return Ok(());
        }
        if round.is_second() {
            let notes: &mut Notes = round.notes(MUTATING);
            if notes.last.as_ref() != object.as_deref() {
                notes.changed();
            }
        }
        let owners = object.as_deref().map(|object| object["metadata"]["managedFields"].clone());
        let asking = Asking { client: &self.0.client, write, mutating: true };
        for (index, hook) in compiled.iter().enumerate() {
            let place = Place { round: round.number(), index };
            call(&asking, hook, object.as_deref_mut(), old, round, place).await?;
        }
        if let (Some(object), Some(owners)) = (object, owners) {
            keep_owners(write, object, owners);
            let notes: &mut Notes = round.notes(MUTATING);
            let awaited = !notes.asked.is_empty() || !notes.again.is_empty();
            notes.last = awaited.then(|| object.clone());
        }
        Ok(())
    }
}

/// One webhook, if the request concerns it.
async fn call(
    asking: &Asking<'_>,
    hook: &Hook,
    object: Option<&mut Object>,
    old: Option<&Object>,
    round: &mut Round,
    place: Place,
) -> Result<(), ApiError> {
    let Some(resource) = asking.matched(hook, object.as_deref(), old)? else { return Ok(()) };
    let second = round.is_second();
    let notes: &mut Notes = round.notes(MUTATING);
    // In the second round nobody is asked for the first time.
    if second && !notes.again.contains(&hook.id) {
        return Ok(());
    }
    let shown = Shown::new(asking.write, resource, object.as_deref(), old).await?;
    if !asking.wanted(hook, &shown).await? {
        return Ok(());
    }
    let began = Instant::now();
    let made = ask(asking, hook, &shown, place).await;
    let resource = shown.resource.clone();
    drop(shown);
    let outcome = match (made, object) {
        (Ok(Some(made)), Some(object)) => take(asking.write, made, &resource, object).await,
        (made, _) => made.map(|_| false),
    };
    let changed = matches!(outcome, Ok(true));
    place.mutated(hook, changed);
    if asking.judge(hook, outcome, began.elapsed())?.is_none() {
        place.mutation_failed_open(hook);
    }
    remember(hook, changed, round);
    Ok(())
}

/// What the webhook makes of the object, in the version that it was shown; `None` if it changes nothing.
async fn ask(
    asking: &Asking<'_>,
    hook: &Hook,
    shown: &Shown<'_>,
    place: Place,
) -> Result<Option<Object>, Failure> {
    let verdict = asking.ask(hook, shown).await?;
    if verdict.patch.is_empty() || verdict.patch.trim_ascii() == b"[]" {
        return Ok(None);
    }
    let Some(object) = shown.object.as_deref() else {
        return Err(Failure::Internal(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        ))));
    };
    let any = TypeRef::dynamic(&ANY);
    let patched = patch::apply(PatchType::Json, object, &verdict.patch, any);
    let (patched, _) = patched.map_err(|error| Failure::Internal(ApiError::internal(error)))?;
    place.patched(hook, &verdict.patch);
    Ok((patched != *object).then_some(patched))
}

/// Puts what a webhook has made in the object's place.
async fn take(
    write: &Write<'_>,
    made: Object,
    resource: &Resource,
    object: &mut Object,
) -> Result<bool, Failure> {
    *object = write.attributes.to_internal(made, resource, object).await.map_err(Failure::Internal)?;
    Ok(true)
}

/// Whoever was asked before has to be asked again if this one has changed something.
fn remember(hook: &Hook, changed: bool, round: &mut Round) {
    let notes: &mut Notes = round.notes(MUTATING);
    if changed {
        notes.changed();
    }
    if hook.reinvoked {
        notes.asked.insert(hook.id.clone());
    }
    if changed {
        round.ask_again();
    }
}

/// A webhook that writes owners of fields which nobody can read does not get its way.
fn keep_owners(write: &Write<'_>, object: &mut Object, before: Value) {
    let after = &object["metadata"]["managedFields"];
    let Err(error) = managed::decode(after) else { return };
    write.attributes.warn(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {error}"
    ));
    object["metadata"]["managedFields"] = before;
}
