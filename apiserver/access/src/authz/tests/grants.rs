//! Nobody grants more than they have.

use super::*;

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
