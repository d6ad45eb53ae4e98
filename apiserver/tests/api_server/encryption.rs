//! What clients see of encryption at rest: nothing, until a value cannot be read.

use crate::support::{Fixture, config_map, version};
use coracle_apiserver::encryption::{EncryptionConfiguration, Rules, rewrite};
use coracle_apiserver::store::suite::{put, txn};
use coracle_apiserver::store::{Encrypting, MemoryStore, Store};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn rules(key: u8) -> Rules {
    use base64::Engine;
    let secret = base64::engine::general_purpose::STANDARD.encode([key; 32]);
    let text = json!({
        "kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{
            "resources": ["secrets"],
            "providers": [{"aesgcm": {"keys": [{"name": "k", "secret": secret}]}}, {"identity": {}}],
        }],
    });
    Rules::new(&EncryptionConfiguration::parse(&text.to_string(), Path::new("f")).unwrap(), None)
}

fn secret(name: &str) -> Value {
    json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "Yg=="}, "type": "Opaque"})
}

async fn stored(inner: &Arc<dyn Store>, name: &str) -> Vec<u8> {
    let key = format!("secrets./default/{name}");
    inner.get(&key).await.unwrap().unwrap().value.bytes().to_vec()
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_written_where_the_value_is_stale() {
    let inner: Arc<dyn Store> = MemoryStore::new();
    let store = Encrypting::new(inner.clone(), Rules::default());
    let server = Fixture::over(store.clone()).await;
    let made = server.post(SECRETS, &secret("a")).await.expect(201);
    let uri = format!("{SECRETS}/a");
    let same = server.replace(&uri, &made).await.expect(200);
    assert_eq!(version(&same), version(&made), "nothing changes, nothing is written");
    assert!(stored(&inner, "a").await.starts_with(b"{"));

    store.set_rules(rules(1)).await;
    let dry = server.replace(&format!("{uri}?dryRun=All"), &made).await.expect(200);
    assert_eq!(version(&dry), version(&made));
    let new = server.replace(&uri, &made).await.expect(200);
    assert!(version(&new) > version(&made), "it is stale, so it is written");
    assert!(stored(&inner, "a").await.starts_with(b"k8s:enc:aesgcm:v1:k:"));
    assert_eq!(new["data"], made["data"]);
    let again = server.replace(&uri, &made).await.expect(200);
    assert_eq!(version(&again), version(&new));
}

#[tokio::test]
async fn watchers_see_plain_text_and_the_rewriting_as_changes() {
    let inner: Arc<dyn Store> = MemoryStore::new();
    let store = Encrypting::new(inner.clone(), Rules::default());
    let server = Fixture::over(store.clone()).await;
    let made = server.post(SECRETS, &secret("a")).await.expect(201);
    store.set_rules(rules(1)).await;
    let mut events = server.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&made))).await;
    assert!(rewrite::settle(&store).await.unwrap());
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["data"]), (&json!("MODIFIED"), &made["data"]));
    server.post(SECRETS, &secret("b")).await.expect(201);
    assert_eq!(events.brief().await, "ADDED b");
    server.delete(&format!("{SECRETS}/a")).await.expect(200);
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["data"]), (&json!("DELETED"), &made["data"]));
}

#[tokio::test]
async fn what_cannot_be_read_is_told_by_name_and_stops_nothing_else() {
    let inner: Arc<dyn Store> = MemoryStore::new();
    let server = Fixture::over(Encrypting::new(inner.clone(), rules(1))).await;
    for name in ["a", "b"] {
        server.post(SECRETS, &secret(name)).await.expect(201);
    }
    // Who has the disk puts the value of one Secret in another's place.
    inner.commit(txn(vec![put("secrets./default/b", stored(&inner, "a").await)])).await.unwrap();
    let server = Fixture::over(Encrypting::new(inner.clone(), rules(1))).await;
    assert_eq!(server.get(&format!("{SECRETS}/a")).await.expect(200)["data"]["a"], "Yg==");
    let told = "Internal error occurred: unable to transform key \"/registry/secrets/default/b\": ";
    let uri = format!("{SECRETS}/b");
    for answer in [
        server.get(&uri).await,
        server.get(SECRETS).await,
        server.get("/api/v1/secrets").await,
        server.put(&uri, &secret("b")).await,
        server.delete(&uri).await,
    ] {
        let status = answer.expect(500);
        assert!(status["message"].as_str().unwrap().starts_with(told), "{status}");
        assert_eq!(status["reason"], "InternalError");
    }
    server.post(SECRETS, &secret("b")).await.expect(409);
    let unsafe_delete = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    server.delete(&format!("{uri}?{unsafe_delete}")).await.expect(200);
    server.get(&uri).await.expect(404);
    assert_eq!(server.get(SECRETS).await.expect(200)["items"].as_array().unwrap().len(), 1);
    server.post(SECRETS, &secret("b")).await.expect(201);
    server.get("/api/v1/namespaces/other/secrets").await.expect(200);
    server.get(&format!("{SECRETS}/c")).await.expect(404);
    server.post("/api/v1/namespaces/default/configmaps", &config_map("c")).await.expect(201);
}
