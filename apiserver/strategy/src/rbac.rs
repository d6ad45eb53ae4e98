//! rbac.authorization.k8s.io/v1: roles and bindings, of namespaces and of the cluster.

use super::value::*;
use super::{Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy, rules, table};
use crate::Facts;
use coracle_api::meta::NameRule;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role, or with `cluster` ClusterRole.
pub struct Roles {
    pub cluster: bool,
}

/// RoleBinding, or with `cluster` ClusterRoleBinding.
pub struct RoleBindings {
    pub cluster: bool,
}

const BINDING_COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Role", "Role that is granted"),
    table::AGE,
    table::wide("Users", "Users that have the role"),
    table::wide("Groups", "Groups that have the role"),
    table::wide("ServiceAccounts", "Service accounts that have the role"),
];

impl ResourceFacts for Roles {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for Roles {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        for (i, rule) in list_at(object, "rules").iter().enumerate() {
            policy_rule(rule, !self.cluster, &Path::root("rules").index(i), &mut Errors(errors));
        }
        if self.cluster && has(object, "aggregationRule") {
            aggregation(at(object, "aggregationRule"), &mut Errors(errors));
        }
    }
}

impl UpdateStrategy for Roles {
    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

crate::usual!(Roles: StatusStrategy, DeleteStrategy, TransactionStrategy, TableConvertor, SelectableFields, ResetFieldsStrategy);

fn aggregation(rule: &Value, errors: &mut Errors) {
    let path = Path::root("aggregationRule").field("clusterRoleSelectors");
    let selectors = list_at(rule, "clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(&path, detail);
    }
    for (i, selector) in selectors.iter().enumerate() {
        let before = errors.0.len();
        rules::label_selector(selector, &path.index(i), errors);
        if errors.0.len() > before {
            errors.invalid(&path.index(i), Value::Null, "invalid label selector.");
        }
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: &Path, errors: &mut Errors) {
    let empty = |field: &str| list_at(rule, field).is_empty();
    if empty("verbs") {
        errors.required(&path.field("verbs"), "verbs must contain at least one value");
    }
    let urls = path.field("nonResourceURLs");
    if !empty("nonResourceURLs") {
        let value = at(rule, "nonResourceURLs").clone();
        if namespaced {
            errors.invalid(&urls, value.clone(), "namespaced rules cannot apply to non-resource URLs");
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&urls, value, detail);
        }
        return;
    }
    if empty("apiGroups") {
        errors.required(&path.field("apiGroups"), "resource rules must supply at least one api group");
    }
    if empty("resources") {
        errors.required(&path.field("resources"), "resource rules must supply at least one resource");
    }
}

impl ResourceFacts for RoleBindings {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for RoleBindings {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn defaults(&self, object: &mut Object) {
        if let Some(role) = object_at(object, "roleRef") {
            default_str(role, "apiGroup", GROUP);
        }
        for subject in each_mut(object, "subjects") {
            if matches!(str_at(subject, "kind"), "User" | "Group") {
                default_str(subject, "apiGroup", GROUP);
            }
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (role, path) = (at(object, "roleRef"), Path::root("roleRef"));
        if str_at(role, "apiGroup") != GROUP {
            errors.not_supported(&path.field("apiGroup"), str_at(role, "apiGroup"), &[GROUP]);
        }
        let kinds: &[&str] = if self.cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
        if !kinds.contains(&str_at(role, "kind")) {
            errors.not_supported(&path.field("kind"), str_at(role, "kind"), kinds);
        }
        rules::path_segment(str_at(role, "name"), &path.field("name"), errors);
        for (i, subject) in list_at(object, "subjects").iter().enumerate() {
            self.subject(subject, &Path::root("subjects").index(i), errors);
        }
    }
}

impl UpdateStrategy for RoleBindings {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        if new["roleRef"] != old["roleRef"] {
            let errors = &mut Errors(errors);
            errors.invalid(&Path::root("roleRef"), new["roleRef"].clone(), "cannot change roleRef");
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl TableConvertor for RoleBindings {
    fn columns(&self) -> &'static [Column] {
        BINDING_COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let of = |kind: &'static str| {
            list_at(object, "subjects").iter().filter(move |s| str_at(s, "kind") == kind)
        };
        let names = |kind: &'static str| Value::from(of(kind).map(name_of).collect::<Vec<_>>().join(", "));
        let accounts: Vec<String> =
            of("ServiceAccount").map(|s| format!("{}/{}", str_at(s, "namespace"), name_of(s))).collect();
        let role = format!("{}/{}", str_at(object, "roleRef.kind"), str_at(object, "roleRef.name"));
        vec![
            name(object).into(),
            role.into(),
            table::age(object, now),
            names("User"),
            names("Group"),
            accounts.join(", ").into(),
        ]
    }
}

crate::usual!(RoleBindings: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn name_of(subject: &Value) -> &str {
    str_at(subject, "name")
}

impl RoleBindings {
    fn subject(&self, subject: &Value, path: &Path, errors: &mut Errors) {
        if name_of(subject).is_empty() {
            errors.required(&path.field("name"), "");
        }
        let expected = match str_at(subject, "kind") {
            "ServiceAccount" => "",
            "User" | "Group" => GROUP,
            kind => {
                errors.not_supported(&path.field("kind"), kind, &["ServiceAccount", "User", "Group"]);
                return;
            }
        };
        let account = expected.is_empty();
        if account && !name_of(subject).is_empty() {
            rules::subdomain(name_of(subject), &path.field("name"), errors);
        }
        let group = str_at(subject, "apiGroup");
        if group != expected {
            errors.not_supported(&path.field("apiGroup"), group, &[expected]);
        }
        // A namespaced binding without one has been accepted as long as there are bindings.
        if account && str_at(subject, "namespace").is_empty() && self.cluster {
            errors.required(&path.field("namespace"), "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use serde_json::json;

    #[test]
    fn rules_name_what_they_are_about() {
        let check = |rule: Value, namespaced: bool| {
            let mut errors = Vec::new();
            policy_rule(&rule, namespaced, &Path::root("rules").index(0), &mut Errors(&mut errors));
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            check(json!({}), true),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        let urls = json!({ "verbs": ["get"], "nonResourceURLs": ["/metrics"] });
        assert!(check(urls.clone(), false).is_empty());
        assert_eq!(check(urls, true).len(), 1);
        let both = json!({ "verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["pods"] });
        assert_eq!(
            check(both, true),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply to non-resource URLs",
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and \
                 non-resource URLs",
            ]
        );
    }

    #[test]
    fn aggregation_needs_selectors() {
        let found = |rule: Value| {
            crate::testing::errors(&Roles { cluster: true }, json!({ "aggregationRule": rule }))
        };
        let path = "aggregationRule.clusterRoleSelectors";
        assert_eq!(
            found(json!({})),
            [format!(
                "{path}: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
            )]
        );
        let odd = json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] });
        let found = found(json!({ "clusterRoleSelectors": [odd] }));
        assert!(found[1].starts_with(&format!("{path}[0]: Invalid value: ")), "{found:?}");
        assert!(found[1].ends_with(": invalid label selector.") && found.len() == 2, "{found:?}");
    }

    #[test]
    fn subjects_and_roles_that_are_none() {
        let binding = |role: Value, subject: Value| {
            let object = json!({ "roleRef": role, "subjects": [subject] });
            crate::testing::errors(&RoleBindings { cluster: true }, object)
        };
        let role = json!({ "kind": "ClusterRole", "name": "r" });
        let user = json!({ "kind": "User", "name": "u" });
        assert!(binding(role.clone(), user.clone()).is_empty());
        for (role, subject, want) in [
            (
                json!({ "kind": "Role", "name": "r" }),
                user.clone(),
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            ),
            (json!({ "kind": "ClusterRole" }), user.clone(), "roleRef.name: Required value"),
            (
                role.clone(),
                json!({ "kind": "Robot", "name": "r" }),
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ),
            (
                role.clone(),
                json!({ "kind": "ServiceAccount", "name": "s" }),
                "subjects[0].namespace: Required value",
            ),
            (
                role.clone(),
                json!({ "kind": "Group", "name": "g", "apiGroup": "x" }),
                "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"rbac.authorization.k8s.io\"",
            ),
        ] {
            assert_eq!(binding(role, subject), [want]);
        }
    }

    #[test]
    fn bindings() {
        let strategy = RoleBindings { cluster: false };
        let mut object = json!({ "metadata": { "name": "b" }, "roleRef": { "kind": "Role", "name": "r" },
            "subjects": [{ "kind": "User", "name": "u" }, { "kind": "ServiceAccount", "name": "s", "namespace": "d" }] });
        strategy.defaults(&mut object);
        assert_eq!(object["subjects"][0]["apiGroup"], GROUP);
        let mut errors = Vec::new();
        let world = World::default();
        strategy.validate(&object, &world.env(), &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(
            strategy.row(&object, Timestamp::UNIX_EPOCH),
            ["b", "Role/r", "<unknown>", "u", "", "d/s"]
        );
        let mut other = object.clone();
        other["roleRef"]["name"] = "x".into();
        strategy.validate_update(&other, &object, &world.env(), &mut errors);
        assert!(errors[0].detail.ends_with(": cannot change roleRef"));
    }
}
