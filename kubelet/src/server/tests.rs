//! Who gets in, and what strangers read, with an API of the tests' own behind the gate.

use super::auth::{Gate, Peer};
use super::*;
use crate::cri::{self, Runtime};
use crate::pods_api::PodHandle;
use coracle_api::UserInfo;
use coracle_client::transport::in_process;
use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

struct NoPods;

impl PodsApi for NoPods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        Vec::new()
    }

    fn find(&self, _namespace: &str, _name: &str, _uid: Option<&str>) -> Option<PodHandle> {
        None
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(cri::CriClient::new("unix:///nonexistent/containerd.sock"))
    }
}

/// Knows the token `good` of the user `alice`, who may get `nodes/pods` and nothing else; `admin` may do everything.
fn review(path: &str, asked: &Value) -> Value {
    let mut answer = asked.clone();
    answer["status"] = if path.ends_with("tokenreviews") {
        let good = asked["spec"]["token"] == "good";
        json!({ "authenticated": good, "user": { "username": if good { "alice" } else { "" } } })
    } else {
        let attributes = &asked["spec"]["resourceAttributes"];
        assert_eq!((&attributes["resource"], &attributes["name"]), (&json!("nodes"), &json!("n1")));
        let pods = attributes["subresource"] == "pods" && attributes["verb"] == "get";
        json!({ "allowed": asked["spec"]["user"] == "admin" || pods })
    };
    answer
}

fn server(questions: Arc<AtomicUsize>) -> Arc<Server> {
    let service = tower::service_fn(move |request: Request<Body>| {
        let questions = questions.clone();
        async move {
            questions.fetch_add(1, Ordering::SeqCst);
            let path = request.uri().path().to_owned();
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            let answer = review(&path, &serde_json::from_slice(&bytes).unwrap());
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string())))
        }
    });
    let client = in_process::<_, Body, _>(service, UserInfo::anonymous());
    let judge: Judge = Arc::new(|chain| if chain.len() == 1 { Ok(()) } else { Err("untrusted".to_owned()) });
    Arc::new(Server {
        pods: Arc::new(NoPods),
        gate: Gate::new(client, "n1".to_owned(), judge),
        node_name: "n1".to_owned(),
        log_root: PathBuf::from("/nonexistent"),
        configz: json!({ "a": 1 }),
        cgroups: Arc::new(stats::Cgroups::at(std::path::Path::new("/nonexistent"))),
        rates: stats::Rates::default(),
        stop: CancellationToken::new(),
    })
}

async fn ask(
    server: &Arc<Server>,
    peer: &Peer,
    method: Method,
    path: &str,
    token: &str,
) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = server.clone().handle(request.body(Body::empty()).unwrap(), peer).await;
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

fn certificate(name: &str) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "team");
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

#[tokio::test]
async fn strangers_and_bad_tokens_get_401_everywhere() {
    let server = server(Arc::default());
    for path in
        ["/healthz", "/pods", "/exec/a/b/c", "/containerLogs/a/b/c", "/run/a/b/c", "/logs/", "/nonsense"]
    {
        for token in ["", "bad"] {
            let (status, text) = ask(&server, &Peer::NoCertificate, Method::GET, path, token).await;
            assert_eq!((status, text.as_str()), (StatusCode::UNAUTHORIZED, "Unauthorized"), "{path}");
        }
    }
}

#[tokio::test]
async fn permissions_are_those_of_the_paths_subresource() {
    let server = server(Arc::default());
    let (status, _) = ask(&server, &Peer::NoCertificate, Method::GET, "/pods", "good").await;
    assert_eq!(status, StatusCode::OK);
    let cases = [
        (Method::POST, "/exec/default/web/main", "verb=create, resource=nodes, subresource(s)=[proxy])"),
        (Method::GET, "/metrics", "verb=get, resource=nodes, subresource(s)=[metrics])"),
        (Method::GET, "/logs/syslog", "verb=get, resource=nodes, subresource(s)=[log])"),
        (Method::GET, "/podsandmore", "verb=get, resource=nodes, subresource(s)=[proxy])"),
        (Method::POST, "/pods", "verb=create, resource=nodes, subresource(s)=[pods proxy])"),
    ];
    for (method, path, text) in cases {
        let got = ask(&server, &Peer::NoCertificate, method, path, "good").await;
        assert_eq!(got, (StatusCode::FORBIDDEN, format!("Forbidden (user=alice, {text}")), "{path}");
    }
}

#[tokio::test]
async fn certificates_are_judged_and_read() {
    let server = server(Arc::default());
    let Peer::User(user) = server.gate.peer(&[certificate("admin")]) else { panic!("refused") };
    assert_eq!((user.name.as_str(), user.groups.join(",").as_str()), ("admin", "team,system:authenticated"));
    let untrusted = server.gate.peer(&[certificate("admin"), certificate("other")]);
    assert!(matches!(untrusted, Peer::Refused(_)));
    let garbage = server.gate.peer(&[CertificateDer::from(vec![1, 2, 3])]);
    assert!(matches!(garbage, Peer::Refused(_)));
    let (status, _) = ask(&server, &untrusted, Method::GET, "/pods", "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = ask(&server, &Peer::User(user), Method::GET, "/healthz", "").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn answers_of_the_api_are_remembered() {
    let questions = Arc::new(AtomicUsize::new(0));
    let server = server(questions.clone());
    for _ in 0..5 {
        ask(&server, &Peer::NoCertificate, Method::GET, "/pods", "good").await;
    }
    assert_eq!(questions.load(Ordering::SeqCst), 2, "one token review, one access review");
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let server = server(Arc::default());
    let admin = server.gate.peer(&[certificate("admin")]);
    let cases = [
        (Method::GET, "/nonsense", StatusCode::NOT_FOUND, "404 page not found\n"),
        (Method::GET, "/exec/a/b", StatusCode::NOT_FOUND, "404 page not found\n"),
        (Method::GET, "/containerLogs/a/b/c", StatusCode::NOT_FOUND, "pod \"b\" does not exist\n"),
        (Method::POST, "/exec/a/b/c?command=ls&output=1", StatusCode::NOT_FOUND, "pod does not exist"),
        (Method::GET, "/logs/..%2f..%2fetc", StatusCode::BAD_REQUEST, "invalid URL path"),
        (Method::DELETE, "/pods", StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        (Method::GET, "/configz", StatusCode::OK, "{\"kubeletconfig\":{\"a\":1}}"),
    ];
    for (method, path, status, text) in cases {
        assert_eq!(ask(&server, &admin, method, path, "").await, (status, text.to_owned()), "{path}");
    }
    let (status, text) = ask(&server, &admin, Method::GET, "/stats/summary", "").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("not reachable"), "{text}");
}
