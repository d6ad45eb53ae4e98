//! `metrics.k8s.io`, with a kubelet that says what it is told to.

use crate::support::*;
use crate::toy::API_SERVICES;
use axum::body::Body;
use coracle_apiserver::connect::{Guard, KubeletClient};
use coracle_apiserver::pki::{Pki, PkiOptions};
use coracle_apiserver::server::EdgeOptions;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const ROOT: &str = "/apis/metrics.k8s.io/v1beta1";

struct World {
    fixture: Fixture,
    /// How often the kubelet was asked.
    asked: Arc<AtomicI64>,
    _dir: tempfile::TempDir,
}

/// Ten seconds pass between two answers: the node uses 500m, container `a` 20m and `b` nothing.
fn summary(n: i64) -> Value {
    let time = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + 10 * n);
    let stats = |per_second: i64, memory: i64| {
        json!({ "cpu": { "time": time.to_string(), "usageCoreNanoSeconds": 7_000_000_000 + per_second * 10 * n },
            "memory": { "time": time.to_string(), "workingSetBytes": memory } })
    };
    let container = |name: &str, per_second: i64, memory: i64| {
        let mut container = stats(per_second, memory);
        container["name"] = name.into();
        container
    };
    let pod = json!({
        "podRef": { "namespace": "default", "name": "web", "uid": "u" },
        "containers": [container("a", 20_000_000, 1 << 20), container("b", 0, 4096)],
    });
    json!({ "node": stats(500_000_000, 1 << 30), "pods": [pod] })
}

async fn kubelet(pki: &Arc<Pki>, asked: Arc<AtomicI64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = TlsAcceptor::from(pki.kubelet_server_tls().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, asked) = (tls.clone(), asked.clone());
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    assert_eq!(request.uri(), "/stats/summary?only_cpu_and_memory=true");
                    let body = summary(asked.fetch_add(1, Ordering::SeqCst)).to_string();
                    async move { Ok::<_, Infallible>(Response::new(Body::from(body))) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = PkiOptions { node_name: "real".to_owned(), ..PkiOptions::default() };
        let pki = Pki::ensure(dir.path(), options).unwrap();
        let asked = Arc::<AtomicI64>::default();
        let port = kubelet(&pki, asked.clone()).await;
        let client =
            KubeletClient::new(pki.client_config_for_kubelet(&[]).unwrap(), CancellationToken::new())
                .guarded(Guard { own_node: "real".to_owned(), ..Guard::default() });
        let fixture = Fixture::with_kubelets(EdgeOptions::default(), Some(client)).await;
        let world = Self { fixture, asked, _dir: dir };
        world.objects(port).await;
        world
    }

    async fn objects(&self, port: u16) {
        let api_service = json!({ "metadata": { "name": "v1beta1.metrics.k8s.io" }, "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100 } });
        self.fixture.post(API_SERVICES, &api_service).await.expect(201);
        for (name, port) in [("real", port), ("simulated", 0)] {
            let node = json!({ "metadata": { "name": name, "labels": { "kind": name } } });
            let mut node = self.fixture.post("/api/v1/nodes", &node).await.expect(201);
            node["status"] = json!({ "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }] });
            if port > 0 {
                node["status"]["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": port } });
            }
            self.fixture.put(&format!("/api/v1/nodes/{name}/status"), &node).await.expect(200);
        }
        for (name, node) in [("web", "real"), ("quiet", "real"), ("far", "simulated"), ("pending", "")] {
            let mut pod = pod(name);
            pod["metadata"]["labels"] = json!({ "app": name });
            if !node.is_empty() {
                pod["spec"]["nodeName"] = node.into();
            }
            self.fixture.post(PODS, &pod).await.expect(201);
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn nodes_and_pods_are_measured() {
    let world = World::new().await;
    let list = world.fixture.get(&format!("{ROOT}/nodes")).await.expect(200);
    assert_eq!(
        (list["kind"].as_str(), list["apiVersion"].as_str()),
        (Some("NodeMetricsList"), Some("metrics.k8s.io/v1beta1"))
    );
    assert_eq!(names(&list), ["real"], "simulated nodes have no kubelet to ask");
    let node = &list["items"][0];
    assert_eq!(node["usage"], json!({ "cpu": "500m", "memory": "1Gi" }));
    assert_eq!((&node["window"], &node["metadata"]["labels"]["kind"]), (&json!("10s"), &json!("real")));
    let list = world.fixture.get(&format!("{ROOT}/pods")).await.expect(200);
    assert_eq!(names(&list), ["web"]);
    let containers = &list["items"][0]["containers"];
    assert_eq!(containers[0], json!({ "name": "a", "usage": { "cpu": "20m", "memory": "1Mi" } }));
    assert_eq!(containers[1], json!({ "name": "b", "usage": { "cpu": "0", "memory": "4Ki" } }));
    assert_eq!(list["items"][0]["timestamp"], "1970-01-12T13:46:50Z");
    let one = world.fixture.get(&format!("{ROOT}/namespaces/default/pods/web")).await.expect(200);
    assert_eq!(
        (one["kind"].as_str(), one["metadata"]["namespace"].as_str()),
        (Some("PodMetrics"), Some("default"))
    );
    world.fixture.get(&format!("{ROOT}/nodes/real")).await.expect(200);
    assert_eq!(world.asked.load(Ordering::SeqCst), 2, "two readings make a rate, and are kept for a while");
}

#[tokio::test]
async fn many_who_ask_at_once_cause_one_reading() {
    let world = World::new().await;
    let ask = || async { world.fixture.get(&format!("{ROOT}/nodes")).await.status };
    let answers = futures::future::join_all((0..20).map(|_| ask())).await;
    assert!(answers.iter().all(|status| *status == 200));
    assert_eq!(world.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn selectors_and_forms() {
    let world = World::new().await;
    let pods = format!("{ROOT}/namespaces/default/pods");
    for (query, found) in [
        ("labelSelector=app%3Dweb", 1),
        ("labelSelector=app!%3Dweb", 0),
        ("fieldSelector=metadata.name%3Dweb", 1),
        ("fieldSelector=metadata.name%3Dother", 0),
        ("fieldSelector=metadata.namespace%3Ddefault", 1),
    ] {
        let list = world.fixture.get(&format!("{pods}?{query}")).await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), found, "{query}");
    }
    assert_eq!(world.fixture.get(&format!("{pods}?labelSelector=a%3D%3D%3Db")).await.status, 400);
    assert_eq!(world.fixture.get(&format!("{pods}?fieldSelector=spec.x%3Db")).await.status, 400);
    assert_eq!(
        names(&world.fixture.get(&format!("{ROOT}/namespaces/other/pods")).await.expect(200)),
        [""; 0]
    );
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let table = world.fixture.get_as(&pods, table).await.expect(200);
    assert_eq!(table["rows"][0]["cells"], json!(["web", "20m", "1028Ki", "10s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    // What kubectl top asks for: it reads what it gets.
    let answer = world.fixture.get_as(&pods, "application/vnd.kubernetes.protobuf, */*").await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
    assert_eq!(world.fixture.get_as(&pods, "application/vnd.kubernetes.protobuf").await.status, 406);
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let world = World::new().await;
    for (path, message) in [
        ("nodes/gone", "nodemetrics.metrics.k8s.io \"gone\" not found"),
        ("nodes/simulated", "nodemetrics.metrics.k8s.io \"simulated\" not found"),
        ("namespaces/default/pods/pending", "podmetrics.metrics.k8s.io \"default/pending\" not found"),
    ] {
        let answer = world.fixture.get(&format!("{ROOT}/{path}")).await.expect(404);
        assert_eq!(answer["message"], message);
    }
    for path in ["services", "namespaces/default/nodes", "nodes/real/proxy"] {
        assert_eq!(world.fixture.get(&format!("{ROOT}/{path}")).await.status, 404, "{path}");
    }
    for (method, path) in [("POST", "nodes"), ("DELETE", "nodes/real"), ("GET", "nodes?watch=true")] {
        assert_eq!(
            world.fixture.ask(method, &format!("{ROOT}/{path}"), "", Body::empty()).await.status,
            405,
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_group_is_discovered_while_it_is_local() {
    let world = World::new().await;
    let list = world.fixture.get(ROOT).await.expect(200);
    assert_eq!(list["resources"][1]["name"], "pods");
    let listed =
        |groups: &Value| groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "metrics.k8s.io");
    assert!(listed(&world.fixture.get("/apis").await.expect(200)));
    let v3 = world.fixture.get("/openapi/v3").await.expect(200);
    let url = v3["paths"]["apis/metrics.k8s.io/v1beta1"]["serverRelativeURL"].as_str().unwrap();
    let document = world.fixture.get(url).await.expect(200);
    assert!(
        document["components"]["schemas"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"].is_object()
    );
    // metrics-server's manifest puts its service into the same object.
    let theirs = json!({ "spec": { "service": { "namespace": "kube-system", "name": "metrics-server" },
        "insecureSkipTLSVerify": true } });
    let path = format!("{API_SERVICES}/v1beta1.metrics.k8s.io");
    world.fixture.patch(&path, "merge-patch", &theirs).await.expect(200);
    let answer = world.fixture.get(&format!("{ROOT}/nodes")).await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (503, &b"service unavailable\n"[..]));
    world.fixture.delete(&path).await.expect(200);
    assert_eq!(world.fixture.get(ROOT).await.status, 404);
    assert!(!listed(&world.fixture.get("/apis").await.expect(200)));
}
