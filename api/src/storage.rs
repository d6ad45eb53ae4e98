//! What claims, volumes and their classes say in annotations, and how claims are named.

use crate::Object;
use std::collections::BTreeMap;

/// Where a class was named before the field existed; it goes before the field.
pub const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Each marks the class that claims without one get.
pub const DEFAULT_MARKS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// On a claim that has found its volume for good.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On either side of a binding that the controller made, not a person.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// The node that a claim's first pod will run on.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume of local-path that is moved, or was: how far it is, as JSON.
pub const MOVE: &str = "coracle.io/move";
/// On a claim whose volume is made anew in another place: it is not lost meanwhile.
pub const MOVING: &str = "coracle.io/volume-moving";

/// What the annotations of a Node begin with by which the provisioner of local-path asks it to make and remove directories.
/// What they say is done as root.
pub const ASKED_OF_NODE: &str = "local-path.coracle.io/";
/// What those begin with by which the node answers.
pub const ANSWERED_BY_NODE: &str = "done.local-path.coracle.io/";
/// What those begin with by which a node says where it keeps volumes of local-path, and what room it has for them.
pub const TOLD_BY_NODE: &str = "coracle.io/local-path-";

/// Whether a volume is being moved by its annotations. No pod may have it: what is written now may be lost.
pub fn is_moving(annotations: Option<&BTreeMap<String, String>>) -> bool {
    let Some(text) = annotations.and_then(|all| all.get(MOVE)) else { return false };
    let Ok(state) = serde_json::from_str::<Object>(text) else { return false };
    matches!(state["step"].as_str(), Some("asked" | "copying" | "copied"))
}

/// The class that a claim or a volume names, by its annotation of old or by its field; `None` where it names none, the
/// empty one where it wants none.
pub fn named_class<'a>(annotation: Option<&'a str>, field: Option<&'a str>) -> Option<&'a str> {
    annotation.or(field)
}

/// [`named_class`] of an object.
pub fn class_named_by(object: &Object) -> Option<&str> {
    named_class(
        object["metadata"]["annotations"][OLD_CLASS].as_str(),
        object["spec"]["storageClassName"].as_str(),
    )
}

/// The claim that is made for an ephemeral volume of a pod.
pub fn ephemeral_claim(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_is_held_until_it_was_moved_or_not() {
        let moving = |text: &str| is_moving(Some(&[(MOVE.to_owned(), text.to_owned())].into()));
        for step in ["asked", "copying", "copied"] {
            assert!(moving(&json!({ "step": step }).to_string()), "{step}");
        }
        assert!(!moving(r#"{"step":"moved"}"#) && !moving(r#"{"step":"refused"}"#) && !moving("nonsense"));
        assert!(!is_moving(None));
    }

    #[test]
    fn the_annotation_goes_before_the_field_and_empty_is_a_name() {
        let claim = |old: Object, field: Object| {
            let claim = json!({ "metadata": { "annotations": { OLD_CLASS: old } }, "spec": { "storageClassName": field } });
            class_named_by(&claim).map(str::to_owned)
        };
        assert_eq!(claim(json!("old"), json!("new")).as_deref(), Some("old"));
        assert_eq!(claim(json!(null), json!("new")).as_deref(), Some("new"));
        assert_eq!(claim(json!(""), json!("new")).as_deref(), Some(""));
        assert_eq!(class_named_by(&json!({ "metadata": {}, "spec": {} })), None);
    }
}
