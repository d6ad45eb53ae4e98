//! Client certificates that were taken back.

use bytes::Bytes;
use coracle_tests::http::Caller;
use coracle_tests::{Cluster, wait_for};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

const LIST: &str = "/api/v1/namespaces/kube-system/configmaps/coracle-revoked-certificates";

/// A connection of the administrator's that stays open.
struct Connection {
    runtime: Runtime,
    sender: SendRequest<Empty<Bytes>>,
}

impl Connection {
    /// With the certificate `admin.crt` that lies in a directory.
    fn open(cluster: &Cluster, own: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pki = cluster.data_dir().join("pki");
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(pki.join("ca.crt")).expect("the authority"))
            .expect("an authority");
        let chain = vec![CertificateDer::from_pem_file(own.join("admin.crt")).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(own.join("admin.key")).expect("a key");
        let config = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key);
        let connector = TlsConnector::from(Arc::new(config.expect("a configuration")));
        let runtime = Runtime::new().expect("a runtime");
        let port = cluster.port();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            let name = ServerName::try_from("127.0.0.1").expect("a name");
            let stream = connector.connect(name, stream).await.expect("a handshake");
            let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender }
    }

    /// The body of a GET that lasts.
    fn stream(&mut self, path: &str) -> Incoming {
        let request = Request::get(path).header("host", "127.0.0.1").body(Empty::new()).expect("a request");
        let response = self.runtime.block_on(self.sender.send_request(request)).expect("an answer");
        assert_eq!(response.status(), 200);
        response.into_body()
    }

    /// The status code of a GET.
    fn get(&mut self, path: &str) -> u16 {
        self.send("GET", path)
    }

    fn send(&mut self, method: &str, path: &str) -> u16 {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
        let request = request.body(Empty::new()).expect("a request");
        self.runtime.block_on(async {
            let response = self.sender.send_request(request).await.expect("the connection is open");
            let code = response.status().as_u16();
            response.into_body().collect().await.expect("a body");
            code
        })
    }
}

fn fingerprint(cluster: &Cluster) -> String {
    let certificate = cluster.data_dir().join("pki/admin.crt").display().to_string();
    let line = cluster.ok(&format!("openssl x509 -in {certificate} -outform DER | sha256sum"));
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

fn token(cluster: &Cluster, name: &str) -> Caller {
    Caller::Token(cluster.ok(&format!("kubectl create token {name}")).trim().to_owned())
}

/// What a kubelet is told that has found this certificate good.
fn allowed(cluster: &Cluster, who: &Caller, fingerprint: &str) -> serde_json::Value {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": "kubernetes-admin", "groups": ["system:masters"],
            "extra": {"authentication.kubernetes.io/credential-id": [format!("X509SHA256={fingerprint}")]},
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "proxy"},
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    cluster.http(who, "POST", path, &review.to_string()).json()["status"].take()
}

#[test]
fn a_revoked_administrator_is_out_at_once_on_connections_that_stand_too() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok("kubectl create serviceaccount root");
    cluster.ok(
        "kubectl create clusterrolebinding root --clusterrole=cluster-admin --serviceaccount=default:root",
    );
    let root = token(&cluster, "root");
    // The server's own copy is replaced as soon as it is revoked.
    let old = tempfile::tempdir().expect("a directory");
    for name in ["admin.crt", "admin.key"] {
        std::fs::copy(cluster.data_dir().join("pki").join(name), old.path().join(name)).expect("a copy");
    }
    let mut open = Connection::open(&cluster, old.path());
    assert_eq!(open.get("/api/v1/namespaces"), 200);
    let mut watching = Connection::open(&cluster, old.path());
    let events = watching.stream("/api/v1/configmaps?watch=true");
    let id = cluster.ok("kubectl auth whoami -o jsonpath='{.status.userInfo.extra}'");
    let key = fingerprint(&cluster);
    assert!(id.contains(&format!("X509SHA256={key}")), "{id}");
    let value = json!({"serial": "01", "subject": "CN=kubernetes-admin", "notAfter": "2099-01-01T00:00:00Z", "revokedAt": "2026-01-01T00:00:00Z"});
    let list = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coracle-revoked-certificates"},
        "data": {key.clone(): value.to_string()},
    });
    let made = cluster.http(&root, "POST", "/api/v1/namespaces/kube-system/configmaps", &list.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    assert_eq!(open.get("/api/v1/namespaces"), 401, "the next request of the open connection");
    let end = async { tokio::time::timeout(Duration::from_secs(20), events.collect()).await };
    let seen = watching.runtime.block_on(end);
    seen.expect("the watch ends").expect("and cleanly");
    assert_eq!(Connection::open(&cluster, old.path()).get("/api/v1/namespaces"), 401);
    assert_eq!(
        allowed(&cluster, &root, &key),
        json!({"allowed": false, "denied": true, "reason": "the client certificate was revoked"})
    );
    assert_eq!(allowed(&cluster, &root, &"0".repeat(64))["allowed"], true);
    let taken_back = Connection::open(&cluster, old.path()).send("DELETE", LIST);
    assert_eq!(taken_back, 401, "who is revoked cannot take it back");
    cluster.kill();
    cluster.restart_unwaited();
    wait_for("the server", Duration::from_secs(60), || {
        let answer = cluster.http(&Caller::Nobody, "GET", "/readyz", "");
        if answer.code == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    let again = Connection::open(&cluster, old.path()).get("/api/v1/namespaces");
    assert_eq!(again, 401, "it is a fact of the cluster");
    assert_eq!(cluster.http(&root, "DELETE", LIST, "").code, 200);
    assert_eq!(Connection::open(&cluster, old.path()).get("/api/v1/namespaces"), 200);
}

#[test]
fn only_administrators_write_the_list() {
    let cluster = Cluster::start(&[]);
    for role in ["view", "edit", "admin"] {
        cluster.ok(&format!("kubectl create serviceaccount {role}"));
        cluster.ok(&format!(
            "kubectl create rolebinding {role} --clusterrole={role} --serviceaccount=default:{role}"
        ));
        let who = token(&cluster, role);
        let list =
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"coracle-revoked-certificates"}}"#;
        let made = cluster.http(&who, "POST", "/api/v1/namespaces/kube-system/configmaps", list);
        assert_eq!(made.code, 403, "{role}: {made:?}");
    }
}
