//! What is asked for beside the request itself: by parameters of policies and by parts of a claim's status.

use super::*;

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
        let asked = params::ReferenceCheck { user, authorizer: &authorizer, read: world.as_ref() };
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
    check(bindings, &named("none", one.clone()), Some(&named("none", one.clone())), &jane).unwrap();
    // A binding's policy is of its own sort.
    let mutating = "mutatingadmissionpolicybindings";
    assert!(check(mutating, &named("p", one.clone()), None, &jane).is_err());
    world.put(&format!("mutatingadmissionpolicies.{GROUP}"), kind("ConfigMap"));
    check(mutating, &named("p", one), None, &jane).unwrap();
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
        user.extra.insert(coracle_api::identity::NODE_NAME.to_owned(), vec![node.to_owned()]);
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
