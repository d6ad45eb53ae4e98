//! DELETE: the plan, and its execution.
//!
//! See <https://kubernetes.io/docs/concepts/architecture/garbage-collection/> and
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.

use super::Propagation;
use super::metadata::{finalizers, is_deleting, of, text, time_text};
use super::{ATTEMPTS, DeleteOptions, Scope, store_error};
use super::{Operation, RequestOptions};
use coracle_api::{ApiError, Object};
use coracle_store::{Op, Txn};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Upstream's words.
const ORPHANED_PODS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                             remove them or set propagationPolicy=Orphan to suppress this warning";

/// What is to happen to the object.
#[derive(Debug, PartialEq)]
enum Plan {
    Remove,
    /// Stays, in this form, until its grace period or its finalizers are over.
    Mark(Object),
    /// Is on its way already, and this request changes nothing about that.
    Pending,
}

/// What a deletion did.
pub struct Deleted {
    pub object: Object,
    /// False while a grace period or finalizers hold it.
    pub gone: bool,
}

impl Deleted {
    /// The Status that clients get for an object that is gone.
    pub fn status(&self, group: &str, plural: &str) -> Value {
        let mut details = json!({ "name": text(&self.object, "name"), "kind": plural });
        if !group.is_empty() {
            details["group"] = group.into();
        }
        details["uid"] = text(&self.object, "uid").into();
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
    }
}

impl Scope<'_> {
    /// Deletes the object named by the scope.
    pub async fn delete(&self, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        self.warn_of_orphans(options);
        self.delete_as(options, RequestOptions::Delete(options)).await
    }

    /// Jobs leave their pods behind where the client does not say, which few expect.
    pub(super) fn warn_of_orphans(&self, options: &DeleteOptions) {
        if &*self.resource.storage.key == "jobs.batch" && options.propagation.is_none() {
            self.warn_once(vec![ORPHANED_PODS.to_owned()]);
        }
    }

    /// Whether the object is in the store, and cannot be read.
    pub fn is_unreadable(&self) -> bool {
        let key = self.key(self.name);
        self.registry.store.unreadable(&key).is_some_and(|found| found.key == key)
    }

    /// Removes an object that cannot be read: without finalizers, admission, or a last state for watchers, who never saw
    /// it.
    pub async fn delete_unreadable(&self) -> Result<Deleted, ApiError> {
        let ops = vec![Op::Delete { key: self.key(self.name) }];
        self.registry.store.commit(Txn { ops, ..Txn::default() }).await.map_err(store_error)?;
        tracing::warn!(
            key = &*self.key(self.name),
            user = self.user.name,
            "deleted an object that cannot be read"
        );
        let object = json!({ "metadata": { "name": self.name, "namespace": self.namespace } });
        Ok(Deleted { object, gone: true })
    }

    /// `asked` is what admission is told of the options.
    pub(super) async fn delete_as(
        &self,
        options: &DeleteOptions,
        asked: RequestOptions<'_>,
    ) -> Result<Deleted, ApiError> {
        let name = self.name;
        for attempt in 0..ATTEMPTS {
            let Some(cached) = self.current(name, attempt > 0).await? else {
                return Err(self.not_found(name));
            };
            let old = self.working(&cached).await?;
            self.check_delete(name, &old, options)?;
            self.validate_admission(Operation::Delete, None, Some(&old), asked).await?;
            let grace = self.strategy.graceful_deletion(&old, options.grace_seconds);
            let propagation = self.propagation(&old, options);
            let options = &DeleteOptions { propagation, ..options.clone() };
            let mut begun = (*old).clone();
            if !is_deleting(&old) {
                self.strategy.begin_delete(&mut begun, &self.env());
            }
            let outcome = match plan(begun, options, grace, self.is_held(&old), self.now) {
                Plan::Pending => {
                    return Ok(Deleted { object: Arc::unwrap_or_clone(old), gone: false });
                }
                Plan::Mark(mut marked) => {
                    if self.is_held(&marked) {
                        marked["status"]["phase"] = "Terminating".into();
                    }
                    let mut marked = marked;
                    self.settle(&mut marked);
                    let put = self.put(name, marked, Some((&cached, Some(&old))), options.dry_run).await?;
                    put.map(|written| Deleted { object: written.object, gone: false })
                }
                Plan::Remove => {
                    let removed = self.remove(name, &cached, &old, options.dry_run).await?;
                    removed.map(|revision| {
                        let mut object = Arc::unwrap_or_clone(old);
                        if grace.is_some() && !is_deleting(&object) {
                            mark(&mut object, 0, self.now);
                        }
                        super::commit::set_version(&mut object, revision);
                        Deleted { object, gone: true }
                    })
                }
            };
            if let Ok(deleted) = outcome {
                return Ok(deleted);
            }
        }
        Err(self.modified(name))
    }

    fn check_delete(&self, name: &str, old: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
        if let Some(wanted) = &options.uid
            && wanted != text(old, "uid")
        {
            let have = text(old, "uid");
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({have}). The object might \
                 have been deleted and then recreated"
            );
            return Err(self.precondition(name, &why));
        }
        if let Some(wanted) = &options.resource_version
            && wanted != text(old, "resourceVersion")
        {
            let have = text(old, "resourceVersion");
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({have}). The object might have been modified"
            );
            return Err(self.precondition(name, &why));
        }
        Ok(())
    }

    /// Upstream names the kind here, where other conflicts name the resource.
    fn precondition(&self, name: &str, why: &str) -> ApiError {
        ApiError::conflict(&self.resource.group, &self.resource.kind, name, why)
    }

    /// What becomes of the objects that this one owns. Where the client does not say, the finalizers that are there
    /// decide, and after them the resource: Jobs and ReplicationControllers leave theirs behind, as they did before
    /// there was a garbage collector. Events own nothing, and wait for nobody whatever the client says.
    fn propagation(&self, old: &Object, options: &DeleteOptions) -> Option<Propagation> {
        let decided = || finalizers(old).iter().any(|f| matches!(*f, ORPHAN | FOREGROUND));
        match &*self.resource.storage.key {
            "events." => Some(Propagation::Background),
            "jobs.batch" | "replicationcontrollers." if !decided() => {
                options.propagation.or(Some(Propagation::Orphan))
            }
            _ => options.propagation,
        }
    }
}

/// `grace`: what the strategy grants, `None` for resources without graceful deletion. `held`: something other than
/// metadata.finalizers keeps the object.
fn plan(old: Object, options: &DeleteOptions, grace: Option<i64>, held: bool, now: Timestamp) -> Plan {
    let mut new = old;
    let changed = set_finalizers(&mut new, options.propagation);
    let waits = held || !finalizers(&new).is_empty();
    let grace = grace.unwrap_or(0).max(0);
    if is_deleting(&new) {
        return plan_again(new, options, grace, waits, changed);
    }
    if grace == 0 && !waits {
        return Plan::Remove;
    }
    mark(&mut new, grace, now);
    Plan::Mark(new)
}

/// Says of an object that it is on its way, which counts as a change of what is asked for.
fn mark(object: &mut Object, grace: i64, now: Timestamp) {
    let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    let metadata = of(object);
    metadata.insert("deletionTimestamp".into(), time_text(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// A second deletion can only shorten the grace period.
fn plan_again(new: Object, options: &DeleteOptions, grace: i64, waits: bool, changed: bool) -> Plan {
    let mut new = new;
    let left = new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let shorter = options.grace_seconds.is_some() && grace < left;
    let remaining = if shorter { grace } else { left };
    if remaining == 0 && !waits {
        return Plan::Remove;
    }
    if shorter {
        let before: Option<Timestamp> = text(&new, "deletionTimestamp").parse().ok();
        let at = before.and_then(|t| t.checked_sub(SignedDuration::from_secs(left - grace)).ok());
        let metadata = of(&mut new);
        if let Some(at) = at {
            metadata.insert("deletionTimestamp".into(), time_text(at).into());
        }
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    }
    if shorter || changed { Plan::Mark(new) } else { Plan::Pending }
}

/// Finalizers that make the garbage collector orphan the dependents, or wait for them.
fn set_finalizers(object: &mut Object, propagation: Option<Propagation>) -> bool {
    let Some(propagation) = propagation else { return false };
    let before: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    let mut after: Vec<String> =
        before.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    match propagation {
        Propagation::Orphan => after.push(ORPHAN.into()),
        Propagation::Foreground => after.push(FOREGROUND.into()),
        Propagation::Background => {}
    }
    if after == before {
        return false;
    }
    if after.is_empty() {
        of(object).remove("finalizers");
    } else {
        of(object).insert("finalizers".into(), after.into());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn options(grace: Option<i64>, propagation: Option<Propagation>) -> DeleteOptions {
        DeleteOptions { grace_seconds: grace, propagation, ..DeleteOptions::default() }
    }

    fn marked(plan: Plan) -> Object {
        match plan {
            Plan::Mark(object) => object,
            other => panic!("expected a mark, got {other:?}"),
        }
    }

    #[test]
    fn plain_objects_go_at_once() {
        let object = json!({"metadata": {"name": "a"}});
        assert_eq!(plan(object.clone(), &options(Some(30), None), None, false, now()), Plan::Remove);
    }

    #[test]
    fn grace_then_shorter_grace_then_gone() {
        let object = json!({"metadata": {"name": "a", "generation": 1}});
        let first = marked(plan(object.clone(), &options(None, None), Some(30), false, now()));
        assert_eq!(first["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
        assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
        assert_eq!(first["metadata"]["generation"], 2);
        assert_eq!(plan(first.clone(), &options(None, None), Some(30), false, now()), Plan::Pending);
        assert_eq!(plan(first.clone(), &options(Some(60), None), Some(60), false, now()), Plan::Pending);
        let second = marked(plan(first.clone(), &options(Some(5), None), Some(5), false, now()));
        assert_eq!(second["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
        assert_eq!(plan(second.clone(), &options(Some(0), None), Some(0), false, now()), Plan::Remove);
    }

    #[test]
    fn finalizers_hold() {
        let object = json!({"metadata": {"name": "a", "finalizers": ["x/y"]}});
        let marked =
            marked(plan(object.clone(), &options(None, Some(Propagation::Foreground)), None, false, now()));
        assert_eq!(marked["metadata"]["finalizers"], json!(["x/y", "foregroundDeletion"]));
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
        assert_eq!(plan(marked.clone(), &options(Some(0), None), None, false, now()), Plan::Pending);
    }

    #[test]
    fn what_goes_at_once_says_so() {
        let mut object = json!({"metadata": {"name": "a", "generation": 1}});
        mark(&mut object, 0, now());
        let metadata = json!({"name": "a", "generation": 2, "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(object["metadata"], metadata);
    }

    #[test]
    fn orphan_and_background() {
        let object = json!({"metadata": {"name": "a", "finalizers": ["orphan"]}});
        assert_eq!(
            plan(object.clone(), &options(None, Some(Propagation::Background)), None, false, now()),
            Plan::Remove
        );
        assert!(matches!(plan(object.clone(), &options(None, None), None, false, now()), Plan::Mark(_)));
    }
}
