//! Annotations with a meaning, of pods and of their templates.

use super::super::super::value::*;
use super::volumes::relative;
use coracle_api::Object;
use coracle_api::well_known;
use serde_json::Value;

const MIRROR: &str = well_known::CONFIG_MIRROR;
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const DELETION_COST: &str = well_known::POD_DELETION_COST;
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Of a pod or a template; `path` is where its metadata's annotations are said to stand.
pub fn all(pod: &Value, path: &Path, errors: &mut Errors) {
    let spec = at(pod, "spec");
    for (key, value) in entries_at(pod, "metadata.annotations") {
        let (text, here) = (value.as_str().unwrap_or_default(), path.key(key));
        if key == MIRROR && str_at(spec, "nodeName").is_empty() {
            errors.invalid(&here, text, "must set spec.nodeName if mirror pod annotation is set");
        } else if key == DELETION_COST && !is_cost(text) {
            errors.invalid(&here, text, "must be a 32bit integer");
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(text, &path.field(key), errors);
        } else if let Some(container) = key.strip_prefix(APP_ARMOR) {
            app_armor(spec, container, text, &here, errors);
        }
    }
}

/// Neither a plus nor leading zeros.
fn is_cost(text: &str) -> bool {
    let plain = text == "0" || text.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    text.is_empty() || (plain && text.parse::<i32>().is_ok())
}

fn seccomp(profile: &str, path: &Path, errors: &mut Errors) {
    match profile.strip_prefix("localhost/") {
        Some(file) => relative(file, path, errors),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

fn app_armor(spec: &Value, container: &str, profile: &str, path: &Path, errors: &mut Errors) {
    let known = |list: &&str| list_at(spec, list).iter().any(|c| str_at(c, "name") == container);
    if !CONTAINERS.iter().any(known) {
        errors.invalid(path, container, "container not found");
    }
    let plain = matches!(profile, "" | "runtime/default" | "unconfined");
    if !plain && !profile.starts_with("localhost/") {
        errors.invalid(path, profile, &format!("invalid AppArmor profile name: \"{profile}\""));
    }
}

/// Where an annotation and the field that has replaced it are both there, they say the same.
pub fn agree(pod: &Value, path: &Path, errors: &mut Errors) {
    let (spec, annotations) = (at(pod, "spec"), at(pod, "metadata.annotations"));
    if annotations.is_null() {
        return;
    }
    let own = |field: &str| at(at(spec, "securityContext"), field);
    let said = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let Some(text) = said(SECCOMP_POD) {
        let here = path.field("securityContext").field("seccompProfile");
        same("seccomp", text, own("seccompProfile"), &here, errors);
    }
    for list in CONTAINERS {
        for (i, container) in list_at(spec, list).iter().enumerate() {
            let (name, here) =
                (str_at(container, "name"), path.field(list).index(i).field("securityContext"));
            if let Some(text) = said(&format!("{SECCOMP_CONTAINER}{name}")) {
                let profile = at(container, "securityContext.seccompProfile");
                same("seccomp", text, profile, &here.field("seccompProfile"), errors);
            }
            if let Some(text) = said(&format!("{APP_ARMOR}{name}"))
                && str_at(spec, "os.name") != "windows"
            {
                let nearer = at(container, "securityContext.appArmorProfile");
                let profile = if nearer.is_null() { own("appArmorProfile") } else { nearer };
                same("apparmor", text, profile, &here.field("appArmorProfile"), errors);
            }
        }
    }
}

fn same(what: &str, annotation: &str, profile: &Value, path: &Path, errors: &mut Errors) {
    let agrees = match str_at(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(file) => {
                if file != str_at(profile, "localhostProfile") {
                    let detail = format!("{what} profile in annotation and field must match");
                    errors.forbidden(&path.field("localhostProfile"), &detail);
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !agrees {
        errors.forbidden(&path.field("type"), &format!("{what} type in annotation and field must match"));
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
    if at(new, "metadata.annotations") != at(old, "metadata.annotations") {
        all(new, &path, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(annotations: Value, security: Value) -> Vec<String> {
        let pod = json!({ "metadata": { "annotations": annotations },
            "spec": { "containers": [{ "name": "c", "securityContext": security }] } });
        let mut errors = Vec::new();
        all(&pod, &Path::root("metadata").field("annotations"), &mut Errors(&mut errors));
        agree(&pod, &Path::root("spec"), &mut Errors(&mut errors));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn annotations_with_a_meaning_are_read() {
        let apparmor = |container: &str| format!("{APP_ARMOR}{container}");
        for (annotations, want) in [
            (json!({ DELETION_COST: "-7" }), None),
            (
                json!({ DELETION_COST: "007" }),
                Some(
                    "[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"007\": must be a 32bit integer",
                ),
            ),
            (
                json!({ SECCOMP_POD: "x" }),
                Some(
                    ".seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"x\": must be a valid seccomp profile",
                ),
            ),
            (json!({ apparmor("c"): "localhost/p" }), None),
            (
                json!({ apparmor("d"): "unconfined" }),
                Some(
                    "[container.apparmor.security.beta.kubernetes.io/d]: Invalid value: \"d\": container not found",
                ),
            ),
            (
                json!({ MIRROR: "x" }),
                Some(
                    "[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName if mirror pod annotation is set",
                ),
            ),
        ] {
            let want: Vec<String> = want.iter().map(|w| format!("metadata.annotations{w}")).collect();
            assert_eq!(found(annotations.clone(), Value::Null), want, "{annotations}");
        }
    }

    #[test]
    fn annotations_and_fields_agree() {
        let key = format!("{APP_ARMOR}c");
        let profile = |kind: &str| json!({ "appArmorProfile": { "type": kind, "localhostProfile": "p" } });
        assert!(found(json!({ key.clone(): "localhost/p" }), profile("Localhost")).is_empty());
        let other = found(json!({ key.clone(): "localhost/q" }), profile("Localhost"));
        assert_eq!(
            other,
            [
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in \
              annotation and field must match"
            ]
        );
        assert_eq!(found(json!({ key: "unconfined" }), profile("RuntimeDefault")).len(), 1);
    }
}
