//! Roles and bindings; what every part of these tests builds on.

mod grants;
mod nodes;
mod parts;
mod properties;

use super::testing::World;
use super::*;
use coracle_api::UserInfo;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

fn role(world: &World, kind: &str, namespace: &str, name: &str, rules: Value) {
    let resource = if kind == "Role" { "roles" } else { "clusterroles" };
    let metadata = match namespace {
        "" => json!({ "name": name }),
        _ => json!({ "name": name, "namespace": namespace }),
    };
    world.put(&format!("{resource}.{RBAC}"), json!({ "kind": kind, "metadata": metadata, "rules": rules }));
}

fn bind(world: &World, namespace: &str, name: &str, role: (&str, &str), subjects: Value) {
    let mut binding = json!({
        "metadata": { "name": name }, "subjects": subjects,
        "roleRef": { "apiGroup": RBAC, "kind": role.0, "name": role.1 },
    });
    let resource = match namespace {
        "" => "clusterrolebindings",
        _ => {
            binding["metadata"]["namespace"] = namespace.into();
            "rolebindings"
        }
    };
    world.put(&format!("{resource}.{RBAC}"), binding);
}

fn chain(world: &Arc<World>) -> Chain {
    Chain::new(world.clone(), world.generation())
}

fn user(name: &str) -> UserInfo {
    UserInfo::authenticated(name, &[])
}

fn may(chain: &Chain, attributes: Attributes<'_>) -> bool {
    matches!(chain.authorize(&attributes), Decision::Allow(_))
}

#[test]
fn rules_match_as_documented() {
    let rule = |value: Value| rules::Rule::from_json(&value);
    let jane = user("jane");
    let on = |verb, group, resource, subresource, name| Attributes {
        subresource,
        name,
        ..Attributes::resource(&jane, verb, group, resource, "ns")
    };
    let pods = rule(json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }));
    let logs = rule(json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"] }));
    let scale = rule(json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"] }));
    let all = rule(json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }));
    let named =
        rule(json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"] }));
    let audiences = rule(json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["", "aud://one/two"] }));
    for (rule, asked, allowed) in [
        (&pods, on("get", "", "pods", "", "a"), true),
        (&pods, on("list", "", "pods", "", ""), false),
        (&pods, on("get", "", "pods", "log", "a"), false),
        (&pods, on("get", "apps", "pods", "", "a"), false),
        (&logs, on("get", "", "pods", "log", "a"), true),
        (&logs, on("get", "", "pods", "", "a"), false),
        (&scale, on("patch", "apps", "deployments", "scale", "a"), true),
        (&scale, on("patch", "apps", "deployments", "", "a"), false),
        (&all, on("delete", "apps", "deployments", "status", "a"), true),
        (&all, Attributes::path(&jane, "get", "/metrics"), false),
        (&named, on("get", "", "pods", "", "a"), true),
        (&named, on("get", "", "pods", "", "b"), false),
        (&named, on("get", "", "pods", "", ""), false),
        // Audiences of tokens are asked about as resources.
        (&audiences, on("get", "", "aud://one/two", "", ""), true),
        (&audiences, on("get", "", "", "", ""), true),
        (&audiences, on("get", "", "one", "two", ""), false),
        (&audiences, Attributes::path(&jane, "get", ""), false),
    ] {
        assert_eq!(rule.allows(&asked), allowed, "{rule:?} {asked:?}");
    }
    let paths = rule(json!({ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"] }));
    for (path, allowed) in [
        ("/healthz", true),
        ("/healthz/etcd", false),
        ("/api/", true),
        ("/api/v1", true),
        ("/apis", false),
        ("/api", false),
    ] {
        assert_eq!(paths.allows(&Attributes::path(&jane, "get", path)), allowed, "{path}");
    }
}

#[test]
fn bindings_reach_users_groups_and_service_accounts_in_their_namespace() {
    let world = World::new();
    let read = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] }]);
    role(&world, "ClusterRole", "", "reader", read.clone());
    role(&world, "Role", "a", "reader", read);
    bind(&world, "", "g", ("ClusterRole", "reader"), json!([{ "kind": "Group", "name": "ops" }]));
    bind(&world, "a", "u", ("Role", "reader"), json!([{ "kind": "User", "name": "jane" }]));
    bind(
        &world,
        "b",
        "s",
        ("ClusterRole", "reader"),
        json!([{ "kind": "ServiceAccount", "name": "bot", "namespace": "c" }]),
    );
    let chain = chain(&world);
    let lists = |user: &UserInfo, namespace: &str| {
        may(&chain, Attributes::resource(user, "list", "", "pods", namespace))
    };
    let (jane, bot) = (user("jane"), user("system:serviceaccount:c:bot"));
    let ops = UserInfo::authenticated("joe", &["ops"]);
    for (user, namespace, allowed) in [
        (&jane, "a", true),
        (&jane, "b", false),
        (&jane, "", false),
        (&bot, "b", true),
        (&bot, "c", false),
        (&ops, "a", true),
        (&ops, "z", true),
        (&ops, "", true),
    ] {
        assert_eq!(lists(user, namespace), allowed, "{} in {namespace:?}", user.name);
    }
    let reason = chain.authorize(&Attributes::resource(&ops, "list", "", "pods", ""));
    let wanted = r#"RBAC: allowed by ClusterRoleBinding "g" of ClusterRole "reader" to Group "ops""#;
    assert_eq!(reason, Decision::Allow(wanted.to_owned()));
}

#[test]
fn changes_take_effect_at_the_next_request() {
    let world = World::new();
    let chain = chain(&world);
    let jane = user("jane");
    let asked = || Attributes::resource(&jane, "list", "", "pods", "a");
    assert!(!may(&chain, asked()));
    role(
        &world,
        "ClusterRole",
        "",
        "r",
        json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] }]),
    );
    bind(&world, "", "b", ("ClusterRole", "r"), json!([{ "kind": "User", "name": "jane" }]));
    assert!(may(&chain, asked()));
    world.remove("clusterrolebindings.rbac.authorization.k8s.io", "", "b");
    assert!(!may(&chain, asked()));
}

#[test]
fn masters_may_everything() {
    let chain = chain(&World::new());
    let root = UserInfo::authenticated("root", &[MASTERS]);
    assert!(may(&chain, Attributes::resource(&root, "delete", "x", "y", "z")));
    assert!(may(&chain, Attributes::path(&root, "get", "/metrics")));
}

#[test]
fn denials_read_as_upstreams() {
    let world = World::new();
    let chain = chain(&world);
    let x = user("x");
    let text = |attributes: Attributes<'_>| {
        let error = require(&chain, &attributes).unwrap_err();
        assert_eq!((error.code, error.reason), (403, "Forbidden"));
        error.message
    };
    let named = Attributes {
        name: "web",
        subresource: "log",
        ..Attributes::resource(&x, "get", "", "pods", "default")
    };
    assert_eq!(
        text(Attributes::resource(&x, "list", "", "pods", "default")),
        r#"pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "default""#
    );
    assert_eq!(
        text(named),
        r#"pods "web" is forbidden: User "x" cannot get resource "pods/log" in API group "" in the namespace "default""#
    );
    assert_eq!(
        text(Attributes::resource(&x, "list", "apps", "deployments", "")),
        r#"deployments.apps is forbidden: User "x" cannot list resource "deployments" in API group "apps" at the cluster scope"#
    );
    assert_eq!(
        text(Attributes::path(&x, "get", "/metrics")),
        r#"forbidden: User "x" cannot get path "/metrics""#
    );
    bind(&world, "", "b", ("ClusterRole", "gone"), json!([{ "kind": "User", "name": "x" }]));
    assert_eq!(
        text(Attributes::path(&x, "get", "/metrics")),
        r#"forbidden: User "x" cannot get path "/metrics": RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#
    );
}
