//! Over TLS: who the client is, HTTP/1.1 and HTTP/2, the end of the server.

use crate::support::*;
use axum::body::Body;
use coracle_api::UserInfo;
use coracle_apiserver::authn::{Anonymous, Authenticator, Configured, ServiceAccountTokens};
use coracle_apiserver::pki::{Leaf, Pki, PkiOptions};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

struct Served {
    fixture: Fixture,
    pki: Arc<Pki>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

async fn served() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::ensure(dir.path(), PkiOptions::default()).unwrap();
    let tokens = Arc::new(ServiceAccountTokens::new(pki.service_account_key()));
    let fixture = Fixture::with(|cache| {
        Authenticator::new(&pki, tokens, cache).ok().map(|a| {
            a.configure(Configured { anonymous: Anonymous::Nowhere, ..Configured::default() });
            Arc::new(a)
        })
    })
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (api, tls) = (fixture.api.clone(), pki.server_tls().unwrap());
    let stop = fixture.api.stop().clone();
    let task = tokio::spawn(async move { api.serve(listener, Some(tls), stop).await });
    Served { fixture, pki, address, task, _dir: dir }
}

impl Served {
    async fn connect(
        &self,
        as_admin: bool,
        http2: bool,
    ) -> TokioIo<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.ca_pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = if as_admin {
            let (cert, key) = self.pki.leaf_pem(Leaf::Admin);
            let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("kubernetes.default").unwrap();
        TokioIo::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap())
    }

    async fn get(&self, as_admin: bool, http2: bool, uri: &str) -> (StatusCode, Vec<u8>) {
        let io = self.connect(as_admin, http2).await;
        let mut request = Request::get(uri).header("host", "kubernetes.default").body(Body::empty()).unwrap();
        // A client's extension must not travel; this one does not even leave the process, as a reminder.
        request.extensions_mut().insert(UserInfo::authenticated("root", &["system:masters"]));
        let response = if http2 {
            *request.uri_mut() = format!("https://kubernetes.default{uri}").parse().unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }
}

#[tokio::test]
async fn certificates_say_who_asks() {
    let served = served().await;
    for http2 in [false, true] {
        let (status, body) = served.get(false, http2, CONFIG_MAPS).await;
        assert_eq!(status, 401, "{}", String::from_utf8_lossy(&body));
        assert_eq!(served.get(false, http2, "/version").await.0, 200);
        let (status, body) = served.get(true, http2, CONFIG_MAPS).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    }
}

#[tokio::test]
async fn watches_do_not_delay_the_end() {
    let served = served().await;
    let io = served.connect(true, false).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request =
        Request::get(format!("{CONFIG_MAPS}?watch=true")).header("host", "k").body(Body::empty()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let begun = std::time::Instant::now();
    served.fixture.api.stop().cancel();
    response.into_body().collect().await.unwrap();
    served.task.await.unwrap();
    assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
}
