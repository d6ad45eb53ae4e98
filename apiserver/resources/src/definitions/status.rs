//! What the status of a definition should be. Pure.

use super::conditions::{self, Condition};
use super::names::{Taken, accept, aggregate};
use coracle_api::Object;
use coracle_requests::value::{at, object_at};
use coracle_strategy::apiextensions::{Approval, non_structural};
use jiff::Timestamp;

/// The definition with its status as it should be; `None` if it is so already.
///
/// `taken` are the names of the group's other definitions. Conditions carry no `observedGeneration`: the gate
/// CRDObservedGenerationTracking is off in upstream's 1.36.
pub fn desired(definition: &Object, taken: &Taken, now: Timestamp) -> Option<Object> {
    let mut new = definition.clone();
    if let Some(condition) = approval(definition) {
        conditions::set(&mut new, &condition, now);
    }
    let violations = if may_be_odd(definition) { non_structural(definition) } else { Vec::new() };
    if violations.is_empty() {
        conditions::remove(&mut new, "NonStructuralSchema");
    } else {
        let condition = Condition::new("NonStructuralSchema", true, "Violations", aggregate(&violations));
        conditions::set(&mut new, &condition, now);
    }
    let (wanted, accepted) = (at(definition, "spec.names"), at(definition, "status.acceptedNames"));
    let (names, condition) = accept(wanted, accepted, taken);
    object_at(&mut new, "status")?["acceptedNames"] = names;
    conditions::set(&mut new, &condition, now);
    // Once established, a definition stays so whatever becomes of its names.
    if !conditions::holds(definition, "Established") {
        let established = match condition.status {
            "True" => Condition::new(
                "Established",
                true,
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
            _ => Condition::new("Established", false, "NotAccepted", "not all names are accepted"),
        };
        conditions::set(&mut new, &established, now);
    }
    (new != *definition).then_some(new)
}

/// Whether its schemas have to be looked at: what is established here was structural when it was written.
fn may_be_odd(definition: &Object) -> bool {
    !conditions::holds(definition, "Established")
        || conditions::find(definition, "NonStructuralSchema").is_some()
}

/// Whether nothing can be left to do, whatever the others of the group do.
pub fn is_settled(definition: &Object) -> bool {
    let holds = |kind: &str| conditions::holds(definition, kind);
    holds("NamesAccepted")
        && !may_be_odd(definition)
        && at(definition, "spec.names") == at(definition, "status.acceptedNames")
        && at(definition, "metadata.deletionTimestamp").is_null()
        && Approval::of(definition).is_none()
}

/// For groups of the Kubernetes project only.
fn approval(definition: &Object) -> Option<Condition> {
    let (approval, why) = Approval::of(definition)?;
    let (holds, reason) = match approval {
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Bypassed => (false, "UnapprovedAnnotation"),
        Approval::Missing => (false, "MissingAnnotation"),
        Approval::Invalid => (false, "InvalidAnnotation"),
    };
    Some(Condition::new("KubernetesAPIApprovalPolicyConformant", holds, reason, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_requests::value::str_at;
    use serde_json::json;

    fn definition(group: &str) -> Object {
        let name = format!("widgets.{group}");
        json!({ "metadata": { "name": name }, "spec": { "group": group, "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } } }] },
            "status": { "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": ["v1"] } })
    }

    fn brief(definition: &Object) -> Vec<String> {
        let list = definition["status"]["conditions"].as_array().unwrap();
        list.iter()
            .map(|c| format!("{}={} {}", str_at(c, "type"), str_at(c, "status"), str_at(c, "reason")))
            .collect()
    }

    #[test]
    fn established_at_once_and_then_settled() {
        let new = desired(&definition("a.b"), &Taken::default(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(brief(&new), ["NamesAccepted=True NoConflicts", "Established=True InitialNamesAccepted"]);
        assert_eq!(new["status"]["acceptedNames"]["listKind"], "WidgetList");
        assert_eq!(new["status"]["conditions"][1]["message"], "the initial names have been accepted");
        assert!(desired(&new, &Taken::default(), Timestamp::now()).is_none());
        assert!(is_settled(&new) && !is_settled(&definition("a.b")));
        let mut renamed = new.clone();
        renamed["spec"]["names"]["shortNames"] = json!(["w"]);
        assert!(!is_settled(&renamed));
    }

    #[test]
    fn conflicts_keep_it_from_being_served_until_they_are_gone() {
        let mut taken = Taken::default();
        taken.add(&json!({ "kind": "Widget" }));
        let new = desired(&definition("a.b"), &taken, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(brief(&new), ["NamesAccepted=False KindConflict", "Established=False NotAccepted"]);
        assert_eq!(new["status"]["acceptedNames"]["kind"], "");
        let free = desired(&new, &Taken::default(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(brief(&free), ["NamesAccepted=True NoConflicts", "Established=True InitialNamesAccepted"]);
    }

    #[test]
    fn protected_groups_and_old_schemas() {
        let mut old = definition("x.k8s.io");
        old["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, a test" });
        old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({ "a": {} });
        let new = desired(&old, &Taken::default(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            brief(&new)[..2],
            [
                "KubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation",
                "NonStructuralSchema=True Violations"
            ]
        );
        assert_eq!(new["status"]["conditions"][0]["message"], "not approved: \"unapproved, a test\"");
        assert!(
            str_at(&new["status"]["conditions"][1], "message").contains("properties[a].type: Required value")
        );
    }
}
