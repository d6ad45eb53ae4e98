//! What runs on when whoever asked for it is taken back: nothing.
//!
//! Behind the API server stands a kubelet of the tests' own, with the certificate of the server's node. It answers exec by
//! an echo, and logs by one line and no end.

use bytes::Bytes;
use coracle_tests::http::Caller;
use coracle_tests::{Cluster, wait_for};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The server acts on an event, within milliseconds; a busy machine needs its time. Nothing else would end them: kubelets
/// ask every minute, watches last for half an hour.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How long something must go on to count as untouched.
const A_WHILE: Duration = Duration::from_secs(2);

fn chain(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file)
        .expect("certificates")
        .map(|one| one.expect("a certificate"))
        .collect()
}

fn key(file: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(file).expect("a key")
}

/// A kubelet as far as the API server can tell; returns its port.
fn kubelet(cluster: &Cluster, runtime: &Runtime) -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pki = cluster.data_dir().join("pki");
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(chain(&pki.join("kubelet.crt")), key(&pki.join("kubelet.key")));
    let acceptor = TlsAcceptor::from(Arc::new(config.expect("a configuration")));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { serve(acceptor.accept(stream).await.ok()?).await.ok() });
        }
    });
    port
}

async fn serve(stream: tokio_rustls::server::TlsStream<TcpStream>) -> std::io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(reader.read_u8().await?);
    }
    if !head.to_ascii_lowercase().windows(8).any(|part| part == b"upgrade:") {
        writer.write_all(b"HTTP/1.1 200 OK\r\n\r\nline\n").await?;
        return tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.map(drop);
    }
    writer
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        .await?;
    tokio::io::copy(&mut reader, &mut writer).await.map(drop)
}

/// How a client shows who it is.
enum Shows {
    Token(String),
    /// Directory of `admin.crt` and `admin.key`.
    Certificate(PathBuf),
}

struct Client<'a> {
    cluster: &'a Cluster,
    shows: Shows,
}

impl Client<'_> {
    async fn ask(&self, path: &str, upgrade: bool) -> Response<Incoming> {
        let mut roots = RootCertStore::empty();
        roots.add(chain(&self.cluster.data_dir().join("pki/ca.crt")).remove(0)).expect("an authority");
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match &self.shows {
            Shows::Token(_) => config.with_no_client_auth(),
            Shows::Certificate(dir) => {
                let own = (chain(&dir.join("admin.crt")), key(&dir.join("admin.key")));
                config.with_client_auth_cert(own.0, own.1).expect("a configuration")
            }
        };
        let stream = TcpStream::connect(("127.0.0.1", self.cluster.port())).await.expect("a connection");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::get(path).header("host", "127.0.0.1");
        if let Shows::Token(token) = &self.shows {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if upgrade {
            request = request.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        }
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        // The connection lives as long as its answer.
        tokio::spawn(async move {
            let _sender = sender;
            std::future::pending::<()>().await;
        });
        response
    }

    /// Opens a command, a log and a watch, does something, and says whether all of them end within that time.
    async fn is_cut_off(&self, what: &str, within: Duration, take_back: impl FnOnce()) -> bool {
        let pod = "/api/v1/namespaces/default/pods/web";
        let exec = self.ask(&format!("{pod}/exec?command=sh&stdin=1&stdout=1&container=a"), true).await;
        assert_eq!(exec.status(), 101, "{what}");
        let mut exec = TokioIo::new(hyper::upgrade::on(exec).await.expect("an upgrade"));
        let mut log = self.ask(&format!("{pod}/log?follow=1&container=a"), false).await;
        let mut watch = self.ask("/api/v1/namespaces?watch=1", false).await;
        assert_eq!((log.status().as_u16(), watch.status().as_u16()), (200, 200), "{what}");
        exec.write_all(b"echo").await.expect("sent");
        let mut echo = [0; 4];
        exec.read_exact(&mut echo).await.expect("an echo");
        assert_eq!(&echo, b"echo");
        for body in [log.body_mut(), watch.body_mut()] {
            body.frame().await.expect("something").expect("a frame");
        }
        take_back();
        let ends = async {
            while exec.read(&mut echo).await.is_ok_and(|read| read > 0) {}
            for body in [log.body_mut(), watch.body_mut()] {
                while body.frame().await.is_some_and(|frame| frame.is_ok()) {}
            }
        };
        tokio::time::timeout(within, ends).await.is_ok()
    }
}

fn setup() -> (Cluster, Runtime) {
    let cluster = Cluster::start(&["--node-name", "box"]);
    let runtime = Runtime::new().expect("a runtime");
    let port = kubelet(&cluster, &runtime);
    let create = |path: &str, object: serde_json::Value| {
        let made = cluster.raw("POST", path, &object.to_string());
        assert_eq!(made.code, 201, "{made:?}");
    };
    create(
        "/api/v1/nodes",
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "box" }, "status": {
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": port } } } }),
    );
    let pod = |name: &str, account: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": { "nodeName": "box", "serviceAccountName": account, "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "a", "image": "a" }] } })
    };
    create("/api/v1/namespaces/default/pods", pod("web", "default"));
    for name in ["one", "two", "three", "four"] {
        cluster.ok(&format!("kubectl create serviceaccount {name}"));
        cluster.ok(&format!(
            "kubectl create clusterrolebinding {name} --clusterrole=cluster-admin --serviceaccount=default:{name}"
        ));
    }
    create("/api/v1/namespaces/default/pods", pod("bound", "two"));
    cluster.ok("kubectl create secret generic bound");
    (cluster, runtime)
}

fn token(cluster: &Cluster, arguments: &str) -> Shows {
    Shows::Token(cluster.ok(&format!("kubectl create token {arguments}")).trim().to_owned())
}

#[test]
fn nothing_runs_on_when_its_token_is_taken_back() {
    let (cluster, runtime) = setup();
    for (arguments, end) in [
        ("one", "kubectl delete serviceaccount one"),
        ("two --bound-object-kind=Pod --bound-object-name=bound", "kubectl delete pod bound --force"),
        ("three --bound-object-kind=Secret --bound-object-name=bound", "kubectl delete secret bound"),
    ] {
        let client = Client { cluster: &cluster, shows: token(&cluster, arguments) };
        let cut_off = client.is_cut_off(arguments, AT_ONCE, || drop(cluster.ok(end)));
        assert!(runtime.block_on(cut_off), "{arguments}: something runs on");
    }
    // Another's change is nobody else's end.
    let client = Client { cluster: &cluster, shows: token(&cluster, "four") };
    let others = "kubectl label serviceaccount four a=b && kubectl delete serviceaccount three";
    let cut_off = client.is_cut_off("four", A_WHILE, || drop(cluster.ok(others)));
    assert!(!runtime.block_on(cut_off), "a token that is good lost its streams");
}

#[test]
fn nothing_runs_on_when_its_certificate_is_taken_back() {
    let (cluster, runtime) = setup();
    // The server's own copy is replaced as soon as it is revoked.
    let old = tempfile::tempdir().expect("a directory");
    for name in ["admin.crt", "admin.key"] {
        std::fs::copy(cluster.data_dir().join("pki").join(name), old.path().join(name)).expect("a copy");
    }
    let certificate = old.path().join("admin.crt").display().to_string();
    let client = Client { cluster: &cluster, shows: Shows::Certificate(old.path().to_owned()) };
    let conf = cluster.kubeconfig().display().to_string();
    let revoke = || drop(cluster.ok(&format!("coracle cert revoke --kubeconfig {conf} {certificate}")));
    assert!(runtime.block_on(client.is_cut_off("the administrator", AT_ONCE, revoke)), "something runs on");
    wait_for("the administrator's next certificate", Duration::from_secs(60), || {
        let answer = cluster.http(&Caller::Admin, "GET", "/api", "");
        if answer.code == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
}
