//! Several versions of custom resources: conversion by a webhook, storage versions, field selectors across versions.

use crate::{Suite, eventually};
use coracle_tests::custom::{self, DEFINITIONS, definition, install, version};
use coracle_tests::hook::{Hook, Told, review};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// v1 has `hostPort: "a:1"`, v2 `host: "a"` and `port: "1"`.
fn convert(object: &mut Value, version: &str) {
    let fields = object.as_object_mut().expect("an object");
    if version.ends_with("/v2") {
        if let Some(Value::String(both)) = fields.remove("hostPort") {
            let (host, port) = both.split_once(':').unwrap_or((&both, ""));
            fields.insert("host".to_owned(), json!(host));
            fields.insert("port".to_owned(), json!(port));
        }
    } else if let (Some(host), Some(port)) = (fields.remove("host"), fields.remove("port")) {
        let both = format!("{}:{}", host.as_str().unwrap_or_default(), port.as_str().unwrap_or_default());
        fields.insert("hostPort".to_owned(), json!(both));
    }
}

fn two_versions(group: &str, client: &Value) -> Value {
    let text = |fields: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties})
    };
    let mut v2 = version("v2", text(&["host", "port"]));
    v2["selectableFields"] = json!([{"jsonPath": ".host"}]);
    let mut v1 = version("v1", text(&["hostPort"]));
    v1["selectableFields"] = json!([{"jsonPath": ".hostPort"}]);
    let mut made = definition(group, "ends", "End", &[v1, v2]);
    made["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    });
    made
}

fn end(group: &str, version: &str, name: &str, both: &str) -> Value {
    let mut object = json!({"apiVersion": format!("{group}/v1"), "kind": "End", "metadata": {"name": name}, "hostPort": both});
    convert(&mut object, &format!("/{version}"));
    object["apiVersion"] = json!(format!("{group}/{version}"));
    object
}

#[test]
fn versions_are_converted_by_webhooks() {
    let mut suite = Suite::start();
    let hook = Hook::start(|call| review::converted(call, convert));
    suite.check_in("v1-to-v2", |rest, ns| one_object(rest, ns, &hook));
    suite.check_in("hooks", |rest, ns| by_service(rest, ns, &hook));
    suite.check_in("mixed", |rest, ns| mixed(rest, ns, &hook));
    suite.check_in("fields", |rest, ns| fields(rest, ns, &hook));
    suite.check_in("nonsense", nonsense);
    suite.check_in("unreachable", unreachable);
    suite.check_in("no-webhook", without);
    suite.end();
}

fn one_object(rest: &Rest, ns: &str, hook: &Hook) {
    let made = install(rest, &two_versions("one.example.com", &hook.client_config("/convert")));
    let (v1, v2) = (custom::path(&made, "v1", ns), custom::path(&made, "v2", ns));
    rest.create(&v1, &end("one.example.com", "v1", "e", "a:1"));
    let read = rest.get(&format!("{v2}/e"));
    assert_eq!((&read["host"], &read["port"], &read["hostPort"]), (&json!("a"), &json!("1"), &Value::Null));
    assert_eq!(read["apiVersion"], "one.example.com/v2");
    // Writes, patches and applies of the other version are stored in this one.
    rest.merge(&format!("{v2}/e"), &json!({"port": "2"}));
    assert_eq!(rest.get(&format!("{v1}/e"))["hostPort"], "a:2");
    let apply = ["Content-Type: application/apply-patch+yaml"];
    let body = end("one.example.com", "v2", "applied", "b:3").to_string();
    rest.call("PATCH", &format!("{v2}/applied?fieldManager=m"), &apply, &body).ok();
    let owned = rest.get(&format!("{v1}/applied"));
    assert_eq!(owned["hostPort"], "b:3");
    assert_eq!(owned["metadata"]["managedFields"][0]["apiVersion"], "one.example.com/v2");
    let conflict = end("one.example.com", "v2", "applied", "b:4").to_string();
    let refused = rest.call("PATCH", &format!("{v2}/applied?fieldManager=other"), &apply, &conflict);
    assert!(refused.refused(409, "Conflict").contains("conflict with \"m\": .port"));
    // What the webhook was asked.
    let call = hook.take().into_iter().next().expect("a call");
    assert_eq!(
        (&call.body["kind"], &call.body["apiVersion"]),
        (&json!("ConversionReview"), &json!("apiextensions.k8s.io/v1"))
    );
    assert!(call.body["request"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()), "{call:?}");
    let watch = rest.watch(&format!("{v2}?watch=true&fieldSelector=metadata.name=seen"));
    rest.create(&v1, &end("one.example.com", "v1", "seen", "c:4"));
    assert_eq!(watch.sees("ADDED seen")["host"], "c");
}

fn by_service(rest: &Rest, ns: &str, hook: &Hook) {
    rest.create(&format!("/api/v1/namespaces/{ns}/services"), &Hook::service());
    let made = install(rest, &two_versions("served.example.com", &hook.service_config(ns, "/by-service")));
    rest.create(&custom::path(&made, "v1", ns), &end("served.example.com", "v1", "e", "a:1"));
    assert_eq!(rest.get(&format!("{}/e", custom::path(&made, "v2", ns)))["host"], "a");
    assert!(hook.take().iter().any(|call| call.route() == "/by-service"));
}

/// Objects stored in two versions come in one list; then the old version can go.
fn mixed(rest: &Rest, ns: &str, hook: &Hook) {
    let made = install(rest, &two_versions("mixed.example.com", &hook.client_config("/convert")));
    let name = format!("{DEFINITIONS}/ends.mixed.example.com");
    rest.create(&custom::path(&made, "v1", ns), &end("mixed.example.com", "v1", "old", "a:1"));
    let mut found = rest.get(&name);
    found["spec"]["versions"][0]["storage"] = json!(false);
    found["spec"]["versions"][1]["storage"] = json!(true);
    rest.replace(&name, &found);
    eventually("both stored versions", || {
        (rest.get(&name)["status"]["storedVersions"] == json!(["v1", "v2"])).then_some(())
    });
    rest.create(&custom::path(&made, "v1", ns), &end("mixed.example.com", "v1", "new", "b:2"));
    for (version, field, values) in [("v2", "host", ["b", "a"]), ("v1", "hostPort", ["b:2", "a:1"])] {
        let list = rest.get(&custom::path(&made, version, ns));
        let items = list["items"].as_array().expect("items");
        assert_eq!(items.iter().map(|item| &item[field]).collect::<Vec<_>>(), values, "{list}");
        assert!(
            items.iter().all(|item| item["apiVersion"] == format!("mixed.example.com/{version}")),
            "{list}"
        );
    }
    let dropped = rest.call(
        "PATCH",
        &format!("{name}/status"),
        &["Content-Type: application/merge-patch+json"],
        r#"{"status":{"storedVersions":["v1"]}}"#,
    );
    assert!(dropped.refused(422, "Invalid").contains("status.storedVersions"));
    rest.merge(&format!("{name}/status"), &json!({"status": {"storedVersions": ["v2"]}}));
}

fn fields(rest: &Rest, ns: &str, hook: &Hook) {
    let made = install(rest, &two_versions("chosen.example.com", &hook.client_config("/convert")));
    let (v1, v2) = (custom::path(&made, "v1", ns), custom::path(&made, "v2", ns));
    let by_v2 = rest.watch(&format!("{v2}?watch=true&fieldSelector=host=a"));
    let by_v1 = rest.watch(&format!("{v1}?watch=true&fieldSelector=hostPort=a:2"));
    for (name, both) in [("one", "a:1"), ("two", "a:2"), ("three", "b:1")] {
        rest.create(&v1, &end("chosen.example.com", "v1", name, both));
    }
    let names = |path: String| {
        let list = rest.get(&path);
        list["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|i| i["metadata"]["name"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(format!("{v2}?fieldSelector=host=a")), ["one", "two"]);
    assert_eq!(names(format!("{v1}?fieldSelector=hostPort=a:2")), ["two"]);
    by_v2.sees("ADDED one");
    by_v2.sees("ADDED two");
    by_v1.sees("ADDED two");
    rest.merge(&format!("{v2}/one"), &json!({"port": "2"}));
    by_v2.sees("MODIFIED one");
    by_v1.sees("ADDED one");
    rest.delete(&format!("{v1}/two"));
    by_v2.sees("DELETED two");
    by_v1.sees("DELETED two");
}

/// A webhook that lies is found out, and nothing half-converted is stored or shown.
fn nonsense(rest: &Rest, ns: &str) {
    let lie = Arc::new(AtomicUsize::new(0));
    let which = lie.clone();
    let hook = Hook::start(move |call| {
        let mut told = review::converted(call, convert);
        let mut body: Value = serde_json::from_slice(&told.body).expect("our own JSON");
        let response = &mut body["response"];
        match which.load(Ordering::Relaxed) {
            0 => {}
            1 => response["result"] = json!({"status": "Failed", "message": "not today"}),
            2 => response["convertedObjects"] = json!([]),
            3 => response["convertedObjects"][0]["metadata"]["name"] = json!("another"),
            4 => response["convertedObjects"][0]["apiVersion"] = json!("nonsense.example.com/v9"),
            5 => response["uid"] = json!("none"),
            6 => return Told::text(500, "broken"),
            _ => return Told::text(200, "no JSON"),
        }
        told.body = body.to_string().into_bytes();
        told
    });
    let made = install(rest, &two_versions("nonsense.example.com", &hook.client_config("/lies")));
    let (v1, v2) = (custom::path(&made, "v1", ns), custom::path(&made, "v2", ns));
    rest.create(&v1, &end("nonsense.example.com", "v1", "e", "a:1"));
    assert_eq!(rest.get(&format!("{v2}/e"))["host"], "a");
    for (kind, why) in [
        (1, "not today"),
        (2, "expected 1"),
        (3, "must have the same name"),
        (4, ""),
        (5, ""),
        (6, ""),
        (7, ""),
    ] {
        lie.store(kind, Ordering::Relaxed);
        let reply = rest.call("GET", &format!("{v2}/e"), &[], "");
        assert_eq!(reply.code, 500, "{kind}: {}", reply.body);
        let message = reply.body["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("conversion webhook for nonsense.example.com/v1, Kind=End")
                && message.contains(why),
            "{kind}: {message}"
        );
        let reply =
            rest.call("POST", &v2, &[], &end("nonsense.example.com", "v2", "half", "b:1").to_string());
        assert!(reply.code >= 400, "{kind}: {}", reply.body);
        // The stored version needs no webhook.
        assert_eq!(rest.get(&format!("{v1}/e"))["hostPort"], "a:1");
    }
    lie.store(0, Ordering::Relaxed);
    assert_eq!(rest.get(&v1)["items"].as_array().map(Vec::len), Some(1), "nothing half-stored");
}

fn unreachable(rest: &Rest, ns: &str) {
    let closed = Hook::start(|_| Told::text(500, ""));
    let client = closed.client_config("/gone");
    drop(closed);
    let made = install(rest, &two_versions_stored_only("gone.example.com", &client));
    let (v1, v2) = (custom::path(&made, "v1", ns), custom::path(&made, "v2", ns));
    rest.create(&v1, &end("gone.example.com", "v1", "e", "a:1"));
    let reply = rest.call("GET", &format!("{v2}/e"), &[], "");
    assert_eq!(reply.code, 500, "{}", reply.body);
    let message = reply.body["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with(
            "conversion webhook for gone.example.com/v1, Kind=End failed: Post \"https://127.0.0.1:"
        ),
        "{message}"
    );
    // Others do not notice.
    assert_eq!(rest.call("GET", &format!("/api/v1/namespaces/{ns}/configmaps"), &[], "").code, 200);
    rest.delete(&format!("{v1}/e"));
}

fn two_versions_stored_only(group: &str, client: &Value) -> Value {
    let mut made = two_versions(group, client);
    for version in made["spec"]["versions"].as_array_mut().expect("versions") {
        version.as_object_mut().expect("an object").remove("selectableFields");
    }
    made
}

/// Strategy None changes the version's name alone; what the other schema lacks is pruned.
fn without(rest: &Rest, ns: &str) {
    let mut made = two_versions_stored_only("plain.example.com", &Value::Null);
    made["spec"]["conversion"] = json!({"strategy": "None"});
    let made = install(rest, &made);
    rest.create(&custom::path(&made, "v1", ns), &end("plain.example.com", "v1", "e", "a:1"));
    let read = rest.get(&format!("{}/e", custom::path(&made, "v2", ns)));
    assert_eq!((&read["apiVersion"], &read["hostPort"]), (&json!("plain.example.com/v2"), &Value::Null));
    assert_eq!(rest.get(&format!("{}/e", custom::path(&made, "v1", ns)))["hostPort"], "a:1");
}
