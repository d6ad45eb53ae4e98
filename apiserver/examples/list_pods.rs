//! How long a list of 5,000 pods of about 2.2 KB takes, in process, in each format: `list_pods [pods] [rounds]`. Of
//! protobuf the first list is the worst one: it has to find out the lengths.

use axum::body::Body;
use coracle_api::{UserInfo, encode};
use coracle_apiserver::authz::{Chain, Gate};
use coracle_apiserver::cache::Cache;
use coracle_apiserver::health::Health;
use coracle_apiserver::registry::AdmitAll;
use coracle_apiserver::server::{self, ApiServer, ServerConfig};
use coracle_apiserver::store::{MemoryStore, Op, Store, Txn};
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

type Failure = Box<dyn std::error::Error>;

fn pod(number: usize) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": format!("pod-{number:05}"), "namespace": "default", "uid": format!("{number:036}"),
            "labels": {"app": "bench", "shard": (number % 10).to_string()},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "FILL", "value": "x".repeat(1500)}]}],
            "nodeName": format!("node-{}", number % 100)},
        "status": {"phase": "Running", "podIP": "10.42.0.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

async fn fill(store: &dyn Store, pods: usize) -> Result<(), Failure> {
    for number in 0..pods {
        let value = encode::to_storage_bytes(&pod(number), "v1", "Pod").into();
        let key = format!("pods./default/pod-{number:05}").into();
        store.commit(Txn { ops: vec![Op::Put { key, value }], ..Txn::default() }).await?;
    }
    Ok(())
}

fn config(cache: &Arc<Cache>) -> ServerConfig {
    ServerConfig {
        authenticator: None,
        authorizer: Gate::new(Chain::new(cache.clone(), server::rbac_generation(cache.clone()))),
        admission: Arc::new(AdmitAll),
        kubelets: None,
        health: Health::default(),
        clock: Arc::new(jiff::Timestamp::now),
        stop: CancellationToken::new(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let pods: usize = args.next().map_or(Ok(5000), |a| a.parse())?;
    let rounds: usize = args.next().map_or(Ok(21), |a| a.parse())?;
    let store: Arc<dyn Store> = MemoryStore::new();
    fill(&*store, pods).await?;
    let resources = server::load_resources(store.clone(), Arc::default()).await?;
    let api = ApiServer::new(config(&resources.cache), store, resources);
    println!("| query | format | bytes | median ms | worst ms |");
    println!("|---|---|---|---|---|");
    const JSON: (&str, &str) = ("application/json", "identity");
    const PROTOBUF: (&str, &str) = ("application/vnd.kubernetes.protobuf", "identity");
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (query, (accept, coding)) in [
        ("", JSON),
        ("?labelSelector=shard%3D3", JSON),
        ("?fieldSelector=spec.nodeName%3Dnode-7", JSON),
        ("?limit=500", JSON),
        ("", ("application/json", "gzip")),
        ("", PROTOBUF),
        ("?limit=500", PROTOBUF),
        ("", (PROTOBUF.0, "gzip")),
        ("", (metadata, "identity")),
        ("", ("application/yaml", "identity")),
    ] {
        let mut times = Vec::with_capacity(rounds);
        let mut bytes = 0;
        for _ in 0..rounds {
            let request = Request::get(format!("/api/v1/pods{query}"));
            let request = request.header("accept", accept).header("accept-encoding", coding);
            let mut request = request.body(Body::empty())?;
            request.extensions_mut().insert(UserInfo::authenticated("bench", &["system:masters"]));
            let begun = Instant::now();
            let mut body = api.service().oneshot(request).await?.into_body();
            bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, bytes::Bytes::len);
            }
            times.push(begun.elapsed());
        }
        times.sort();
        let ms = |at: usize| Duration::as_secs_f64(&times[at]) * 1000.0;
        let format = accept.split('/').nth(1).unwrap_or_default();
        println!(
            "| pods{query} | {format}, {coding} | {bytes} | {:.1} | {:.1} |",
            ms(rounds / 2),
            ms(rounds - 1)
        );
    }
    Ok(())
}
