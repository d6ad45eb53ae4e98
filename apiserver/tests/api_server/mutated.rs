//! Documents of every built-in kind with one or two mistakes made at random: what the server takes it can show, change and
//! delete, and what it does not take it refuses with words.
//!
//! `CORACLE_MUTATED_DOCUMENTS=100000 CORACLE_MUTATED_SEED=7` tries more, and others. A failure names the seed of its document,
//! which is tried alone with `CORACLE_MUTATED_DOCUMENTS=1`.

#[path = "mutated/make.rs"]
mod make;

use crate::access;
use crate::support::*;
use coracle_api::{decode, protobuf, schema, yaml};
use make::{Document, Maker};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::time::Duration;

/// A few seconds of a debug build.
const DOCUMENTS: u64 = 500;

/// Far more than any answer takes, on a machine with much else to do.
const LONGEST: Duration = Duration::from_secs(20);

/// Answers in the five hundreds to a creation that upstream gives too.
const MEANT: &[&str] = &[
    // Nothing says that the client is wrong where a new object names a version.
    "resourceVersion should not be set on objects to be created",
];

/// Upstream's 500 for what is applied and has not the form of its type.
const UNTYPED: &str = "failed to create typed patch object";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn documents_with_mistakes_are_refused_or_can_be_lived_with() {
    let (documents, first) =
        (number("CORACLE_MUTATED_DOCUMENTS", DOCUMENTS), number("CORACLE_MUTATED_SEED", 1));
    let maker = Maker::default();
    let mut api = Fixture::new().await;
    let (mut wrong, mut taken) = (Vec::new(), 0);
    for seed in first..first + documents {
        // What was taken may stay behind with a finalizer.
        match seed % 500 {
            0 => api = Fixture::new().await,
            250 => api = admitting().await,
            _ => {}
        }
        let document = maker.document(seed);
        let lived = tokio::time::timeout(LONGEST, live(&api, &document)).await;
        match lived.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(was_taken) => taken += u64::from(was_taken),
            Err(problem) => wrong.push(format!("seed {seed}: {problem}\n  {}", document.shown())),
        }
        if wrong.len() >= 10 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Else the mistakes are so bad that nothing behind the first answer is tried.
    assert!(
        documents < 100 || (documents / 10..documents).contains(&taken),
        "{taken} of {documents} were taken"
    );
}

/// With all that admission does by default, and the objects that every cluster begins with.
async fn admitting() -> Fixture {
    let (api, _, _) = access::cluster().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    api.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    api
}

/// Whether the document was taken. The error says which answer is wrong.
async fn live(api: &Fixture, document: &Document) -> Result<bool, String> {
    let answer = api.ask("POST", &document.collection, document.content_type, document.body.clone()).await;
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    match answer.status.as_u16() {
        201 => {}
        400..500 => return Ok(false),
        500.. if MEANT.iter().any(|words| said.contains(words)) => return Ok(false),
        code => return Err(format!("create: {code} {said}")),
    }
    let made = answer.json();
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    let escaped = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
    let uri = format!("{}/{escaped}", document.collection);
    let one = Stored { api, document, uri, name: name.to_owned(), escaped };
    if api.get(&one.uri).await.status == 404 && made["metadata"]["namespace"].is_string() {
        return Err("created, and not there".to_owned());
    }
    one.read(&made).await?;
    one.watched().await?;
    one.written_back().await?;
    one.applied().await?;
    one.patched().await?;
    one.deleted().await?;
    Ok(true)
}

struct Stored<'a> {
    api: &'a Fixture,
    document: &'a Document,
    uri: String,
    name: String,
    /// The name as an address has it.
    escaped: String,
}

impl Stored<'_> {
    async fn read(&self, made: &Value) -> Result<(), String> {
        let read = self.json().await?;
        same("what is read, and what was answered", &read, made)?;
        let text = self.api.get_as(&self.uri, "application/yaml").await;
        let from_yaml = yaml::document(&text.body).map_err(|e| format!("its YAML: {e}"))?.value;
        same("YAML and JSON", &from_yaml, &read)?;
        let message = self.api.get_as(&self.uri, "application/vnd.kubernetes.protobuf").await;
        let mut from_message =
            protobuf::decode(&message.body, None).map_err(|e| format!("its protobuf: {e}"))?;
        // What Go's types make of it, in which clients hold it.
        let ty = schema::of_object(&from_message).ok_or("its protobuf is of no type")?;
        decode::settle(&mut from_message, ty);
        same("protobuf and JSON", &from_message, &read)?;
        let table = self.api.get_as(&self.uri, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
        if table.status != 200 || table.json()["rows"].as_array().map(Vec::len) != Some(1) {
            return Err(format!("its table: {} {}", table.status, String::from_utf8_lossy(&table.body)));
        }
        Ok(())
    }

    async fn json(&self) -> Result<Value, String> {
        let answer = self.api.get(&self.uri).await;
        ok("get", &answer)?;
        Ok(answer.json())
    }

    async fn watched(&self) -> Result<(), String> {
        let query = format!("watch=1&fieldSelector=metadata.name%3D{}", self.escaped);
        let mut events = self.api.watch(&format!("{}?{query}", self.document.collection)).await;
        let event = events.next().await.ok_or("no event")?;
        same("watched and read", &event["object"], &self.json().await?)
    }

    /// What was read and is sent again changes nothing, not even its version.
    async fn written_back(&self) -> Result<(), String> {
        let read = self.json().await?;
        let answer = self.api.put(&self.uri, &read).await;
        ok("update with what was read", &answer)?;
        same("updated with itself", &answer.json(), &read)
    }

    async fn applied(&self) -> Result<(), String> {
        let mut whole = self.json().await?;
        whole["metadata"] = json!({ "name": self.name, "labels": { "applied": "1" } });
        let uri = format!("{}?fieldManager=another&force=true", self.uri);
        let answer = self.api.ask("PATCH", &uri, "application/apply-patch+yaml", whole.to_string()).await;
        // What is twice in a list of keys or in a set can be stored, but not applied.
        if answer.status == 500 && String::from_utf8_lossy(&answer.body).contains(UNTYPED) {
            return Ok(());
        }
        ok("apply of what was read", &answer)
    }

    async fn patched(&self) -> Result<(), String> {
        let change = json!({ "metadata": { "annotations": { "patched": "1" } } });
        for kind in ["merge-patch", "strategic-merge-patch"] {
            ok(kind, &self.api.patch(&self.uri, kind, &change).await)?;
        }
        Ok(())
    }

    async fn deleted(&self) -> Result<(), String> {
        let answer = self.api.delete(&self.uri).await;
        match answer.status.as_u16() {
            200 | 202 => Ok(()),
            code => Err(format!("delete: {code} {}", String::from_utf8_lossy(&answer.body))),
        }
    }
}

fn ok(what: &str, answer: &Answer) -> Result<(), String> {
    if answer.status == 200 {
        return Ok(());
    }
    Err(format!("{what}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)))
}

fn same(what: &str, a: &Value, b: &Value) -> Result<(), String> {
    match difference("", a, b) {
        Some(difference) => Err(format!("{what}: {difference}")),
        None => Ok(()),
    }
}

/// The first place where two values differ.
fn difference(path: &str, a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(left), Value::Object(right)) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort();
            keys.into_iter().find_map(|key| {
                let (a, b) = (left.get(key), right.get(key));
                match (a, b) {
                    (Some(a), Some(b)) => difference(&format!("{path}.{key}"), a, b),
                    _ => Some(format!("{path}.{key} is {a:?} and {b:?}")),
                }
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs.into_iter().find_map(|(n, (a, b))| difference(&format!("{path}[{n}]"), a, b))
        }
        // Protobuf does not tell nothing from an empty list or map.
        (Value::Null, hollow) | (hollow, Value::Null) if is_hollow(hollow) => None,
        _ => (a != b).then(|| format!("{path} is {a} and {b}")),
    }
}

fn is_hollow(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}
