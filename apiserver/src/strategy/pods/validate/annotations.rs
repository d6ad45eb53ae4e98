//! Annotations with a meaning.

use super::super::super::value::*;
use coracle_api::Object;

const MIRROR: &str = "kubernetes.io/config.mirror";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub fn create(pod: &Object, errors: &mut Errors) {
    let path = Path::root("metadata").field("annotations").key(MIRROR);
    let mirror = &at(pod, "metadata.annotations")[MIRROR];
    if mirror.is_string() && str_at(pod, "spec.nodeName").is_empty() {
        errors.invalid(&path, mirror.clone(), "must set spec.nodeName if mirror pod annotation is set");
    }
}

pub fn update(new: &Object, old: &Object, errors: &mut Errors) {
    let path = Path::root("metadata").field("annotations");
    let special = |key: &str| key == MIRROR || key.starts_with(APP_ARMOR);
    let what = |key: &str| if key == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
    for (key, value) in entries_at(old, "metadata.annotations").filter(|(key, _)| special(key)) {
        if at(new, "metadata.annotations").get(key) != Some(value) {
            errors.forbidden(&path.key(key), &format!("may not remove or update {}", what(key)));
        }
    }
    for (key, _) in entries_at(new, "metadata.annotations").filter(|(key, _)| special(key)) {
        if at(old, "metadata.annotations").get(key).is_none() {
            errors.forbidden(&path.key(key), &format!("may not add {}", what(key)));
        }
    }
    create(new, errors);
}
