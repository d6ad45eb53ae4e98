//! Priority and fairness from the outside.

use crate::support::*;
use axum::body::Body;
use coracle_api::UserInfo;
use coracle_apiserver::flowcontrol;
use coracle_apiserver::http::RequestInfo;
use coracle_apiserver::server::EdgeOptions;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// Asks until the answer is as it should be.
async fn until(fixture: &Fixture, uri: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let answer = fixture.get(uri).await;
        let value = if answer.status == 200 { answer.json() } else { Value::Null };
        if holds(&value) {
            return value;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{uri} stays {value}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn maintained() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.api.maintain_flow_control();
    until(&fixture, SCHEMAS, |list| {
        list["items"].as_array().is_some_and(|items| {
            items.len() == 13 && items.iter().all(|s| s["status"]["conditions"][0]["status"] == "False")
        })
    })
    .await;
    fixture
}

#[tokio::test]
async fn the_default_objects_come_by_themselves_and_come_back() {
    let fixture = maintained().await;
    assert_eq!(fixture.get("/readyz").await.status, 200);
    let levels = fixture.get(LEVELS).await.expect(200);
    assert_eq!(levels["items"].as_array().unwrap().len(), 8);
    let before = fixture.get(&format!("{LEVELS}/catch-all")).await.expect(200);
    fixture.delete(&format!("{LEVELS}/catch-all")).await.expect(200);
    let after = until(&fixture, &format!("{LEVELS}/catch-all"), Value::is_object).await;
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    // A change of a suggested object is taken back while its annotation says so.
    let change = json!({ "spec": { "matchingPrecedence": 9901 } });
    let path = format!("{SCHEMAS}/global-default");
    fixture.patch(&path, "merge-patch", &change).await.expect(200);
    until(&fixture, &path, |schema| schema["spec"]["matchingPrecedence"] == 9900).await;
    let mine = json!({ "metadata": { "annotations": { "apf.kubernetes.io/autoupdate-spec": "false" } },
        "spec": { "matchingPrecedence": 9902 } });
    fixture.patch(&path, "merge-patch", &mine).await.expect(200);
    // What is changed after it is taken back, so whoever does that has seen this one too.
    let later = format!("{SCHEMAS}/service-accounts");
    fixture.patch(&later, "merge-patch", &change).await.expect(200);
    until(&fixture, &later, |schema| schema["spec"]["matchingPrecedence"] == 9000).await;
    assert_eq!(fixture.get(&path).await.json()["spec"]["matchingPrecedence"], 9902);
    let fixed = fixture.patch(&format!("{SCHEMAS}/exempt"), "merge-patch", &change).await.expect(422);
    assert!(
        fixed["message"].as_str().unwrap().contains("spec of 'exempt' must equal the fixed value"),
        "{fixed}"
    );
}

fn schema(name: &str, level: &str, user: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": { "name": name },
        "spec": { "matchingPrecedence": 50, "priorityLevelConfiguration": { "name": level },
            "rules": [{ "subjects": [{ "kind": "User", "user": { "name": user } }],
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                    "clusterScope": true }] }] },
    })
}

fn level(name: &str, response: &Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": name },
        "spec": { "type": "Limited", "limited": { "nominalConcurrencyShares": 1, "limitResponse": response } },
    })
}

#[tokio::test]
async fn answers_name_the_schema_and_the_level() {
    let fixture = maintained().await;
    let alice = fixture.as_user(Some(UserInfo::authenticated("alice", &[])));
    let uid = |value: &Value| value["metadata"]["uid"].as_str().unwrap().to_owned();
    let own = uid(&fixture.post(SCHEMAS, &schema("mine", "mine", "alice")).await.expect(201));
    let default = uid(&fixture.get(&format!("{SCHEMAS}/global-default")).await.expect(200));
    assert_eq!(alice.get(CONFIG_MAPS).await.header("x-kubernetes-pf-flowschema-uid"), default);
    until(&fixture, &format!("{SCHEMAS}/mine"), |s| s["status"]["conditions"][0]["reason"] == "NotFound")
        .await;
    let made = fixture.post(LEVELS, &level("mine", &json!({ "type": "Reject" }))).await.expect(201);
    until(&fixture, &format!("{SCHEMAS}/mine"), |s| s["status"]["conditions"][0]["reason"] == "Found").await;
    let answer = alice.get(CONFIG_MAPS).await;
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), own);
    assert_eq!(answer.header("x-kubernetes-pf-prioritylevel-uid"), uid(&made));
    let table = fixture.get_as(SCHEMAS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect(200);
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(
        columns,
        ["Name", "PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"]
    );
    let row = table["rows"].as_array().unwrap().iter().find(|r| r["cells"][0] == "mine").unwrap();
    assert_eq!(row["cells"][5], "False");
}

/// Who finds no seat is refused as upstream refuses. A request whose body does not come gives its seat back.
#[tokio::test]
async fn a_level_without_seats_refuses() {
    let options = EdgeOptions {
        flow: flowcontrol::Options { total_seats: 1, ..flowcontrol::Options::default() },
        ..EdgeOptions::default()
    };
    let fixture = Fixture::with_options(options).await;
    fixture.api.maintain_flow_control();
    until(&fixture, SCHEMAS, |list| list["items"].as_array().is_some_and(|items| items.len() == 13)).await;
    fixture.post(LEVELS, &level("mine", &json!({ "type": "Reject" }))).await.expect(201);
    fixture.post(SCHEMAS, &schema("mine", "mine", "alice")).await.expect(201);
    until(&fixture, &format!("{SCHEMAS}/mine"), |s| s["status"]["conditions"][0]["reason"] == "Found").await;
    let alice = fixture.as_user(Some(UserInfo::authenticated("alice", &[])));
    let user = UserInfo::authenticated("alice", &[]);
    let info = RequestInfo::new(&Method::GET, &CONFIG_MAPS.parse().unwrap());
    let control = fixture.api.flow_control();
    let flow = control.classify(&user, &info).unwrap();
    let seat = control.enter(&flow, 1, flowcontrol::Asker { user: &user.name, info: &info }).await.ok();
    assert!(seat.is_some(), "the level's only seat");
    let refused = alice.get(CONFIG_MAPS).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(refused.header("x-content-type-options"), "nosniff");
    assert_eq!(refused.body, "Too many requests, please try again later.\n");
    assert_eq!(fixture.get(CONFIG_MAPS).await.status, 200, "administrators are exempt");
    drop(seat);
    assert_eq!(alice.get(CONFIG_MAPS).await.status, 200);
    let endless = Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let request =
        Request::post(CONFIG_MAPS).header("content-type", "application/json").body(endless).unwrap();
    let waiting = tokio::spawn({
        let alice = alice.clone();
        async move { alice.send(request).await.status() }
    });
    tokio::task::yield_now().await;
    answered(&alice).await;
    assert!(!waiting.is_finished(), "it still waits for its body");
    assert_eq!(waiting.await.unwrap(), 504);
    let again = || control.enter(&flow, 1, flowcontrol::Asker { user: &user.name, info: &info });
    an_answer_waits_without_a_seat(&alice, again).await;
}

/// An answer that is made while it is sent gives its seat back when nobody takes it, and has one again before it goes on.
async fn an_answer_waits_without_a_seat<F>(alice: &Fixture, enter: impl Fn() -> F)
where
    F: Future<Output = Result<flowcontrol::Ticket, flowcontrol::Refusal>>,
{
    let count = 4;
    for number in 0..count {
        let mut large = config_map(&format!("large{number}"));
        large["data"] = json!({ "text": "x".repeat(60_000) });
        alice.post(CONFIG_MAPS, &large).await.expect(201);
    }
    let list = || alice.send(Request::get(CONFIG_MAPS).body(Body::empty()).unwrap());
    let untaken = list().await;
    assert_eq!(untaken.status(), 200);
    answered(alice).await;
    let seat = enter().await.ok();
    assert!(seat.is_some(), "the level's only seat");
    let mut reading = Box::pin(untaken.into_body().collect());
    let soon = Duration::from_millis(50);
    assert!(tokio::time::timeout(soon, reading.as_mut()).await.is_err(), "it goes on without a seat");
    drop(seat);
    let whole = reading.await.unwrap().to_bytes();
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(whole["items"].as_array().unwrap().len(), count);
}

/// Waits until there is a seat; well below the time that a body may take.
async fn answered(client: &Fixture) {
    let began = Instant::now();
    while client.get(CONFIG_MAPS).await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(3), "no seat");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_greedy_client_starves_nobody() {
    let options = EdgeOptions {
        flow: flowcontrol::Options { total_seats: 24, ..flowcontrol::Options::default() },
        ..EdgeOptions::default()
    };
    let fixture = Fixture::with_options(options).await;
    for number in 0..300 {
        fixture.post(CONFIG_MAPS, &config_map(&format!("c{number}"))).await.expect(201);
    }
    let greedy = fixture.as_user(Some(UserInfo::authenticated("greedy", &[])));
    let greedy_tasks: Vec<_> = (0..200)
        .map(|_| {
            let greedy = greedy.clone();
            tokio::spawn(async move {
                loop {
                    greedy.get(CONFIG_MAPS).await;
                    // An answer in memory may come at once, and a task that never waits cannot be ended.
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let modest = fixture.as_user(Some(UserInfo::authenticated("modest", &[])));
    let mut times = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        modest.get(&format!("{CONFIG_MAPS}/c1")).await.expect(200);
        times.push(began.elapsed());
    }
    greedy_tasks.iter().for_each(tokio::task::JoinHandle::abort);
    times.sort();
    assert!(times[98] < Duration::from_secs(1), "p99 {:?}, worst {:?}", times[98], times[99]);
}

/// Tasks of one thread run in the order in which they were made, so whoever comes last waits for all who never pause.
/// Only lists that have seats may come first: three each, of the level's 49.
#[tokio::test]
async fn long_answers_let_others_pass() {
    let fixture = Fixture::new().await;
    for number in 0..300 {
        fixture.post(CONFIG_MAPS, &config_map(&format!("c{number}"))).await.expect(201);
    }
    let mut tasks = tokio::task::JoinSet::new();
    let ask = |user: &str, uri: String| {
        let asking = fixture.as_user(Some(UserInfo::authenticated(user, &[])));
        let user = user.to_owned();
        async move {
            asking.get(&uri).await.expect(200);
            user
        }
    };
    for _ in 0..50 {
        tasks.spawn(ask("greedy", CONFIG_MAPS.to_owned()));
    }
    tasks.spawn(ask("modest", format!("{CONFIG_MAPS}/c1")));
    let mut first = 0;
    while tasks.join_next().await.unwrap().unwrap() != "modest" {
        first += 1;
    }
    assert!(first < 25, "{first} lists came first");
}

/// What the conformance tests of both kinds do.
#[tokio::test]
async fn both_kinds_have_every_verb() {
    let fixture = Fixture::new().await;
    let labelled = |mut object: Value, name: &str| {
        object["metadata"] = json!({ "name": name, "labels": { "test": "yes" } });
        object
    };
    let condition = json!({ "type": "Busy", "status": "False", "reason": "Test", "message": "m",
        "lastTransitionTime": "2024-01-01T00:00:00Z" });
    for (path, object) in [
        (SCHEMAS, schema("", "catch-all", "alice")),
        (LEVELS, level("", &json!({ "type": "Queue", "queuing": {} }))),
    ] {
        let made = fixture.post(path, &labelled(object.clone(), "one")).await.expect(201);
        assert_eq!(made["metadata"]["generation"], 1);
        fixture.post(path, &labelled(object, "two")).await.expect(201);
        let list = fixture.get(&format!("{path}?labelSelector=test%3Dyes")).await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let mut watch = fixture.watch(&format!("{path}?watch=1&resourceVersion={version}")).await;
        let one = format!("{path}/one");
        let patch = json!({ "metadata": { "annotations": { "patched": "true" } } });
        let patched = fixture.patch(&one, "merge-patch", &patch).await.expect(200);
        assert_eq!(patched["metadata"]["annotations"]["patched"], "true");
        let mut update = patched.clone();
        update["metadata"]["annotations"]["updated"] = "true".into();
        let updated = fixture.put(&one, &update).await.expect(200);
        let status = json!({ "status": { "conditions": [condition] } });
        let patched = fixture.patch(&format!("{one}/status"), "merge-patch", &status).await.expect(200);
        assert_eq!(patched["status"]["conditions"][0]["type"], "Busy");
        assert_eq!(patched["metadata"]["generation"], updated["metadata"]["generation"]);
        let mut update = patched.clone();
        update["status"]["conditions"][0]["message"] = "other".into();
        let updated = fixture.put(&format!("{one}/status"), &update).await.expect(200);
        assert_eq!(updated["status"]["conditions"][0]["message"], "other");
        assert_eq!(fixture.get(&format!("{one}/status")).await.expect(200)["status"], updated["status"]);
        fixture.delete(&one).await.expect(200);
        for expected in ["MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"] {
            assert_eq!(watch.brief().await, format!("{expected} one"));
        }
        fixture.get(&one).await.expect(404);
        fixture.delete(&format!("{path}?labelSelector=test%3Dyes")).await.expect(200);
        fixture.get(&format!("{path}/two")).await.expect(404);
    }
}

/// On a runtime of one thread that answers requests, whoever holds it up holds up everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reading_a_large_body_keeps_nobody_waiting() {
    let fixture = Fixture::new().await;
    let body = format!("kind: ConfigMap\napiVersion: v1\nlist:\n{}", "- {a: b}\n".repeat(150_000));
    let sender = fixture.clone();
    let large =
        tokio::spawn(async move { sender.ask("POST", CONFIG_MAPS, "application/yaml", body).await.status });
    let gets = tokio::spawn(async move {
        let mut answered = 0;
        while !large.is_finished() {
            fixture.get(CONFIG_MAPS).await.expect(200);
            answered += 1;
            tokio::task::yield_now().await;
        }
        (large.await.unwrap(), answered)
    });
    let (status, answered) = gets.await.unwrap();
    assert!(status.is_client_error(), "it has no name: {status}");
    assert!(answered > 10, "{answered} gets were answered meanwhile");
}
