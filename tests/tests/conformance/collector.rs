//! The garbage collector where objects have two owners, where owners are owned, and where they are custom.

use crate::{Suite, eventually};
use coracle_tests::custom::{self, definition, install, version};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

#[test]
fn owners_and_what_they_own() {
    let mut suite = Suite::start();
    suite.check_in("two-owners", two_owners);
    suite.check_in("deployment-background", |rest, ns| deployment(rest, ns, "Background"));
    suite.check_in("deployment-orphan", |rest, ns| deployment(rest, ns, "Orphan"));
    suite.check_in("custom-owners", custom_owners);
    suite.end();
}

fn controller(name: &str, replicas: u32) -> Value {
    let labels = json!({"owner": name});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": labels, "template": template}})
}

fn delete(rest: &Rest, path: &str, policy: &str) {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    rest.call("DELETE", path, &[], &options.to_string()).ok();
}

fn names(rest: &Rest, path: &str) -> Vec<String> {
    let list = rest.get(path);
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

/// What another, living owner has stays, while the first waits for the rest to go.
fn two_owners(rest: &Rest, ns: &str) {
    let base = format!("/api/v1/namespaces/{ns}");
    let controllers = format!("{base}/replicationcontrollers");
    rest.create(&controllers, &controller("going", 6));
    let stays = rest.create(&controllers, &controller("staying", 0));
    let pods = format!("{base}/pods?labelSelector=owner=going");
    let all = eventually("six pods", || Some(names(rest, &pods)).filter(|found| found.len() == 6));
    let owner = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "staying", "uid": stays["metadata"]["uid"]});
    for name in &all[..3] {
        let one = format!("{base}/pods/{name}");
        let mut owners = rest.get(&one)["metadata"]["ownerReferences"].clone();
        owners.as_array_mut().expect("owners").push(owner.clone());
        rest.merge(&one, &json!({"metadata": {"ownerReferences": owners}}));
    }
    delete(rest, &format!("{controllers}/going"), "Foreground");
    eventually("the owner's end", || {
        (rest.call("GET", &format!("{controllers}/going"), &[], "").code == 404).then_some(())
    });
    let mut left = names(rest, &pods);
    left.sort();
    let mut expected = all[..3].to_vec();
    expected.sort();
    assert_eq!(left, expected);
    for pod in rest.get(&pods)["items"].as_array().expect("items") {
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
        assert_eq!(pod["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1), "{pod}");
    }
}

fn deployment(rest: &Rest, ns: &str, policy: &str) {
    let path = format!("/apis/apps/v1/namespaces/{ns}/deployments");
    let mut object = controller("d", 2);
    object["spec"]["selector"] = json!({"matchLabels": {"owner": "d"}});
    rest.create(&path, &object);
    let sets = format!("/apis/apps/v1/namespaces/{ns}/replicasets");
    let pods = format!("/api/v1/namespaces/{ns}/pods");
    eventually("a set and its pods", || {
        (names(rest, &sets).len() == 1 && names(rest, &pods).len() == 2).then_some(())
    });
    delete(rest, &format!("{path}/d"), policy);
    eventually("the owner's end", || (names(rest, &path).is_empty()).then_some(()));
    if policy == "Orphan" {
        let set = rest.get(&sets)["items"][0].clone();
        assert!(
            set["metadata"]["ownerReferences"].is_null() && set["metadata"]["deletionTimestamp"].is_null(),
            "{set}"
        );
        assert_eq!(names(rest, &pods).len(), 2);
    } else {
        eventually("the end of all", || {
            (names(rest, &sets).is_empty() && names(rest, &pods).is_empty()).then_some(())
        });
    }
}

/// Custom objects own built-in ones and each other; definitions that come later are collected, too.
fn custom_owners(rest: &Rest, ns: &str) {
    let made = install(
        rest,
        &definition("owners.example.com", "owners", "Owner", &[version("v1", custom::anything())]),
    );
    let path = custom::path(&made, "v1", ns);
    let object = |name: &str, owners: Value| json!({"apiVersion": "owners.example.com/v1", "kind": "Owner", "metadata": {"name": name, "ownerReferences": owners}});
    let top = rest.create(&path, &object("top", json!([])));
    let reference = |owner: &Value| json!([{"apiVersion": "owners.example.com/v1", "kind": "Owner", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    let middle = rest.create(&path, &object("middle", reference(&top)));
    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    rest.create(&maps, &json!({"metadata": {"name": "bottom", "ownerReferences": reference(&middle)}}));
    delete(rest, &format!("{path}/top"), "Foreground");
    eventually("the end of all three", || {
        let gone = |path: String| rest.call("GET", &path, &[], "").code == 404;
        (gone(format!("{path}/top")) && gone(format!("{path}/middle")) && gone(format!("{maps}/bottom")))
            .then_some(())
    });
    // An owner that never was.
    let nobody = json!([{"apiVersion": "owners.example.com/v1", "kind": "Owner", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000"}]);
    rest.create(&maps, &json!({"metadata": {"name": "lost", "ownerReferences": nobody}}));
    eventually("the end of what nobody owns", || {
        (rest.call("GET", &format!("{maps}/lost"), &[], "").code == 404).then_some(())
    });
}
