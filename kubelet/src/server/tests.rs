//! Who gets in, and what strangers read, with an API of the tests' own behind the gate.

use super::auth::{Gate, Peer};
use super::*;
use crate::configuration::port::Access;
use crate::cri::{self, Runtime};
use crate::pods_api::PodHandle;
use crate::volume_stats::VolumeStats;
use coracle_api::UserInfo;
use coracle_client::transport::in_process;
use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[path = "statistics_tests.rs"]
mod statistics;

struct NoPods;

impl PodsApi for NoPods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        Vec::new()
    }

    fn find(&self, _namespace: &str, _name: &str, _uid: Option<&str>) -> Option<PodHandle> {
        None
    }

    fn volume_stats(&self) -> Arc<VolumeStats> {
        Arc::default()
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
    server_of(Arc::new(NoPods), questions, std::path::Path::new("/nonexistent"))
}

fn server_of(pods: Arc<dyn PodsApi>, questions: Arc<AtomicUsize>, cgroups: &std::path::Path) -> Arc<Server> {
    Arc::new(built(pods, questions, cgroups, Access::default()))
}

fn built(
    pods: Arc<dyn PodsApi>,
    questions: Arc<AtomicUsize>,
    cgroups: &std::path::Path,
    access: Access,
) -> Server {
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
    Server {
        metrics: crate::metrics::Metrics::default(),
        process_metrics: Arc::new(String::new),
        program: Arc::default(),
        pods,
        gate: Arc::new(Gate::new(client, "n1".to_owned(), judge, access)),
        node_name: "n1".to_owned(),
        log_root: PathBuf::from("/nonexistent"),
        pods_dir: PathBuf::from("/nonexistent"),
        volumes: coracle_storage::transfer::NodeVolumes::new(
            cgroups.join("local-path"),
            Arc::new(coracle_storage::volumes::LinuxMounter),
        ),
        configz: Arc::new(|| json!({ "a": 1 })),
        debugging: true,
        system_logs: true,
        cgroups: Arc::new(stats::Cgroups::at(cgroups)),
        rates: stats::Rates::default(),
        stop: CancellationToken::new(),
        stream_idle: crate::config::STREAMING_CONNECTION_IDLE_TIMEOUT,
    }
}

fn with_access(access: Access, questions: Arc<AtomicUsize>) -> Arc<Server> {
    Arc::new(built(Arc::new(NoPods), questions, std::path::Path::new("/nonexistent"), access))
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
    for path in [
        "/healthz",
        "/pods",
        "/localPath/volume",
        "/exec/a/b/c",
        "/containerLogs/a/b/c",
        "/run/a/b/c",
        "/checkpoint/a/b/c",
        "/logs/",
        "/nonsense",
    ] {
        for token in ["", "bad"] {
            let (status, text) = ask(&server, &Peer::NoCertificate, Method::GET, path, token).await;
            assert_eq!((status, text.as_str()), (StatusCode::UNAUTHORIZED, "Unauthorized"), "{path}");
        }
    }
}

#[tokio::test]
async fn access_is_as_it_is_set() {
    let get = async |server: &Arc<Server>, path: &str, token: &str| {
        ask(server, &Peer::NoCertificate, Method::GET, path, token).await
    };
    let open = with_access(Access { anonymous: true, ..Access::default() }, Arc::default());
    let (status, text) = get(&open, "/metrics", "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.contains("user=system:anonymous"), "{text}");
    assert_eq!(get(&open, "/pods", "").await.0, StatusCode::OK);
    assert_eq!(get(&open, "/pods", "bad").await.0, StatusCode::UNAUTHORIZED, "a bad token is no stranger");

    let no_tokens = with_access(Access { tokens: false, ..Access::default() }, Arc::default());
    assert_eq!(get(&no_tokens, "/pods", "good").await.0, StatusCode::UNAUTHORIZED);

    let questions = Arc::<AtomicUsize>::default();
    let everybody = with_access(Access { always_allow: true, ..Access::default() }, questions.clone());
    assert_eq!(get(&everybody, "/metrics", "good").await.0, StatusCode::OK);
    assert_eq!(questions.load(Ordering::SeqCst), 1, "only who it is was asked");
    assert_eq!(get(&everybody, "/metrics", "").await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn what_is_switched_off_is_not_there() {
    let access = Access { always_allow: true, ..Access::default() };
    let plain = |debugging, system_logs| {
        let server =
            built(Arc::new(NoPods), Arc::default(), std::path::Path::new("/nonexistent"), access.clone());
        Arc::new(Server { debugging, system_logs, ..server })
    };
    for path in ["/exec/a/b/c", "/containerLogs/a/b/c", "/configz", "/logs/"] {
        let (status, text) = ask(&plain(false, true), &Peer::NoCertificate, Method::GET, path, "good").await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.")
        );
    }
    let server = plain(true, false);
    let (status, _) = ask(&server, &Peer::NoCertificate, Method::GET, "/logs/", "good").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let (status, _) = ask(&server, &Peer::NoCertificate, Method::GET, "/configz", "good").await;
    assert_eq!(status, StatusCode::OK);
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
        (Method::POST, "/localPath/contents", "verb=create, resource=nodes, subresource(s)=[proxy])"),
        (Method::PUT, "/localPath/volume", "verb=update, resource=nodes, subresource(s)=[proxy])"),
        (Method::GET, "/podsandmore", "verb=get, resource=nodes, subresource(s)=[proxy])"),
        (Method::POST, "/pods", "verb=create, resource=nodes, subresource(s)=[pods proxy])"),
        (Method::POST, "/statusz", "verb=create, resource=nodes, subresource(s)=[statusz proxy])"),
        (Method::POST, "/flagz", "verb=create, resource=nodes, subresource(s)=[configz proxy])"),
    ];
    for (method, path, text) in cases {
        let got = ask(&server, &Peer::NoCertificate, method, path, "good").await;
        assert_eq!(got, (StatusCode::FORBIDDEN, format!("Forbidden (user=alice, {text}")), "{path}");
    }
}

#[tokio::test]
async fn certificates_are_judged_and_read() {
    let server = server(Arc::default());
    let known = server.gate.peer(&[certificate("admin")]);
    let Peer::User { user, .. } = &known else { panic!("refused") };
    assert_eq!((user.name.as_str(), user.groups.join(",").as_str()), ("admin", "team,system:authenticated"));
    let untrusted = server.gate.peer(&[certificate("admin"), certificate("other")]);
    assert!(matches!(untrusted, Peer::Refused(_)));
    let garbage = server.gate.peer(&[CertificateDer::from(vec![1, 2, 3])]);
    assert!(matches!(garbage, Peer::Refused(_)));
    let (status, _) = ask(&server, &untrusted, Method::GET, "/pods", "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = ask(&server, &known, Method::GET, "/healthz", "").await;
    assert_eq!(status, StatusCode::OK);
}

/// The first common name is a node's, the last one an administrator's: whoever reads only one of them is deceived.
#[tokio::test]
async fn a_certificate_of_two_users_is_nobodys() {
    let server = server(Arc::default());
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "admin");
    // The second type has the first one's number.
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "system:node:n2");
    let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let peer = server.gate.peer(&[made.der().clone()]);
    assert!(matches!(&peer, Peer::Refused(why) if why.contains("2 common names")));
    let (status, _) = ask(&server, &peer, Method::GET, "/pods", "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_connection_does_not_outlive_its_certificate() {
    let server = server(Arc::default());
    let Peer::User { user, .. } = server.gate.peer(&[certificate("admin")]) else { panic!("refused") };
    let over = Peer::User { user, not_after: jiff::Timestamp::now().as_second() - 1 };
    let (status, _) = ask(&server, &over, Method::GET, "/pods", "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = ask(&server, &over, Method::GET, "/pods", "good").await;
    assert_eq!(status, StatusCode::OK, "a token beside it counts");
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_api_are_remembered() {
    let questions = Arc::new(AtomicUsize::new(0));
    let server = server(questions.clone());
    for _ in 0..5 {
        ask(&server, &Peer::NoCertificate, Method::GET, "/pods", "good").await;
    }
    assert_eq!(questions.load(Ordering::SeqCst), 2, "one token review, one access review");
}

/// An API that knows the token `good`, and lets everybody do everything, as long as it is told to.
fn gate(knows: Arc<AtomicBool>, allows: Arc<AtomicBool>) -> Arc<Gate> {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (knows, allows) = (knows.load(Ordering::SeqCst), allows.load(Ordering::SeqCst));
        async move {
            let tokens = request.uri().path().ends_with("tokenreviews");
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
            answer["status"] = match tokens {
                true => json!({ "authenticated": knows, "user": { "username": "alice" } }),
                false => json!({ "allowed": allows }),
            };
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string())))
        }
    });
    let judge: Judge = Arc::new(|_| Ok(()));
    Arc::new(Gate::new(
        in_process::<_, Body, _>(service, UserInfo::anonymous()),
        "n1".to_owned(),
        judge,
        Access::default(),
    ))
}

/// Whoever's token or right is taken back has no stream a second or two later; who keeps both, keeps it.
#[tokio::test(start_paused = true)]
async fn streams_end_with_the_right_to_them() {
    let (yes, no) = (|| Arc::new(AtomicBool::new(true)), Duration::from_secs(3600));
    let by_token = Request::get("/exec/a/b/c").header(header::AUTHORIZATION, "Bearer good");
    let (by_token, ()) = by_token.body(()).unwrap().into_parts();
    let (by_certificate, ()) = Request::get("/exec/a/b/c").body(()).unwrap().into_parts();
    for (parts, certificate_of, ends_with) in
        [(&by_token, None, "token"), (&by_token, None, "right"), (&by_certificate, Some("alice"), "right")]
    {
        let (knows, allows) = (yes(), yes());
        let gate = gate(knows.clone(), allows.clone());
        let peer = certificate_of.map_or(Peer::NoCertificate, |name| gate.peer(&[certificate(name)]));
        let admitted = gate.admit(parts, &peer).await.unwrap();
        let mut refused = Box::pin(gate.clone().refused(admitted));
        tokio::time::timeout(no, refused.as_mut()).await.expect_err("nothing was taken back");
        if ends_with == "token" { &knows } else { &allows }.store(false, Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        refused.await;
        assert!(began.elapsed() <= Duration::from_secs(2), "{ends_with}: {:?}", began.elapsed());
    }
    // What the API server carries, it ends itself.
    let (knows, allows) = (yes(), yes());
    let gate = gate(knows, allows.clone());
    let server = gate.peer(&[certificate("kube-apiserver-kubelet-client")]);
    let admitted = gate.admit(&by_certificate, &server).await.unwrap();
    allows.store(false, Ordering::SeqCst);
    tokio::time::timeout(no, gate.clone().refused(admitted)).await.expect_err("nobody is asked");
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
        (Method::DELETE, "/localPath/volume", StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        (Method::GET, "/localPath/contents", StatusCode::BAD_REQUEST, "directory is missing"),
        (
            Method::GET,
            "/localPath/contents?directory=..%2Fetc",
            StatusCode::OK,
            "{\"refused\":\"\\\"../etc\\\" is no name of a volume\"}",
        ),
        (Method::GET, "/configz", StatusCode::OK, "{\"kubeletconfig\":{\"a\":1}}"),
    ];
    for (method, path, status, text) in cases {
        assert_eq!(ask(&server, &admin, method, path, "").await, (status, text.to_owned()), "{path}");
    }
    for page in ["/statusz", "/flagz"] {
        let (status, text) = ask(&server, &admin, Method::GET, page, "").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.starts_with(&format!("\nkubelet {}\n", &page[1..])), "{text}");
    }
    let (status, text) = ask(&server, &admin, Method::GET, "/stats/summary", "").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("not reachable"), "{text}");
}
