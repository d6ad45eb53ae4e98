//! Scale, binding, eviction, status, ephemeral containers.

use crate::support::*;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn deployment(replicas: i64) -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn scale() {
    let api = Fixture::new().await;
    let made = api.post(DEPLOYMENTS, &deployment(2)).await.expect(201);
    let uri = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = api.get(&uri).await.expect(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("a=b")));
    let table = api.get_as(&uri, "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect(200);
    let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(2), json!(0)]);
    scale["spec"]["replicas"] = 5.into();
    let put = api.put(&uri, &scale).await.expect(200);
    assert_eq!(put["spec"]["replicas"], 5);
    api.put(&uri, &scale).await.expect(409);
    let patched = api.patch(&uri, "merge-patch", &json!({"spec": {"replicas": 1}})).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 1);
    api.patch(&uri, "merge-patch", &json!({"spec": {"replicas": -1}})).await.expect(422);
    let object = api.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!((&object["spec"]["replicas"], &object["metadata"]["generation"]), (&json!(1), &json!(3)));
}

#[tokio::test]
async fn binding_happens_once() {
    let api = Fixture::new().await;
    api.post(PODS, &pod("p")).await.expect(201);
    let uri = format!("{PODS}/p/binding");
    let binding = |node: &str| {
        json!({"metadata": {"name": "p", "annotations": {"by": "me"}},
        "target": {"kind": "Node", "name": node}})
    };
    api.post(&uri, &binding("")).await.expect(422);
    let mut stale = binding("n1");
    stale["metadata"]["resourceVersion"] = json!("987654");
    let stale = api.post(&uri, &stale).await.expect(409);
    assert!(
        stale["message"].as_str().unwrap().contains("ResourceVersion in precondition: 987654,"),
        "{stale}"
    );
    let mut labelled = binding("n1");
    labelled["metadata"]["labels"] = json!({"zone": "not a value"});
    api.post(&uri, &labelled).await.expect(422);
    assert_eq!(api.post(&uri, &binding("n1")).await.expect(201)["status"], "Success");
    let pod = api.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(pod["spec"]["nodeName"], "n1");
    assert_eq!(pod["metadata"]["annotations"]["by"], "me");
    let scheduled = &pod["status"]["conditions"][0];
    assert_eq!((&scheduled["type"], &scheduled["status"]), (&json!("PodScheduled"), &json!("True")));
    let again = api.post("/api/v1/namespaces/default/bindings", &binding("n2")).await.expect(409);
    assert_eq!(
        again["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
    api.post(&format!("{PODS}/q/binding"), &json!({"target": {"name": "n"}})).await.expect(404);
}

#[tokio::test]
async fn evictions_respect_budgets() {
    let api = Fixture::new().await;
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"app": "x"}}}});
    api.post(BUDGETS, &budget).await.expect(201);
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2,
        "desiredHealthy": 1, "expectedPods": 2}});
    api.patch(&format!("{BUDGETS}/b/status"), "merge-patch", &status).await.expect(200);
    for name in ["p", "q"] {
        let mut body = pod(name);
        body["metadata"]["labels"] = json!({"app": "x"});
        api.post(PODS, &body).await.expect(201);
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let running = json!({"status": {"phase": "Running", "conditions": ready}});
        api.patch(&format!("{PODS}/{name}/status"), "merge-patch", &running).await.expect(200);
    }
    let evict = |name: &str| json!({"metadata": {"name": name}});
    api.post(&format!("{PODS}/p/eviction"), &evict("p")).await.expect(201);
    api.get(&format!("{PODS}/p")).await.expect(404);
    let mut older = evict("q");
    older["kind"] = "Eviction".into();
    older["apiVersion"] = "policy/v1beta1".into();
    let refused = api.post(&format!("{PODS}/q/eviction"), &older).await;
    assert_eq!(refused.expect(429)["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert!(refused.header("retry-after").is_empty());
    let message = |fields: &[&[u8]]| -> Vec<u8> {
        let put =
            |(tag, bytes): (u8, &[u8])| [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        (1..).zip(fields.iter().copied()).flat_map(put).collect()
    };
    let of_type = message(&[b"policy/v1beta1", b"Eviction"]);
    let object = message(&[&message(&[b"q"])]);
    let body = [b"k8s\0".as_slice(), &message(&[&of_type, &object])].concat();
    let uri = format!("{PODS}/q/eviction");
    let refused = api.ask("POST", &uri, "application/vnd.kubernetes.protobuf", body).await.expect(429);
    assert_eq!(refused["details"]["causes"][0]["reason"], "DisruptionBudget");
    api.get(&format!("{PODS}/q")).await.expect(200);
}

/// Whoever holds a pod by a finalizer sees why it goes, whatever it was doing.
#[tokio::test]
async fn evicted_pods_say_so_in_each_phase() {
    let api = Fixture::new().await;
    for phase in ["Pending", "Running", "Succeeded", "Failed"] {
        let name = phase.to_lowercase();
        let mut body = pod(&name);
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        api.post(PODS, &body).await.expect(201);
        let status = json!({ "status": { "phase": phase } });
        api.patch(&format!("{PODS}/{name}/status"), "merge-patch", &status).await.expect(200);
        let evict = json!({ "metadata": { "name": name }, "deleteOptions": { "dryRun": ["All"] } });
        api.post(&format!("{PODS}/{name}/eviction"), &evict).await.expect(201);
        let left = api.get(&format!("{PODS}/{name}")).await.expect(200);
        assert!(left["status"]["conditions"].is_null(), "tried only: {left}");
        api.post(&format!("{PODS}/{name}/eviction"), &json!({ "metadata": { "name": name } }))
            .await
            .expect(201);
        let held = api.get(&format!("{PODS}/{name}")).await.expect(200);
        assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
        let condition = &held["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
        );
    }
}

#[tokio::test]
async fn ephemeral_containers_are_only_added() {
    let api = Fixture::new().await;
    api.post(PODS, &pod("p")).await.expect(201);
    let uri = format!("{PODS}/p/ephemeralcontainers");
    let mut target = api.get(&uri).await.expect(200);
    target["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "busybox"}]);
    target["spec"]["containers"][0]["image"] = "other".into();
    let updated = api.put(&uri, &target).await.expect(200);
    assert_eq!(updated["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!(updated["spec"]["containers"][0]["image"], "i");
    let mut without = updated.clone();
    without["spec"]["ephemeralContainers"] = json!([]);
    let told = async |pod: &Value| {
        let refused = api.put(&uri, pod).await.expect(422);
        refused["details"]["causes"][0]["message"].as_str().unwrap().to_owned()
    };
    let debug = "Forbidden: existing ephemeral containers \"debug\" may not be";
    assert_eq!(told(&without).await, format!("{debug} removed\n"));
    let mut changed = updated.clone();
    changed["spec"]["ephemeralContainers"][0]["image"] = "other".into();
    let line = "  spec.ephemeralContainers.image: \"busybox\" -> \"other\"";
    assert_eq!(told(&changed).await, format!("{debug} changed\n{line}"));
}

/// The name stands in the address and in the object, also where only a part of it is written.
#[tokio::test]
async fn parts_name_their_object() {
    let api = Fixture::new().await;
    api.post(PODS, &pod("p")).await.expect(201);
    for sub in ["status", "ephemeralcontainers"] {
        let refused = api.put(&format!("{PODS}/p/{sub}"), &json!({})).await.expect(400);
        assert_eq!(
            refused["message"],
            "the name of the object (p based on URL) was undeterminable: name must be provided"
        );
    }
    let refused = api.put(&format!("{PODS}/nobody"), &pod("p")).await.expect(400);
    let other = "the name of the object (p) does not match the name on the URL (nobody)";
    assert_eq!(refused["message"], other, "also where nothing has that name");
    let refused = api.post(&format!("{PODS}/p/eviction"), &json!({})).await.expect(400);
    assert_eq!(refused["message"], "name in URL does not match name in Eviction object");
    api.get(&format!("{PODS}/p")).await.expect(200);
}
