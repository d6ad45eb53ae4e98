//! Mutating webhooks: patches of every kind, their order, and rounds.

use crate::support::{CONFIG_MAPS, PODS, config_map, pod};
use crate::webhooks_support::*;
use serde_json::{Value, json};

fn creates(resource: &str) -> Value {
    rule(&["CREATE"], &[resource])
}

/// Adds `to` if `from` is there.
fn chain(from: &'static str, to: &'static str) -> impl Fn(&Value) -> Reaction + Send + Sync {
    move |review| match review["request"]["object"]["data"].get(from) {
        Some(_) => patch(json!([{ "op": "add", "path": format!("/data/{to}"), "value": "yes" }])),
        None => allow(),
    }
}

#[tokio::test]
async fn one_after_the_other_in_the_order_of_names() {
    let server = server().await;
    let (first, second) = (hook(chain("k", "one")).await, hook(chain("one", "two")).await);
    configure(&server, MUTATING, "b", json!([entry("b.b.c", second.url("/"), creates("configmaps"))])).await;
    configure(&server, MUTATING, "a", json!([entry("z.b.c", first.url("/"), creates("configmaps"))])).await;
    let made = server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    assert_eq!(made["data"], json!({ "k": "v", "one": "yes", "two": "yes" }));
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/m")).await.expect(200), made);
    let seen = first.only();
    // What the server decides later is not there yet.
    for field in ["uid", "creationTimestamp", "resourceVersion", "generation"] {
        assert!(seen["object"]["metadata"][field].is_null(), "{field}");
    }
    server
        .patch(&format!("{CONFIG_MAPS}/m"), "merge-patch", &json!({ "data": { "x": "y" } }))
        .await
        .expect(200);
    assert_eq!(first.seen().len(), 1);
}

#[tokio::test]
async fn generated_names_come_later() {
    let server = server().await;
    let hook =
        hook(|_| patch(json!([{ "op": "add", "path": "/metadata/labels", "value": { "a": "b" } }]))).await;
    configure(&server, MUTATING, "a", json!([entry("a.b.c", hook.url("/"), creates("configmaps"))])).await;
    let body = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "generateName": "gen-" } });
    let made = server.post(CONFIG_MAPS, &body).await.expect(201);
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("gen-"));
    assert_eq!(made["metadata"]["labels"]["a"], "b");
    let seen = hook.only();
    assert!(seen["name"].is_null() && seen["object"]["metadata"]["name"].is_null());
}

#[tokio::test]
async fn what_was_patched_is_decoded_and_filled_in() {
    let server = server().await;
    let hook = hook(|_| {
        patch(json!([
            { "op": "add", "path": "/spec/initContainers", "value": [{ "name": "init", "image": "i", "extra": 1 }] },
            { "op": "add", "path": "/metadata/annotations", "value": { "a": "b" } },
            { "op": "add", "path": "/unknown", "value": "dropped" },
        ]))
    })
    .await;
    configure(&server, MUTATING, "a", json!([entry("a.b.c", hook.url("/"), creates("pods"))])).await;
    let made = server.post(PODS, &pod("p")).await.expect(201);
    let init = &made["spec"]["initContainers"][0];
    assert_eq!((&init["terminationMessagePolicy"], &init["extra"]), (&json!("File"), &Value::Null));
    assert_eq!((&made["metadata"]["annotations"]["a"], &made["unknown"]), (&json!("b"), &Value::Null));
}

#[tokio::test]
async fn patches_of_every_kind() {
    let server = server().await;
    let operations = |name: &str| match name {
        "replace" => json!([{ "op": "replace", "path": "/data/k", "value": "w" }]),
        "remove" => json!([{ "op": "remove", "path": "/data/k" }]),
        "copy" => json!([{ "op": "copy", "from": "/data/k", "path": "/data/l" }]),
        "move" => json!([{ "op": "move", "from": "/data/k", "path": "/data/l" }]),
        "test" => json!([{ "op": "test", "path": "/data/k", "value": "v" },
            { "op": "add", "path": "/data/t", "value": "1" }]),
        "empty" => json!([]),
        "same" => json!([{ "op": "replace", "path": "/data/k", "value": "v" }]),
        "fails" => json!([{ "op": "test", "path": "/data/k", "value": "other" }]),
        "typed" => json!([{ "op": "replace", "path": "/data", "value": 5 }]),
        "kind" => json!([{ "op": "replace", "path": "/kind", "value": "Secret" }]),
        "moves-away" => json!([{ "op": "replace", "path": "/metadata/namespace", "value": "elsewhere" }]),
        "no-list" => json!({ "op": "add" }),
        other => panic!("{other}"),
    };
    let hook = hook(move |review| patch(operations(review["request"]["name"].as_str().unwrap()))).await;
    configure(&server, MUTATING, "a", json!([entry("a.b.c", hook.url("/"), creates("configmaps"))])).await;
    for (name, data) in [
        ("replace", json!({ "k": "w" })),
        ("copy", json!({ "k": "v", "l": "v" })),
        ("move", json!({ "l": "v" })),
        ("test", json!({ "k": "v", "t": "1" })),
        ("empty", json!({ "k": "v" })),
        ("same", json!({ "k": "v" })),
    ] {
        let made = server.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
        assert_eq!(made["data"], data, "{name}");
    }
    let made = server.post(CONFIG_MAPS, &config_map("remove")).await.expect(201);
    assert!(made["data"].get("k").is_none());
    for (name, code) in [("fails", 500), ("typed", 500), ("kind", 500), ("no-list", 500), ("moves-away", 400)]
    {
        let status = server.post(CONFIG_MAPS, &config_map(name)).await.expect(code);
        assert!(!status["message"].as_str().unwrap().is_empty());
        server.get(&format!("{CONFIG_MAPS}/{name}")).await.expect(404);
    }
}

#[tokio::test]
async fn who_can_be_asked_again_is() {
    let server = server().await;
    let again = hook(|_| allow()).await;
    let once = hook(|_| allow()).await;
    let changes = hook(|_| patch(json!([{ "op": "add", "path": "/data/x", "value": "y" }]))).await;
    let entries = json!([
        with(
            entry("a.b.c", again.url("/"), creates("configmaps")),
            json!({ "reinvocationPolicy": "IfNeeded" })
        ),
        entry("b.b.c", once.url("/"), creates("configmaps")),
        entry("c.b.c", changes.url("/"), creates("configmaps")),
    ]);
    configure(&server, MUTATING, "a", entries).await;
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    assert_eq!((again.seen().len(), once.seen().len(), changes.seen().len()), (2, 1, 1));
    assert_eq!(again.seen()[1]["request"]["object"]["data"]["x"], "y");
    // Nobody changes anything: nobody is asked again.
    let update = json!({ "webhooks": [
        with(entry("a.b.c", again.url("/"), creates("configmaps")), json!({ "reinvocationPolicy": "IfNeeded" })),
        entry("b.b.c", once.url("/"), creates("configmaps")),
    ] });
    server.patch(&format!("{MUTATING}/a"), "merge-patch", &update).await.expect(200);
    server.post(CONFIG_MAPS, &config_map("n")).await.expect(201);
    assert_eq!((again.seen().len(), once.seen().len()), (3, 2));
}

#[tokio::test]
async fn other_versions_are_patched_in_their_own_form() {
    let server = server().await;
    let hook = hook(|_| {
        patch(json!([{ "op": "replace", "path": "/spec/metrics/0/resource/target/averageUtilization",
        "value": 70 }]))
    })
    .await;
    let rules = json!({ "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"] });
    configure(&server, MUTATING, "a", json!([entry("a.b.c", hook.url("/"), rules)])).await;
    let autoscaler = json!({ "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1",
        "metadata": { "name": "h" }, "spec": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": { "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" } } });
    let collection = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = server.post(collection, &autoscaler).await.expect(201);
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 70);
}

#[tokio::test]
async fn scales_and_streams_can_be_changed() {
    let server = server().await;
    let deployment = json!({ "kind": "Deployment", "apiVersion": "apps/v1", "metadata": { "name": "d" }, "spec": {
        "replicas": 2, "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.post(deployments, &deployment).await.expect(201);
    let hook = hook(|_| patch(json!([{ "op": "replace", "path": "/spec/replicas", "value": 3 }]))).await;
    configure(
        &server,
        MUTATING,
        "a",
        json!([entry("a.b.c", hook.url("/"), rule(&["UPDATE"], &["*/scale"]))]),
    )
    .await;
    let asked = json!({ "spec": { "replicas": 9 } });
    let scale = server.patch(&format!("{deployments}/d/scale"), "merge-patch", &asked).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let seen = hook.only();
    assert_eq!((&seen["object"]["spec"]["replicas"], &seen["subResource"]), (&json!(9), &json!("scale")));
}

#[tokio::test]
async fn deletions_cannot_be_changed() {
    let server = server().await;
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    let hook = hook(|review| match review["request"]["oldObject"]["metadata"]["name"].as_str() {
        Some("m") => patch(json!([{ "op": "add", "path": "/data", "value": {} }])),
        _ => allow(),
    })
    .await;
    configure(
        &server,
        MUTATING,
        "a",
        json!([entry("a.b.c", hook.url("/"), rule(&["DELETE"], &["configmaps"]))]),
    )
    .await;
    let status = server.delete(&format!("{CONFIG_MAPS}/m")).await.expect(500);
    let words = "Internal error occurred: admission webhook \"a.b.c\" attempted to modify the object, which is not \
                 supported for this operation";
    assert_eq!(status["message"], words);
    assert_eq!(hook.only()["object"], Value::Null);
}

/// A request that deletes a collection names no object, and its webhooks are told none.
#[tokio::test]
async fn deletions_of_collections_have_no_name() {
    let server = server().await;
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    let hook = hook(|_| allow()).await;
    let rules = rule(&["DELETE"], &["configmaps"]);
    configure(&server, VALIDATING, "a", json!([entry("a.b.c", hook.url("/"), rules)])).await;
    server.delete(CONFIG_MAPS).await.expect(200);
    let seen = hook.only();
    assert_eq!((&seen["name"], &seen["oldObject"]["metadata"]["name"]), (&Value::Null, &json!("m")));
    assert_eq!(seen["options"]["kind"], "DeleteOptions");
}

#[tokio::test]
async fn owners_that_nobody_can_read_are_not_taken() {
    let server = server().await;
    let hook = hook(|_| {
        patch(json!([{ "op": "replace", "path": "/metadata/managedFields", "value": [{ "manager": "x", "operation": "Odd" }] }]))
    })
    .await;
    configure(&server, MUTATING, "a", json!([entry("a.b.c", hook.url("/"), creates("configmaps"))])).await;
    let answer = server.post(CONFIG_MAPS, &config_map("m")).await;
    assert!(
        answer.header("warning").contains(".metadata.managedFields was in an invalid state after admission")
    );
    assert_eq!(answer.expect(201)["metadata"]["managedFields"][0]["operation"], "Update");
}

/// A webhook that puts the same owner there twice is set right, and told of.
#[tokio::test]
async fn owners_that_are_there_twice_after_admission_are_dropped() {
    let server = server().await;
    let owner = json!({ "kind": "Node", "apiVersion": "v1", "name": "n", "uid": "u" });
    let twice = json!([{ "op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner] }]);
    let hook = hook(move |_| patch(twice.clone())).await;
    let rules = rule(&["CREATE", "UPDATE"], &["configmaps"]);
    configure(&server, MUTATING, "a", json!([entry("a.b.c", hook.url("/"), rules)])).await;
    let words = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server \
                 dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your \
                 requests; duplicate UID(s) observed: u";
    let change = json!({ "data": { "a": "b" } });
    for answer in [
        server.post(CONFIG_MAPS, &config_map("m")).await,
        server.patch(&format!("{CONFIG_MAPS}/m"), "merge-patch", &change).await,
    ] {
        assert_eq!(answer.header("warning"), format!("299 - \"{words}\""));
        let object = answer.json();
        assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1), "{object}");
    }
}

/// What a webhook makes of the options of a stream is decoded like any object: what is unknown is dropped.
#[tokio::test]
async fn options_of_streams_can_be_changed() {
    let server = server().await;
    let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "i" }, { "name": "d", "image": "i" }] } });
    server.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    let first = hook(|_| {
        patch(json!([{ "op": "add", "path": "/unknown", "value": 1 },
        { "op": "add", "path": "/container", "value": "d" }]))
    })
    .await;
    let odd = hook(|_| patch(json!([{ "op": "add", "path": "/stdin", "value": "yes" }]))).await;
    let rules = |what: &str| rule(&["CONNECT"], &[what]);
    configure(
        &server,
        MUTATING,
        "a",
        json!([
            entry("a.b.c", first.url("/"), rules("pods/exec")),
            entry("b.b.c", odd.url("/"), rules("pods/attach"))
        ]),
    )
    .await;
    let last = hook(|_| deny("seen")).await;
    configure(&server, VALIDATING, "v", json!([entry("v.b.c", last.url("/"), rules("*/*"))])).await;
    let at = "/api/v1/namespaces/default/pods/p";
    let status =
        server.post(&format!("{at}/exec?container=c&command=ls&stdout=true"), &json!({})).await.expect(400);
    assert_eq!(status["message"], "admission webhook \"v.b.c\" denied the request: seen");
    let wanted = json!({ "kind": "PodExecOptions", "apiVersion": "v1", "container": "d", "command": ["ls"], "stdout": true });
    assert_eq!(last.only()["object"], wanted);
    let status = server.post(&format!("{at}/attach"), &json!({})).await.expect(500);
    assert!(status["message"].as_str().unwrap_or_default().contains("stdin"), "{status}");
}
