//! What webhooks deny, and what becomes of a request when they fail.

use super::{GROUP, MUTATING, VALIDATING, Wanted, answer, bag, custom_object, map, maps};
use coracle_tests::custom::{self, DEFINITIONS, install};
use coracle_tests::hook::Hook;
use coracle_tests::rest::Rest;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub fn denied(rest: &Rest, ns: &str, hook: &Hook) {
    rest.create(&format!("/api/v1/namespaces/{ns}/services"), &Hook::service());
    let wanted = Wanted {
        kind: VALIDATING,
        name: "deny-maps",
        namespace: ns,
        path: "/deny",
        resources: "configmaps",
        operations: &["CREATE", "UPDATE"],
    };
    // By its service, as the webhooks of a cluster are called.
    rest.create(&wanted.path(), &wanted.build(&hook.service_config(ns, "/deny")));
    let pods = Wanted { name: "deny-pods", resources: "pods", ..wanted };
    pods.register(rest, hook);
    let bad = map("bad", json!({"webhook-e2e-test": "webhook-disallow"})).to_string();
    let reply = rest.call("POST", &maps(ns), &[], &bad);
    let message =
        "admission webhook \"deny-maps.example.com\" denied the request: the object contains unwanted data";
    assert_eq!((reply.code, reply.body["message"].as_str()), (403, Some(message)), "{}", reply.body);
    rest.create(&maps(ns), &map("good", json!({"a": "b"})));
    let one = format!("{}/good", maps(ns));
    let merge = ["Content-Type: application/merge-patch+json"];
    let patch = r#"{"data":{"webhook-e2e-test":"webhook-disallow"}}"#;
    assert_eq!(rest.call("PATCH", &one, &merge, patch).code, 403);
    assert_eq!(
        rest.call(
            "PUT",
            &one,
            &[],
            &map("good", json!({"webhook-e2e-test": "webhook-disallow"})).to_string()
        )
        .code,
        403
    );
    let apply = ["Content-Type: application/apply-patch+yaml"];
    assert_eq!(rest.call("PATCH", &format!("{}/bad?fieldManager=m", maps(ns)), &apply, &bad).code, 403);
    assert_eq!(rest.get(&one)["data"], json!({"a": "b"}));
    let pod = json!({"metadata": {"name": "webhook-disallow"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    assert_eq!(rest.call("POST", &format!("/api/v1/namespaces/{ns}/pods"), &[], &pod.to_string()).code, 403);
    let unlucky = rest.call("POST", &maps(ns), &[], &map("unlucky", json!({})).to_string());
    assert_eq!(
        unlucky.body["message"],
        "admission webhook \"deny-maps.example.com\" denied the request without explanation"
    );
    assert_eq!(unlucky.code, 400);
    // Another namespace is none of its business.
    rest.create(&maps("default"), &map("bad", json!({"webhook-e2e-test": "webhook-disallow"})));
    let calls = hook.take();
    let request = &calls.first().expect("a call").body["request"];
    assert_eq!(calls[0].header("content-type"), "application/json");
    assert!(calls[0].path.contains("timeout=10s"), "{}", calls[0].path);
    for (field, value) in [
        ("kind", json!({"group": "", "version": "v1", "kind": "ConfigMap"})),
        ("resource", json!({"group": "", "version": "v1", "resource": "configmaps"})),
        ("requestKind", json!({"group": "", "version": "v1", "kind": "ConfigMap"})),
        ("name", json!("bad")),
        ("namespace", json!(ns)),
        ("operation", json!("CREATE")),
        ("dryRun", json!(false)),
        ("oldObject", Value::Null),
    ] {
        assert_eq!(request[field], value, "{field}: {request}");
    }
    assert!(
        request["userInfo"]["groups"]
            .as_array()
            .is_some_and(|g| g.contains(&json!("kubeadm:cluster-admins"))),
        "{request}"
    );
    assert_eq!(request["options"]["kind"], "CreateOptions", "{request}");
    let update = calls.iter().find(|call| call.body["request"]["operation"] == "UPDATE").expect("an update");
    assert_eq!(update.body["request"]["oldObject"]["data"], json!({"a": "b"}));
}

pub fn custom_denied(rest: &Rest, ns: &str, hook: &Hook) {
    let made = install(rest, &bag("denied.example.com"));
    let path = custom::path(&made, "v1", ns);
    let deny = Wanted {
        kind: VALIDATING,
        name: "deny-bags",
        namespace: ns,
        path: "/deny",
        resources: "denied.example.com/bags",
        operations: &["CREATE", "UPDATE"],
    };
    deny.register(rest, hook);
    Wanted { name: "keep-bags", path: "/deny-deletion", operations: &["DELETE"], ..deny }
        .register(rest, hook);
    let object = |name: &str, data: Value| custom_object("denied.example.com", name, data);
    let refused = rest.call(
        "POST",
        &path,
        &[],
        &object("bad", json!({"webhook-e2e-test": "webhook-disallow"})).to_string(),
    );
    assert_eq!(refused.code, 403, "{}", refused.body);
    rest.create(&path, &object("keep", json!({})));
    let merge = ["Content-Type: application/merge-patch+json"];
    let patch = r#"{"data":{"webhook-e2e-test":"webhook-disallow"}}"#;
    assert_eq!(rest.call("PATCH", &format!("{path}/keep"), &merge, patch).code, 403);
    let kept = rest.call("DELETE", &format!("{path}/keep"), &[], "");
    assert_eq!(
        kept.body["message"],
        "admission webhook \"keep-bags.example.com\" denied the request: keep it"
    );
    assert_eq!(rest.call("DELETE", &path, &[], "").code, 403, "a collection's deletion asks for each");
    rest.get(&format!("{path}/keep"));
}

pub fn definitions(rest: &Rest, hook: &Hook) {
    let wanted = Wanted {
        kind: VALIDATING,
        name: "deny-definitions",
        namespace: "",
        path: "/deny-always",
        resources: "apiextensions.k8s.io/customresourcedefinitions",
        operations: &["CREATE"],
    };
    let one = wanted.register(rest, hook);
    let refused = rest.call("POST", DEFINITIONS, &[], &bag("never.example.com").to_string());
    assert_eq!(refused.code, 403, "{}", refused.body);
    rest.delete(&one);
}

/// A webhook that nobody can call refuses everything, or nothing when it may be ignored.
pub fn closed(rest: &Rest, ns: &str) {
    let gone = Hook::start(answer);
    let client = gone.client_config("/gone");
    drop(gone);
    let wanted = Wanted {
        kind: VALIDATING,
        name: "closed",
        namespace: ns,
        path: "",
        resources: "configmaps",
        operations: &["CREATE"],
    };
    rest.create(&wanted.path(), &wanted.build(&client));
    let reply = rest.call("POST", &maps(ns), &[], &map("m", json!({})).to_string());
    let message = reply.refused(500, "InternalError");
    assert!(message.starts_with("Internal error occurred: failed calling webhook \"closed.example.com\": failed to call webhook: Post \"https://127.0.0.1:"), "{message}");
    let path = format!("{}/closed", wanted.path());
    let mut found = rest.get(&path);
    found["webhooks"][0]["failurePolicy"] = json!("Ignore");
    rest.replace(&path, &found);
    rest.create(&maps(ns), &map("m", json!({})));
    // No authority, no trust.
    let other = Hook::start(answer);
    let mut found = rest.get(&path);
    found["webhooks"][0]["failurePolicy"] = json!("Fail");
    found["webhooks"][0]["clientConfig"] = json!({"url": other.url("/allow")});
    rest.replace(&path, &found);
    let reply = rest.call("POST", &maps(ns), &[], &map("n", json!({})).to_string());
    assert!(reply.refused(500, "InternalError").contains("certificate"));
}

pub fn timeouts(rest: &Rest, ns: &str, hook: &Hook) {
    let wanted = Wanted {
        kind: VALIDATING,
        name: "slow",
        namespace: ns,
        path: "/slow",
        resources: "configmaps",
        operations: &["CREATE"],
    };
    for (n, (seconds, policy, allowed)) in
        [(1, "Fail", false), (1, "Ignore", true), (10, "Fail", true)].into_iter().enumerate()
    {
        let mut configuration = wanted.build(&hook.client_config("/slow"));
        configuration["webhooks"][0]["timeoutSeconds"] = json!(seconds);
        configuration["webhooks"][0]["failurePolicy"] = json!(policy);
        rest.create(&wanted.path(), &configuration);
        let begun = Instant::now();
        let reply = rest.call("POST", &maps(ns), &[], &map(&format!("m{n}"), json!({})).to_string());
        assert_eq!(reply.code < 300, allowed, "{seconds} s, {policy}: {}", reply.body);
        assert_eq!(begun.elapsed() > Duration::from_secs(4), seconds == 10, "{:?}", begun.elapsed());
        if !allowed {
            let message = reply.refused(500, "InternalError");
            assert!(message.contains("?timeout=1s\": context deadline exceeded"), "{message}");
        }
        rest.delete(&format!("{}/slow", wanted.path()));
    }
}

/// Answers that are none: refused with their reason, unless the webhook may be ignored.
pub fn nonsense(rest: &Rest, ns: &str, hook: &Hook) {
    for (n, (kind, path, why)) in [
        (MUTATING, "/bad-patch", "remove operation does not apply"),
        (VALIDATING, "/no-review", "webhook response was absent"),
        (VALIDATING, "/wrong-uid", "expected response.uid="),
        (
            VALIDATING,
            "/broken",
            "an error on the server (\"out of order\") has prevented the request from succeeding",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("nonsense-{n}");
        let wanted = Wanted {
            kind,
            name: &name,
            namespace: ns,
            path,
            resources: "configmaps",
            operations: &["CREATE"],
        };
        let one = wanted.register(rest, hook);
        let reply = rest.call("POST", &maps(ns), &[], &map(&name, json!({"a": "b"})).to_string());
        let message = reply.refused(500, "InternalError");
        assert!(message.contains(why), "{path}: {message}");
        assert_eq!(rest.call("GET", &format!("{}/{name}", maps(ns)), &[], "").code, 404);
        rest.delete(&one);
    }
}

/// Configurations of webhooks are neither changed nor held by webhooks.
pub fn exempt(rest: &Rest, ns: &str, hook: &Hook) {
    for (n, (kind, path, operations)) in [
        (VALIDATING, "/deny-always", &["CREATE", "UPDATE", "DELETE"]),
        (MUTATING, "/add-label", &["CREATE", "UPDATE", "DELETE"]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("everything-{n}");
        let mut wanted = Wanted {
            kind,
            name: &name,
            namespace: "",
            path,
            resources: "admissionregistration.k8s.io/*",
            operations,
        }
        .build(&hook.client_config(path));
        wanted["webhooks"][0]["failurePolicy"] = json!("Fail");
        rest.create(&format!("{GROUP}/{}s", kind.to_lowercase()), &wanted);
    }
    hook.take();
    for kind in [VALIDATING, MUTATING] {
        let wanted = Wanted {
            kind,
            name: "victim",
            namespace: ns,
            path: "/allow",
            resources: "secrets",
            operations: &["CREATE"],
        };
        let one = wanted.register(rest, hook);
        assert_eq!(rest.get(&one)["metadata"]["labels"], json!({"from": "victim"}), "not changed");
        rest.delete(&one);
    }
    assert!(hook.take().is_empty(), "not asked");
    for (n, kind) in [VALIDATING, MUTATING].into_iter().enumerate() {
        rest.delete(&format!("{GROUP}/{}s/everything-{n}", kind.to_lowercase()));
    }
}

pub fn warned(rest: &Rest, ns: &str, hook: &Hook) {
    Wanted {
        kind: VALIDATING,
        name: "warn",
        namespace: ns,
        path: "/warn",
        resources: "configmaps",
        operations: &["CREATE"],
    }
    .register(rest, hook);
    let reply = rest.call("POST", &maps(ns), &[], &map("m", json!({})).to_string());
    assert_eq!(reply.warnings(), ["first", "second \"quoted\""]);
    // A dry run asks those without side effects, and says so.
    hook.take();
    rest.call("POST", &format!("{}?dryRun=All", maps(ns)), &[], &map("n", json!({})).to_string()).ok();
    assert_eq!(hook.take()[0].body["request"]["dryRun"], true);
    let path = format!("{GROUP}/validatingwebhookconfigurations/warn");
    let mut found = rest.get(&path);
    found["webhooks"][0]["sideEffects"] = json!("NoneOnDryRun");
    rest.replace(&path, &found);
    rest.call("POST", &format!("{}?dryRun=All", maps(ns)), &[], &map("n", json!({})).to_string()).ok();
}
