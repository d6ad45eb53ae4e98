//! Server-side apply.

use super::*;

const LATER: &str = "2026-01-02T00:00:00Z";

fn config(spec: Value) -> Value {
    deployment(spec)
}

#[test]
fn applying_creates_and_repeats_without_a_change() {
    let fixture = Fixture::deployments();
    let wanted =
        config(json!({"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}));
    let made = fixture.apply("me", None, &wanted).unwrap();
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!((&entry["operation"], &entry["apiVersion"]), (&json!("Apply"), &json!("apps/v1")));
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}})
    );
    let again = Fixture::deployments().at(LATER).apply("me", Some(&made), &wanted).unwrap();
    assert_eq!(again, made);
    let mut changed = wanted.clone();
    changed["spec"]["replicas"] = 2.into();
    let changed = Fixture::deployments().at(LATER).apply("me", Some(&made), &changed).unwrap();
    assert_eq!(changed["metadata"]["managedFields"][0]["time"], LATER);
}

#[test]
fn fields_no_longer_applied_are_removed_unless_owned() {
    let fixture = Fixture::deployments();
    let all = config(json!({"replicas": 1, "paused": true, "minReadySeconds": 5}));
    let made = fixture.apply("a", None, &all).unwrap();
    // Another one wants one of them too, with the same value: no conflict.
    let shared = fixture.apply("b", Some(&made), &config(json!({"paused": true}))).unwrap();
    let less = fixture.apply("a", Some(&shared), &config(json!({"replicas": 1}))).unwrap();
    assert_eq!(less["spec"], json!({"replicas": 1, "paused": true}));
    assert_eq!(*owned(&less, "a"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(*owned(&less, "b"), json!({"f:spec": {"f:paused": {}}}));
}

#[test]
fn whole_items_and_structs_go_with_their_last_owner() {
    let fixture = Fixture::pods();
    let two = pod(
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}], "securityContext": {"runAsUser": 1}}),
    );
    let one = pod(json!({"containers": [{"name": "a", "image": "1"}]}));
    let made = fixture.apply("me", None, &two).unwrap();
    let less = fixture.apply("me", Some(&made), &one).unwrap();
    assert_eq!(less["spec"], json!({"containers": [{"name": "a", "image": "1"}]}));
    // An item goes with who owns the item, though another one owns something in it.
    let mut touched = made.clone();
    touched["spec"]["containers"][1]["tty"] = true.into();
    let touched = fixture.write("other", Some(&made), touched);
    let less = fixture.apply("me", Some(&touched), &one).unwrap();
    assert_eq!(less["spec"], json!({"containers": [{"name": "a", "image": "1"}]}));
    assert_eq!(*owned(&less, "other"), Value::Null);
}

#[test]
fn conflicts_are_named_and_can_be_forced() {
    let fixture = Fixture::deployments();
    let live =
        fixture.write("kubectl-client-side-apply", None, deployment(json!({"replicas": 1, "paused": true})));
    let wanted = config(json!({"replicas": 2, "paused": true}));
    let error = fixture.apply("me", Some(&live), &wanted).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: .spec.replicas"
    );
    let status = crate::ApiError::from(error);
    assert_eq!((status.code, status.reason), (409, "Conflict"));
    assert_eq!(
        status.details["causes"][0],
        json!({"reason": "FieldManagerConflict", "field": ".spec.replicas",
            "message": "conflict with \"kubectl-client-side-apply\" using apps/v1"})
    );
    let forced = fixture.force("me", Some(&live), &wanted);
    assert_eq!(forced["spec"]["replicas"], 2);
    assert_eq!(*owned(&forced, "kubectl-client-side-apply"), json!({"f:spec": {"f:paused": {}}}));
    let two =
        fixture.apply("third", Some(&forced), &config(json!({"replicas": 3, "paused": false}))).unwrap_err();
    assert_eq!(
        two.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"kubectl-client-side-apply\" using apps/v1:\n- .spec.paused\n\
         conflicts with \"me\":\n- .spec.paused\n- .spec.replicas"
    );
}

#[test]
fn managers_of_subresources_are_told_apart() {
    let fixture = Fixture { subresource: "status", reset: Set::new(), ..Fixture::deployments() };
    let mut new = deployment(json!({}));
    new["status"] = json!({"replicas": 1});
    let live = fixture.write("x", None, new.clone());
    new["status"]["replicas"] = 2.into();
    let error =
        Fixture { reset: Set::new(), ..Fixture::deployments() }.apply("x", Some(&live), &new).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("conflict with \"x\" with subresource \"status\" using apps/v1: .status.replicas"),
        "{error}"
    );
}

#[test]
fn objects_without_owners_get_a_first_one() {
    let fixture = Fixture::deployments();
    let live = deployment(json!({"replicas": 1, "paused": true}));
    let error = fixture.apply("me", Some(&live), &config(json!({"replicas": 2}))).unwrap_err();
    assert!(
        error.to_string().ends_with("conflict with \"before-first-apply\" using apps/v1: .spec.replicas"),
        "{error}"
    );
    let same = fixture.apply("me", Some(&live), &config(json!({"replicas": 1}))).unwrap();
    assert_eq!(*owned(&same, "before-first-apply"), json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}));
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let fixture = Fixture::deployments();
    let mut live = deployment(json!({"replicas": 1, "paused": true}));
    let last = config(json!({"replicas": 1}));
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let live = fixture.write("kubectl-client-side-apply", None, live);
    let wanted = config(json!({"replicas": 3}));
    assert!(fixture.apply("other", Some(&live), &wanted).is_err());
    let taken = fixture.apply("kubectl", Some(&live), &wanted).unwrap();
    assert_eq!(taken["spec"]["replicas"], 3);
    let annotation = &taken["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(*annotation, format!("{wanted}\n"));
    // What was changed since then is not kubectl's.
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = 9.into();
    let scaled = fixture.write("someone", Some(&live), scaled);
    let error = fixture.apply("kubectl", Some(&scaled), &wanted).unwrap_err();
    assert!(error.to_string().contains("\"someone\" using apps/v1: .spec.replicas"), "{error}");
    // Nor was this ever.
    let error =
        fixture.apply("kubectl", Some(&live), &config(json!({"replicas": 3, "paused": false}))).unwrap_err();
    assert!(error.to_string().contains("1 conflict"), "{error}");
}

#[test]
fn sets_and_keyed_lists_are_united_in_order() {
    let fixture = Fixture::pods();
    let names = |object: &Value| -> Vec<String> {
        object["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let containers = |names: &str| -> Value {
        pod(json!({"containers": names.chars().map(|n| json!({"name": n.to_string()})).collect::<Vec<_>>()}))
    };
    for (live, applied, merged) in [
        ("ab", "b", "ab"),
        ("ab", "ba", "ba"),
        ("abc", "cb", "acb"),
        ("abc", "xb", "axbc"),
        ("", "ab", "ab"),
        ("xay", "ba", "xbay"),
        ("abcd", "dxa", "bcdxa"),
    ] {
        let made = fixture.write("live", None, containers(live));
        let got = fixture.apply("me", Some(&made), &containers(applied)).unwrap();
        let merged: Vec<String> = merged.chars().map(|c| c.to_string()).collect();
        assert_eq!(names(&got), merged, "{live} + {applied}");
    }
    let mut finalizers = pod(json!({}));
    finalizers["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    let made = fixture.write("live", None, finalizers.clone());
    finalizers["metadata"]["finalizers"] = json!(["e/f", "c/d"]);
    let got = fixture.apply("me", Some(&made), &finalizers).unwrap();
    assert_eq!(got["metadata"]["finalizers"], json!(["a/b", "e/f", "c/d"]));
}

#[test]
fn ports_of_two_protocols_are_two_items() {
    let fixture = Fixture::pods();
    let ports = |list: Value| pod(json!({"containers": [{"name": "c", "ports": list}]}));
    let made = fixture.apply("a", None, &ports(json!([{"containerPort": 53}]))).unwrap();
    let both =
        fixture.apply("b", Some(&made), &ports(json!([{"containerPort": 53, "protocol": "UDP"}]))).unwrap();
    assert_eq!(both["spec"]["containers"][0]["ports"].as_array().unwrap().len(), 2);
    // The default names the same item as the value spelt out.
    let spelt =
        fixture.apply("c", Some(&both), &ports(json!([{"containerPort": 53, "protocol": "TCP"}]))).unwrap();
    assert_eq!(spelt["spec"]["containers"][0]["ports"].as_array().unwrap().len(), 2);
}

#[test]
fn what_may_not_be_applied() {
    let fixture = Fixture::deployments();
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    assert_eq!(
        fixture.apply("me", None, &managed),
        Err(ApplyError::Refused("metadata.managedFields must be nil".into()))
    );
    let error = fixture.apply("me", None, &config(json!({"foo": 1}))).unwrap_err();
    assert_eq!(
        error,
        ApplyError::Failed(
            "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): .spec.foo: field not declared \
             in schema"
                .into()
        )
    );
}

/// Upstream's words for everything that a configuration can have wrong.
#[test]
fn configurations_that_are_not_what_the_schema_says() {
    let fixture = Fixture::deployments();
    let containers = |list: Value| json!({"template": {"spec": {"containers": list}}});
    let at = ".spec.template.spec.containers";
    for (spec, wanted) in [
        // No further than the first unknown field of one map.
        (json!({"bar": 1, "foo": 2}), ".spec.bar: field not declared in schema".to_owned()),
        (
            json!({"replicas": "1", "selector": {"x": 1}}),
            "errors:\n  .spec.replicas: expected numeric (int or float), got string\n  .spec.selector.x: field not \
             declared in schema"
                .to_owned(),
        ),
        (json!({"template": 5}), ".spec.template: expected map, got &{5}".to_owned()),
        (containers(json!({})), format!("{at}: expected list, got &{{map[]}}")),
        (containers(json!([{"name": "a"}, {"name": "a"}])), format!("{at}: duplicate entries for key [name=\"a\"]")),
        (
            containers(json!([{"image": "b"}])),
            format!(
                "{at}: element 0: associative list with keys has an element that omits key field \"name\" (and doesn't \
                 have default value)"
            ),
        ),
        (
            containers(json!([null])),
            format!("{at}: element 0: associative list with keys may not have a null element"),
        ),
        (
            containers(json!(["a"])),
            format!("{at}: element 0: associative list with keys may not have non-map elements"),
        ),
        (
            containers(json!([{"name": "a", "resources": {"limits": {"cpu": []}}}])),
            format!("{at}[name=\"a\"].resources.limits.cpu: expected any scalar, got &{{[]}}"),
        ),
        (
            containers(json!([{"name": "a", "image": 1, "stdin": "x"}])),
            format!(
                "errors:\n  {at}[name=\"a\"].image: expected string, got &value.valueUnstructured{{Value:1}}\n  \
                 {at}[name=\"a\"].stdin: expected boolean, got &{{x}}"
            ),
        ),
    ] {
        let error = fixture.apply("me", None, &config(spec)).unwrap_err().to_string();
        let head = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): ";
        assert_eq!(error, format!("{head}{wanted}"));
    }
    let mut finalizers = config(json!({}));
    for (item, wanted) in [
        (json!({}), "associative list without keys has an element that's a map type"),
        (json!([]), "not supported: associative list with lists as elements"),
        (json!(null), "associative list without keys has an element that's an explicit null"),
    ] {
        finalizers["metadata"]["finalizers"] = json!([item]);
        let error = fixture.apply("me", None, &finalizers).unwrap_err().to_string();
        assert!(error.ends_with(&format!(".metadata.finalizers: element 0: {wanted}")), "{error}");
    }
    // Times are any scalar to ownership.
    let mut created = config(json!({}));
    created["metadata"]["creationTimestamp"] = json!(5);
    assert!(fixture.apply("me", None, &created).is_ok());
}

/// Two versions of one object, the second of which calls `replicas` otherwise.
struct Renamed;

impl Versions for Renamed {
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        let (here, there) = match (from, to) {
            ("apps/v1", "apps/v2") => ("replicas", "minReadySeconds"),
            ("apps/v2", "apps/v1") => ("minReadySeconds", "replicas"),
            _ => return None,
        };
        let mut object = object.clone();
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(here)) {
            object["spec"][there] = value;
        }
        Some(object)
    }

    fn schema(&self, _: &str) -> Option<TypeRef<'_>> {
        Some(deployment_type())
    }
}

#[test]
fn owners_keep_to_their_versions() {
    let fixture = Fixture::deployments();
    let request =
        |manager, api_version| Request { api_version, versions: &Renamed, ..fixture.request(manager) };
    let made = apply(&request("a", "apps/v1"), None, &config(json!({"replicas": 1})), false).unwrap();
    let as_v2 = Renamed.convert(&made, "apps/v1", "apps/v2").unwrap();
    let conflict =
        apply(&request("b", "apps/v2"), Some(&as_v2), &config(json!({"minReadySeconds": 2})), false);
    assert!(conflict.unwrap_err().to_string().ends_with("conflict with \"a\": .spec.replicas"));
    // Who goes on in the other version takes along what it owned, and what it drops there is gone.
    let moved =
        apply(&request("a", "apps/v2"), Some(&as_v2), &config(json!({"paused": true})), false).unwrap();
    assert_eq!(moved["spec"], json!({"paused": true}));
    assert_eq!(moved["metadata"]["managedFields"][0]["apiVersion"], "apps/v2");
    // Versions that nobody serves are forgotten.
    let mut old = made.clone();
    old["metadata"]["managedFields"][0]["apiVersion"] = "apps/v0".into();
    old["metadata"]["managedFields"][0]["manager"] = "gone".into();
    let next = apply(&request("b", "apps/v1"), Some(&old), &config(json!({"replicas": 5})), false).unwrap();
    assert_eq!(next["metadata"]["managedFields"].as_array().unwrap().len(), 1);
}
