//! Owners after creates and updates.

use super::*;

const LATER: &str = "2026-01-02T00:00:00Z";

#[test]
fn a_created_object_belongs_to_its_creator() {
    let new = deployment(json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}));
    let mut new = new;
    new["metadata"]["labels"] = json!({"app": "web"});
    new["metadata"]["uid"] = "u".into();
    new["status"] = json!({"replicas": 1});
    let made = Fixture::deployments().write("kubectl-create", None, new);
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(
        *entry,
        json!({"manager": "kubectl-create", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:replicas": {}, "f:selector": {},
                    "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                    "f:template": {
                        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                                ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                            "f:resources": {}}}}}}}}),
    );
}

#[test]
fn changed_fields_go_to_who_changed_them() {
    let fixture = Fixture::deployments();
    let made = fixture.write("a", None, deployment(json!({"replicas": 1, "paused": true})));
    let mut next = made.clone();
    next["spec"]["replicas"] = 2.into();
    let next = Fixture::deployments().at(LATER).write("b", Some(&made), next);
    assert_eq!(*owned(&next, "a"), json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(*owned(&next, "b"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(next["metadata"]["managedFields"][1]["time"], LATER);
    // The same values once more change nothing, not even times.
    let same = Fixture::deployments().at("2027-01-01T00:00:00Z").write("c", Some(&next), next.clone());
    assert_eq!(same, next);
    // Removed fields belong to nobody.
    let mut gone = next.clone();
    gone["spec"].as_object_mut().unwrap().remove("paused");
    let gone = fixture.write("c", Some(&next), gone);
    assert_eq!(gone["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(*owned(&gone, "b"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn items_of_lists_are_compared_by_their_keys() {
    let fixture = Fixture::pods();
    let made = fixture.write(
        "a",
        None,
        pod(json!({"containers": [{"name": "x", "image": "1"}, {"name": "y", "image": "1"}]})),
    );
    let swapped = pod(json!({"containers": [{"name": "y", "image": "1"}, {"name": "x", "image": "2"}]}));
    let mut next = swapped;
    next["metadata"] = made["metadata"].clone();
    let next = fixture.write("b", Some(&made), next);
    assert_eq!(
        *owned(&next, "b"),
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"x\"}": {"f:image": {}}}}})
    );
}

#[test]
fn duplicates_do_not_break_updates() {
    let fixture = Fixture::pods();
    let env = |list: Value| pod(json!({"containers": [{"name": "c", "env": list}]}));
    let one = json!({"name": "a", "value": "1"});
    let two = json!({"name": "a", "value": "2"});
    let made = fixture.write("a", None, env(json!([one, two])));
    let at = |object: &Value, who: &str| {
        owned(object, who)["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:env"]["k:{\"name\":\"a\"}"]
            .clone()
    };
    assert_eq!(at(&made, "a"), json!({}));
    let with_meta = |mut new: Value, live: &Value| {
        new["metadata"] = live["metadata"].clone();
        new
    };
    let single = fixture.write("b", Some(&made), with_meta(env(json!([two])), &made));
    assert_eq!(at(&single, "b"), json!({".": {}, "f:name": {}, "f:value": {}}));
    let doubled = fixture.write("c", Some(&single), with_meta(env(json!([two, one])), &single));
    assert_eq!(at(&doubled, "c"), json!({}));
    assert_eq!(at(&doubled, "b"), Value::Null);
}

#[test]
fn owners_can_be_edited_and_forgotten() {
    let fixture = Fixture::deployments();
    let made = fixture.write("a", None, deployment(json!({"replicas": 1})));
    for reset in [json!([]), json!([{}])] {
        let mut next = made.clone();
        next["metadata"]["managedFields"] = reset;
        next["spec"]["replicas"] = 2.into();
        let next = fixture.write("b", Some(&made), next);
        assert_eq!(next["metadata"].get("managedFields"), None);
        // From then on nothing is followed.
        let mut more = next.clone();
        more["spec"]["replicas"] = 3.into();
        assert_eq!(fixture.write("b", Some(&next), more)["metadata"].get("managedFields"), None);
    }
    let mut without = made.clone();
    without["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(fixture.write("b", Some(&made), without), made);
    let mut bad = made.clone();
    bad["metadata"]["managedFields"][0]["operation"] = "Guess".into();
    assert_eq!(fixture.write("b", Some(&made), bad), made);
    let mut renamed = made.clone();
    renamed["metadata"]["managedFields"][0]["manager"] = "z".into();
    assert_eq!(*owned(&fixture.write("b", Some(&made), renamed), "z"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn a_reset_part_is_nobodys() {
    let main = Fixture::deployments();
    let made = main.write("a", None, deployment(json!({"replicas": 1})));
    let status =
        Fixture { subresource: "status", reset: Set::of_fields(&[&["spec"]]), ..Fixture::deployments() };
    let mut next = made.clone();
    next["status"] = json!({"replicas": 1, "conditions": [{"type": "Available", "status": "True"}]});
    next["spec"]["replicas"] = 5.into();
    let next = status.write("controller", Some(&made), next);
    let entry = next["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "controller")
        .unwrap();
    assert_eq!(entry["subresource"], "status");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {"f:replicas": {}, "f:conditions": {".": {}, "k:{\"type\":\"Available\"}": {
            ".": {}, "f:status": {}, "f:type": {}}}}})
    );
    assert_eq!(*owned(&next, "a"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn the_oldest_updaters_are_united() {
    let mut object = Fixture::deployments().write("creator", None, deployment(json!({"replicas": 1})));
    for day in 1..=14 {
        let mut next = object.clone();
        next["metadata"]["annotations"][format!("a{day}")] = "x".into();
        let fixture = Fixture::deployments().at(&format!("2026-02-{day:02}T00:00:00Z"));
        object = fixture.write(&format!("m{day}"), Some(&object), next);
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    let ancient = owned(&object, "ancient-changes");
    assert_eq!(ancient["f:spec"], json!({"f:replicas": {}}));
    assert_eq!(ancient["f:metadata"]["f:annotations"].as_object().unwrap().len(), 6, "{ancient}");
}

#[test]
fn noise_is_told_from_change() {
    let made = Fixture::deployments().write("a", None, deployment(json!({"replicas": 1})));
    let mut later = made.clone();
    later["metadata"]["managedFields"][0]["time"] = LATER.into();
    later["metadata"]["resourceVersion"] = "9".into();
    assert!(same_but_times(&later, &made) && same_but_times(&made, &later));
    later["spec"]["replicas"] = 2.into();
    assert!(!same_but_times(&later, &made));
    let mut owner = made.clone();
    owner["metadata"]["managedFields"][0]["manager"] = "b".into();
    assert!(!same_but_times(&owner, &made));
}

#[test]
fn replicas_are_followed_through_the_scale() {
    let versions = ["apps/v1".to_owned()];
    let made = Fixture::deployments().write("a", None, deployment(json!({"replicas": 1, "paused": true})));
    let list = &made["metadata"]["managedFields"];
    let replicas = ["spec", "replicas"];
    let in_scale = scale_from_parent(list, &replicas, &versions).unwrap();
    assert_eq!(in_scale[0]["apiVersion"], "autoscaling/v1");
    assert_eq!(in_scale[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    // Untouched it goes back as it came.
    assert_eq!(scale_to_parent(list, &in_scale, &replicas, &versions, "apps/v1").as_ref(), Some(list));
    let taken = json!([{"manager": "hpa", "operation": "Update", "apiVersion": "autoscaling/v1", "subresource": "scale",
        "fieldsType": "FieldsV1", "time": LATER, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    let back = scale_to_parent(list, &taken, &replicas, &versions, "apps/v1").unwrap();
    let back = json!({"metadata": {"managedFields": back}});
    assert_eq!(*owned(&back, "a"), json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(*owned(&back, "hpa"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(back["metadata"]["managedFields"][1]["apiVersion"], "apps/v1");
}
