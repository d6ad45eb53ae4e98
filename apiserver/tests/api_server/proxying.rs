//! The subresource `proxy` of pods, services and nodes.

use crate::support::*;
use crate::toy;
use axum::body::Body;
use coracle_apiserver::connect::KubeletClient;
use coracle_apiserver::pki::{Pki, PkiOptions, authorities};
use coracle_apiserver::server::EdgeOptions;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const PODS_PROXY: &str = "/api/v1/namespaces/default/pods";
const SERVICES_PROXY: &str = "/api/v1/namespaces/default/services";

struct World {
    fixture: Fixture,
    port: u16,
    tls_port: u16,
    pki: Arc<Pki>,
    _dir: tempfile::TempDir,
}

impl World {
    /// A pod `web` whose address is this machine's, where a small server listens in clear text and with TLS, and a
    /// Service `web` in front of it.
    async fn new() -> Self {
        Self::trusting(&[]).await
    }

    /// Where these authorities vouch for kubelets, too.
    async fn trusting(further: &[CertificateDer<'static>]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = PkiOptions { node_name: "n1".to_owned(), ..PkiOptions::default() };
        let pki = Pki::ensure(dir.path(), options).unwrap();
        let to_kubelets = pki.client_config_for_kubelet(further).unwrap();
        let kubelets = KubeletClient::new(to_kubelets, CancellationToken::new());
        let fixture = Fixture::with_kubelets(EdgeOptions::default(), Some(kubelets)).await;
        let port = serve(None).await;
        let tls_port = serve(Some(pki.kubelet_server_tls().unwrap().into())).await;
        let world = Self { fixture, port, tls_port, pki, _dir: dir };
        world.pod(&toy::own_address().to_string()).await;
        world.service().await;
        world
    }

    async fn pod(&self, ip: &str) {
        let mut pod = pod("web");
        pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": self.port, "name": "http" }, { "containerPort": self.tls_port, "name": "tls" }]);
        let mut pod = self.fixture.post(PODS, &pod).await.expect(201);
        pod["status"] = json!({ "podIP": ip, "podIPs": [{ "ip": ip }] });
        self.fixture.put(&format!("{PODS}/web/status"), &pod).await.expect(200);
    }

    async fn service(&self) {
        let ports = json!([{ "name": "http", "port": 80 }, { "name": "tls", "port": 443 }]);
        let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": ports } });
        self.fixture.post(SERVICES_PROXY, &service).await.expect(201);
        let slice = json!({
            "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4",
            "ports": [{ "name": "http", "port": self.port }, { "name": "tls", "port": self.tls_port }],
            "endpoints": [{ "addresses": [toy::own_address()],
                "targetRef": { "kind": "Pod", "namespace": "default", "name": "web" } }],
        });
        self.fixture.post(toy::SLICES, &slice).await.expect(201);
    }

    /// A node that says its kubelet listens on this port of this machine.
    async fn node(&self, name: &str, port: u16) {
        let node = json!({ "metadata": { "name": name } });
        let mut node = self.fixture.post("/api/v1/nodes", &node).await.expect(201);
        node["status"] = json!({
            "addresses": [{ "type": "InternalIP", "address": toy::own_address() }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
        });
        self.fixture.put(&format!("/api/v1/nodes/{name}/status"), &node).await.expect(200);
    }

    /// What the server behind was asked.
    async fn ask(&self, method: &str, path: &str) -> Value {
        let answer = self.fixture.ask(method, path, "", Body::empty()).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_str(answer.header("x-echo")).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }
}

/// Clear text, or TLS.
async fn serve(tls: Option<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind((toy::own_address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| async move {
                    Ok::<_, Infallible>(answer(request, port).await)
                });
                let http = hyper::server::conn::http1::Builder::new();
                match tls {
                    Some(tls) => {
                        let Ok(stream) = tls.accept(stream).await else { return };
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    }
                    None => {
                        let connection = http.serve_connection(TokioIo::new(stream), service);
                        let _ = connection.with_upgrades().await;
                    }
                }
            });
        }
    });
    port
}

async fn answer(mut request: Request<Incoming>, port: u16) -> Response<Body> {
    let header = |name: &str| request.headers().get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
    let echo = json!({
        "method": request.method().as_str(), "uri": request.uri().to_string(), "port": port,
        "host": header("host"), "authorization": header("authorization"), "forwarded": header("x-forwarded-uri"),
    });
    let response = Response::builder().header("x-echo", echo.to_string());
    let response = response.header("access-control-allow-origin", "*").header("service-worker-allowed", "/");
    let own = format!("http://{}:{port}", toy::own_address());
    match request.uri().path() {
        "/page" => response.header("content-type", "text/html").body(Body::from(format!(
            "<a href=\"/rewriteme\">test</a><img src='{own}/i.png'><a href=\"https://example.org/\">o</a>"
        ))),
        "/moved" => response.status(302).header("location", format!("{own}/there?a=b")).body(Body::empty()),
        "/teapot" => response.status(418).body(Body::from("short and stout")),
        "/echo" => response.body(Body::new(request.into_body())),
        "/shell" => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgrade.await.unwrap());
                let mut buffer = [0; 64];
                while let Ok(n @ 1..) = io.read(&mut buffer).await {
                    io.write_all(&buffer[..n]).await.unwrap();
                }
            });
            let protocol = request.headers()["upgrade"].clone();
            response
                .status(101)
                .header("connection", "Upgrade")
                .header("upgrade", protocol)
                .body(Body::empty())
        }
        _ => response.body(Body::from("ok")),
    }
    .unwrap()
}

#[tokio::test]
async fn every_method_and_path_gets_there() {
    let world = World::new().await;
    for base in [format!("{PODS_PROXY}/web/proxy"), format!("{SERVICES_PROXY}/web:http/proxy")] {
        for method in ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"] {
            let path = format!("{base}/some/path/with/{method}?method={method}");
            let seen = world.ask(method, &path).await;
            assert_eq!(seen["method"], method);
            assert_eq!(seen["uri"], format!("/some/path/with/{method}?method={method}"));
            assert_eq!(seen["forwarded"], path.split('?').next().unwrap());
            // Without a path: reads are sent to the slash, everything else goes through.
            let bare = format!("{base}?method={method}");
            if matches!(method, "GET" | "HEAD") {
                let answer = world.fixture.ask(method, &bare, "", Body::empty()).await;
                assert_eq!(answer.status, 301);
                assert_eq!(answer.header("location"), format!("{base}/?method={method}"));
            } else {
                assert_eq!(world.ask(method, &bare).await["uri"], format!("/?method={method}"));
            }
        }
        for (rest, uri) in [
            ("/", "/"),
            ("/a/", "/a/"),
            ("/a%20b%2Fc", "/a%20b%2Fc"),
            ("//a", "//a"),
            ("/x?y=%26", "/x?y=%26"),
        ] {
            assert_eq!(world.ask("GET", &format!("{base}{rest}")).await["uri"], uri);
        }
    }
}

#[tokio::test]
async fn names_carry_scheme_and_port() {
    let world = World::new().await;
    let (port, tls) = (world.port, world.tls_port);
    let table = [
        (format!("{PODS_PROXY}/web/proxy/"), port),
        (format!("{PODS_PROXY}/web:{port}/proxy/"), port),
        (format!("{PODS_PROXY}/web:http/proxy/"), port),
        (format!("{PODS_PROXY}/http:web:{port}/proxy/"), port),
        (format!("{PODS_PROXY}/https:web:{tls}/proxy/"), tls),
        (format!("{PODS_PROXY}/https%3Aweb%3A{tls}/proxy/"), tls),
        (format!("{SERVICES_PROXY}/web:80/proxy/"), port),
        (format!("{SERVICES_PROXY}/web:http/proxy/"), port),
        (format!("{SERVICES_PROXY}/http:web:http/proxy/"), port),
        (format!("{SERVICES_PROXY}/https:web:443/proxy/"), tls),
        (format!("{SERVICES_PROXY}/https:web:tls/proxy/"), tls),
    ];
    for (path, port) in table {
        assert_eq!(world.ask("GET", &path).await["port"], port, "{path}");
    }
    let refused = [
        (format!("{PODS_PROXY}/ftp:web:80/proxy/"), 400, "invalid pod request \"ftp:web:80\""),
        (format!("{SERVICES_PROXY}/a:b:c:d/proxy/"), 400, "invalid service request \"a:b:c:d\""),
        (format!("{SERVICES_PROXY}/web:81/proxy/"), 503, "no service port 81 found for service \"web\""),
        (format!("{SERVICES_PROXY}/web:none/proxy/"), 503, "no endpoints available for service \"web:none\""),
        (format!("{SERVICES_PROXY}/web/proxy/"), 503, "no endpoints available for service \"web\""),
        (format!("{SERVICES_PROXY}/gone/proxy/"), 404, "services \"gone\" not found"),
        (format!("{PODS_PROXY}/gone/proxy/"), 404, "pods \"gone\" not found"),
    ];
    for (path, code, message) in refused {
        let answer = world.fixture.get(&path).await.expect(code);
        assert_eq!(answer["message"], message, "{path}");
    }
}

#[tokio::test]
async fn nobody_there_is_said_in_gos_words() {
    let world = World::new().await;
    let listener = std::net::TcpListener::bind((toy::own_address(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let answer = world.fixture.get(&format!("{PODS_PROXY}/web:{}/proxy/", address.port())).await.expect(503);
    let expected = format!("error trying to reach service: dial tcp {address}: connect: connection refused");
    assert_eq!(
        (answer["message"].as_str(), answer["reason"].as_str()),
        (Some(&*expected), Some("ServiceUnavailable"))
    );
}

#[tokio::test]
async fn pages_and_redirects_lead_back() {
    let world = World::new().await;
    for base in
        [format!("{PODS_PROXY}/http:web:{}/proxy", world.port), format!("{SERVICES_PROXY}/web:80/proxy")]
    {
        let page = world.fixture.get(&format!("{base}/page")).await;
        let expected = format!(
            "<a href=\"{base}/rewriteme\">test</a><img src=\"{base}/i.png\"><a href=\"https://example.org/\">o</a>"
        );
        assert_eq!(String::from_utf8_lossy(&page.body), expected);
        assert_eq!(page.header("content-length"), expected.len().to_string());
        assert!(page.headers.get("access-control-allow-origin").is_none());
        assert!(page.headers.get("service-worker-allowed").is_none());
        let script = Request::get(format!("{base}/worker.js")).header("service-worker", "script");
        let told = world.fixture.call(script.body(Body::empty()).unwrap()).await.expect(400);
        assert_eq!(told["message"], "scripts of service workers are not proxied");
        let moved = world.fixture.get(&format!("{base}/moved")).await;
        assert_eq!((moved.status.as_u16(), moved.header("location")), (302, &*format!("{base}/there?a=b")));
        let other = world.fixture.get(&format!("{base}/teapot")).await;
        assert_eq!((other.status.as_u16(), &other.body[..]), (418, &b"short and stout"[..]));
    }
}

#[tokio::test]
async fn credentials_stay_here_and_the_host_is_the_clients() {
    let world = World::new().await;
    let request = Request::get(format!("{PODS_PROXY}/web/proxy/x"))
        .header("host", "api.example:6443")
        .header("authorization", "Bearer secret")
        .body(Body::empty())
        .unwrap();
    let answer = world.fixture.call(request).await;
    let seen: Value = serde_json::from_str(answer.header("x-echo")).unwrap();
    assert_eq!((&seen["authorization"], &seen["host"]), (&json!(""), &json!("api.example:6443")));
}

#[tokio::test]
async fn large_bodies_stream() {
    let world = World::new().await;
    let piece = vec![7_u8; 1 << 20];
    let pieces = futures::stream::iter((0..32).map(move |_| Ok::<_, Infallible>(piece.clone())));
    let request = Request::builder().method(Method::POST).uri(format!("{PODS_PROXY}/web/proxy/echo"));
    let response = world.fixture.send(request.body(Body::from_stream(pieces)).unwrap()).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.iter().all(|b| *b == 7));
        bytes += data.len();
    }
    assert_eq!(bytes, 32 << 20);
}

#[tokio::test]
async fn protocols_can_change() {
    let world = World::new().await;
    let front = toy::front(&world.fixture).await;
    for base in [format!("{PODS_PROXY}/web/proxy"), format!("{SERVICES_PROXY}/web:http/proxy")] {
        let (head, mut stream) = toy::upgrade(front, &format!("{base}/shell"), "websocket").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        stream.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello");
        // Who asks for another protocol and gets a page has nothing to read it with.
        let (head, _) = toy::upgrade(front, &format!("{base}/page"), "websocket").await;
        assert!(head.starts_with("HTTP/1.1 500"), "{head}");
        let (head, _) = toy::upgrade(front, &format!("{base}/teapot"), "websocket").await;
        assert!(head.starts_with("HTTP/1.1 418"), "{head}");
    }
}

#[tokio::test]
async fn endpoints_must_be_pods_and_addresses_must_be_others() {
    let world = World::new().await;
    let path = format!("{}/web-1", toy::SLICES);
    let mut slice = world.fixture.get(&path).await.expect(200);
    slice["endpoints"][0]["targetRef"] = Value::Null;
    world.fixture.put(&path, &slice).await.expect(200);
    let answer = world.fixture.get(&format!("{SERVICES_PROXY}/web:80/proxy/")).await.expect(503);
    assert_eq!(answer["message"], "no endpoints available for service \"web:80\"");
    let mut pod = world.fixture.get(&format!("{PODS}/web")).await.expect(200);
    for ip in ["127.0.0.1", "169.254.169.254", "0.0.0.0", ""] {
        pod["status"] = json!({ "podIP": ip });
        pod["metadata"]["resourceVersion"] = Value::Null;
        world.fixture.put(&format!("{PODS}/web/status"), &pod).await;
        let answer = world.fixture.get(&format!("{PODS_PROXY}/web:80/proxy/")).await.expect(400);
        assert_eq!(answer["message"], "address not allowed", "{ip}");
    }
}

#[tokio::test]
async fn nodes_are_their_kubelets() {
    let world = World::new().await;
    let (tls, address) = (world.tls_port, toy::own_address());
    world.node("n1", tls).await;
    for path in ["n1/proxy/logs/", &format!("n1:{tls}/proxy/logs/")] {
        let seen = world.ask("GET", &format!("/api/v1/nodes/{path}")).await;
        assert_eq!((&seen["uri"], &seen["port"]), (&json!("/logs/"), &json!(tls)));
        assert_eq!(seen["host"], format!("{address}:{tls}"));
    }
    let seen = world.ask("GET", &format!("/api/v1/nodes/n1:{}/proxy/x", world.port)).await;
    assert_eq!((&seen["uri"], &seen["port"]), (&json!("/x"), &json!(world.port)));
}

/// A node's address is its own claim, so one may say that its kubelet is another's, or the API server itself.
#[tokio::test]
async fn a_kubelet_is_known_by_its_certificate_for_the_nodes_name() {
    let world = World::new().await;
    let api_server = serve(Some(world.pki.server_tls().unwrap().into())).await;
    world.node("thief", world.tls_port).await;
    // The API server's certificate has this machine's address and its node's name, but not the kubelets' authority.
    world.node("n1", api_server).await;
    for (node, why) in [("thief", "not valid for name \"thief\""), ("n1", "UnknownIssuer")] {
        let answer = world.fixture.get(&format!("/api/v1/nodes/{node}/proxy/logs/")).await.expect(503);
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("invalid peer certificate") && message.contains(why), "{node}: {message}");
    }
    assert_eq!(world.ask("GET", &format!("{PODS_PROXY}/web/proxy/x")).await["uri"], "/x", "others go on");
}

/// A kubelet of another cluster's authority: what is read from it is refused with what helps, until that authority is named.
#[tokio::test]
async fn a_kubelet_of_another_authority_is_refused_until_that_is_named() {
    let elsewhere = tempfile::tempdir().unwrap();
    let options = PkiOptions { node_name: "n2".to_owned(), ..PkiOptions::default() };
    let foreign = Pki::ensure(elsewhere.path(), options).unwrap();
    let kubelet = serve(Some(foreign.kubelet_server_tls().unwrap().into())).await;
    let further = authorities(&elsewhere.path().join("kubelet-serving-ca.crt")).unwrap();
    let log = format!("{PODS}/web/log");
    for (known, code) in [(Vec::new(), 500), (further, 200)] {
        let world = World::trusting(&known).await;
        world.node("n2", kubelet).await;
        let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n2" } });
        world.fixture.post(&format!("{PODS}/web/binding"), &binding).await.expect(201);
        let answer = world.fixture.ask("GET", &log, "", Body::empty()).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, code, "{text}");
        for words in
            ["invalid peer certificate", "serverTLSBootstrap: true", "--kubelet-certificate-authority"]
        {
            assert_eq!(text.contains(words), code == 500, "{words}: {text}");
        }
    }
}

#[test]
fn authorities_are_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let why = |text: &str| {
        std::fs::write(&file, text).unwrap();
        authorities(&file).unwrap_err().to_string()
    };
    assert!(why("").ends_with("there is no certificate in it"), "{}", why(""));
    assert!(
        why("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("ca.crt is not what")
    );
    assert!(authorities(&dir.path().join("none")).is_err());
}
