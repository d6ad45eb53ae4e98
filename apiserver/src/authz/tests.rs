use super::testing::World;
use super::*;
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

fn kubelet(node: &str) -> UserInfo {
    UserInfo::authenticated(&format!("system:node:{node}"), &["system:nodes"])
}

fn node_world() -> Arc<World> {
    let world = World::new();
    world.put(
        "pods.",
        json!({
            "metadata": { "name": "web", "namespace": "a" },
            "spec": {
                "nodeName": "n1", "serviceAccountName": "bot", "imagePullSecrets": [{ "name": "pull" }],
                "volumes": [
                    { "name": "s", "secret": { "secretName": "vol" } },
                    { "name": "p", "projected": { "sources": [
                        { "configMap": { "name": "root" } }, { "secret": { "name": "proj" } } ] } },
                    { "name": "c", "persistentVolumeClaim": { "claimName": "data" } } ],
                "resourceClaims": [{ "name": "g", "resourceClaimName": "gpu" }],
                "containers": [{ "envFrom": [{ "configMapRef": { "name": "env" } }] }],
                "initContainers": [{ "env": [{ "valueFrom": { "secretKeyRef": { "name": "key" } } }] }],
            },
            "status": { "resourceClaimStatuses": [{ "name": "t", "resourceClaimName": "made-up" }] },
        }),
    );
    world.put(
        "persistentvolumes.",
        json!({
            "metadata": { "name": "pv" },
            "spec": {
                "claimRef": { "namespace": "a", "name": "data" },
                "csi": {
                    "nodeStageSecretRef": { "name": "stage", "namespace": "b" },
                    "controllerPublishSecretRef": { "name": "control", "namespace": "b" },
                },
                "flexVolume": { "secretRef": { "name": "flex" } },
            }
        }),
    );
    let of_node =
        |name: &str, node: &str| json!({ "metadata": { "name": name }, "spec": { "nodeName": node } });
    world.put("resourceslices.resource.k8s.io", of_node("mine", "n1"));
    world.put("resourceslices.resource.k8s.io", of_node("theirs", "n2"));
    world.put("volumeattachments.storage.k8s.io", of_node("va", "n1"));
    world.put(
        "pods.",
        json!({
            "metadata": { "name": "mirror", "namespace": "a", "annotations": { "kubernetes.io/config.mirror": "x" } },
            "spec": { "nodeName": "n1", "volumes": [{ "name": "s", "secret": { "secretName": "wanted" } }] },
        }),
    );
    world
}

#[test]
fn nodes_reach_what_their_pods_need_and_nothing_else() {
    let world = node_world();
    let chain = chain(&world);
    let (n1, n2) = (kubelet("n1"), kubelet("n2"));
    let related = [
        ("secrets", "a", "vol"),
        ("secrets", "a", "proj"),
        ("secrets", "a", "pull"),
        ("secrets", "a", "key"),
        ("secrets", "b", "stage"),
        ("secrets", "a", "flex"),
        ("configmaps", "a", "root"),
        ("configmaps", "a", "env"),
        ("persistentvolumeclaims", "a", "data"),
        ("persistentvolumes", "", "pv"),
        ("pods", "a", "web"),
    ];
    for (resource, namespace, name) in related {
        let get = |user| Attributes { name, ..Attributes::resource(user, "get", "", resource, namespace) };
        assert!(may(&chain, get(&n1)), "n1 {resource} {name}");
        assert!(!may(&chain, get(&n2)), "n2 {resource} {name}");
    }
    for (resource, namespace, name) in [
        ("secrets", "a", "other"),
        ("secrets", "b", "vol"),
        ("configmaps", "a", "vol"),
        ("secrets", "b", "control"),
        ("secrets", "a", "wanted"),
    ] {
        let asked = Attributes { name, ..Attributes::resource(&n1, "get", "", resource, namespace) };
        assert!(!may(&chain, asked), "{resource} {namespace} {name}");
    }
    let asked = Attributes { name: "other", ..Attributes::resource(&n1, "get", "", "secrets", "a") };
    let message = require(&chain, &asked).unwrap_err().message;
    assert!(message.ends_with(": no relationship found between node 'n1' and this object"), "{message}");
}

/// Verb, group, resource, subresource, namespace, name and field selector, and whether the node `n1` may.
type Case = (bool, [&'static str; 7]);

fn ask_as_node(cases: &[Case]) {
    let world = node_world();
    let chain = chain(&world);
    let n1 = kubelet("n1");
    for (allowed, [verb, group, resource, subresource, namespace, name, field_selector]) in cases {
        let asked = Attributes {
            name,
            subresource,
            field_selector,
            ..Attributes::resource(&n1, verb, group, resource, namespace)
        };
        let got = may(&chain, asked);
        assert_eq!(got, *allowed, "{verb} {resource}/{subresource} {namespace}/{name} {field_selector}");
    }
}

#[test]
fn nodes_write_only_their_own() {
    ask_as_node(&[
        (true, ["create", "", "nodes", "", "", "", ""]),
        (true, ["patch", "", "nodes", "status", "", "n1", ""]),
        // Which node it is, NodeRestriction sees.
        (true, ["patch", "", "nodes", "status", "", "n2", ""]),
        (false, ["get", "", "nodes", "", "", "n2", ""]),
        (false, ["get", "", "nodes", "proxy", "", "n1", ""]),
        (false, ["delete", "", "nodes", "", "", "n1", ""]),
        (true, ["list", "", "nodes", "", "", "", "metadata.name=n1"]),
        (false, ["list", "", "nodes", "", "", "", ""]),
        (true, ["watch", "", "pods", "", "", "", "spec.nodeName=n1"]),
        (false, ["watch", "", "pods", "", "", "", "spec.nodeName=n2"]),
        (false, ["watch", "", "pods", "", "", "", "spec.nodeName!=n1"]),
        (true, ["patch", "", "pods", "status", "a", "web", ""]),
        (false, ["get", "", "pods", "log", "a", "web", ""]),
        (true, ["list", "", "pods", "", "a", "web", ""]),
        (true, ["update", "", "persistentvolumeclaims", "status", "a", "data", ""]),
        (false, ["get", "", "persistentvolumeclaims", "status", "a", "data", ""]),
        (false, ["list", "", "persistentvolumeclaims", "", "a", "data", ""]),
    ]);
    let (world, impostor) = (node_world(), user("system:node:n1"));
    assert!(!may(&chain(&world), Attributes::resource(&impostor, "create", "", "nodes", "")));
}

#[test]
fn nodes_use_what_their_pods_do() {
    ask_as_node(&[
        (true, ["get", "", "serviceaccounts", "", "a", "bot", ""]),
        (false, ["delete", "", "serviceaccounts", "", "a", "bot", ""]),
        (true, ["get", "resource.k8s.io", "resourceclaims", "", "a", "gpu", ""]),
        (true, ["get", "resource.k8s.io", "resourceclaims", "", "a", "made-up", ""]),
        (false, ["get", "resource.k8s.io", "resourceclaims", "", "a", "other", ""]),
        (true, ["create", "resource.k8s.io", "resourceslices", "", "", "", ""]),
        (true, ["update", "resource.k8s.io", "resourceslices", "", "", "mine", ""]),
        (false, ["update", "resource.k8s.io", "resourceslices", "", "", "theirs", ""]),
        (true, ["list", "resource.k8s.io", "resourceslices", "", "", "", "spec.nodeName=n1"]),
        (false, ["list", "resource.k8s.io", "resourceslices", "", "", "", ""]),
        (true, ["get", "storage.k8s.io", "volumeattachments", "", "", "va", ""]),
        (true, ["get", "storage.k8s.io", "csinodes", "", "", "n1", ""]),
        (false, ["get", "storage.k8s.io", "csinodes", "", "", "n2", ""]),
        (false, ["list", "storage.k8s.io", "csinodes", "", "", "", ""]),
        (true, ["create", "", "events", "", "a", "", ""]),
        (true, ["list", "", "services", "", "", "", ""]),
        (false, ["create", "", "services", "", "a", "", ""]),
        (false, ["list", "", "secrets", "", "a", "", ""]),
        (true, ["watch", "", "secrets", "", "a", "", "metadata.name=vol"]),
        (true, ["create", "", "serviceaccounts", "token", "a", "bot", ""]),
        (false, ["create", "", "serviceaccounts", "token", "a", "other", ""]),
        (true, ["update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n1", ""]),
        (false, ["update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n2", ""]),
        (false, ["update", "coordination.k8s.io", "leases", "", "kube-system", "n1", ""]),
    ]);
}

fn escalate(world: &Arc<World>, resource: &str, object: &Value, user: &UserInfo) -> Result<(), ApiError> {
    escalation::check(resource, object, None, user, &chain(world), world.as_ref())
}

#[test]
fn nobody_grants_more_than_they_have() {
    let world = World::new();
    let rules = json!([{ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"] }]);
    role(&world, "ClusterRole", "", "reader", rules);
    bind(&world, "", "b", ("ClusterRole", "reader"), json!([{ "kind": "User", "name": "jane" }]));
    let jane = user("jane");
    let with = |rules: Value| json!({ "metadata": { "name": "new" }, "rules": rules });
    let held = with(json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }]));
    escalate(&world, "clusterroles", &held, &jane).unwrap();
    let more = with(json!([
        { "verbs": ["get", "delete", "watch"], "apiGroups": [""], "resources": ["pods"] },
        { "verbs": ["get"], "nonResourceURLs": ["/metrics"] },
    ]));
    let error = escalate(&world, "clusterroles", &more, &jane).unwrap_err();
    assert_eq!(error.code, 403);
    assert_eq!(
        error.message,
        "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: user \"jane\" \
         (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}\n\
         {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
    );
    escalate(&world, "clusterroles", &more, &UserInfo::authenticated("root", &[MASTERS])).unwrap();
    escalate(&world, "pods", &more, &jane).unwrap();
    let aggregated =
        json!({ "metadata": { "name": "new" }, "aggregationRule": { "clusterRoleSelectors": [{}] } });
    let error = escalate(&world, "clusterroles", &aggregated, &jane).unwrap_err();
    assert_eq!(
        error.message,
        "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: must have cluster-admin privileges to use the \
         aggregationRule"
    );
    // Updates of what is there: the garbage collector's fields, and a label that would hand the rights on to others.
    let update = |new: &Value, old: &Value| {
        escalation::check("clusterroles", new, Some(old), &jane, &chain(&world), world.as_ref())
    };
    let mut collected = more.clone();
    collected["metadata"]["finalizers"] = json!(["a/b"]);
    update(&collected, &more).unwrap();
    let mut labelled = more.clone();
    labelled["metadata"]["labels"] = json!({ "rbac.authorization.k8s.io/aggregate-to-view": "true" });
    assert_eq!(update(&labelled, &more).unwrap_err().code, 403);
    assert_eq!(update(&held, &aggregated).unwrap_err().code, 403);
}

#[test]
fn binding_needs_the_role_s_rights_or_the_bind_verb() {
    let world = World::new();
    role(
        &world,
        "ClusterRole",
        "",
        "strong",
        json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]),
    );
    let bind_it = json!([{ "verbs": ["bind"], "apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["strong"] }]);
    role(&world, "ClusterRole", "", "binder", bind_it);
    bind(&world, "", "b", ("ClusterRole", "binder"), json!([{ "kind": "User", "name": "binder" }]));
    let binding = |role: &str| {
        json!({
            "metadata": { "name": "new", "namespace": "a" }, "subjects": [],
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
        })
    };
    escalate(&world, "rolebindings", &binding("strong"), &user("binder")).unwrap();
    assert_eq!(escalate(&world, "rolebindings", &binding("strong"), &user("jane")).unwrap_err().code, 403);
    assert_eq!(escalate(&world, "rolebindings", &binding("absent"), &user("jane")).unwrap_err().code, 404);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn words(all: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
        proptest::sample::subsequence(all, least..=all.len())
            .prop_map(|v| v.into_iter().map(str::to_owned).collect())
    }

    prop_compose! {
        fn rule()(
            verbs in words(&["get", "list", "*"], 1),
            groups in words(&["", "apps", "*"], 1),
            resources in words(&["pods", "pods/log", "*/scale", "deployments", "*"], 1),
            resource_names in words(&["a", "b"], 0),
        ) -> rules::Rule {
            rules::Rule { verbs, groups, resources, resource_names, paths: Vec::new() }
        }
    }

    proptest! {
        #[test]
        fn a_rule_holds_all_of_itself(rules in proptest::collection::vec(rule(), 1..4)) {
            prop_assert!(rules::missing(&rules, &rules).is_empty());
        }

        /// Whoever passes the escalation check could do everything that the new rules allow.
        #[test]
        fn what_is_covered_is_allowed(
            owned in proptest::collection::vec(rule(), 0..4),
            wanted in rule(),
            verb in proptest::sample::select(vec!["get", "list", "delete"]),
            group in proptest::sample::select(vec!["", "apps", "other"]),
            resource in proptest::sample::select(vec!["pods", "deployments", "x"]),
            subresource in proptest::sample::select(vec!["", "log", "scale"]),
            name in proptest::sample::select(vec!["", "a", "b", "c"]),
        ) {
            let jane = user("jane");
            let asked = Attributes { subresource, name, ..Attributes::resource(&jane, verb, group, resource, "") };
            let lacking = rules::missing(&owned, std::slice::from_ref(&wanted));
            if lacking.is_empty() && wanted.allows(&asked) {
                prop_assert!(owned.iter().any(|o| o.allows(&asked)), "{owned:?} {wanted:?} {asked:?}");
            }
        }
    }
}

#[test]
fn parameters_of_policies_are_for_those_who_may_read_them() {
    const GROUP: &str = "admissionregistration.k8s.io";
    let world = World::new();
    let rules = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"] }]);
    role(&world, "ClusterRole", "", "reader", rules);
    bind(&world, "", "b", ("ClusterRole", "reader"), json!([{ "kind": "User", "name": "jane" }]));
    let kind = |kind: &str| json!({ "metadata": { "name": "p" }, "spec": { "paramKind": { "apiVersion": "v1", "kind": kind } } });
    world.put(&format!("validatingadmissionpolicies.{GROUP}"), kind("ConfigMap"));
    let check = |resource: &str, object: &Value, old: Option<&Value>, user: &UserInfo| {
        let authorizer = chain(&world);
        let asked = params::Asked { user, authorizer: &authorizer, read: world.as_ref() };
        params::check(resource, object, old, asked).map_err(|error| error.to_string())
    };
    let (jane, policies) = (user("jane"), "validatingadmissionpolicies");
    check(policies, &kind("ConfigMap"), None, &jane).unwrap();
    assert_eq!(
        check(policies, &kind("Secret"), None, &jane).unwrap_err(),
        "spec.paramKind: Forbidden: user &{jane  [system:authenticated] map[]} must have \"get\" permission on all objects of \
         the referenced paramKind (kind=Secret, apiVersion=v1)"
    );
    check(policies, &kind("Secret"), Some(&kind("Secret")), &jane).unwrap();
    check(policies, &kind("Secret"), None, &UserInfo::authenticated("root", &[MASTERS])).unwrap();
    assert!(check("mutatingadmissionpolicies", &kind("Secret"), Some(&kind("ConfigMap")), &jane).is_err());
    let bindings = "validatingadmissionpolicybindings";
    let named =
        |policy: &str, reference: Value| json!({ "spec": { "policyName": policy, "paramRef": reference } });
    let one = json!({ "name": "x", "namespace": "n" });
    check(bindings, &named("p", one.clone()), None, &jane).unwrap();
    assert_eq!(
        check(bindings, &named("p", json!({ "selector": {} })), None, &jane).unwrap_err(),
        "spec.paramRef: Forbidden: user &{jane  [system:authenticated] map[]} does not have \"list\" permission on the object \
         referenced by paramRef"
    );
    assert_eq!(
        check(bindings, &named("none", one.clone()), None, &jane).unwrap_err(),
        "spec.paramRef: Forbidden: unable to get policy none to determine minimum required permissions and user &{jane  \
         [system:authenticated] map[]} does not have \"get\" permission for all groups, versions and resources"
    );
    check(bindings, &named("none", one.clone()), Some(&named("none", one)), &jane).unwrap();
}

#[test]
fn the_parts_of_a_claim_s_status_are_for_those_they_belong_to() {
    const GROUP: &str = "resource.k8s.io";
    let world = World::new();
    let grant = |name: &str, rule: Value| {
        role(&world, "ClusterRole", "", name, json!([rule]));
        bind(&world, "", name, ("ClusterRole", name), json!([{ "kind": "User", "name": name }]));
    };
    let binder =
        json!({ "verbs": ["update"], "apiGroups": [GROUP], "resources": ["resourceclaims/binding"] });
    grant("binder", binder);
    let driver = "system:serviceaccount:kube-system:driver";
    let its = json!({ "verbs": ["associated-node:update"], "apiGroups": [GROUP], "resources": ["resourceclaims/driver"],
        "resourceNames": ["d.x"] });
    grant(driver, its);
    let selector = json!({ "nodeSelectorTerms": [{ "matchFields":
        [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] }] });
    let claim = |status: Value| json!({ "metadata": { "name": "c", "namespace": "n" }, "status": status });
    let free = claim(json!({}));
    let bound = claim(json!({ "allocation": { "nodeSelector": selector } }));
    let check = |new: &Value, old: &Value, user: &UserInfo, verb: &str| {
        let errors = devices::check(new, old, user, verb, &chain(&world));
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(check(&bound, &free, &user("binder"), "update"), [""; 0]);
    assert_eq!(
        check(&bound, &free, &user("binder"), "patch"),
        ["status: Forbidden: changing status.allocation or status.reservedFor requires \
          resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \
          \"binder\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"]
    );
    let state = |driver: &str| {
        let mut claim = bound.clone();
        claim["status"]["devices"] = json!([{ "driver": driver, "pool": "p", "device": "d" }]);
        claim
    };
    let on = |node: &str| {
        let mut user = user(driver);
        user.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()]);
        user
    };
    assert_eq!(check(&state("d.x"), &bound, &on("n1"), "update"), [""; 0]);
    assert_eq!(check(&bound, &state("d.x"), &on("n1"), "update"), [""; 0]);
    assert_eq!(check(&state("d.x"), &state("d.x"), &user("jane"), "update"), [""; 0]);
    for (new, user) in
        [(state("d.x"), on("n2")), (state("other.x"), on("n1")), (state("d.x"), user("binder"))]
    {
        let errors = check(&new, &bound, &user, "update");
        assert!(
            errors[0].starts_with("status.devices: Forbidden: changing status.devices requires"),
            "{errors:?}"
        );
    }
}
