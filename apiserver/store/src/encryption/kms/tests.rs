//! A KMS plugin of the tests' own over a unix socket: it can rotate, hang, lie and die.

use super::dek::{Dek, SEEDED};
use super::proto::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use super::{Kms, KmsError, OpenError};
use crate::encryption::config::KmsConfiguration;
use crate::encryption::{EncryptionConfiguration, Rules, path, rewrite};
use crate::{Encrypting, MemoryStore, Range, Store, StoreError, Value, suite};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// What the plugin does when it is asked.
#[derive(Clone)]
struct Manner {
    key_id: String,
    healthz: String,
    version: String,
    hangs: bool,
    /// Gives plain text for encrypted.
    lies: bool,
    /// Refuses with this text.
    refuses: Option<String>,
    decrypts: usize,
}

#[derive(Clone)]
struct Plugin {
    socket: PathBuf,
    manner: Arc<Mutex<Manner>>,
}

/// It "encrypts" by this and its key's id, which is all that a test needs.
fn mask(bytes: &[u8], key_id: &str) -> Vec<u8> {
    let pad = key_id.bytes().cycle();
    bytes.iter().zip(pad).map(|(byte, pad)| byte ^ pad ^ 0xa5).collect()
}

impl Plugin {
    fn new(dir: &std::path::Path) -> Self {
        let manner = Manner {
            key_id: "key-1".into(),
            healthz: "ok".into(),
            version: "v2".into(),
            hangs: false,
            lies: false,
            refuses: None,
            decrypts: 0,
        };
        Self { socket: dir.join("kms.sock"), manner: Arc::new(Mutex::new(manner)) }
    }

    /// Until the handle is aborted.
    fn live(&self) -> JoinHandle<()> {
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).unwrap();
        let plugin = self.clone();
        tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let plugin = plugin.clone();
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let plugin = plugin.clone();
                        async move { Ok::<_, Infallible>(plugin.answer(request).await) }
                    });
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
        let method = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes().slice(5..);
        if self.manner.lock().hangs {
            std::future::pending::<()>().await;
        }
        let mut manner = self.manner.lock();
        let mut trailers = HeaderMap::new();
        let message = match &manner.refuses {
            Some(why) => {
                trailers.insert("grpc-status", "13".parse().unwrap());
                trailers.insert("grpc-message", why.parse().unwrap());
                Vec::new()
            }
            None => {
                trailers.insert("grpc-status", "0".parse().unwrap());
                self.work(&mut manner, &method, &body)
            }
        };
        let mut frame = BytesMut::new();
        if !message.is_empty() {
            frame.put_u8(0);
            frame.put_u32(u32::try_from(message.len()).unwrap());
            frame.put_slice(&message);
        }
        let body = Full::new(frame.freeze()).with_trailers(async move { Some(Ok(trailers)) });
        Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
    }

    fn work(&self, manner: &mut Manner, method: &str, body: &[u8]) -> Vec<u8> {
        let Manner { key_id, healthz, version, .. } = manner.clone();
        match method {
            "/v2.KeyManagementService/Status" => {
                StatusRequest::decode(body).unwrap();
                StatusResponse { version, healthz, key_id }.encode_to_vec()
            }
            "/v2.KeyManagementService/Encrypt" => {
                let request = EncryptRequest::decode(body).unwrap();
                let plain = request.plaintext;
                let ciphertext = if manner.lies { plain } else { mask(&plain, &key_id) };
                let annotations = [("version.encryption.example.com".to_owned(), b"1".to_vec())].into();
                EncryptResponse { ciphertext, key_id, annotations }.encode_to_vec()
            }
            "/v2.KeyManagementService/Decrypt" => {
                manner.decrypts += 1;
                let request = DecryptRequest::decode(body).unwrap();
                let is_own =
                    request.annotations.get("version.encryption.example.com").is_some_and(|v| v == b"1");
                let plaintext = if is_own { mask(&request.ciphertext, &request.key_id) } else { Vec::new() };
                DecryptResponse { plaintext }.encode_to_vec()
            }
            other => panic!("{other}"),
        }
    }

    fn config(&self) -> KmsConfiguration {
        KmsConfiguration {
            api_version: Some("v2".into()),
            name: "test".into(),
            endpoint: format!("unix://{}", self.socket.display()),
            timeout: Some("300ms".into()),
            cachesize: None,
        }
    }

    fn rules(&self) -> Rules {
        let text = format!(
            "{{kind: EncryptionConfiguration, apiVersion: apiserver.config.k8s.io/v1, resources: [{{resources: \
             [secrets], providers: [{{kms: {{apiVersion: v2, name: test, endpoint: 'unix://{}', timeout: 300ms}}}}, \
             {{identity: {{}}}}]}}]}}",
            self.socket.display()
        );
        let config = EncryptionConfiguration::parse(&text, std::path::Path::new("f"));
        Rules::new(&config.unwrap(), None)
    }
}

#[test]
fn seeds_are_upstreams() {
    let seed: Vec<u8> = (0..32).collect();
    // HKDF-Expand and AES-GCM of Python's `cryptography`.
    let sealed = "MjM0NTY3ODk6Ozw9Pj9AQUJDREVGR0hJSktMTU5PUFFkZWZnaGlqa2xtbm8C72aAiYNIVG+W0Q5sWK1R/wmgm/6n/G2RDx8bO7Oa1C0=";
    let sealed = STANDARD.decode(sealed).unwrap();
    let dek = Dek::new(SEEDED, &seed).unwrap();
    assert_eq!(dek.open(&sealed, b"/registry/secrets/default/a").unwrap(), br#"{"kind":"Secret"}"#);
    assert!(dek.open(&sealed, b"/registry/secrets/default/b").is_err());
    assert!(Dek::new(SEEDED, &seed[1..]).is_none());
}

#[tokio::test]
async fn one_question_for_each_seed() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(dir.path());
    let life = plugin.live();
    let inner: Arc<dyn Store> = MemoryStore::new();
    let rules = plugin.rules();
    assert!(rules.kms()[0].probe().await.unwrap());
    let store = Encrypting::new(inner.clone(), rules);
    for name in ["a", "b", "c"] {
        let key = format!("secrets./default/{name}");
        store.commit(suite::txn(vec![suite::put(&key, format!("text of {name}"))])).await.unwrap();
    }
    assert_eq!(suite::value(&*store, "secrets./default/a").await.unwrap(), "text of a");
    let stored = inner.get("secrets./default/a").await.unwrap().unwrap().value.bytes();
    assert!(stored.starts_with(b"k8s:enc:kms:v2:test:"));
    assert_eq!(plugin.manner.lock().decrypts, 0, "its own seed it knows");
    // A restart.
    let store = Encrypting::new(inner.clone(), plugin.rules());
    let listing = store.range(Range::default()).await.unwrap();
    assert_eq!((listing.items.len(), plugin.manner.lock().decrypts), (3, 1));
    // Nothing can be written before the KMS has told its key.
    let put = suite::txn(vec![suite::put("secrets./default/d", "d")]);
    let error = store.commit(put.clone()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Seal { .. }), "{error}");
    assert!(coracle_api::error::chain(&error).contains("not ready"), "{}", coracle_api::error::chain(&error));
    store.rules().kms()[0].probe().await.unwrap();
    store.commit(put).await.unwrap();
    life.abort();
}

#[tokio::test]
async fn a_rotated_key_makes_stale_and_is_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(dir.path());
    let life = plugin.live();
    let inner: Arc<dyn Store> = MemoryStore::new();
    let store = Encrypting::new(inner.clone(), plugin.rules());
    let kms = store.rules().kms()[0].clone();
    kms.probe().await.unwrap();
    store.commit(suite::txn(vec![suite::put("secrets./default/a", "a")])).await.unwrap();
    assert!(!kms.probe().await.unwrap() && !store.is_stale("secrets./default/a").await);
    plugin.manner.lock().key_id = "key-2".into();
    assert!(kms.probe().await.unwrap() && store.is_stale("secrets./default/a").await);
    assert!(rewrite::settle(&store).await.unwrap());
    assert!(!store.is_stale("secrets./default/a").await);
    assert_eq!(suite::value(&*store, "secrets./default/a").await.unwrap(), "a");
    life.abort();
}

#[tokio::test]
async fn while_it_is_away_the_rest_is_served_and_then_it_heals() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(dir.path());
    let life = plugin.live();
    let inner: Arc<dyn Store> = MemoryStore::new();
    let store = Encrypting::new(inner.clone(), plugin.rules());
    store.rules().kms()[0].probe().await.unwrap();
    let both = vec![suite::put("secrets./default/a", "a"), suite::put("configmaps./default/c", "c")];
    store.commit(suite::txn(both)).await.unwrap();
    life.abort();
    let _ = life.await;
    // A start without the KMS.
    let store = Encrypting::new(inner.clone(), plugin.rules());
    let kms = store.rules().kms()[0].clone();
    let listing = store.range(Range::default()).await.unwrap();
    let keys: Vec<_> = listing.items.iter().map(|item| &*item.key).collect();
    assert_eq!(keys, ["configmaps./default/c"]);
    let told = store.unreadable("secrets./").unwrap();
    assert_eq!(told.to_string(), "unable to transform key \"/registry/secrets/default/a\"");
    assert!(store.unreadable("configmaps./").is_none());
    assert!(matches!(kms.probe().await, Err(KmsError::Failed { method: "Status", .. })));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let follower = move |commits: &[Arc<crate::Commit>]| {
        let values = commits.iter().flat_map(|commit| commit.changes.iter().map(|c| c.value.clone()));
        sink.lock().extend(values);
        true
    };
    store.follow(store.revision(), Box::new(follower)).unwrap();
    assert!(!rewrite::settle(&store).await.unwrap(), "nothing can be done yet");
    // It comes back.
    let life = plugin.live();
    kms.probe().await.unwrap();
    assert!(rewrite::settle(&store).await.unwrap());
    assert!(store.unreadable("").is_none());
    assert_eq!(*seen.lock(), [Some(Value::from("a"))], "followers are told of it");
    life.abort();
}

#[tokio::test]
async fn what_it_answers_is_not_believed_blindly() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(dir.path());
    let _life = plugin.live();
    let try_with = |change: fn(&mut Manner)| {
        let (plugin, before) = (plugin.clone(), plugin.manner.lock().clone());
        async move {
            change(&mut plugin.manner.lock());
            let failed = Kms::new(&plugin.config()).probe().await.unwrap_err();
            *plugin.manner.lock() = before;
            failed.to_string()
        }
    };
    let told = try_with(|m| m.healthz = "ill".into()).await;
    assert_eq!(told, "got unexpected healthz status: ill");
    let told = try_with(|m| m.version = "v1".into()).await;
    assert_eq!(told, "expected KMSv2 API version v2, got v1");
    let told = try_with(|m| m.key_id = String::new()).await;
    assert_eq!(told, "failed to validate key id: keyID is empty");
    let told = try_with(|m| m.key_id = "x".repeat(1025)).await;
    assert!(told.contains("1025 bytes, which exceeds"), "{told}");
    let told = try_with(|m| m.lies = true).await;
    assert_eq!(told, "Encrypt: the KMS answered with the plain text");
    let told = try_with(|m| m.refuses = Some("sealed".into())).await;
    assert_eq!(told, "Status: Internal: sealed");
    let told = try_with(|m| m.hangs = true).await;
    assert_eq!(told, "Status: no answer within 300ms");
    Kms::new(&plugin.config()).probe().await.unwrap();
}

#[tokio::test]
async fn a_value_of_another_object_or_damaged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(dir.path());
    let _life = plugin.live();
    let rules = plugin.rules();
    rules.kms()[0].probe().await.unwrap();
    let chain = rules.chain_of("secrets./default/a");
    let a = path("secrets./default/a");
    let stored = chain.seal(&Bytes::from_static(b"text"), &a).unwrap();
    assert_eq!(chain.open(&stored, &a).unwrap().value, "text");
    let moved = chain.open(&stored, &path("secrets./default/b"));
    assert!(matches!(moved, Err(OpenError::Refused)), "{moved:?}");
    for length in b"k8s:enc:kms:v2:test:".len()..stored.len() {
        assert!(chain.open_waiting(&stored.slice(..length), &a).await.is_err(), "cut to {length}");
    }
}

#[tokio::test]
async fn a_hanging_kms_holds_up_a_start_once() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(dir.path());
    let _life = plugin.live();
    let inner: Arc<dyn Store> = MemoryStore::new();
    for key in 0..20 {
        plugin.manner.lock().key_id = format!("key-{key}");
        let store = Encrypting::new(inner.clone(), plugin.rules());
        store.rules().kms()[0].probe().await.unwrap();
        let put = suite::put(&format!("secrets./default/{key}"), "x");
        store.commit(suite::txn(vec![put])).await.unwrap();
    }
    plugin.manner.lock().hangs = true;
    let store = Encrypting::new(inner, plugin.rules());
    let listed = tokio::time::timeout(Duration::from_secs(3), store.range(Range::default())).await;
    assert!(listed.expect("not a timeout for each of twenty keys").unwrap().items.is_empty());
    assert_eq!(store.unreadable_count(), 20);
}
