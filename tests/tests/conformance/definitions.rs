//! CustomResourceDefinitions: life, status, lists, defaults, discovery.

use crate::{Suite, eventually};
use coracle_tests::custom::{self, DEFINITIONS, condition, definition, install, version, with_spec};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

#[test]
fn definitions_of_custom_resources() {
    let mut suite = Suite::start();
    suite.check("create and delete", life);
    suite.check("watch", watched);
    suite.check("list and delete by label", listed);
    suite.check("status", status);
    suite.check_in("defaults", defaults);
    suite.check("discovery", discovery);
    suite.check("aggregated discovery", aggregated);
    suite.check_in("selected", selected);
    suite.check_in("instances-first", instances_first);
    suite.check("names that are taken", taken);
    suite.check("what is refused", refused);
    suite.check_in("scaled", scaled);
    suite.check_in("rules", rules);
    suite.end();
}

fn simple(group: &str, plural: &str, kind: &str) -> Value {
    definition(group, plural, kind, &[version("v1", custom::anything())])
}

fn life(rest: &Rest) {
    let made = install(rest, &simple("life.example.com", "lives", "Life"));
    assert_eq!(made["status"]["acceptedNames"]["kind"], "Life");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(condition(&made, "NamesAccepted"), "True");
    rest.delete(&format!("{DEFINITIONS}/lives.life.example.com"));
    eventually("the definition's end", || {
        (rest.call("GET", &format!("{DEFINITIONS}/lives.life.example.com"), &[], "").code == 404)
            .then_some(())
    });
    eventually("the resource's end", || {
        (rest.call("GET", "/apis/life.example.com/v1/lives", &[], "").code == 404).then_some(())
    });
}

fn watched(rest: &Rest) {
    let made = install(rest, &definition_of_watched());
    let path = custom::path(&made, "v1", "");
    let watch = rest.watch(&format!("{path}?watch=true"));
    for name in ["one", "two"] {
        rest.create(&path, &json!({"apiVersion": "watched.example.com/v1", "kind": "Noxu", "metadata": {"name": name}, "num": {"num1": 1}}));
        watch.sees(&format!("ADDED {name}"));
        rest.merge(&format!("{path}/{name}"), &json!({"num": {"num1": 2}}));
        assert_eq!(watch.sees(&format!("MODIFIED {name}"))["num"]["num1"], 2);
    }
    rest.delete(&format!("{path}/one"));
    watch.sees("DELETED one");
}

fn definition_of_watched() -> Value {
    let mut made = simple("watched.example.com", "noxus", "Noxu");
    made["spec"]["scope"] = json!("Cluster");
    made
}

fn listed(rest: &Rest) {
    for n in 0..10 {
        let mut made = simple("listed.example.com", &format!("things{n}"), &format!("Thing{n}"));
        made["metadata"]["labels"] = json!({"conformance": "listed"});
        rest.create(DEFINITIONS, &made);
    }
    let path = format!("{DEFINITIONS}?labelSelector=conformance=listed");
    assert_eq!(rest.get(&path)["items"].as_array().map(Vec::len), Some(10));
    rest.call("DELETE", &path, &[], "").ok();
    eventually("their end", || (rest.get(&path)["items"] == json!([])).then_some(()));
    // Others stay.
    assert_eq!(
        condition(&rest.get(&format!("{DEFINITIONS}/noxus.watched.example.com")), "Established"),
        "True"
    );
}

fn status(rest: &Rest) {
    let made = install(rest, &simple("status.example.com", "statuses", "Stat"));
    let path = format!("{DEFINITIONS}/{}/status", made["metadata"]["name"].as_str().expect("a name"));
    let mut found = rest.get(&path);
    assert_eq!(found["kind"], "CustomResourceDefinition");
    let condition = json!({
        "type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "set",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    });
    found["status"]["conditions"].as_array_mut().expect("conditions").push(condition);
    let updated = rest.replace(&path, &found);
    assert_eq!(custom::condition(&updated, "StatusUpdate"), "True");
    let patched = rest.merge(
        &path,
        &json!({"metadata": {"annotations": {"a": "b"}}, "status": {"storedVersions": ["v1"]}}),
    );
    assert_eq!(custom::condition(&patched, "StatusUpdate"), "True", "{patched}");
    assert_eq!(custom::condition(&rest.get(&path), "Established"), "True");
}

fn defaults(rest: &Rest, ns: &str) {
    let schema = with_spec(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let mut made =
        install(rest, &definition("defaults.example.com", "foos", "Foo", &[version("v1", schema)]));
    let path = custom::path(&made, "v1", ns);
    let object = |name: &str| json!({"apiVersion": "defaults.example.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {}});
    rest.create(&path, &object("first"));
    let define = |made: &mut Value, a: Value, b: Value| {
        let pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let name = format!("{DEFINITIONS}/foos.defaults.example.com");
        *made = rest.get(&name);
        *made.pointer_mut(pointer).expect("the schema") = json!({"a": a, "b": b});
        *made = rest.replace(&name, made);
    };
    define(&mut made, json!({"type": "string", "default": "A"}), json!({"type": "string"}));
    let first = || rest.get(&format!("{path}/first"))["spec"].clone();
    eventually("a default on reading", || (first()["a"] == "A").then_some(()));
    let second = rest.create(&path, &object("second"));
    assert_eq!(second["spec"], json!({"a": "A"}));
    define(&mut made, json!({"type": "string"}), json!({"type": "string", "default": "B"}));
    eventually("the other default", || (first() == json!({"b": "B"})).then_some(()));
    let second = rest.get(&format!("{path}/second"));
    assert_eq!(second["spec"], json!({"a": "A", "b": "B"}), "what was stored stays");
}

fn discovery(rest: &Rest) {
    let groups = rest.get("/apis");
    let groups = groups["groups"].as_array().expect("groups");
    let own = groups.iter().find(|g| g["name"] == "apiextensions.k8s.io").expect("the group");
    assert!(own["versions"].as_array().is_some_and(|v| v.iter().any(|v| v["version"] == "v1")));
    let versions = rest.get("/apis/apiextensions.k8s.io");
    assert_eq!(versions["preferredVersion"]["groupVersion"], "apiextensions.k8s.io/v1");
    let resources = rest.get("/apis/apiextensions.k8s.io/v1");
    let names: Vec<_> =
        resources["resources"].as_array().expect("resources").iter().map(|r| &r["name"]).collect();
    assert!(names.contains(&&json!("customresourcedefinitions")), "{names:?}");
}

/// A definition shows in all forms of discovery, with its subresources, and goes from them.
fn aggregated(rest: &Rest) {
    let mut two = version("v1beta1", custom::anything());
    two["subresources"] = json!({"status": {}});
    let mut made =
        definition("found.example.com", "finds", "Find", &[version("v1", custom::anything()), two]);
    made["spec"]["names"]["shortNames"] = json!(["fd"]);
    made["spec"]["names"]["categories"] = json!(["treasure"]);
    install(rest, &made);
    let accept = "Accept: application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let group = || {
        let all = rest.call("GET", "/apis", &[accept], "").ok();
        let items = all["items"].as_array().expect("groups").clone();
        items.into_iter().find(|g| g["metadata"]["name"] == "found.example.com")
    };
    let found = eventually("the group", group);
    let versions: Vec<_> =
        found["versions"].as_array().expect("versions").iter().map(|v| &v["version"]).collect();
    assert_eq!(versions, ["v1", "v1beta1"]);
    let resource = &found["versions"][0]["resources"][0];
    assert_eq!(resource["resource"], "finds");
    assert_eq!(
        resource["responseKind"],
        json!({"group": "found.example.com", "version": "v1", "kind": "Find"})
    );
    assert_eq!((&resource["scope"], &resource["singularResource"]), (&json!("Namespaced"), &json!("find")));
    assert_eq!((&resource["shortNames"], &resource["categories"]), (&json!(["fd"]), &json!(["treasure"])));
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut given: Vec<_> =
        resource["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str).collect();
    given.sort_unstable();
    assert_eq!(given, verbs);
    let below = &found["versions"][1]["resources"][0]["subresources"][0];
    assert_eq!(below["subresource"], "status", "{found}");
    let list = rest.get("/apis/found.example.com/v1beta1");
    let names: Vec<_> = list["resources"].as_array().expect("resources").iter().map(|r| &r["name"]).collect();
    assert_eq!(names, ["finds", "finds/status"]);
    rest.delete(&format!("{DEFINITIONS}/finds.found.example.com"));
    eventually("its end", || group().is_none().then_some(()));
    eventually("404", || (rest.call("GET", "/apis/found.example.com", &[], "").code == 404).then_some(()));
}

fn selected(rest: &Rest, ns: &str) {
    let schema = with_spec(
        json!({"host": {"type": "string"}, "port": {"type": "integer"}, "other": {"type": "string"}}),
    );
    let mut v1 = version("v1", schema);
    v1["selectableFields"] = json!([{"jsonPath": ".spec.host"}, {"jsonPath": ".spec.port"}]);
    let made = install(rest, &definition("selected.example.com", "sites", "Site", &[v1]));
    let path = custom::path(&made, "v1", ns);
    let watch = rest.watch(&format!("{path}?watch=true&fieldSelector=spec.host=a"));
    for (name, host, port) in [("one", "a", 80), ("two", "a", 443), ("three", "b", 80)] {
        rest.create(&path, &json!({"apiVersion": "selected.example.com/v1", "kind": "Site", "metadata": {"name": name}, "spec": {"host": host, "port": port}}));
    }
    let names = |selector: &str| {
        let list = rest.get(&format!("{path}?fieldSelector={selector}"));
        list["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|i| i["metadata"]["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("spec.host=a"), ["one", "two"]);
    assert_eq!(names("spec.host=a,spec.port=80"), ["one"]);
    assert_eq!(names("spec.host!=a"), ["three"]);
    let bad = rest.call("GET", &format!("{path}?fieldSelector=spec.other=x"), &[], "");
    let message = bad.refused(400, "BadRequest");
    assert!(message.contains("field label not supported: spec.other"), "{message}");
    watch.sees("ADDED one");
    watch.sees("ADDED two");
    rest.merge(&format!("{path}/one"), &json!({"spec": {"host": "b"}}));
    watch.sees("DELETED one");
    rest.merge(&format!("{path}/three"), &json!({"spec": {"host": "a"}}));
    watch.sees("ADDED three");
    rest.call("DELETE", &format!("{path}?fieldSelector=spec.port=443"), &[], "").ok();
    assert_eq!(names("spec.host=a"), ["three"]);
}

/// A deleted definition waits for its objects, and they for their finalizers; nothing new is made meanwhile.
fn instances_first(rest: &Rest, ns: &str) {
    let made = install(rest, &simple("last.example.com", "lasts", "Last"));
    let path = custom::path(&made, "v1", ns);
    let object = |name: &str, finalizers: Value| json!({"apiVersion": "last.example.com/v1", "kind": "Last", "metadata": {"name": name, "finalizers": finalizers}});
    rest.create(&path, &object("free", json!([])));
    rest.create(&path, &object("held", json!(["example.com/hold"])));
    let one = format!("{DEFINITIONS}/lasts.last.example.com");
    rest.delete(&one);
    eventually("the deletion of the objects", || {
        let held = rest.get(&format!("{path}/held"));
        let gone = rest.call("GET", &format!("{path}/free"), &[], "").code == 404;
        (gone && held["metadata"]["deletionTimestamp"].is_string()).then_some(())
    });
    assert_eq!(condition(&rest.get(&one), "Terminating"), "True");
    let late = rest.call("POST", &path, &[], &object("late", json!([])).to_string());
    let message = late.refused(405, "MethodNotAllowed");
    assert!(
        message.contains("create not allowed while custom resource definition is terminating"),
        "{message}"
    );
    rest.merge(&format!("{path}/held"), &json!({"metadata": {"finalizers": null}}));
    eventually("the definition's end", || (rest.call("GET", &one, &[], "").code == 404).then_some(()));
    // Made again, it has none of the old objects.
    install(rest, &simple("last.example.com", "lasts", "Last"));
    assert_eq!(rest.get(&path)["items"], json!([]));
}

fn taken(rest: &Rest) {
    install(rest, &simple("taken.example.com", "firsts", "Shared"));
    let mut second = simple("taken.example.com", "seconds", "Shared");
    second["spec"]["names"]["listKind"] = json!("SecondList");
    rest.create(DEFINITIONS, &second);
    let path = format!("{DEFINITIONS}/seconds.taken.example.com");
    let refused = eventually("a verdict", || {
        let found = rest.get(&path);
        (condition(&found, "NamesAccepted") == "False").then_some(found)
    });
    let why = refused["status"]["conditions"].as_array().expect("conditions");
    let why = why.iter().find(|c| c["type"] == "NamesAccepted").expect("the condition");
    assert_eq!(
        (&why["reason"], &why["message"]),
        (&json!("KindConflict"), &json!("\"Shared\" is already in use"))
    );
    assert_ne!(condition(&refused, "Established"), "True");
    assert_eq!(rest.call("GET", "/apis/taken.example.com/v1/seconds", &[], "").code, 404);
    // Free again, the name goes to who waits for it.
    rest.delete(&format!("{DEFINITIONS}/firsts.taken.example.com"));
    custom::served(rest, &second);
}

fn refused(rest: &Rest) {
    let try_one = |change: &dyn Fn(&mut Value)| {
        let mut made = simple("bad.example.com", "bads", "Bad");
        change(&mut made);
        rest.call("POST", DEFINITIONS, &[], &made.to_string()).refused(422, "Invalid")
    };
    let message = try_one(&|d| d["metadata"]["name"] = json!("others.bad.example.com"));
    assert!(message.contains("metadata.name: Invalid value: \"others.bad.example.com\": must be spec.names.plural+\".\"+spec.group"), "{message}");
    let message = try_one(&|d| d["spec"]["versions"][0]["storage"] = json!(false));
    assert!(message.contains("must have exactly one version marked as storage version"), "{message}");
    let message = try_one(&|d| {
        d["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}})
    });
    assert!(
        message
            .contains("properties[spec].type: Required value: must not be empty for specified object fields"),
        "{message}"
    );
    let message = try_one(&|d| d["spec"]["group"] = json!("pods.k8s.io"));
    assert!(message.contains("metadata.name"), "{message}");
    let rule = |rule: &str| {
        with_spec(json!({"n": {"type": "integer", "x-kubernetes-validations": [{"rule": rule}]}}))
    };
    let message = try_one(&|d| d["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = rule("self > 'x'"));
    assert!(
        message.contains("x-kubernetes-validations[0].rule: Invalid value")
            && message.contains("compilation failed"),
        "{message}"
    );
    // Anything refused leaves nothing behind.
    assert_eq!(rest.call("GET", &format!("{DEFINITIONS}/bads.bad.example.com"), &[], "").code, 404);
}

fn scaled(rest: &Rest, ns: &str) {
    let mut v1 = version("v1", custom::anything());
    v1["subresources"] = json!({
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"},
    });
    let made = install(rest, &definition("scaled.example.com", "webs", "Web", &[v1]));
    let path = custom::path(&made, "v1", ns);
    let object = json!({"apiVersion": "scaled.example.com/v1", "kind": "Web", "metadata": {"name": "w"}, "spec": {"replicas": 2}, "status": {"replicas": 9}});
    let created = rest.create(&path, &object);
    assert!(created["status"].is_null(), "status is written through its subresource alone: {created}");
    assert_eq!(created["metadata"]["generation"], 1);
    let status = rest.merge(
        &format!("{path}/w/status"),
        &json!({"spec": {"replicas": 7}, "status": {"replicas": 2, "selector": "app=w"}}),
    );
    assert_eq!((&status["spec"]["replicas"], &status["metadata"]["generation"]), (&json!(2), &json!(1)));
    let scale = rest.get(&format!("{path}/w/scale"));
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 2}), &json!({"replicas": 2, "selector": "app=w"}))
    );
    let mut scale = scale;
    scale["spec"]["replicas"] = json!(5);
    assert_eq!(rest.replace(&format!("{path}/w/scale"), &scale)["spec"]["replicas"], 5);
    let found = rest.get(&format!("{path}/w"));
    assert_eq!((&found["spec"]["replicas"], &found["metadata"]["generation"]), (&json!(5), &json!(2)));
    let stale = rest.call("PUT", &format!("{path}/w/scale"), &[], &scale.to_string());
    stale.refused(409, "Conflict");
    let negative = rest.call(
        "PATCH",
        &format!("{path}/w/scale"),
        &["Content-Type: application/merge-patch+json"],
        r#"{"spec":{"replicas":-1}}"#,
    );
    negative.refused(422, "Invalid");
}

/// CEL: transition rules, `optionalOldSelf`, message expressions, reasons, field paths, ratcheting.
fn rules(rest: &Rest, ns: &str) {
    let spec = json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed", "reason": "FieldValueForbidden"}]},
        },
        "x-kubernetes-validations": [{
            "rule": "self.min <= self.max",
            "messageExpression": "'min %d over max %d'.format([self.min, self.max])",
            "fieldPath": ".min",
            "reason": "FieldValueInvalid",
        }],
    });
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let mut made =
        install(rest, &definition("rules.example.com", "ranges", "Range", &[version("v1", schema)]));
    let path = custom::path(&made, "v1", ns);
    let object = |min: i64, max: i64| json!({"apiVersion": "rules.example.com/v1", "kind": "Range", "metadata": {"name": "r"}, "spec": {"min": min, "max": max, "name": "x"}});
    let reply = rest.call("POST", &path, &[], &object(3, 2).to_string());
    let causes = reply.body["details"]["causes"].clone();
    assert_eq!(causes[0]["field"], "spec.min", "{}", reply.body);
    let message = reply.refused(422, "Invalid");
    assert!(message.contains("min 3 over max 2"), "{message}");
    rest.create(&path, &object(1, 2));
    let merge = ["Content-Type: application/merge-patch+json"];
    let reply = rest.call("PATCH", &format!("{path}/r"), &merge, r#"{"spec":{"name":"y"}}"#);
    assert_eq!(reply.body["details"]["causes"][0]["reason"], "FieldValueForbidden", "{}", reply.body);
    assert!(reply.refused(422, "Invalid").contains("spec.name: Forbidden: is fixed"));
    // A rule that comes later holds for what changes: what is as it was stays acceptable.
    made = rest.get(&format!("{DEFINITIONS}/ranges.rules.example.com"));
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["max"] =
        json!({"type": "integer", "maximum": 1});
    rest.replace(&format!("{DEFINITIONS}/ranges.rules.example.com"), &made);
    eventually("the new schema", || {
        let reply = rest.call("PATCH", &format!("{path}/r?dryRun=All"), &merge, r#"{"spec":{"max":3}}"#);
        (reply.code == 422).then_some(())
    });
    let kept = rest.merge(&format!("{path}/r"), &json!({"spec": {"min": 0}}));
    assert_eq!(kept["spec"], json!({"min": 0, "max": 2, "name": "x"}));
}
