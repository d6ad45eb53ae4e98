//! The rules for metadata that hold for every object (upstream's `ValidateObjectMeta`).

use super::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, finalizers, is_terminating, owner_references};
use crate::catalogue::{Resource, split_api_version};
use crate::{FieldError, Object, validation};
use serde_json::Value;

/// Keys and values of all annotations together, in bytes; upstream's number. Larger objects would not fit etcd.
pub(crate) const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// What names a resource allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Dns1123Subdomain,
    Dns1123Label,
    PathSegment,
    /// What the spec of an APIService says: `<version>.<group>`.
    VersionAndGroup,
    /// What the spec of a CustomResourceDefinition says: `<plural>.<group>`.
    PluralAndGroup,
    /// Any name passes at first; [`validate_last`] judges it.
    Any,
    /// Only [`validate_last`] judges the metadata.
    Last,
}

impl NameRule {
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Dns1123Subdomain | Self::PluralAndGroup => validation::dns1123_subdomain(name),
            Self::Dns1123Label => validation::dns1123_label(name),
            Self::PathSegment | Self::VersionAndGroup => validation::path_segment_name(name),
            Self::Any | Self::Last => Vec::new(),
        }
    }

    /// As [`check`](Self::check), and whether the name is the one that the spec asks for.
    fn check_of(self, object: &Object, name: &str) -> Vec<String> {
        let mut messages = self.check(name);
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let group = text("/spec/group");
        if self == Self::VersionAndGroup && messages.is_empty() {
            messages.extend(version_and_group(name, text("/spec/version"), group));
        } else if self == Self::PluralAndGroup && name != format!("{}.{group}", text("/spec/names/plural")) {
            messages.push("must be spec.names.plural+\".\"+spec.group".to_owned());
        }
        messages
    }

    /// As [`check`](Self::check) for a `generateName`, which may end in a dash.
    fn check_prefix(self, prefix: &str) -> Vec<String> {
        match (self, prefix.strip_suffix('-')) {
            (Self::PathSegment | Self::VersionAndGroup, _) => validation::path_segment_prefix(prefix),
            (_, Some(stem)) if !stem.is_empty() => self.check(&format!("{stem}a")),
            _ => self.check(prefix),
        }
    }
}

/// What is wrong with the name of an APIService of this group and version.
pub fn version_and_group(name: &str, version: &str, group: &str) -> Option<String> {
    let wanted = format!("{version}.{group}");
    (name != wanted).then(|| format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"))
}

fn invalid(errors: &mut Vec<FieldError>, field: &str, value: &Value, messages: Vec<String>) {
    errors.extend(messages.iter().map(|m| FieldError::invalid(field, value, m)));
}

/// On creation, after a generated name has been filled in. The namespace must have been defaulted from the
/// request. `rule` is that of the resource's strategy.
pub fn validate(resource: &Resource, rule: NameRule, object: &Object, errors: &mut Vec<FieldError>) {
    if rule != NameRule::Last {
        by_rule(resource, object, rule, errors);
    }
}

/// On creation, of an object in which nothing else is wrong: what holds for the metadata of every resource.
pub fn validate_last(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    by_rule(resource, object, NameRule::PathSegment, errors);
}

fn by_rule(resource: &Resource, object: &Object, rule: NameRule, errors: &mut Vec<FieldError>) {
    let meta = &object["metadata"];
    let generate = super::generate_name(object);
    if !generate.is_empty() {
        invalid(errors, "metadata.generateName", &meta["generateName"], rule.check_prefix(generate));
    }
    match super::name(object) {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => invalid(errors, "metadata.name", &meta["name"], rule.check_of(object, name)),
    }
    match (resource.namespaced, super::namespace(object)) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, namespace) => {
            invalid(errors, "metadata.namespace", &meta["namespace"], validation::dns1123_label(namespace));
        }
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type")),
    }
    validate_common(object, errors);
}

/// Of an object inside another one: its name may be left out, and it may be of any scope.
pub fn validate_embedded(object: &Object, errors: &mut Vec<FieldError>) {
    let meta = &object["metadata"];
    let rule = NameRule::PathSegment;
    let (generate, name) = (super::generate_name(object), super::name(object));
    if !generate.is_empty() {
        invalid(errors, "metadata.generateName", &meta["generateName"], rule.check_prefix(generate));
    }
    if !name.is_empty() {
        invalid(errors, "metadata.name", &meta["name"], rule.check(name));
    }
    let namespace = super::namespace(object);
    if !namespace.is_empty() {
        invalid(errors, "metadata.namespace", &meta["namespace"], validation::dns1123_label(namespace));
    }
    validate_common(object, errors);
}

/// On update: what may not change, and the rules for the rest. `new` carries the resourceVersion it is based on.
pub fn validate_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let (meta, was) = (&new["metadata"], &old["metadata"]);
    if is_terminating(old) {
        let extra: Vec<&str> = finalizers(new).filter(|f| !super::has_finalizer(old, f)).collect();
        if !extra.is_empty() {
            let list = format!("[]string{{\"{}\"}}", extra.join("\", \""));
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {list}"
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    if super::generation(new) < super::generation(old) {
        errors.push(FieldError::invalid(
            "metadata.generation",
            &meta["generation"],
            "must not be decremented",
        ));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        if meta[field] != was[field] {
            let path = format!("metadata.{field}");
            errors.push(FieldError::invalid(path, &meta[field], "field is immutable"));
        }
    }
    validate_common(new, errors);
}

fn validate_common(object: &Object, errors: &mut Vec<FieldError>) {
    let meta = &object["metadata"];
    if meta["generation"].as_i64().is_some_and(|g| g < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("metadata.generation", &meta["generation"], detail));
    }
    validate_labels(&meta["labels"], "metadata.labels", errors);
    validate_annotations(&meta["annotations"], "metadata.annotations", errors);
    validate_owners(object, errors);
    validate_finalizers(object, errors);
}

/// Also for the labels of templates; `field` is their path.
pub fn validate_labels(labels: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        invalid(errors, field, &key.as_str().into(), validation::qualified_name(key));
        invalid(errors, field, value, validation::label_value(value.as_str().unwrap_or_default()));
    }
}

/// Also for the annotations of templates.
pub fn validate_annotations(annotations: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        invalid(errors, field, &key.as_str().into(), validation::qualified_name(&key.to_lowercase()));
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(field, ANNOTATIONS_MAX_BYTES));
    }
}

fn validate_owners(object: &Object, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in owner_references(object) {
        let api_version = owner["apiVersion"].as_str().unwrap_or_default();
        let kind = owner["kind"].as_str().unwrap_or_default();
        if split_api_version(api_version).is_none() {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(format!("{FIELD}.apiVersion"), &api_version.into(), detail));
        }
        for field in ["kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(format!("{FIELD}.{field}"), &"".into(), "must not be empty"));
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_as(FIELD, &owners_shown(owner), detail));
        }
        if owner["controller"] == true {
            let this = format!("{kind}/{}", owner["name"].as_str().unwrap_or_default());
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {this}"
                    );
                    let all = &object["metadata"]["ownerReferences"];
                    errors.push(FieldError::invalid_as(FIELD, &owners_shown(all), &detail));
                }
            }
        }
    }
}

/// References in the order of their struct.
fn owners_shown(owners: &Value) -> String {
    const ORDER: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let member = |owner: &Value, name: &&str| Some(format!("\"{name}\":{}", owner.get(*name)?));
    let one = |owner: &Value| {
        let members: Vec<String> = ORDER.iter().filter_map(|name| member(owner, name)).collect();
        format!("{{{}}}", members.join(","))
    };
    match owners.as_array() {
        Some(all) => format!("[{}]", all.iter().map(one).collect::<Vec<_>>().join(",")),
        None => one(owners),
    }
}

fn validate_finalizers(object: &Object, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.finalizers";
    for finalizer in finalizers(object) {
        invalid(errors, FIELD, &finalizer.into(), validation::qualified_name(finalizer));
    }
    if super::has_finalizer(object, ORPHAN_FINALIZER) && super::has_finalizer(object, FOREGROUND_FINALIZER) {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(FIELD, &object["metadata"]["finalizers"], detail));
    }
}

/// Groups whose new objects may have finalizers without a domain, as upstream judges them by the common rules alone.
const LENIENT_GROUPS: [&str; 5] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "policy",
];

/// On creation of an object of a built-in kind: finalizers have a domain, but for those of Kubernetes itself.
pub fn validate_kube_finalizers(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    if LENIENT_GROUPS.contains(&&*resource.group) {
        return;
    }
    let own = ["kubernetes", ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
    for (i, finalizer) in finalizers(object).enumerate() {
        if !finalizer.contains('/') && !own.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{i}]"), &finalizer.into(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::by_plural;
    use serde_json::json;

    fn errors_of(plural: &str, metadata: Value) -> Vec<String> {
        let resource = by_plural("", "v1", plural).unwrap();
        let label = matches!(plural, "namespaces" | "services");
        let rule = if label { NameRule::Dns1123Label } else { NameRule::Dns1123Subdomain };
        let mut errors = Vec::new();
        validate(resource, rule, &json!({ "metadata": metadata }), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn assert_one(plural: &str, metadata: Value, start: &str) {
        let errors = errors_of(plural, metadata);
        assert!(errors.len() == 1 && errors[0].starts_with(start), "{errors:?} does not start with {start}");
    }

    #[test]
    fn names_and_namespaces() {
        let none: Vec<String> = vec![];
        assert_eq!(errors_of("pods", json!({ "name": "a.b", "namespace": "n" })), none);
        assert_eq!(errors_of("pods", json!({ "name": "x-1", "generateName": "x-", "namespace": "n" })), none);
        assert_one(
            "pods",
            json!({ "namespace": "n" }),
            "metadata.name: Required value: name or generateName",
        );
        assert_one("pods", json!({ "name": "a" }), "metadata.namespace: Required value");
        assert_one(
            "pods",
            json!({ "name": "A", "namespace": "n" }),
            "metadata.name: Invalid value: \"A\": a low",
        );
        assert_one(
            "nodes",
            json!({ "name": "a", "namespace": "n" }),
            "metadata.namespace: Forbidden: not allow",
        );
        assert_one(
            "services",
            json!({ "name": "a.b", "namespace": "n" }),
            "metadata.name: Invalid value: \"a.b\": must not contain dots",
        );
        assert_one(
            "namespaces",
            json!({ "name": "a.b" }),
            "metadata.name: Invalid value: \"a.b\": must not con",
        );
    }

    #[test]
    fn names_that_the_spec_asks_for() {
        let named = |rule: NameRule, group: &str, plural: &str, name: &str| {
            let resource = by_plural(group, "v1", plural).unwrap();
            let object = json!({ "metadata": { "name": name, "labels": { "-a": "" }, "namespace": "n" },
                "spec": { "group": "b.c", "version": "v1", "names": { "plural": "as" } } });
            let object = if resource.namespaced {
                object
            } else {
                let mut object = object;
                object["metadata"].as_object_mut().unwrap().remove("namespace");
                object
            };
            let mut errors = Vec::new();
            validate(resource, rule, &object, &mut errors);
            errors.iter().map(ToString::to_string).filter(|e| !e.contains("labels")).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        let services = |name| named(NameRule::VersionAndGroup, "apiregistration.k8s.io", "apiservices", name);
        assert_eq!(services("v1.b.c"), none);
        assert_eq!(
            services("v2.b.c"),
            ["metadata.name: Invalid value: \"v2.b.c\": must be `spec.version+\".\"+spec.group`: \"v1.b.c\""]
        );
        assert_eq!(services("v1/b.c"), ["metadata.name: Invalid value: \"v1/b.c\": may not contain '/'"]);
        assert_eq!(services(""), ["metadata.name: Required value: name or generateName is required"]);
        let definitions =
            |name| named(NameRule::PluralAndGroup, "apiextensions.k8s.io", "customresourcedefinitions", name);
        assert_eq!(definitions("as.b.c"), none);
        let odd = "metadata.name: Invalid value: \"x.b.c\": must be spec.names.plural+\".\"+spec.group";
        assert_eq!(definitions("x.b.c"), [odd]);
        assert_eq!(definitions("A").len(), 2);
        assert_eq!(definitions(""), ["metadata.name: Required value: name or generateName is required"]);
        assert_eq!(named(NameRule::Any, "certificates.k8s.io", "certificatesigningrequests", "a/b"), none);
        let budgets = by_plural("policy", "v1", "poddisruptionbudgets").unwrap();
        let mut errors = Vec::new();
        let budget = json!({ "metadata": { "name": "A/b ", "namespace": "n", "labels": { "-a": "" } } });
        validate(budgets, NameRule::Last, &budget, &mut errors);
        assert_eq!(errors, []);
        validate_last(budgets, &budget, &mut errors);
        assert_eq!(errors[0].to_string(), "metadata.name: Invalid value: \"A/b \": may not contain '/'");
        assert_eq!(errors.len(), 2);
    }

    #[test]
    fn the_rest_of_metadata() {
        let with = |field: &str, value: Value| json!({ "name": "a", field: value });
        let labels = "metadata.labels: Invalid value:";
        assert_one("nodes", with("labels", json!({ "-a": "b" })), labels);
        assert_one("nodes", with("labels", json!({ "a": "-b" })), labels);
        assert_one(
            "nodes",
            with("annotations", json!({ "a b": "" })),
            "metadata.annotations: Invalid value:",
        );
        let big = json!({ "a": "x".repeat(256 * 1024) });
        assert_one(
            "nodes",
            with("annotations", big),
            "metadata.annotations: Too long: may not be more than 262144",
        );
        assert_one(
            "nodes",
            with("finalizers", json!(["orphan", "foregroundDeletion"])),
            "metadata.finalizers: I",
        );
        assert_one(
            "nodes",
            with("finalizers", json!(["a b"])),
            "metadata.finalizers: Invalid value: \"a b\"",
        );
        assert_one("nodes", with("generation", json!(-1)), "metadata.generation: Invalid value: -1");
        let owner = json!({ "apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": true });
        assert_one(
            "nodes",
            with("ownerReferences", json!([owner, owner])),
            "metadata.ownerReferences: Invalid",
        );
        let nameless = json!({ "apiVersion": "v1", "kind": "A", "uid": "u" });
        assert_one(
            "nodes",
            with("ownerReferences", json!([nameless])),
            "metadata.ownerReferences.name: Invalid",
        );
    }

    #[test]
    fn updates() {
        let old =
            json!({ "metadata": { "name": "a", "uid": "1", "deletionTimestamp": "t", "generation": 2 } });
        let new = json!({ "metadata": { "name": "b", "uid": "1", "deletionTimestamp": "t", "generation": 1,
            "finalizers": ["x.y/z"] } });
        let mut errors = Vec::new();
        validate_update(&new, &old, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["metadata.finalizers", "metadata.generation", "metadata.name"]);
    }
}
