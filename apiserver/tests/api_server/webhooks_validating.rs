//! Validating webhooks: what they see, and what their word is worth.

use crate::support::{CONFIG_MAPS, PODS, config_map, labelled, pod};
use crate::webhooks_support::*;
use serde_json::{Value, json};

#[tokio::test]
async fn a_review_says_everything() {
    let server = server().await;
    let hook = hook(|_| allow()).await;
    let all = rule(&["*"], &["configmaps"]);
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", hook.url("/check/"), all)])).await;
    server
        .post(&format!("{CONFIG_MAPS}?fieldManager=me&fieldValidation=Strict"), &config_map("m"))
        .await
        .expect(201);
    let review = hook.seen().remove(0);
    assert_eq!(
        (&review["kind"], &review["apiVersion"]),
        (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
    );
    let mut request = review["request"].clone();
    let uid = request["uid"].take();
    assert_eq!(uid.as_str().unwrap().len(), 36);
    let object = request["object"].take();
    assert_eq!((&object["data"]["k"], &object["kind"]), (&json!("v"), &json!("ConfigMap")));
    assert!(object["metadata"]["uid"].is_string() && object["metadata"]["managedFields"].is_array());
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let wanted = json!({
        "uid": null, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "m", "namespace": "default", "operation": "CREATE",
        "userInfo": { "username": "jane", "groups": request["userInfo"]["groups"] },
        "object": null, "oldObject": null, "dryRun": false,
        "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
            "fieldValidation": "Strict" },
    });
    assert_eq!(request, wanted);
    assert_eq!(hook.uris(), ["/check?timeout=10s"]);
}

#[tokio::test]
async fn updates_show_both_and_deletions_the_old_one() {
    let server = server().await;
    let hook = hook(|_| allow()).await;
    let all = rule(&["UPDATE", "DELETE"], &["configmaps"]);
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", hook.url("/"), all)])).await;
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    let one = format!("{CONFIG_MAPS}/m");
    server.patch(&one, "merge-patch", &json!({ "data": { "k": "w" } })).await.expect(200);
    let body = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 3, "propagationPolicy": "Orphan",
        "dryRun": ["All"] });
    server.ask("DELETE", &one, "application/json", body.to_string()).await.expect(200);
    server.delete(&format!("{CONFIG_MAPS}?labelSelector=none")).await.expect(200);
    server.delete(CONFIG_MAPS).await.expect(200);
    let seen: Vec<Value> = hook.seen().iter().map(|review| review["request"].clone()).collect();
    assert_eq!(seen.len(), 3);
    assert_eq!(
        (&seen[0]["oldObject"]["data"]["k"], &seen[0]["object"]["data"]["k"]),
        (&json!("v"), &json!("w"))
    );
    assert_eq!(seen[0]["options"]["kind"], "UpdateOptions");
    assert_eq!((&seen[1]["object"], &seen[1]["oldObject"]["data"]["k"]), (&Value::Null, &json!("w")));
    assert!(seen[1]["oldObject"]["metadata"]["resourceVersion"].is_string());
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 3,
        "propagationPolicy": "Orphan", "dryRun": ["All"] });
    assert_eq!((&seen[1]["options"], &seen[1]["dryRun"]), (&options, &json!(true)));
    assert_eq!(
        (&seen[2]["operation"], &seen[2]["oldObject"]["metadata"]["name"]),
        (&json!("DELETE"), &json!("m"))
    );
}

#[tokio::test]
async fn refusals_are_passed_on() {
    let server = server().await;
    let hook = hook(|review| match review["request"]["name"].as_str().unwrap_or_default() {
        "words" => deny("not like this"),
        "nothing" => Reaction::Answer(json!({ "allowed": false })),
        "causes" => Reaction::Answer(json!({ "allowed": false, "warnings": ["look out", ""], "status": {
            "code": 418, "reason": "Teapot", "message": "short and stout",
            "details": { "causes": [{ "reason": "r", "message": "m", "field": "f" }] } } })),
        _ => allow(),
    })
    .await;
    let all = rule(&["CREATE"], &["configmaps"]);
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", hook.url("/"), all)])).await;
    let status = server.post(CONFIG_MAPS, &config_map("words")).await.expect(400);
    assert_eq!(status["message"], "admission webhook \"a.b.c\" denied the request: not like this");
    assert_eq!((&status["status"], &status["reason"]), (&json!("Failure"), &Value::Null));
    let status = server.post(CONFIG_MAPS, &config_map("nothing")).await.expect(400);
    assert_eq!(status["message"], "admission webhook \"a.b.c\" denied the request without explanation");
    let answer = server.post(CONFIG_MAPS, &config_map("causes")).await;
    assert_eq!(answer.header("warning"), "299 - \"look out\"");
    let status = answer.expect(418);
    assert_eq!((&status["reason"], &status["code"]), (&json!("Teapot"), &json!(418)));
    assert_eq!(status["details"]["causes"][0]["field"], "f");
    server.post(CONFIG_MAPS, &config_map("fine")).await.expect(201);
    let left = server.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn all_are_asked_at_once_and_the_first_refusal_counts() {
    let server = server().await;
    let wait = std::time::Duration::from_millis(300);
    let slow =
        hook(move |_| Reaction::Wait(wait, json!({ "allowed": false, "status": { "message": "slow" } })))
            .await;
    let quick = hook(|_| deny("quick")).await;
    let all = || rule(&["CREATE"], &["configmaps"]);
    configure(&server, VALIDATING, "b", json!([entry("q.b.c", quick.url("/"), all())])).await;
    let slows: Vec<Value> = (0..3).map(|i| entry(&format!("s{i}.b.c"), slow.url("/"), all())).collect();
    configure(&server, VALIDATING, "a", slows.into()).await;
    let began = std::time::Instant::now();
    let status = server.post(CONFIG_MAPS, &config_map("m")).await.expect(400);
    assert_eq!(status["message"], "admission webhook \"s0.b.c\" denied the request: slow");
    assert!(began.elapsed() < wait * 3, "{:?}", began.elapsed());
    assert_eq!((slow.seen().len(), quick.seen().len()), (3, 1));
}

#[tokio::test]
async fn selectors_choose() {
    let server = server().await;
    namespace(&server, "free", json!({ "skip": "yes" })).await;
    let hook = hook(|_| deny("no")).await;
    let outside = json!({ "matchExpressions": [{ "key": "skip", "operator": "DoesNotExist" }] });
    let all =
        entry("a.b.c", hook.url("/"), rule(&["CREATE", "UPDATE"], &["configmaps", "namespaces", "nodes"]));
    let webhook = with(
        all,
        json!({ "namespaceSelector": outside,
        "objectSelector": { "matchLabels": { "app": "web" } } }),
    );
    configure(&server, VALIDATING, "c", json!([webhook])).await;
    server.post(CONFIG_MAPS, &labelled("plain", "other")).await.expect(201);
    server.post(CONFIG_MAPS, &labelled("web", "web")).await.expect(400);
    server.post("/api/v1/namespaces/free/configmaps", &labelled("web", "web")).await.expect(201);
    // The old object's labels count, too.
    let one = "/api/v1/namespaces/free/configmaps/web";
    server.patch(one, "merge-patch", &json!({ "metadata": { "labels": { "app": "x" } } })).await.expect(200);
    // A Namespace is judged by its own labels.
    let named = |name: &str, labels: Value| json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": name, "labels": labels } });
    server.post("/api/v1/namespaces", &named("one", json!({ "app": "web" }))).await.expect(400);
    server.post("/api/v1/namespaces", &named("two", json!({ "app": "web", "skip": "y" }))).await.expect(201);
    // Nothing exempts what is in no namespace.
    let node = json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "name": "n", "labels": { "app": "web" } } });
    server.post("/api/v1/nodes", &node).await.expect(400);
}

#[tokio::test]
async fn rules_choose() {
    let server = server().await;
    let hook = hook(|_| deny("no")).await;
    for (i, (rules, refused)) in [
        (json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["*"] }), true),
        (json!({ "apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] }), false),
        (json!({ "apiGroups": ["*"], "apiVersions": ["v2"], "operations": ["*"], "resources": ["*"] }), false),
        (json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*/*"] }), false),
        (json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"] }), true),
        (json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/status"] }), false),
        (json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps/*"] }), true),
        (json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Cluster" }), false),
        (json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Namespaced" }), true),
    ]
    .into_iter()
    .enumerate()
    {
        configure(&server, VALIDATING, "c", json!([entry("a.b.c", hook.url("/"), rules.clone())])).await;
        let wanted = if refused { 400 } else { 201 };
        let answer = server.post(CONFIG_MAPS, &config_map(&format!("m{i}"))).await;
        assert_eq!(answer.status, wanted, "{rules}");
        server.delete(&format!("{VALIDATING}/c")).await.expect(200);
    }
}

#[tokio::test]
async fn subresources_show_their_own_kinds() {
    let server = server().await;
    server.post(PODS, &pod("p")).await.expect(201);
    let deployment = json!({ "kind": "Deployment", "apiVersion": "apps/v1", "metadata": { "name": "d" }, "spec": {
        "replicas": 2, "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.post(deployments, &deployment).await.expect(201);
    let hook = hook(|_| allow()).await;
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", hook.url("/"), rule(&["*"], &["*/*"]))])).await;
    let scale = json!({ "spec": { "replicas": 5 } });
    server.patch(&format!("{deployments}/d/scale"), "merge-patch", &scale).await.expect(200);
    let status = json!({ "status": { "phase": "Running" } });
    server.patch(&format!("{PODS}/p/status"), "merge-patch", &status).await.expect(200);
    let binding = json!({ "kind": "Binding", "apiVersion": "v1", "target": { "kind": "Node", "name": "n" } });
    server.post(&format!("{PODS}/p/binding"), &binding).await.expect(201);
    let eviction = json!({ "kind": "Eviction", "apiVersion": "policy/v1", "metadata": { "name": "p" } });
    server.post(&format!("{PODS}/p/eviction"), &eviction).await.expect(201);
    let review = json!({ "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": { "nonResourceAttributes": { "path": "/", "verb": "get" } } });
    server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.expect(201);
    let brief = |review: &Value| {
        let request = &review["request"];
        let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        format!(
            "{} {}/{} {} {} {}",
            text("/operation"),
            text("/resource/resource"),
            text("/subResource"),
            text("/kind/kind"),
            text("/object/kind"),
            text("/name")
        )
    };
    let seen: Vec<String> = hook.seen().iter().map(brief).collect();
    assert_eq!(
        seen,
        [
            "UPDATE deployments/scale Scale Scale d",
            "UPDATE pods/status Pod Pod p",
            "CREATE pods/binding Binding Binding p",
            "CREATE pods/eviction Eviction Eviction p",
            "CREATE selfsubjectaccessreviews/ SelfSubjectAccessReview SelfSubjectAccessReview ",
        ]
    );
    let scale = &hook.seen()[0]["request"];
    assert_eq!(
        (&scale["oldObject"]["spec"]["replicas"], &scale["object"]["spec"]["replicas"]),
        (&json!(2), &json!(5))
    );
    assert_eq!(scale["kind"], json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" }));
}

#[tokio::test]
async fn streams_are_connects() {
    let server = server().await;
    server.post(PODS, &pod("p")).await.expect(201);
    let hook = hook(|_| deny("attaching is forbidden")).await;
    let rules = rule(&["CONNECT"], &["pods/attach", "pods/exec", "pods/portforward", "services/proxy"]);
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", hook.url("/"), rules)])).await;
    let status = server
        .post(&format!("{PODS}/p/attach?container=c&stdin=true&tty=true"), &json!({}))
        .await
        .expect(400);
    assert_eq!(status["message"], "admission webhook \"a.b.c\" denied the request: attaching is forbidden");
    let request = hook.only();
    assert_eq!((&request["operation"], &request["subResource"]), (&json!("CONNECT"), &json!("attach")));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("p"), &json!("default")));
    assert_eq!((&request["options"], &request["oldObject"]), (&Value::Null, &Value::Null));
    let object = json!({ "kind": "PodAttachOptions", "apiVersion": "v1", "container": "c", "stdin": true, "tty": true });
    assert_eq!(request["object"], object);
    server.get(&format!("{PODS}/p/exec?command=ls&stdout=true")).await.expect(400);
    server.get("/api/v1/namespaces/default/services/s:80/proxy/a/b").await.expect(400);
    let seen = hook.seen();
    assert_eq!(seen[1]["request"]["object"]["command"], json!(["ls"]));
    assert_eq!(
        (&seen[2]["request"]["object"]["path"], &seen[2]["request"]["name"]),
        (&json!("a/b"), &json!("s:80"))
    );
    // Logs are read.
    server.get(&format!("{PODS}/p/log")).await.expect(503);
    assert_eq!(hook.seen().len(), 3);
}

#[tokio::test]
async fn other_versions_match_if_they_are_equivalent() {
    let server = server().await;
    let autoscaler = json!({ "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1",
        "metadata": { "name": "h" }, "spec": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": { "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" } } });
    let collection = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers?dryRun=All";
    let hook = hook(|_| allow()).await;
    let rules = json!({ "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"] });
    let entry = entry("a.b.c", hook.url("/"), rules);
    let exact = with(entry.clone(), json!({ "matchPolicy": "Exact" }));
    configure(&server, VALIDATING, "exact", json!([exact])).await;
    server.post(collection, &autoscaler).await.expect(201);
    assert!(hook.seen().is_empty());
    configure(&server, VALIDATING, "equivalent", json!([entry])).await;
    server.post(collection, &autoscaler).await.expect(201);
    let request = hook.only();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    assert_eq!(
        (&request["resource"]["version"], &request["requestResource"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
    assert_eq!(request["object"]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
}

#[tokio::test]
async fn conditions_choose() {
    let server = server().await;
    let hook = hook(|_| deny("no")).await;
    let entry = entry("a.b.c", hook.url("/"), rule(&["*"], &["configmaps"]));
    let skip = json!([{ "name": "not-me", "expression": "object.metadata.name != 'skip-me'" },
        { "name": "created", "expression": "request.operation == 'CREATE' && oldObject == null" }]);
    configure(&server, VALIDATING, "c", json!([with(entry.clone(), json!({ "matchConditions": skip }))]))
        .await;
    server.post(CONFIG_MAPS, &config_map("skip-me")).await.expect(201);
    server.post(CONFIG_MAPS, &config_map("me")).await.expect(400);
    server.delete(&format!("{CONFIG_MAPS}/skip-me")).await.expect(200);
    server.delete(&format!("{VALIDATING}/c")).await.expect(200);
    // What cannot be evaluated counts by the failure policy.
    let wrong = json!([{ "name": "wrong", "expression": "object.data.missing == 'x'" }]);
    let entry = with(entry, json!({ "matchConditions": wrong }));
    configure(&server, VALIDATING, "c", json!([entry])).await;
    let status = server.post(CONFIG_MAPS, &config_map("m")).await.expect(403);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("configmaps \"m\" is forbidden: ") && message.contains("no such key"),
        "{message}"
    );
    let ignoring = json!({ "webhooks": [with(entry, json!({ "failurePolicy": "Ignore" }))] });
    server.patch(&format!("{VALIDATING}/c"), "merge-patch", &ignoring).await.expect(200);
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    assert_eq!(hook.seen().len(), 1);
}

#[tokio::test]
async fn configurations_are_exempt_and_count_at_once() {
    let server = server().await;
    let hook = hook(|_| deny("no")).await;
    let everything = rule(&["*"], &["*/*"]);
    for i in 0..3 {
        let name = format!("c{i}");
        configure(&server, VALIDATING, &name, json!([entry("a.b.c", hook.url("/"), everything.clone())]))
            .await;
        configure(&server, MUTATING, &name, json!([entry("a.b.c", hook.url("/"), everything.clone())])).await;
    }
    let listed = server.get(&format!("{VALIDATING}?labelSelector=test=yes")).await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
    assert!(hook.seen().is_empty());
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(400);
    let none = json!({ "webhooks": [entry("a.b.c", hook.url("/"), rule(&["DELETE"], &["configmaps"]))] });
    for collection in [VALIDATING, MUTATING] {
        server.patch(&format!("{collection}/c0"), "merge-patch", &none).await.expect(200);
    }
    server.delete(&format!("{MUTATING}/c1")).await.expect(200);
    server.delete(&format!("{MUTATING}/c2")).await.expect(200);
    server.delete(&format!("{VALIDATING}?labelSelector=test=yes")).await.expect(200);
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    server.delete(&format!("{CONFIG_MAPS}/m")).await.expect(400);
}
