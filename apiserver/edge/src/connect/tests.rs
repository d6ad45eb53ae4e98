use super::backend::Backend;
use super::guard::Guard;
use super::*;
use http::{StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Objects(HashMap<String, Vec<Arc<Object>>>);

impl Objects {
    fn with(mut self, resource: &str, object: Object) -> Self {
        self.0.entry(resource.to_owned()).or_default().push(Arc::new(object));
        self
    }
}

impl ObjectReader for Objects {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.list(resource, namespace).into_iter().find(|o| text(o, "/metadata/name") == name)
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        let all = self.0.get(resource).into_iter().flatten();
        all.filter(|o| namespace.is_empty() || text(o, "/metadata/namespace") == namespace).cloned().collect()
    }
}

fn kubelets() -> KubeletClient {
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let guard = Guard { own_node: "n1".to_owned(), ..Guard::default() };
    KubeletClient::new(Arc::new(tls), CancellationToken::new()).guarded(guard)
}

fn pod(containers: &[&str], init: &[&str]) -> Object {
    let list = |names: &[&str]| -> Vec<Object> { names.iter().map(|n| json!({ "name": n })).collect() };
    json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "nodeName": "n1", "containers": list(containers), "initContainers": list(init) },
        "status": { "podIP": "10.42.0.7" },
    })
}

fn node(port: Option<u16>) -> Object {
    let mut node = json!({
        "metadata": { "name": "n1" },
        "status": { "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }] },
    });
    if let Some(port) = port {
        node["status"]["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": port } });
    }
    node
}

const LOG: Target<'static> =
    Target { resource: "pods", subresource: "log", namespace: "default", name: "web", rest_at: 0 };

async fn get(target: Target<'_>, path: &str, objects: &Objects) -> Result<Response<Body>, ApiError> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let rest_at = path.find("/proxy").map_or(0, |at| at + "/proxy".len());
    let query = Query::new(request.uri().query());
    connect(request, Target { rest_at, ..target }, &query, objects, &kubelets()).await
}

async fn refused(target: Target<'_>, path: &str, objects: &Objects) -> (u16, String) {
    let error = get(target, path, objects).await.expect_err("must be refused");
    (error.code, error.message)
}

#[tokio::test]
async fn log_wants_a_container_where_there_are_several() {
    let objects = Objects::default().with("pods.", pod(&["a", "b"], &["setup"])).with("nodes.", node(None));
    let (code, message) = refused(LOG, "/log", &objects).await;
    assert_eq!(code, 400);
    assert_eq!(
        message,
        "a container name must be specified for pod web, choose one of: [a b] or one of the init containers: [setup]"
    );
    let (code, message) = refused(LOG, "/log?container=zzz", &objects).await;
    assert_eq!((code, message.as_str()), (400, "container zzz is not valid for pod web"));
}

#[tokio::test]
async fn log_options_are_validated() {
    let objects = Objects::default().with("pods.", pod(&["a"], &[])).with("nodes.", node(None));
    let cases = [
        ("tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z",
            422,
            "at most one of `sinceTime` or `sinceSeconds`",
        ),
        ("tailLines=x", 400, "invalid syntax"),
        ("sinceTime=yesterday", 400, "parsing time"),
        ("stream=Stdin", 422, "Unsupported value: \"Stdin\""),
    ];
    for (query, code, part) in cases {
        let (got, message) = refused(LOG, &format!("/log?{query}"), &objects).await;
        assert_eq!(got, code, "{query}: {message}");
        assert!(message.contains(part), "{query}: {message}");
    }
}

#[tokio::test]
async fn log_of_an_unscheduled_pod_is_empty() {
    let mut pod = pod(&["a"], &[]);
    pod["spec"]["nodeName"] = json!("");
    let response = get(LOG, "/log", &Objects::default().with("pods.", pod)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn a_node_without_kubelet_is_an_error_at_once() {
    let objects = Objects::default().with("pods.", pod(&["a"], &[])).with("nodes.", node(None));
    let (code, message) = refused(LOG, "/log", &objects).await;
    assert_eq!(code, 503);
    assert!(message.contains("node \"n1\" runs no kubelet"), "{message}");
    let (code, _) = refused(LOG, "/log", &Objects::default()).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn exec_asks_for_an_upgrade_and_a_command() {
    let objects = Objects::default().with("pods.", pod(&["a"], &[])).with("nodes.", node(Some(1)));
    let exec = Target { subresource: "exec", ..LOG };
    let (code, message) = refused(exec, "/exec?command=ls&stdout=1", &objects).await;
    assert_eq!((code, message.as_str()), (400, "Upgrade request required"));
    let (code, message) = refused(exec, "/exec?stdout=1", &objects).await;
    assert_eq!((code, message.as_str()), (400, "you must specify at least 1 command"));
    let (code, message) = refused(exec, "/exec?command=ls", &objects).await;
    assert_eq!((code, message.as_str()), (400, "you must specify at least 1 of stdin, stdout, stderr"));
}

#[tokio::test]
async fn service_proxy_says_what_is_missing() {
    let service = json!({
        "metadata": { "name": "web", "namespace": "default" }, "spec": { "ports": [{ "port": 80, "name": "http" }] },
    });
    let behind = |pod: &str| json!({ "kind": "Pod", "namespace": "default", "name": pod });
    let slice = json!({
        "metadata": { "namespace": "default", "labels": { "kubernetes.io/service-name": "web" } },
        "ports": [{ "name": "http", "port": 8080 }],
        "endpoints": [
            { "addresses": ["10.42.0.9"], "conditions": { "ready": false }, "targetRef": behind("web") },
            { "addresses": ["10.42.0.8"], "conditions": { "ready": true } },
            { "addresses": ["10.42.0.8"], "conditions": { "ready": true }, "targetRef": behind("web") },
            { "addresses": ["10.42.0.8"], "conditions": { "ready": true }, "targetRef": behind("gone") },
        ],
    });
    let mut pod = pod(&["a"], &[]);
    pod["status"]["podIP"] = json!("10.42.0.9");
    let objects = Objects::default()
        .with("services.", service.clone())
        .with("endpointslices.discovery.k8s.io", slice)
        .with("pods.", pod.clone());
    let ask = |name: &'static str| Target { resource: "services", subresource: "proxy", name, ..LOG };
    let path = "/api/v1/namespaces/default/services/web/proxy/";
    let (code, message) = refused(ask("web:81"), path, &objects).await;
    assert_eq!((code, message.as_str()), (503, "no service port 81 found for service \"web\""));
    // Not ready, no pod behind it, not the pod's address, no such pod.
    for name in ["web", "web:http"] {
        let (code, message) = refused(ask(name), path, &objects).await;
        assert_eq!((code, message), (503, format!("no endpoints available for service \"{name}\"")));
    }
    pod["status"]["podIP"] = json!("169.254.169.254");
    let slice = json!({
        "metadata": { "namespace": "default", "labels": { "kubernetes.io/service-name": "web" } },
        "ports": [{ "name": "http", "port": 8080 }],
        "endpoints": [{ "addresses": ["169.254.169.254"], "targetRef": behind("web") }],
    });
    let objects = Objects::default()
        .with("services.", service)
        .with("endpointslices.discovery.k8s.io", slice)
        .with("pods.", pod);
    let (code, message) = refused(ask("web:http"), path, &objects).await;
    assert_eq!((code, message.as_str()), (400, "address not allowed"));
    let (code, _) = refused(ask("ftp:web:80"), path, &objects).await;
    assert_eq!(code, 400);
}

/// Answers one connection: reads a request head, writes `answer`, then echoes.
async fn backend(answer: &'static str) -> (Backend, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let reach = Guard::default().kubelet("");
    (Backend { host: "127.0.0.1".to_owned(), port, tls: None, reach }, served)
}

/// A real HTTP server in front of `forward`, because only it makes an `OnUpgrade`.
async fn front(backend: Backend) -> TcpStream {
    front_until(backend, Duration::ZERO).await
}

/// Likewise, but upgraded connections end when nothing moves on them for so long.
async fn front_until(backend: Backend, idle: Duration) -> TcpStream {
    let ends = forward::Ends { stop: CancellationToken::new(), idle };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let (backend, ends) = (backend.clone(), ends.clone());
            async move {
                let (mut parts, body) = request.into_parts();
                parts.headers = headers::for_backend(&parts);
                let request = Request::from_parts(parts, Body::new(body));
                forward::forward(request, &backend, &ends).await
            }
        });
        let http = hyper::server::conn::http1::Builder::new();
        http.serve_connection(TokioIo::new(stream), service).with_upgrades().await.unwrap();
    });
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test]
async fn an_upgrade_becomes_a_pipe_that_closes_with_its_client() {
    let (backend, served) = backend(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n",
    )
    .await;
    let mut client = front(backend).await;
    client
        .write_all(b"POST /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nAuthorization: Bearer x\r\nImpersonate-User: y\r\n\r\nhello")
        .await
        .unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"hello") {
        got.push(client.read_u8().await.unwrap());
    }
    let got = String::from_utf8(got).unwrap().to_lowercase();
    assert!(got.starts_with("http/1.1 101"), "{got}");
    assert!(got.contains("upgrade: spdy/3.1") && got.contains("x-stream-protocol-version: v4"), "{got}");
    drop(client);
    let head = served.await.unwrap().to_lowercase();
    assert!(head.contains("upgrade: spdy/3.1"), "{head}");
    assert!(!head.contains("authorization") && !head.contains("impersonate"), "{head}");
}

#[tokio::test]
async fn an_upgraded_connection_ends_when_nothing_moves() {
    let idle = Duration::from_millis(400);
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    let (backend, served) = backend(switching).await;
    let mut client = front_until(backend, idle).await;
    let request = b"POST /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\n") {
        got.push(client.read_u8().await.unwrap());
    }
    let began = std::time::Instant::now();
    for _ in 0..6 {
        tokio::time::sleep(idle / 4).await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
    }
    assert!(began.elapsed() > idle);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    served.await.unwrap();
}

#[tokio::test]
async fn a_refused_upgrade_is_passed_on() {
    let (backend, _served) = backend("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone").await;
    let mut client = front(backend).await;
    client
        .write_all(b"GET /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"gone") {
        got.push(client.read_u8().await.unwrap());
    }
    assert!(got.starts_with(b"HTTP/1.1 404"));
}

#[tokio::test]
async fn proxy_without_path_redirects_reads_to_the_slash() {
    let mut pod = pod(&["a"], &[]);
    // Nobody listens there, and nobody may be asked there.
    pod["status"]["podIP"] = json!("127.0.0.1");
    let objects = Objects::default().with("pods.", pod.clone());
    let path = "/api/v1/namespaces/default/pods/web/proxy";
    let target = Target { subresource: "proxy", ..LOG };
    let (code, message) = refused(target, &format!("{path}?a=b"), &objects).await;
    assert_eq!((code, message.as_str()), (400, "address not allowed"));
    pod["status"]["podIP"] = json!("192.0.2.1");
    let objects = Objects::default().with("pods.", pod);
    let response = get(target, &format!("{path}?a=b"), &objects).await.unwrap();
    assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
    assert_eq!(response.headers()[header::LOCATION], format!("{path}/?a=b"));
}

/// A node that claims this server's addresses, plainly or in disguise, or a name that leads there.
#[tokio::test]
async fn a_node_leads_nobody_to_this_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut evil = node(Some(port));
    evil["metadata"]["name"] = json!("evil");
    let path = "/api/v1/nodes/evil/proxy/";
    for address in
        ["127.0.0.1", "::ffff:127.0.0.1", "::1", "169.254.169.254", "::ffff:a9fe:a9fe", "localhost"]
    {
        let kind = if address == "localhost" { "Hostname" } else { "InternalIP" };
        evil["status"]["addresses"] = json!([{ "type": kind, "address": address }]);
        let objects = Objects::default().with("nodes.", evil.clone());
        for name in ["evil".to_owned(), format!("evil:{}", port - 1), format!("https:evil:{}", port - 1)] {
            let target =
                Target { resource: "nodes", subresource: "proxy", namespace: "", name: &name, rest_at: 0 };
            let (code, message) = refused(target, path, &objects).await;
            assert_eq!((code, message.as_str()), (400, "address not allowed"), "{address} {name}");
        }
    }
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err(), "somebody was asked");
}

/// Listens with a certificate for this name, of this authority; returns the port.
async fn listening(issuer: &rcgen::Issuer<'_, rcgen::KeyPair>, name: &str) -> u16 {
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_single_cert(vec![leaf.der().clone()], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    port
}

fn authority() -> (rcgen::Issuer<'static, rcgen::KeyPair>, rcgen::Certificate) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (rcgen::Issuer::new(params, key), certificate)
}

/// Whoever else listens at an address that a node claims, the node is not met there.
#[tokio::test]
async fn a_node_is_met_where_its_own_kubelet_answers() {
    let ((issuer, certificate), (stranger, _)) = (authority(), authority());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let guard = Guard { own_node: "n1".to_owned(), ..Guard::default() };
    let kubelets = KubeletClient::new(Arc::new(tls), CancellationToken::new()).guarded(guard);
    let here = "127.0.0.1".parse().unwrap();
    let (own, other) = (listening(&issuer, "n1").await, listening(&issuer, "n2").await);
    assert_eq!(kubelets.meet("n1", here, own).await, Ok(()));
    let told = kubelets.meet("n1", here, other).await.unwrap_err();
    assert!(told.contains("certificate not valid for name"), "{told}");
    assert!(!told.contains("--kubelet-certificate-authority"), "another authority would not help: {told}");
    let told = kubelets.meet("n1", here, listening(&stranger, "n1").await).await.unwrap_err();
    assert!(told.contains("invalid peer certificate"), "{told}");
    assert!(
        told.contains("serverTLSBootstrap: true") && told.contains("--kubelet-certificate-authority"),
        "{told}"
    );
    // Loopback is this process' own node's alone.
    let told = kubelets.meet("n2", here, other).await.unwrap_err();
    assert!(told.ends_with("address not allowed"), "{told}");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    assert!(kubelets.meet("n1", here, nobody).await.unwrap_err().contains("connection refused"));
}
