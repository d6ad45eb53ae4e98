use super::*;
use crate::schema::root;
use proptest::prelude::*;

fn patched(patch_type: PatchType, object: Value, patch: Value) -> Result<Value, PatchError> {
    let ty = root("apps", "v1", "Deployment").unwrap();
    apply(patch_type, &object, patch.to_string().as_bytes(), ty).map(|(object, _)| object)
}

/// Of a pod's spec.
fn spec(original: Value, patch: Value) -> Value {
    let ty = crate::schema::by_name("io.k8s.api.core.v1.PodSpec").unwrap();
    strategic_merge(original, patch, ty).unwrap()
}

fn refused(original: Value, patch: Value) -> String {
    let ty = crate::schema::by_name("io.k8s.api.core.v1.PodSpec").unwrap();
    strategic_merge(original, patch, ty).unwrap_err().to_string()
}

#[test]
fn strategic_merge_cases() {
    let cases = [
        (
            "scalars",
            json!({ "a": 1, "hostname": "x" }),
            json!({ "hostname": "y" }),
            json!({ "a": 1, "hostname": "y" }),
        ),
        ("null removes", json!({ "hostname": "x" }), json!({ "hostname": null, "z": null }), json!({})),
        (
            "lists merge by key",
            json!({ "containers": [{ "name": "a", "image": "1" }, { "name": "b", "image": "2" }] }),
            json!({ "containers": [{ "name": "b", "image": "3" }, { "name": "c", "tty": null }] }),
            json!({ "containers": [{ "name": "a", "image": "1" }, { "name": "b", "image": "3" }, { "name": "c" }] }),
        ),
        (
            "an element is deleted",
            json!({ "containers": [{ "name": "a" }, { "name": "b" }] }),
            json!({ "containers": [{ "$patch": "delete", "name": "a" }] }),
            json!({ "containers": [{ "name": "b" }] }),
        ),
        (
            "a list is replaced",
            json!({ "containers": [{ "name": "a" }, { "name": "b" }] }),
            json!({ "containers": [{ "name": "c" }, { "$patch": "replace" }] }),
            json!({ "containers": [{ "name": "c" }] }),
        ),
        (
            "a map is replaced",
            json!({ "nodeSelector": { "a": "b" } }),
            json!({ "nodeSelector": { "$patch": "replace", "c": "d" } }),
            json!({ "nodeSelector": { "c": "d" } }),
        ),
        (
            "a map is deleted",
            json!({ "securityContext": { "runAsUser": 1 } }),
            json!({ "securityContext": { "$patch": "delete" } }),
            json!({ "securityContext": {} }),
        ),
        (
            "an explicit merge",
            json!({ "nodeSelector": { "a": "b" } }),
            json!({ "nodeSelector": { "$patch": "merge", "c": "d" } }),
            json!({ "nodeSelector": { "a": "b", "c": "d" } }),
        ),
        (
            "retained keys",
            json!({ "volumes": [{ "name": "v", "emptyDir": {} }] }),
            json!({ "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/" } }] }),
            json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] }),
        ),
        (
            "lists without a strategy are atomic",
            json!({ "tolerations": [{ "key": "a" }], "containers": [{ "name": "a", "args": ["1"] }] }),
            json!({ "tolerations": [{ "key": "b" }], "containers": [{ "name": "a", "args": ["2"] }] }),
            json!({ "tolerations": [{ "key": "b" }], "containers": [{ "name": "a", "args": ["2"] }] }),
        ),
        (
            "nested lists merge, new elements first as nothing orders them otherwise",
            json!({ "containers": [{ "name": "a", "env": [{ "name": "X", "value": "1" }] }] }),
            json!({ "containers": [{ "name": "a", "env": [{ "name": "Y", "value": "2" }] }] }),
            json!({ "containers": [{ "name": "a", "env": [{ "name": "Y", "value": "2" }, { "name": "X", "value": "1" }] }] }),
        ),
        (
            "the order of elements",
            json!({ "containers": [{ "name": "a" }, { "name": "s" }, { "name": "b" }] }),
            json!({ "$setElementOrder/containers": [{ "name": "b" }, { "name": "n" }, { "name": "a" }],
                "containers": [{ "name": "n" }] }),
            json!({ "containers": [{ "name": "s" }, { "name": "b" }, { "name": "n" }, { "name": "a" }] }),
        ),
        (
            "others keep their place",
            json!({ "containers": [{ "name": "a" }, { "name": "s" }, { "name": "b" }] }),
            json!({ "$setElementOrder/containers": [{ "name": "a" }, { "name": "b" }] }),
            json!({ "containers": [{ "name": "a" }, { "name": "s" }, { "name": "b" }] }),
        ),
        (
            "directives on what is not there",
            json!({}),
            json!({ "containers": [{ "name": "a", "env": [{ "name": "x" }, { "$patch": "delete", "name": "y" }],
                "$setElementOrder/env": [{ "name": "x" }] }] }),
            json!({ "containers": [{ "name": "a", "env": [{ "name": "x" }] }] }),
        ),
    ];
    for (name, original, patch, expected) in cases {
        assert_eq!(spec(original, patch), expected, "{name}");
    }
}

#[test]
fn lists_of_scalars() {
    let ty = root("", "v1", "Pod").unwrap();
    let pod = |list: &[&str]| json!({ "metadata": { "finalizers": list } });
    let merge =
        |patch: Value| strategic_merge(pod(&["a", "b", "c"]), json!({ "metadata": patch }), ty).unwrap();
    assert_eq!(merge(json!({ "finalizers": ["b", "d"] })), pod(&["a", "b", "d", "c"]));
    assert_eq!(merge(json!({ "$deleteFromPrimitiveList/finalizers": ["a", "x"] })), pod(&["b", "c"]));
    assert_eq!(
        merge(json!({ "finalizers": ["d"], "$deleteFromPrimitiveList/finalizers": ["b"],
            "$setElementOrder/finalizers": ["d", "c", "a"] })),
        pod(&["d", "c", "a"])
    );
    assert_eq!(merge(json!({ "finalizers": null })), json!({ "metadata": {} }));
}

#[test]
fn a_deployments_strategy_retains_keys() {
    let original =
        json!({ "spec": { "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1 } } } });
    let patch = json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } });
    let result = patched(PatchType::StrategicMerge, original, patch).unwrap();
    assert_eq!(result, json!({ "spec": { "strategy": { "type": "Recreate" } } }));
}

#[test]
fn strategic_merge_refuses() {
    let one = json!({ "containers": [{ "name": "a" }] });
    for (patch, words) in [
        (json!({ "containers": [{ "image": "x" }] }), "does not contain declared merge key: name"),
        (json!({ "containers": [{ "$patch": "x", "name": "a" }] }), "unknown patch type: x in map"),
        (json!({ "containers": [{ "$patch": "delete" }] }), "does not contain declared merge key: name"),
        (json!({ "containers": [{ "$patch": "merge" }] }), "merging lists cannot yet be specified"),
        (json!({ "$patch": 1 }), "unknown patch type: 1"),
        (json!({ "$setElementOrder/containers": 1 }), "it must be a list"),
        (
            json!({ "$setElementOrder/containers": [{ "name": "x" }], "containers": [{ "name": "a" }] }),
            "doesn't match $setElementOrder list",
        ),
        (json!({ "$retainKeys": ["hostname"], "subdomain": "x" }), "invalid patch format of retainKeys"),
    ] {
        let error = refused(one.clone(), patch);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn json_patch() {
    let object = json!({ "spec": { "replicas": 1, "list": [1, 2] } });
    let patch = json!([
        { "op": "test", "path": "/spec/replicas", "value": 1 },
        { "op": "replace", "path": "/spec/replicas", "value": 2 },
        { "op": "add", "path": "/spec/list/-", "value": 3 },
        { "op": "remove", "path": "/spec/list/0" },
        { "op": "copy", "from": "/spec/list", "path": "/a" },
        { "op": "move", "from": "/spec/list", "path": "/b" },
    ]);
    let result = patched(PatchType::Json, object.clone(), patch).unwrap();
    assert_eq!(result, json!({ "spec": { "replicas": 2 }, "a": [2, 3], "b": [2, 3] }));
    for patch in [
        json!([{ "op": "test", "path": "/spec/replicas", "value": 2 }]),
        json!([{ "op": "remove", "path": "/x" }]),
        json!([{ "op": "replace", "path": "/x/y", "value": 1 }]),
        json!([{ "op": "add", "path": "/x/y", "value": 1 }]),
        json!([{ "op": "x", "path": "/a" }]),
        json!([{ "op": "add" }]),
    ] {
        let error = ApiError::from(patched(PatchType::Json, object.clone(), patch).unwrap_err());
        assert_eq!((error.code, error.reason), (422, "Invalid"));
        assert_eq!(error.message, "the server rejected our request due to an error in our request");
    }
    for patch in [json!({}), json!([1]), json!([{ "op": "add", "path": 1 }])] {
        let error = ApiError::from(patched(PatchType::Json, object.clone(), patch).unwrap_err());
        assert_eq!(error.code, 400);
    }
}

#[test]
fn json_patch_is_limited() {
    let many = vec![json!({ "op": "add", "path": "/a", "value": 1 }); 10_001];
    let error = patched(PatchType::Json, json!({}), many.into()).unwrap_err();
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
    assert_eq!(ApiError::from(error).code, 413);
    let bomb: Vec<Value> =
        (0..40).map(|i| json!({ "op": "copy", "from": "/a", "path": format!("/a/{i}") })).collect();
    let error = patched(PatchType::Json, json!({ "a": { "x": "y".repeat(1000) } }), bomb.into()).unwrap_err();
    assert!(matches!(error, PatchError::TooLarge { .. }), "{error}");
}

#[test]
fn what_is_no_patch() {
    for (patch_type, code) in
        [(PatchType::Merge, 400), (PatchType::StrategicMerge, 400), (PatchType::Apply, 415)]
    {
        let patch = if code == 415 { json!({}) } else { json!([]) };
        assert_eq!(ApiError::from(patched(patch_type, json!({}), patch).unwrap_err()).code, code);
    }
    let ty = root("", "v1", "Pod").unwrap();
    let error = apply(PatchType::Merge, &json!({}), b"{", ty).unwrap_err();
    assert_eq!(error.to_string(), "error decoding patch: unexpected end of JSON input");
    let (_, problems) = apply(PatchType::Merge, &json!({}), br#"{"a":1,"a":2}"#, ty).unwrap();
    assert_eq!(problems, ["duplicate field \"a\""]);
    for patch_type in [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge, PatchType::Apply] {
        assert_eq!(PatchType::from_media_type(patch_type.media_type()), Some(patch_type));
    }
}

fn container() -> impl Strategy<Value = Value> {
    ("[abc]", prop::option::of("[xyz]"), prop::option::of(prop::collection::vec("[pq]", 0..3)))
        .prop_map(|(name, image, args)| json!({ "name": name, "image": image, "args": args }))
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let containers = prop::collection::vec(container(), 0..4).prop_map(|mut list| {
        list.sort_by_key(|c| c["name"].to_string());
        list.dedup_by_key(|c| c["name"].to_string());
        list
    });
    let selector = prop::option::of(prop::collection::btree_map("[ab]", prop::option::of("[xy]"), 0..3));
    (containers, selector).prop_map(|(c, s)| json!({ "containers": c, "nodeSelector": s }))
}

proptest! {
    #[test]
    fn merging_twice_is_merging_once(original in pod_spec(), patch in pod_spec()) {
        let once = merge(original, &patch);
        prop_assert_eq!(merge(once.clone(), &patch), once);
    }

    #[test]
    fn strategic_merging_twice_is_merging_once(original in pod_spec(), patch in pod_spec()) {
        let once = spec(without_nulls(original), patch.clone());
        prop_assert_eq!(spec(once.clone(), patch), once);
    }

    #[test]
    fn any_patch_applies_or_fails(
        original in pod_spec(), patch in pod_spec(), directive in "delete|replace|merge|x", keyed: bool,
    ) {
        let mut patch = patch;
        let extra = if keyed { json!({ "$patch": directive, "name": "a" }) } else { json!({ "$patch": directive }) };
        patch["containers"].as_array_mut().unwrap().push(extra);
        let ty = crate::schema::by_name("io.k8s.api.core.v1.PodSpec").unwrap();
        if let Ok(result) = strategic_merge(original, patch, ty) {
            prop_assert!(!result["containers"].to_string().contains("$patch"));
        }
    }
}

fn without_nulls(value: Value) -> Value {
    merge(json!({}), &value)
}

#[test]
fn json_patches_cannot_nest_without_end() {
    let operations: Vec<_> = (0..130).map(|_| json!({"op": "copy", "from": "", "path": "/x"})).collect();
    let text = serde_json::to_vec(&operations).unwrap();
    let ty = crate::schema::root("", "v1", "ConfigMap").unwrap();
    let error = apply(PatchType::Json, &json!({"a": {}}), &text, ty).unwrap_err();
    assert_eq!(error, PatchError::Inapplicable("exceeded max depth".into()));
}

#[test]
fn json_patches_are_judged_operation_by_operation() {
    let ty = crate::schema::root("", "v1", "ConfigMap").unwrap();
    let patch = |text: &str| apply(PatchType::Json, &json!({"a": 1}), text.as_bytes(), ty);
    let (object, problems) =
        patch(r#"[{"op": "add", "path": "/b", "value": 2, "foo": 1, "op": "add"}, {"op": "test", "path": "/c", "value": null}]"#)
            .unwrap();
    assert_eq!(object, json!({"a": 1, "b": 2}));
    assert_eq!(problems, ["json patch duplicate field \"[0].op\"", "json patch unknown field \"[0].foo\""]);
    assert!(matches!(patch(r#"[{"op": "guess", "path": "/b"}]"#), Err(PatchError::Inapplicable(_))));
    assert!(matches!(patch(r#"[{"op": 1, "path": "/b"}]"#), Err(PatchError::Malformed(_))));
    assert!(matches!(patch(r#"{"op": "add"}"#), Err(PatchError::Malformed(_))));
    assert!(matches!(patch("[1]"), Err(PatchError::Malformed(_))));
}
