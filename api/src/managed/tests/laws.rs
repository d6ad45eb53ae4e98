//! Laws of sets, comparison and apply, over random values.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Map;

/// FieldsV1 of any shape.
fn any_fields() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        "[a-c]".prop_map(|n| format!("f:{n}")),
        (0..3u8).prop_map(|n| format!("k:{{\"name\":{n}}}")),
        "[a-c]".prop_map(|v| format!("v:\"{v}\"")),
        (0..3u8).prop_map(|n| format!("i:{n}")),
        Just("f:metadata".to_owned()),
    ];
    let leaf = Just(Value::Object(Map::new()));
    leaf.prop_recursive(4, 40, 4, move |inner| {
        (btree_map(key.clone(), inner, 1..4), any::<bool>()).prop_map(|(children, member)| {
            let mut map: Map<String, Value> = children.into_iter().collect();
            if member {
                map.insert(".".to_owned(), json!({}));
            }
            Value::Object(map)
        })
    })
}

/// FieldsV1 as a root writes them: without a `.` of its own.
fn root_fields() -> impl Strategy<Value = Value> {
    any_fields().prop_map(|mut value| {
        value.as_object_mut().unwrap().remove(".");
        value
    })
}

fn any_pod() -> impl Strategy<Value = Value> {
    let env = vec(("[a-c]", "[xy]"), 0..4);
    let container = ("[a-c]", "[xy]", env, vec((1..4u16, prop_oneof![Just(None), Just(Some("UDP"))]), 0..3));
    let labels = btree_map("[a-c]", "[xy]", 0..3);
    (vec(container, 0..3), labels, proptest::option::of("[xy]")).prop_map(|(containers, labels, node)| {
        let mut names = std::collections::BTreeSet::new();
        let mut spec = json!({});
        let list: Vec<Value> = containers
            .into_iter()
            .filter(|(name, ..)| names.insert(name.clone()))
            .map(|(name, image, env, ports)| {
                let mut seen = std::collections::BTreeSet::new();
                let env: Vec<Value> = env
                    .into_iter()
                    .filter(|(n, _)| seen.insert(n.clone()))
                    .map(|(n, v)| json!({"name": n, "value": v}))
                    .collect();
                let mut seen = std::collections::BTreeSet::new();
                let ports: Vec<Value> = ports
                    .into_iter()
                    .filter(|port| seen.insert(*port))
                    .map(|(n, p)| {
                        p.map_or_else(
                            || json!({"containerPort": n}),
                            |p| json!({"containerPort": n, "protocol": p}),
                        )
                    })
                    .collect();
                let mut c = json!({"name": name, "image": image});
                if !env.is_empty() {
                    c["env"] = env.into();
                }
                if !ports.is_empty() {
                    c["ports"] = ports.into();
                }
                c
            })
            .collect();
        if !list.is_empty() {
            spec["containers"] = list.into();
        }
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        let mut object = pod(spec);
        if !labels.is_empty() {
            object["metadata"]["labels"] = json!(labels);
        }
        object
    })
}

/// Without what stands for nothing.
fn bare(mut value: Value) -> Value {
    fn clean(value: &mut Value) -> bool {
        match value {
            Value::Object(map) => {
                map.retain(|_, v| clean(v));
                !map.is_empty()
            }
            Value::Array(list) => {
                list.retain_mut(clean);
                !list.is_empty()
            }
            other => !other.is_null(),
        }
    }
    clean(&mut value);
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value
}

proptest! {
    #[test]
    fn fields_survive_the_round_trip(fields in root_fields()) {
        let written = write_fields(&parse_fields(&fields).unwrap());
        prop_assert_eq!(&written, &fields);
    }

    #[test]
    fn sets_obey_their_laws(a in root_fields(), b in root_fields(), c in root_fields()) {
        let set = |v: &Value| parse_fields(v).unwrap().into_owned();
        let (a, b, c) = (set(&a), set(&b), set(&c));
        prop_assert_eq!(a.clone().union(b.clone()), b.clone().union(a.clone()));
        prop_assert_eq!(a.clone().union(b.clone()).union(c.clone()), a.clone().union(b.clone().union(c.clone())));
        prop_assert_eq!(a.clone().union(a.clone()), a.clone());
        prop_assert!(a.clone().difference(&a).is_empty());
        prop_assert_eq!(a.clone().difference(&b).union(a.intersection(&b)), a.clone());
        prop_assert!(a.clone().difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.clone().union(b.clone()).difference(&c), a.clone().difference(&c).union(b.clone().difference(&c)));
        let without = a.clone().recursive_difference(&b);
        prop_assert_eq!(without.clone().union(a.clone()), a.clone());
        prop_assert!(without.intersection(&b).is_empty());
        let leaves = a.clone().leaves();
        prop_assert_eq!(leaves.clone().leaves(), leaves.clone());
        prop_assert_eq!(leaves.union(a.clone()), a);
    }

    #[test]
    fn a_set_has_what_it_lists(fields in root_fields()) {
        let set = parse_fields(&fields).unwrap();
        let mut count = 0;
        let mut all = true;
        set.for_each(&mut |path| {
            count += 1;
            let path: Vec<Element<'_>> = path.iter().map(|e| (*e).clone()).collect();
            all &= set.has(&path);
        });
        prop_assert!(all);
        prop_assert_eq!(count, set.len());
    }

    #[test]
    fn comparison_is_mirrored(a in any_pod(), b in any_pod()) {
        let ty = pod_type();
        let (there, back) = (compare(&a, &b, ty), compare(&b, &a, ty));
        prop_assert_eq!(fields(&there.added), fields(&back.removed));
        prop_assert_eq!(fields(&there.removed), fields(&back.added));
        prop_assert_eq!(fields(&there.modified), fields(&back.modified));
        prop_assert!(compare(&a, &a, ty).is_empty());
    }

    #[test]
    fn applying_twice_is_applying_once(live in any_pod(), config in any_pod()) {
        let fixture = Fixture::pods();
        let made = fixture.write("live", None, live);
        let once = fixture.force("me", Some(&made), &config);
        let again = Fixture::pods().at("2027-01-01T00:00:00Z").force("me", Some(&once), &config);
        prop_assert_eq!(&again, &once);
        // What was applied is there, and belongs to who applied it.
        prop_assert!(compare(&config, &once, pod_type()).modified.is_empty());
        let own = parse_fields(owned(&once, "me")).unwrap();
        let all = to_set(&config, pod_type());
        prop_assert!(own.clone().difference(&all).is_empty());
    }

    #[test]
    fn applying_and_taking_back_leaves_the_rest(live in any_pod(), config in any_pod()) {
        let fixture = Fixture::pods();
        let made = fixture.write("live", None, live);
        let Ok(applied) = fixture.apply("me", Some(&made), &config) else { return Ok(()) };
        let nothing = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let back = fixture.apply("me", Some(&applied), &nothing).unwrap();
        let (mut got, mut want) = (bare(back), bare(made));
        for object in [&mut got, &mut want] {
            // An apply may have changed the order of lists.
            if let Some(list) = object["spec"]["containers"].as_array_mut() {
                list.sort_by_key(|c| c["name"].to_string());
                for container in list {
                    for field in ["env", "ports"] {
                        if let Some(list) = container[field].as_array_mut() {
                            list.sort_by_key(ToString::to_string);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(bare(got), bare(want));
    }
}
