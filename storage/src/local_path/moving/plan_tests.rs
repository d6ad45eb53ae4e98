use super::*;
use crate::local_path::mail;
use serde_json::{Value, json};

fn node(name: &str, annotations: Value) -> Node {
    let labels = json!({ "kubernetes.io/hostname": format!("{name}.example") });
    serde_json::from_value(
        json!({ "metadata": { "name": name, "labels": labels, "annotations": annotations } }),
    )
    .unwrap()
}

fn claim(name: &str, more: Value) -> PersistentVolumeClaim {
    let mut spec = json!({ "volumeName": "pvc-u", "storageClassName": "local-path" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let meta = json!({ "name": name, "namespace": "x", "uid": if name == "data" { "u" } else { "other" } });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
}

fn pod(name: &str, node: &str, phase: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "phase": phase },
        "spec": { "nodeName": node, "containers": [],
            "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }] } }))
    .unwrap()
}

fn snapshot() -> Snapshot {
    let volume = json!({
        "metadata": { "name": "pvc-u", "resourceVersion": "7", "uid": "v", "labels": { "a": "b" },
            "annotations": { "pv.kubernetes.io/provisioned-by": "coracle.io/local-path", "keep": "this" },
            "finalizers": [FINALIZER, "kubernetes.io/pv-protection"] },
        "spec": { "capacity": { "storage": "1Gi" }, "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local-path",
            "hostPath": { "path": "/one/pvc-u_x_data", "type": "DirectoryOrCreate" },
            "claimRef": { "name": "data", "namespace": "x", "uid": "u" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions":
                [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["one.example"] }] }] } } },
        "status": { "phase": "Bound" } });
    let class = json!({ "metadata": { "name": "local-path" }, "provisioner": "coracle.io/local-path" });
    Snapshot {
        volume: serde_json::from_value(volume).unwrap(),
        claim: Some(claim("data", json!({}))),
        class: Some(serde_json::from_value(class).unwrap()),
        nodes: vec![
            node("one", json!({ "coracle.io/local-path-root": "/one" })),
            node(
                "two",
                json!({ "coracle.io/local-path-root": "/two", "coracle.io/local-path-quotas": "true" }),
            ),
            node("three", json!({})),
        ],
        pods: Vec::new(),
        claims: vec![claim("data", json!({}))],
    }
}

fn home(node: &Node) -> Option<Home> {
    Home::told(node, mail::root(node)?)
}

fn way(snapshot: &Snapshot, node: &str, place: &str) -> Result<Route, String> {
    route(snapshot, &Spot { node: node.to_owned(), place: place.to_owned() }, home)
}

#[test]
fn a_volume_is_the_same_in_its_new_place() {
    let snapshot = snapshot();
    let route = way(&snapshot, "two", "").unwrap();
    assert_eq!(route.from, Remains { node: "one".into(), directory: "pvc-u_x_data".into() });
    assert_eq!(route.target(), Remains { node: "two".into(), directory: "pvc-u_x_data".into() });
    assert_eq!(route.wanted.quota, Some(1 << 30), "two has quotas");
    let arrived = route.arrived(&snapshot.volume);
    assert_eq!(plan::home(&arrived), Some("two.example"));
    assert_eq!(facts::size_limit(&arrived), Some(SizeLimit::Quota));
    let (meta, spec) = (&arrived.metadata, arrived.spec.as_ref().unwrap());
    assert_eq!(spec.host_path.as_ref().unwrap().path, "/two/pvc-u_x_data");
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    assert!(meta.uid.is_none() && meta.resource_version.is_none() && meta.labels.is_some());
    assert_eq!(facts::annotation(&arrived, "keep"), Some("this"));
    assert!(facts::is_bound_to(&arrived, snapshot.claim.as_ref().unwrap()));

    let route = way(&snapshot, "one", "big").unwrap();
    assert_eq!(route.target(), Remains { node: "one".into(), directory: "@big/pvc-u_x_data".into() });
    let arrived = route.arrived(&snapshot.volume).spec.unwrap().host_path.unwrap();
    assert_eq!(arrived.path, "/one/@big/pvc-u_x_data");
    assert_eq!(
        arrived.type_.as_deref(),
        Some("Directory"),
        "a disk that is not mounted is not an empty volume"
    );
}

#[test]
fn a_node_with_the_hostname_of_another_gets_nothing_of_it() {
    let mut snapshot = snapshot();
    let mut mimic = snapshot.nodes[0].clone();
    mimic.metadata.name = Some("zero".to_owned());
    snapshot.nodes.insert(0, mimic);
    let gone = "the node one.example that the volume lies on is gone";
    assert_eq!(way(&snapshot, "two", "").unwrap_err(), gone, "nobody can tell which");
    // The node that is named so is the one.
    snapshot.nodes[1].metadata.name = Some("one.example".to_owned());
    assert_eq!(way(&snapshot, "two", "").unwrap().from.node, "one.example");
    let refused = way(&snapshot, "zero", "").unwrap_err();
    assert!(refused.starts_with("node zero has the hostname of node one.example"), "{refused}");
}

#[test]
fn what_cannot_be_moved_is_refused_with_its_reason() {
    let because = |change: &dyn Fn(&mut Snapshot), node: &str, place: &str| {
        let mut snapshot = snapshot();
        change(&mut snapshot);
        way(&snapshot, node, place).unwrap_err()
    };
    let none: &dyn Fn(&mut Snapshot) = &|_| {};
    let cases = [
        (because(none, "one", ""), "lies there already"),
        (because(none, "four", ""), "there is no node four"),
        (because(none, "three", ""), "node three keeps no local-path volumes"),
        (because(none, "two", "../x"), "no name of a place"),
        (because(&|s| s.volume.metadata.annotations = None, "two", ""), "is not of local-path"),
        (because(&|s| s.claim = None, "two", ""), "has no claim any more"),
        (
            because(&|s| drop(s.nodes.remove(0)), "two", ""),
            "the node one.example that the volume lies on is gone",
        ),
        (because(&|s| s.volume.finalizers_mut().push("x/y".into()), "two", ""), "is held by x/y"),
        (
            because(
                &|s| s.volume.spec.as_mut().unwrap().host_path.as_mut().unwrap().path = "/etc".into(),
                "two",
                "",
            ),
            "lies outside",
        ),
        (
            because(
                &|s| {
                    s.class.as_mut().unwrap().parameters =
                        Some([("sizeLimit".into(), "quota".into())].into());
                    s.nodes[1].metadata.annotations.as_mut().unwrap().remove("coracle.io/local-path-quotas");
                },
                "two",
                "",
            ),
            "no project quotas",
        ),
    ];
    for (said, words) in cases {
        assert!(said.contains(words), "{said} / {words}");
    }
}

#[test]
fn whoever_needs_the_volume_keeps_it_where_it_is() {
    let with = |pods: Vec<Pod>, more: Option<PersistentVolumeClaim>| {
        let mut snapshot = Snapshot { pods, ..snapshot() };
        snapshot.claims.extend(more);
        in_use(&snapshot)
    };
    assert_eq!(
        with(vec![pod("a", "", "Pending"), pod("b", "one", "Succeeded"), pod("c", "one", "Failed")], None),
        Ok(())
    );
    let used = with(vec![pod("a", "one", "Running"), pod("b", "two", "Pending")], None).unwrap_err();
    assert_eq!(used, "the claim is used by the pods a, b: stop them first");
    let of = json!({ "volumeName": null, "dataSource": { "kind": "PersistentVolumeClaim", "name": "data" } });
    let copied = with(Vec::new(), Some(claim("copy", of))).unwrap_err();
    assert_eq!(copied, "the claim copy is about to be made of it");
}
