//! Namespaces, events, and the garbage collector.

use crate::{Suite, eventually, make_namespace};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

#[test]
fn namespaces_events_and_garbage() {
    let mut suite = Suite::start();
    suite.check("namespace: patch, update, status", changed);
    suite.check("namespace: finalizer", finalized);
    suite.check("namespace: pods and services go with it, pods first", emptied);
    suite.check_in("core-events", |rest, ns| events(rest, &format!("/api/v1/namespaces/{ns}/events"), ns));
    suite.check_in("new-events", |rest, ns| {
        events(rest, &format!("/apis/events.k8s.io/v1/namespaces/{ns}/events"), ns)
    });
    suite.check_in("orphans", |rest, ns| garbage(rest, ns, "Orphan"));
    suite.check_in("background", |rest, ns| garbage(rest, ns, "Background"));
    suite.check_in("foreground", |rest, ns| garbage(rest, ns, "Foreground"));
    suite.check_in("circle", circle);
    suite.end();
}

fn changed(rest: &Rest) {
    make_namespace(rest, "changed");
    let one = "/api/v1/namespaces/changed";
    assert_eq!(rest.merge(one, &json!({"metadata": {"labels": {"a": "b"}}}))["metadata"]["labels"]["a"], "b");
    let mut found = rest.get(one);
    found["metadata"]["labels"]["c"] = json!("d");
    assert_eq!(rest.replace(one, &found)["metadata"]["labels"]["kubernetes.io/metadata.name"], "changed");
    let condition = json!({"type": "StatusPatch", "status": "True", "reason": "R", "message": "m"});
    let patched = rest.merge(&format!("{one}/status"), &json!({"status": {"conditions": [condition]}}));
    assert_eq!(patched["status"]["conditions"][0]["type"], "StatusPatch");
    assert_eq!(patched["status"]["phase"], "Active");
}

fn finalized(rest: &Rest) {
    make_namespace(rest, "finalized");
    let one = "/api/v1/namespaces/finalized";
    let mut found = rest.get(one);
    found["spec"]["finalizers"].as_array_mut().expect("finalizers").push(json!("example.com/fake"));
    let updated = rest.replace(&format!("{one}/finalize"), &found);
    assert_eq!(updated["spec"]["finalizers"].as_array().map(Vec::len), Some(2));
    rest.delete(one);
    eventually("a terminating namespace", || {
        (rest.get(one)["status"]["phase"] == "Terminating").then_some(())
    });
    let refused = rest.call("POST", &format!("{one}/configmaps"), &[], r#"{"metadata":{"name":"late"}}"#);
    let message = refused.refused(403, "Forbidden");
    assert!(message.contains("because it is being terminated"), "{message}");
    eventually("the last finalizer", || {
        let mut found = rest.get(one);
        found["spec"]["finalizers"] = json!([]);
        let reply = rest.call("PUT", &format!("{one}/finalize"), &[], &found.to_string());
        (reply.code == 200 && rest.call("GET", one, &[], "").code == 404).then_some(())
    });
}

fn emptied(rest: &Rest) {
    make_namespace(rest, "emptied");
    let one = "/api/v1/namespaces/emptied";
    let pod = json!({"metadata": {"name": "p", "finalizers": ["example.com/hold"]}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    rest.create(&format!("{one}/pods"), &pod);
    rest.create(
        &format!("{one}/services"),
        &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    );
    rest.create(&format!("{one}/configmaps"), &json!({"metadata": {"name": "c"}}));
    rest.delete(one);
    eventually("the pod's deletion", || {
        let pod = rest.get(&format!("{one}/pods/p"));
        pod["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    // The controller has looked at everything, and says what it waits for.
    eventually("the controller's first pass", || {
        let conditions = rest.get(one)["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let waits = |c: &Value| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True";
        conditions.iter().any(waits).then_some(())
    });
    assert_eq!(rest.call("GET", &format!("{one}/configmaps/c"), &[], "").code, 200, "pods go first");
    rest.merge(&format!("{one}/pods/p"), &json!({"metadata": {"finalizers": null}}));
    eventually("the end", || (rest.call("GET", one, &[], "").code == 404).then_some(()));
    make_namespace(rest, "emptied");
    assert_eq!(rest.get(&format!("{one}/services"))["items"], json!([]));
}

fn event(path: &str, ns: &str, name: &str) -> Value {
    let about = json!({"kind": "Pod", "namespace": ns, "name": "p", "apiVersion": "v1"});
    let mut event = json!({
        "metadata": {"name": name, "labels": {"testevent": "yes"}}, "reason": "Test", "type": "Normal",
    });
    if path.starts_with("/api/v1") {
        event["involvedObject"] = about;
        event["message"] = json!("first");
        event["source"] = json!({"component": "conformance"});
    } else {
        event["regarding"] = about;
        event["note"] = json!("first");
        event["eventTime"] = json!("2024-05-05T05:05:05.000005Z");
        event["action"] = json!("Do");
        event["reportingController"] = json!("example.com/conformance");
        event["reportingInstance"] = json!("one");
    }
    event
}

/// Both groups show the same objects; each in its own words.
fn events(rest: &Rest, path: &str, ns: &str) {
    let new = path.starts_with("/apis");
    let text = if new { "note" } else { "message" };
    rest.create(path, &event(path, ns, "one"));
    let one = format!("{path}/one");
    let other = if new {
        rest.get(&format!("/api/v1/namespaces/{ns}/events/one"))["message"].clone()
    } else {
        rest.get(&format!("/apis/events.k8s.io/v1/namespaces/{ns}/events/one"))["note"].clone()
    };
    assert_eq!(other, "first");
    let everywhere =
        format!("{}?fieldSelector=metadata.namespace={ns}", path.replace(&format!("/namespaces/{ns}"), ""));
    let all = rest.get(&everywhere);
    assert!(
        all["items"].as_array().is_some_and(|i| i.iter().any(|e| e["metadata"]["name"] == "one")),
        "{all}"
    );
    let strategic = "Content-Type: application/strategic-merge-patch+json";
    let patch = if new {
        json!({ "series": { "count": 2, "lastObservedTime": "2024-05-05T05:05:06.000000Z" } })
    } else {
        json!({ text: "second" })
    };
    let patched = rest.call("PATCH", &one, &[strategic], &patch.to_string()).ok();
    if new {
        assert_eq!(patched["series"]["lastObservedTime"], "2024-05-05T05:05:06.000000Z");
        let rewritten = rest.call("PATCH", &one, &[strategic], &json!({ text: "second" }).to_string());
        assert_eq!(rewritten.code, 422, "what happened stays what it was");
        let mut found = rest.get(&one);
        found["series"] = json!({"count": 100, "lastObservedTime": "2024-05-05T05:05:07.000000Z"});
        assert_eq!(rest.replace(&one, &found)["series"]["count"], 100);
    } else {
        assert_eq!(patched[text], "second");
    }
    rest.delete(&one);
    for name in ["set-1", "set-2", "set-3"] {
        rest.create(path, &event(path, ns, name));
    }
    let selected = format!("{path}?labelSelector=testevent=yes");
    assert_eq!(rest.get(&selected)["items"].as_array().map(Vec::len), Some(3));
    rest.call("DELETE", &selected, &[], "").ok();
    assert_eq!(rest.get(&selected)["items"], json!([]));
}

fn garbage(rest: &Rest, ns: &str, policy: &str) {
    let path = format!("/api/v1/namespaces/{ns}/replicationcontrollers");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    rest.create(&path, &json!({"metadata": {"name": "rc"}, "spec": {"replicas": 3, "selector": {"a": "b"}, "template": template}}));
    let pods = format!("/api/v1/namespaces/{ns}/pods");
    let count = || rest.get(&pods)["items"].as_array().map_or(0, Vec::len);
    eventually("three pods", || (count() == 3).then_some(()));
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    rest.call("DELETE", &format!("{path}/rc"), &[], &options.to_string()).ok();
    let gone = || rest.call("GET", &format!("{path}/rc"), &[], "").code == 404;
    if policy == "Orphan" {
        eventually("the owner's end", || gone().then_some(()));
        // The collector takes what comes first first: once this is gone, it has been at the pods.
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "0"});
        let marker = json!({"metadata": {"name": "marker", "ownerReferences": [owner]}});
        let maps = format!("/api/v1/namespaces/{ns}/configmaps");
        rest.create(&maps, &marker);
        eventually("the collector's pass", || {
            (rest.call("GET", &format!("{maps}/marker"), &[], "").code == 404).then_some(())
        });
        assert_eq!(count(), 3);
        let owners = rest.get(&pods)["items"]
            .as_array()
            .is_some_and(|p| p.iter().all(|p| p["metadata"]["ownerReferences"].is_null()));
        assert!(owners, "orphans name no owner");
        return;
    }
    if policy == "Foreground" {
        // The owner stays until all its pods are gone.
        eventually("the owner's end", || {
            let present = !gone();
            if !present {
                assert_eq!(count(), 0);
            }
            (!present).then_some(())
        });
    }
    eventually("the pods' end", || (count() == 0 && gone()).then_some(()));
}

/// Three objects that own each other in a circle all go when one is deleted.
fn circle(rest: &Rest, ns: &str) {
    let path = format!("/api/v1/namespaces/{ns}/configmaps");
    let made: Vec<Value> = ["one", "two", "three"]
        .iter()
        .map(|name| rest.create(&path, &json!({"metadata": {"name": name}})))
        .collect();
    for (n, object) in made.iter().enumerate() {
        let owner = &made[(n + 2) % 3]["metadata"];
        let reference =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]});
        let name = object["metadata"]["name"].as_str().expect("a name");
        rest.merge(&format!("{path}/{name}"), &json!({"metadata": {"ownerReferences": [reference]}}));
    }
    let options = r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}"#;
    rest.call("DELETE", &format!("{path}/one"), &[], options).ok();
    eventually("the end of all three", || {
        ["one", "two", "three"]
            .iter()
            .all(|n| rest.call("GET", &format!("{path}/{n}"), &[], "").code == 404)
            .then_some(())
    });
}
