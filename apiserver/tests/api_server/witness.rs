//! Whatever path and query are: what the authorizer was asked about is what is done.

use super::support::{Answer, Fixture, pod};
use coracle_api::{FieldSelector, LabelSelector, UserInfo};
use coracle_apiserver::authz::{Attributes, Authorizer, Decision, rules};
use coracle_apiserver::server::EdgeOptions;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::sync::Arc;

/// What an authorizer was asked.
#[derive(Clone, Debug, Default)]
struct Seen {
    verb: String,
    namespace: String,
    name: String,
    fields: String,
    labels: String,
}

/// Allows everything, and remembers what it was asked last.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Option<Seen>>>);

impl Authorizer for Witness {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        let seen = Seen {
            verb: asked.verb.to_owned(),
            namespace: asked.namespace.to_owned(),
            name: asked.name.to_owned(),
            fields: asked.field_selector.to_owned(),
            labels: asked.label_selector.to_owned(),
        };
        *self.0.lock() = asked.is_resource().then_some(seen);
        Decision::Allow(String::new())
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> rules::Resolved {
        rules::Resolved::default()
    }
}

/// Namespace, name, node and label of the pods that there are.
const PODS: [(&str, &str, &str, &str); 4] =
    [("m", "a", "x", "1"), ("m", "b", "y", ""), ("o", "a", "y", "1"), ("o", "b", "x", "")];

async fn world(witness: Witness) -> Fixture {
    let fixture = Fixture::authorized_by(witness, EdgeOptions::default()).await;
    for namespace in ["m", "o"] {
        fixture.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
    }
    for (namespace, name, node, label) in PODS {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = node.into();
        if !label.is_empty() {
            pod["metadata"]["labels"] = json!({ "app": label });
        }
        fixture.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await.expect(201);
    }
    fixture
}

/// What the authorizer was asked about.
fn allowed(seen: &Seen) -> Vec<(String, String)> {
    let fields = FieldSelector::parse(&seen.fields).expect("a selector that can be read");
    let labels = LabelSelector::parse(&seen.labels).expect("a selector that can be read");
    let covers = |pod: &&(&'static str, &'static str, &'static str, &'static str)| {
        let (namespace, name, node, label) = **pod;
        let field = |path: &str| match path {
            "metadata.name" => Some(name),
            "metadata.namespace" => Some(namespace),
            // Pods were once assigned to hosts.
            "spec.nodeName" | "spec.host" => Some(node),
            other => panic!("{other} cannot be selected by"),
        };
        (seen.namespace.is_empty() || seen.namespace == namespace)
            && (seen.name.is_empty() || seen.name == name)
            && fields.matches(field)
            && labels.matches_with(|key| (key == "app" && !label.is_empty()).then_some(label))
    };
    PODS.iter()
        .filter(covers)
        .map(|(namespace, name, ..)| ((*namespace).to_owned(), (*name).to_owned()))
        .collect()
}

fn place(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// What was done: the verb as the answer shows it, and the objects in it.
fn done(answer: &Answer) -> (&'static str, Vec<(String, String)>) {
    let lines: Vec<Value> = answer
        .body
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    if lines.iter().any(|line| line["type"].is_string()) || answer.body.is_empty() {
        return ("watch", lines.iter().map(|event| place(&event["object"])).collect());
    }
    let body = answer.json();
    match body["items"].as_array() {
        Some(items) => ("list", items.iter().map(place).collect()),
        None => ("get", vec![place(&body)]),
    }
}

fn query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "fieldSelector",
        "fieldSelector",
        "fieldSelector",
        "labelSelector",
        "labelSelector",
        "watch",
        "%66ieldSelector",
        "label%53elector",
        "w%61tch",
        "fieldselector",
        "fieldSelector+",
        "x",
        "",
    ]);
    let value = prop::sample::select(vec![
        "",
        "=",
        "=metadata.name%3Da",
        "=metadata.name=a",
        "=metadata.name%3D%3Db",
        "=metadata.name!%3Da",
        "=metadata.name%21=a",
        "=metadata.namespace%3Dm",
        "=metadata.namespace%3Dm,metadata.name%3Db",
        "=spec.nodeName%3Dx",
        "=spec.nodeName%3D",
        "=spec.nodeName!%3D%5C,metadata.name%3Da",
        "=spec.nodeName!%3D%5C%5C",
        "=metadata.name%3Da,metadata.name%3Db",
        "=metadata.name%3D+a",
        "=+metadata.name%3Da",
        "=metadata.name%3Da%00",
        "=spec.host%3Dx",
        "=nothing%3Dx",
        "=app",
        "=!app",
        "=app%3D1",
        "=app+in+(1,2)",
        "=app%3D1,",
        "=,",
        "=0",
        "=1",
        "=true",
        "=FALSE",
        "=%66alse",
        "=%zz",
        "=a;b",
        "=%ff",
        "=%",
        "=+",
        "=%2B",
    ]);
    prop::collection::vec((name, value), 0..5).prop_map(|pairs| {
        pairs.iter().map(|(name, value)| format!("{name}{value}")).collect::<Vec<_>>().join("&")
    })
}

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "/api/v1/pods",
        "/api/v1/pods/",
        "/api/v1/namespaces/m/pods",
        "/api/v1/namespaces/m/pods//",
        "/api/v1/namespaces/%6D/pods",
        "/api/v1/namespaces/m/pods/a",
        "/api/v1/namespaces/m/pods/b/",
        "/api/v1/namespaces//pods",
        "/api/v1//pods",
        "/api/v1/namespaces/./pods",
        "/api/v1/namespaces/o/../m/pods",
        "/api/v1/namespaces/m%2Fpods",
        "/api/v1/namespaces/m/pods%2Fa",
        "/api/v1/watch/pods",
        "/api/v1/watch/namespaces/m/pods",
        "/api/v1/watch/namespaces/m/pods/a",
        "/api/v1/w%61tch/namespaces/o/pods/a",
        "/api/v1/pods/a",
        "//api/v1/pods",
        "/api/v1/namespaces/m/pods/a/b",
    ])
}

#[test]
fn what_is_allowed_is_what_is_done() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let witness = Witness::default();
    let fixture = runtime.block_on(world(witness.clone()));
    let counts: Mutex<[usize; 2]> = Mutex::default();
    let mut runner = TestRunner::new(Config { cases: 3_000, ..Config::default() });
    let run = runner.run(&(path(), query(), prop::bool::weighted(0.3)), |(path, query, deletes)| {
        let (method, more) = if deletes { ("DELETE", "dryRun=All") } else { ("GET", "timeoutSeconds=-1") };
        let uri = format!("{path}?{query}&{more}");
        *witness.0.lock() = None;
        let answer = runtime.block_on(fixture.ask(method, &uri, "", axum::body::Body::empty()));
        counts.lock()[usize::from(answer.status == 200)] += 1;
        if answer.status != 200 {
            prop_assert!(matches!(answer.status.as_u16(), 400 | 404 | 405 | 422), "{uri}: {}", answer.status);
            return Ok(());
        }
        let seen = witness.0.lock().clone();
        let seen =
            seen.ok_or_else(|| TestCaseError::fail(format!("{uri}: nobody was asked about a resource")))?;
        let (verb, mut objects) = done(&answer);
        let expected = match seen.verb.as_str() {
            "deletecollection" => "list",
            "delete" => "get",
            other => other,
        };
        prop_assert_eq!(verb, expected, "{}: {:?}", &uri, &seen);
        objects.sort();
        prop_assert_eq!(objects, allowed(&seen), "{}: {:?}", &uri, &seen);
        Ok(())
    });
    run.unwrap();
    let [refused, done] = *counts.lock();
    assert!(refused > 300 && done > 300, "{refused} were refused and {done} done");
}
