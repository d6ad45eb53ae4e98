//! What webhooks change, in which order, and what they are asked.

use super::{MUTATING, START, VALIDATING, Wanted, custom_object, map, maps};
use crate::eventually;
use coracle_tests::custom::{self, DEFINITIONS, definition, install, version};
use coracle_tests::hook::Hook;
use coracle_tests::rest::Rest;
use serde_json::json;

pub fn ordered(rest: &Rest, ns: &str, hook: &Hook) {
    let wanted = Wanted {
        kind: MUTATING,
        name: "ordered",
        namespace: ns,
        path: "",
        resources: "configmaps",
        operations: &["CREATE"],
    };
    let mut configuration = wanted.build(&hook.client_config("/mutate"));
    let mut second = configuration["webhooks"][0].clone();
    second["name"] = json!("more.example.com");
    second["clientConfig"] = hook.client_config("/mutate-more");
    configuration["webhooks"].as_array_mut().expect("webhooks").push(second);
    rest.create(&wanted.path(), &configuration);
    let made = rest.create(&maps(ns), &map("m", json!({START: "yes"})));
    assert_eq!(made["data"], json!({START: "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}));
    // The other way round the first has nothing to do, until it is asked again.
    let path = format!("{}/ordered", wanted.path());
    let mut found = rest.get(&path);
    found["webhooks"].as_array_mut().expect("webhooks").reverse();
    rest.replace(&path, &found);
    let made = rest.create(&maps(ns), &map("n", json!({START: "yes"})));
    assert_eq!(made["data"], json!({START: "yes", "mutation-stage-1": "yes"}));
    let mut found = rest.get(&path);
    found["webhooks"][0]["reinvocationPolicy"] = json!("IfNeeded");
    rest.replace(&path, &found);
    let made = rest.create(&maps(ns), &map("o", json!({START: "yes"})));
    assert_eq!(made["data"], json!({START: "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}));
}

pub fn defaulted(rest: &Rest, ns: &str, hook: &Hook) {
    Wanted {
        kind: MUTATING,
        name: "defaulted",
        namespace: ns,
        path: "/add-container",
        resources: "pods",
        operations: &["CREATE"],
    }
    .register(rest, hook);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "nginx"}]}});
    let made = rest.create(&format!("/api/v1/namespaces/{ns}/pods"), &pod);
    let added = &made["spec"]["initContainers"][0];
    assert_eq!(
        (&added["name"], &added["terminationMessagePolicy"]),
        (&json!("webhook-added"), &json!("File"))
    );
}

pub fn custom_changed(rest: &Rest, ns: &str, hook: &Hook) {
    let keep = |name: &str| json!({"type": "object", "properties": {"data": {"type": "object", "properties": {START: {"type": "string"}, name: {"type": "string"}}}}});
    for (group, schema, expected) in [
        (
            "changed.example.com",
            custom::anything(),
            json!({START: "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}),
        ),
        // What the schema lacks is pruned before the next one sees it.
        ("pruned.example.com", keep("mutation-stage-2"), json!({START: "yes"})),
        ("half.example.com", keep("mutation-stage-1"), json!({START: "yes", "mutation-stage-1": "yes"})),
    ] {
        let made = install(rest, &definition(group, "bags", "Bag", &[version("v1", schema)]));
        for (n, path) in ["/mutate", "/mutate-more"].into_iter().enumerate() {
            let name = format!("{}-{n}", group.split('.').next().unwrap_or_default());
            Wanted {
                kind: MUTATING,
                name: &name,
                namespace: ns,
                path,
                resources: &format!("{group}/bags"),
                operations: &["CREATE"],
            }
            .register(rest, hook);
        }
        let object =
            rest.create(&custom::path(&made, "v1", ns), &custom_object(group, "b", json!({START: "yes"})));
        assert_eq!(object["data"], expected, "{group}");
    }
}

/// An object stored in one version goes on being changed and patched when another version is stored.
pub fn stored_version(rest: &Rest, ns: &str, hook: &Hook) {
    let group = "moved.example.com";
    let made = install(
        rest,
        &definition(
            group,
            "bags",
            "Bag",
            &[version("v1", custom::anything()), version("v2", custom::anything())],
        ),
    );
    let wanted = Wanted {
        kind: MUTATING,
        name: "moved",
        namespace: ns,
        path: "/mutate",
        resources: "moved.example.com/bags",
        operations: &["CREATE", "UPDATE"],
    };
    wanted.register(rest, hook);
    let path = custom::path(&made, "v1", ns);
    rest.create(&path, &custom_object(group, "b", json!({START: "yes"})));
    let name = format!("{DEFINITIONS}/bags.{group}");
    let mut found = rest.get(&name);
    found["spec"]["versions"][0]["storage"] = json!(false);
    found["spec"]["versions"][1]["storage"] = json!(true);
    rest.replace(&name, &found);
    eventually("the new stored version", || {
        (rest.get(&name)["status"]["storedVersions"] == json!(["v1", "v2"])).then_some(())
    });
    let patched = rest.merge(&format!("{path}/b"), &json!({"data": {"other": "yes"}}));
    assert_eq!(patched["data"], json!({START: "yes", "mutation-stage-1": "yes", "other": "yes"}));
    assert_eq!(patched["apiVersion"], "moved.example.com/v1");
    // Exactly this version, or any that is equivalent.
    let path = format!("{}/moved", wanted.path());
    let mut found = rest.get(&path);
    found["webhooks"][0]["rules"][0]["apiVersions"] = json!(["v1"]);
    found["webhooks"][0]["matchPolicy"] = json!("Exact");
    rest.replace(&path, &found);
    hook.take();
    let v2 = custom::path(&made, "v2", ns);
    let object = |name: &str| {
        let mut object = custom_object(group, name, json!({}));
        object["apiVersion"] = json!("moved.example.com/v2");
        object
    };
    rest.create(&v2, &object("exact"));
    assert!(hook.take().is_empty());
    let mut found = rest.get(&path);
    found["webhooks"][0]["matchPolicy"] = json!("Equivalent");
    rest.replace(&path, &found);
    rest.create(&v2, &object("equivalent"));
    let request = hook.take().into_iter().next().expect("a call").body["request"].clone();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v1"), &json!("v2"))
    );
    assert_eq!(request["object"]["apiVersion"], "moved.example.com/v1");
}

/// Conditions in CEL: kept as they are, refused when they do not compile, and what they exclude is not asked for.
pub fn conditions(rest: &Rest, ns: &str, hook: &Hook) {
    for kind in [MUTATING, VALIDATING] {
        let wanted = Wanted {
            kind,
            name: "conditions",
            namespace: ns,
            path: "/mutate",
            resources: "configmaps",
            operations: &["CREATE"],
        };
        let mut configuration = wanted.build(&hook.client_config("/mutate"));
        let conditions =
            json!([{"name": "expression-1", "expression": "object.metadata.namespace == 'production'"}]);
        configuration["webhooks"][0]["matchConditions"] = conditions.clone();
        let made = rest.create(&wanted.path(), &configuration);
        assert_eq!(made["webhooks"][0]["matchConditions"], conditions);
        let mut made = made;
        let conditions =
            json!([{"name": "expression-2", "expression": "object.metadata.namespace == 'staging'"}]);
        made["webhooks"][0]["matchConditions"] = conditions.clone();
        rest.replace(&format!("{}/conditions", wanted.path()), &made);
        assert_eq!(
            rest.get(&format!("{}/conditions", wanted.path()))["webhooks"][0]["matchConditions"],
            conditions
        );
        rest.delete(&format!("{}/conditions", wanted.path()));
        configuration["webhooks"][0]["matchConditions"] =
            json!([{"name": "invalid", "expression": "... [] bad expression"}]);
        let message =
            rest.call("POST", &wanted.path(), &[], &configuration.to_string()).refused(422, "Invalid");
        assert!(message.contains("compilation failed"), "{message}");
    }
    let wanted = Wanted {
        kind: MUTATING,
        name: "skip-me",
        namespace: ns,
        path: "/mutate",
        resources: "configmaps",
        operations: &["CREATE"],
    };
    let mut configuration = wanted.build(&hook.client_config("/mutate"));
    configuration["webhooks"][0]["matchConditions"] =
        json!([{"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"}]);
    rest.create(&wanted.path(), &configuration);
    assert!(
        rest.create(&maps(ns), &map("skip-me", json!({START: "yes"})))["data"]["mutation-stage-1"].is_null()
    );
    assert_eq!(
        rest.create(&maps(ns), &map("other", json!({START: "yes"})))["data"]["mutation-stage-1"],
        "yes"
    );
}

/// Calls go over connections that are kept.
pub fn connections(rest: &Rest, ns: &str, hook: &Hook) {
    Wanted {
        kind: VALIDATING,
        name: "kept",
        namespace: ns,
        path: "/allow",
        resources: "configmaps",
        operations: &["CREATE"],
    }
    .register(rest, hook);
    rest.create(&maps(ns), &map("first", json!({})));
    let before = hook.connections();
    for n in 0..30 {
        rest.create(&maps(ns), &map(&format!("m{n}"), json!({})));
    }
    assert!(
        hook.connections() <= before + 1,
        "{} connections for 30 calls one after another",
        hook.connections() - before
    );
}
