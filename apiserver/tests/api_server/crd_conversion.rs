//! Conversion by webhooks: two versions of one kind, and what happens when the webhook does not do its work.

use crate::crd_definitions::{CRDS, established, fixture};
use crate::support::Fixture;
use crate::webhooks_support::{Hook, Reaction, hook};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// `v1` has `spec.hostPort: "host:port"`, `v2` has `spec.host` and `spec.port`; `v1` is stored.
fn definition(hook: &Hook, group: &str) -> Value {
    let version = |name: &str, storage: bool, properties: Value| {
        json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": { "type": "object",
            "properties": { "spec": { "type": "object", "properties": properties } } } } })
    };
    let text = json!({ "type": "string" });
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("hosts.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": "hosts", "kind": "Host" },
            "conversion": { "strategy": "Webhook",
                "webhook": { "clientConfig": hook.url("/convert"), "conversionReviewVersions": ["v1"] } },
            "versions": [version("v1", true, json!({ "hostPort": text })),
                version("v2", false, json!({ "host": text, "port": text }))] } })
}

fn converted(object: &Value, wanted: &str) -> Value {
    let mut new = object.clone();
    new["apiVersion"] = wanted.into();
    if let Some(both) = object["spec"]["hostPort"].as_str().filter(|_| wanted.ends_with("v2")) {
        let (host, port) = both.split_once(':').unwrap();
        new["spec"] = json!({ "host": host, "port": port });
    } else if wanted.ends_with("v1") && object["spec"]["host"].is_string() {
        let spec = &object["spec"];
        new["spec"] = json!({ "hostPort": format!("{}:{}", spec["host"].as_str().unwrap(), spec["port"].as_str().unwrap()) });
    }
    new
}

/// The answer that a good webhook gives.
fn good(review: &Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let objects: Vec<Value> =
        request["objects"].as_array().unwrap().iter().map(|object| converted(object, wanted)).collect();
    json!({ "kind": "ConversionReview", "apiVersion": review["apiVersion"],
        "response": { "uid": request["uid"], "result": { "status": "Success" }, "convertedObjects": objects } })
}

fn host(group: &str, version: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": format!("{group}/{version}"), "kind": "Host", "metadata": { "name": name }, "spec": spec })
}

async fn serve(answer: impl Fn(&Value) -> Reaction + Send + Sync + 'static, group: &str) -> (Fixture, Hook) {
    let hook = hook(answer).await;
    let fixture = fixture().await;
    established(&fixture, &definition(&hook, group)).await;
    (fixture, hook)
}

#[tokio::test]
async fn objects_are_seen_and_written_in_both_versions() {
    let (fixture, hook) = serve(|review| Reaction::Raw(200, good(review).to_string()), "a.convert.io").await;
    let of = |version: &str| format!("/apis/a.convert.io/{version}/namespaces/default/hosts");
    fixture
        .post(&of("v1"), &host("a.convert.io", "v1", "one", json!({ "hostPort": "a:1" })))
        .await
        .expect(201);
    assert!(hook.seen().is_empty(), "what is asked for as it is stored needs no webhook");
    let two = host("a.convert.io", "v2", "two", json!({ "host": "b", "port": "2" }));
    let stored = fixture.post(&of("v2"), &two).await.expect(201);
    assert_eq!(stored["spec"], json!({ "host": "b", "port": "2" }));
    assert_eq!(fixture.get(&format!("{}/two", of("v1"))).await.expect(200)["spec"]["hostPort"], "b:2");
    assert_eq!(fixture.get(&format!("{}/one", of("v2"))).await.expect(200)["spec"]["host"], "a");

    let before = hook.seen().len();
    let list = fixture.get(&of("v2")).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][1]["spec"]["port"], "2");
    let reviews = hook.seen().split_off(before);
    assert_eq!(reviews.len(), 1, "a list is one review");
    assert_eq!(reviews[0]["request"]["objects"].as_array().unwrap().len(), 2);

    let patch = json!({ "spec": { "port": "9" } });
    let patched = fixture.patch(&format!("{}/one", of("v2")), "merge-patch", &patch).await.expect(200);
    assert_eq!(patched["spec"], json!({ "host": "a", "port": "9" }));
    assert_eq!(fixture.get(&format!("{}/one", of("v1"))).await.expect(200)["spec"]["hostPort"], "a:9");

    let mut events = fixture.watch(&format!("{}?watch=true", of("v2"))).await;
    let first = events.next().await.unwrap();
    assert_eq!(
        (&first["object"]["apiVersion"], &first["object"]["spec"]["host"]),
        (&json!("a.convert.io/v2"), &json!("a"))
    );
}

#[tokio::test]
async fn nonsense_is_told_and_hurts_nobody_else() {
    let head = "conversion webhook for b.convert.io/v1, Kind=Host";
    for (answer, want) in [
        ("{}", format!("{head} failed: no response provided")),
        ("no json", format!("{head} failed: ")),
        (
            r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"x"}}"#,
            format!("{head} failed: expected response.uid="),
        ),
    ] {
        let (fixture, _hook) = serve(move |_| Reaction::Raw(200, answer.to_owned()), "b.convert.io").await;
        let of = |version: &str| format!("/apis/b.convert.io/{version}/namespaces/default/hosts");
        fixture
            .post(&of("v1"), &host("b.convert.io", "v1", "one", json!({ "hostPort": "a:1" })))
            .await
            .expect(201);
        let error = fixture.get(&format!("{}/one", of("v2"))).await.expect(500);
        assert!(error["message"].as_str().unwrap().starts_with(&want), "{error}");
        let two = host("b.convert.io", "v2", "two", json!({ "host": "b", "port": "2" }));
        assert_eq!(fixture.post(&of("v2"), &two).await.status, 500);
        assert_eq!(fixture.get(&format!("{}/two", of("v1"))).await.status, 404, "nothing is half stored");
        fixture.get(&format!("{}/one", of("v1"))).await.expect(200);
        fixture.get("/api/v1/namespaces").await.expect(200);
    }
}

#[tokio::test]
async fn a_refusal_is_passed_on_and_metadata_is_kept() {
    let refuse = |review: &Value| {
        let uid = &review["request"]["uid"];
        let failure = json!({ "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": { "uid": uid, "result": { "status": "Failure", "message": "not today" } } });
        let mut rename = good(review);
        rename["response"]["convertedObjects"][0]["metadata"]["name"] = "other".into();
        let named = review["request"]["objects"][0]["metadata"]["name"] == "renamed";
        Reaction::Raw(200, if named { rename } else { failure }.to_string())
    };
    let (fixture, _hook) = serve(refuse, "c.convert.io").await;
    let of = |version: &str| format!("/apis/c.convert.io/{version}/namespaces/default/hosts");
    for name in ["one", "renamed"] {
        let object = host("c.convert.io", "v1", name, json!({ "hostPort": "a:1" }));
        fixture.post(&of("v1"), &object).await.expect(201);
    }
    let error = fixture.get(&format!("{}/one", of("v2"))).await.expect(500);
    assert_eq!(error["message"], "conversion webhook for c.convert.io/v1, Kind=Host failed: not today");
    let error = fixture.get(&format!("{}/renamed", of("v2"))).await.expect(500);
    assert_eq!(
        error["message"],
        "conversion webhook for c.convert.io/v1, Kind=Host returned invalid object: must have the same name: renamed != other"
    );
    let error = fixture.get(&of("v2")).await.expect(500);
    assert_eq!(error["message"], "conversion webhook for c.convert.io/v1, Kind=HostList failed: not today");
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_nobody_else_and_its_definition_can_go() {
    let (fixture, hook) = serve(|_| Reaction::Hang, "d.convert.io").await;
    let of = |version: &str| format!("/apis/d.convert.io/{version}/namespaces/default/hosts");
    fixture
        .post(&of("v1"), &host("d.convert.io", "v1", "one", json!({ "hostPort": "a:1" })))
        .await
        .expect(201);
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let (fixture, uri) = (fixture.clone(), format!("{}/one", of("v2")));
            tokio::spawn(async move { fixture.get(&uri).await.status })
        })
        .collect();
    // Half of them are with the webhook, and nobody has an answer.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while hook.seen().len() < 50 {
        assert!(std::time::Instant::now() < deadline, "{} questions", hook.seen().len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(waiting.iter().all(|task| !task.is_finished()));
    let begun = std::time::Instant::now();
    fixture.get(&format!("{}/one", of("v1"))).await.expect(200);
    fixture.get("/api/v1/namespaces").await.expect(200);
    fixture.delete(&format!("{CRDS}/hosts.d.convert.io")).await.expect(200);
    crate::crd_definitions::until(&fixture, "hosts.d.convert.io", Value::is_null).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A webhook that asks for the very object that it is to convert calls itself. There is an end to it, and nobody else
/// notices.
#[tokio::test]
async fn a_webhook_that_calls_itself_comes_to_an_end() {
    let server: Arc<OnceLock<Fixture>> = Arc::default();
    let own = server.clone();
    let again = move |_: &Value| {
        let fixture = own.get().unwrap().clone();
        tokio::spawn(async move { fixture.get("/apis/e.convert.io/v2/namespaces/default/hosts/one").await });
        Reaction::Hang
    };
    let (fixture, hook) = serve(again, "e.convert.io").await;
    assert!(server.set(fixture.clone()).is_ok());
    let of = |version: &str| format!("/apis/e.convert.io/{version}/namespaces/default/hosts");
    let one = host("e.convert.io", "v1", "one", json!({ "hostPort": "a:1" }));
    fixture.post(&of("v1"), &one).await.expect(201);
    let begun = std::time::Instant::now();
    let answer = fixture.get(&format!("{}/one?timeout=1s", of("v2"))).await;
    assert!(answer.status.is_server_error(), "{}", answer.status);
    fixture.get(&format!("{}/one", of("v1"))).await.expect(200);
    fixture.get("/api/v1/namespaces").await.expect(200);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let asked = hook.seen().len();
    // Another one that asks for it waits as long, and the questions do not go on meanwhile.
    let answer = fixture.get(&format!("{}/one?timeout=1s", of("v2"))).await;
    assert!(answer.status.is_server_error(), "{}", answer.status);
    assert!(asked > 1 && hook.seen().len() <= 65, "{asked} questions, then {}", hook.seen().len());
}

/// A webhook need not give back what it was given: the answer to a write is what is read afterwards.
#[tokio::test]
async fn a_write_is_answered_with_what_is_read() {
    let otherwise = |review: &Value| {
        let mut answer = good(review);
        let objects = answer["response"]["convertedObjects"].as_array_mut().unwrap();
        for object in objects.iter_mut().filter(|object| object["apiVersion"] == "f.convert.io/v2") {
            object["spec"]["host"] = "otherwise".into();
        }
        Reaction::Raw(200, answer.to_string())
    };
    let (fixture, _hook) = serve(otherwise, "f.convert.io").await;
    let hosts = "/apis/f.convert.io/v2/namespaces/default/hosts";
    let sent = host("f.convert.io", "v2", "one", json!({ "host": "a", "port": "1" }));
    let made = fixture.post(hosts, &sent).await.expect(201);
    assert_eq!(made["spec"]["host"], "otherwise");
    assert_eq!(fixture.get(&format!("{hosts}/one")).await.expect(200), made);
}
