//! The encrypting store over each backend: the suite that every backend passes, and what is on the disk below it.

#![allow(
    clippy::unwrap_used,
    reason = "all of this file is a test; clippy sees only its test functions as such"
)]

use coracle_store::encryption::{EncryptionConfiguration, Rules, rewrite};
use coracle_store::sled::{Options, SledStore};
use coracle_store::suite::{delete, put, txn, value};
use coracle_store::{Encrypting, MemoryStore, Range, Revision, Store, StoreError};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const MARKER: &str = "s3cr3t-m4rk3r";

fn rules(resources: &str, providers: &str) -> Rules {
    let text = format!(
        "{{kind: EncryptionConfiguration, apiVersion: apiserver.config.k8s.io/v1, resources: [{{resources: \
         [{resources}], providers: [{providers}]}}]}}"
    );
    Rules::new(&EncryptionConfiguration::parse(&text, Path::new("f")).unwrap(), None)
}

fn keys(provider: &str, name: &str) -> String {
    format!("{{{provider}: {{keys: [{{name: {name}, secret: {KEY}}}]}}}}")
}

mod over_memory {
    use super::*;

    coracle_store::store_suite!({
        let inner: Arc<dyn Store> = MemoryStore::new();
        let store: Arc<dyn Store> = Encrypting::new(inner, rules("'*.*'", &keys("aesgcm", "k")));
        (store, ())
    });
}

mod over_sled {
    use super::*;

    coracle_store::store_suite!({
        let dir = tempfile::tempdir().unwrap();
        let inner: Arc<dyn Store> = SledStore::open(dir.path(), Options::default()).unwrap();
        let store: Arc<dyn Store> = Encrypting::new(inner, rules("'*.*'", &keys("secretbox", "k")));
        (store, dir)
    });
}

mod over_nothing {
    use super::*;

    coracle_store::store_suite!({
        let inner: Arc<dyn Store> = MemoryStore::new();
        let store: Arc<dyn Store> = Encrypting::new(inner, Rules::default());
        (store, ())
    });
}

/// Files below a directory whose bytes hold the text.
fn holders(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Checkpoints come and go meanwhile; what is there at the end is looked at once more after the store has closed.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holders(&path, text));
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        if let Some(deflated) = bytes.get(36..).filter(|_| bytes.starts_with(b"COROBJ01")) {
            // A dump: deflated behind a header of 36 bytes. One that is just being written ends early.
            let mut inside = Vec::new();
            let _ = flate2::read::DeflateDecoder::new(deflated).read_to_end(&mut inside);
            bytes.extend(inside);
        }
        if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn open(dir: &Path, rules: Rules) -> Arc<Encrypting> {
    // Small, so that every kind of file is written while the test runs.
    let options = Options { checkpoint_bytes: 64 << 10, snapshot_bytes: 256 << 10, ..Options::default() };
    Encrypting::new(SledStore::open(dir, options).unwrap(), rules)
}

fn secret(number: usize) -> String {
    format!("secrets./default/s{number}")
}

async fn fill(store: &Encrypting, round: usize) {
    for number in 0..200 {
        let text =
            format!("{{\"round\":{round},\"text\":\"{MARKER}-{number}\",\"pad\":\"{}\"}}", "x".repeat(900));
        store.commit(txn(vec![put(&secret(number), text)])).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_plain_reaches_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), rules("secrets", &keys("secretbox", "k")));
    for round in 0..5 {
        fill(&store, round).await;
    }
    assert_eq!(holders(dir.path(), MARKER), Vec::<String>::new());
    store.close().await.unwrap();
    assert_eq!(holders(dir.path(), MARKER), Vec::<String>::new());
    drop(store);
    let store = open(dir.path(), rules("secrets", &keys("secretbox", "k")));
    assert!(value(&*store, &secret(7)).await.unwrap().windows(13).any(|part| part == MARKER.as_bytes()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_plain_goes_from_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Rules::default());
    for round in 0..5 {
        fill(&store, round).await;
    }
    store.commit(txn(vec![delete(&secret(0))])).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    assert!(holders(dir.path(), MARKER).len() > 1, "journal and sled hold the text");
    // One that could not be trusted and was set aside.
    std::fs::create_dir(dir.path().join("sled.bad-1")).unwrap();
    std::fs::write(dir.path().join("sled.bad-1/db"), MARKER).unwrap();
    std::fs::write(dir.path().join("spare-000000000001"), MARKER).unwrap();

    let both = format!("{}, {{identity: {{}}}}", keys("secretbox", "k"));
    let store = open(dir.path(), rules("secrets", &both));
    assert!(store.is_stale(&secret(1)).await);
    let before = store.range(Range::default()).await.unwrap();
    assert!(rewrite::settle(&store).await.unwrap());
    assert_eq!(holders(dir.path(), MARKER), Vec::<String>::new(), "while it runs");
    assert_eq!(store.scrubbed(), Some(store.rules().fingerprint()));
    let newest = store.revision();
    // The store goes on as before, and a crash now loses nothing.
    store.commit(txn(vec![put("configmaps./default/c", "after")])).await.unwrap();
    drop(store);
    let store = open(dir.path(), rules("secrets", &keys("secretbox", "k")));
    assert_eq!(value(&*store, "configmaps./default/c").await.unwrap(), "after");
    assert!(store.revision() > newest);
    let after = store.range(Range { prefix: "secrets./".into(), ..Range::default() }).await.unwrap();
    let texts = |items: &[coracle_store::KeyValue]| -> Vec<_> {
        items.iter().map(|item| (item.key.clone(), item.value.clone(), item.created)).collect()
    };
    assert_eq!(texts(&after.items), texts(&before.items), "the same objects, of the same age");
    store.close().await.unwrap();
    assert_eq!(holders(dir.path(), MARKER), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_before_it_was_turned_on_is_gone_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Rules::default());
    fill(&store, 0).await;
    for number in 0..200 {
        store.commit(txn(vec![delete(&secret(number))])).await.unwrap();
    }
    assert!(!holders(dir.path(), MARKER).is_empty());
    store.set_rules(rules("secrets", &keys("secretbox", "k"))).await;
    assert!(rewrite::settle(&store).await.unwrap());
    assert_eq!(holders(dir.path(), MARKER), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrubbing_meets_writers() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Rules::default());
    fill(&store, 0).await;
    let both = format!("{}, {{identity: {{}}}}", keys("aesgcm", "k"));
    store.set_rules(rules("secrets", &both)).await;
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for number in 0..2000 {
            let key = secret(number % 300);
            writer.commit(txn(vec![put(&key, format!("{MARKER}-new-{number}"))])).await.unwrap();
        }
    });
    while !rewrite::settle(&store).await.unwrap() {}
    writing.await.unwrap();
    assert_eq!(holders(dir.path(), MARKER), Vec::<String>::new());
    assert_eq!(value(&*store, &secret(1999 % 300)).await.unwrap(), format!("{MARKER}-new-1999"));
    store.close().await.unwrap();
    drop(store);
    let store = open(dir.path(), rules("secrets", &both));
    assert_eq!(store.range(Range::default()).await.unwrap().items.len(), 300);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_stops_no_other() {
    let inner: Arc<dyn Store> = MemoryStore::new();
    let store = Encrypting::new(inner.clone(), rules("secrets", &keys("aesgcm", "k")));
    for name in ["a", "b"] {
        store.commit(txn(vec![put(&format!("secrets./n/{name}"), name)])).await.unwrap();
    }
    // Somebody with the disk gives one object the value of another.
    let stolen = inner.get("secrets./n/a").await.unwrap().unwrap().value.bytes();
    inner.commit(txn(vec![put("secrets./n/b", stolen)])).await.unwrap();
    let store = Encrypting::new(inner.clone(), rules("secrets", &keys("aesgcm", "k")));
    let listing = store.range(Range::default()).await.unwrap();
    assert_eq!(listing.items.len(), 1);
    let told = match store.get("secrets./n/b").await {
        Err(StoreError::Unreadable(told)) => told,
        other => panic!("{other:?}"),
    };
    assert_eq!(told.to_string(), "unable to transform key \"/registry/secrets/n/b\"");
    assert_eq!(&*store.unreadable("secrets./n/").unwrap().key, "secrets./n/b");
    // A new value heals it.
    let mut events = store.watch("secrets./", store.revision()).unwrap();
    store.commit(txn(vec![put("secrets./n/b", "new")])).await.unwrap();
    assert!(store.unreadable("").is_none());
    let event = events.try_recv().unwrap();
    assert_eq!(event.changes[0].value.as_ref().unwrap().bytes(), "new");
    assert!(event.changes[0].previous.is_none(), "what could not be read is not told");
    assert_eq!(event.revision, Revision(4));
}
