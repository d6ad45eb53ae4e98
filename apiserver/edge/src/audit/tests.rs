//! Policies, events and rotation.

use super::*;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::path::Path;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources: [{group: "", resources: [endpoints, services]}]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", "/version"]
- level: Request
  resources: [{group: "", resources: [configmaps], resourceNames: [leader]}]
  namespaces: [kube-system]
  omitManagedFields: false
- level: Metadata
  resources: [{group: "", resources: [secrets, "pods/log", "*/status"]}]
- level: RequestResponse
  resources: [{group: apps}]
  omitStages: [ResponseStarted]
- level: Request
  resources: [{group: "*", resources: [leases]}]
"#;

fn decide(policy: &Policy, user: &UserInfo, method: &Method, uri: &str) -> Rule {
    policy.decide(user, &RequestInfo::new(method, &uri.parse().unwrap())).clone()
}

#[test]
fn without_a_policy_changes_and_secrets_are_recorded() {
    let policy = Policy::minimal().unwrap();
    let alice = UserInfo::authenticated("alice", &[]);
    let node = UserInfo::authenticated("system:node:n", &["system:nodes"]);
    let table = [
        (&alice, Method::GET, "/api/v1/namespaces/a/secrets/s", Level::Metadata),
        (&alice, Method::GET, "/api/v1/secrets", Level::Metadata),
        (&alice, Method::GET, "/api/v1/namespaces/a/configmaps", Level::Metadata),
        (&alice, Method::GET, "/api/v1/namespaces/a/pods/p/exec?command=sh", Level::Metadata),
        (&alice, Method::POST, "/api/v1/namespaces/a/serviceaccounts/b/token", Level::Metadata),
        (&alice, Method::POST, "/apis/apps/v1/namespaces/a/deployments", Level::Metadata),
        (&alice, Method::DELETE, "/api/v1/namespaces/a", Level::Metadata),
        (&alice, Method::GET, "/api/v1/namespaces/a/pods", Level::None),
        (&alice, Method::GET, "/readyz?verbose", Level::None),
        (&alice, Method::POST, "/api/v1/namespaces/a/events", Level::None),
        (&node, Method::GET, "/api/v1/namespaces/a/secrets/s?watch=1", Level::None),
        (&node, Method::PATCH, "/api/v1/nodes/n/status", Level::None),
        (&node, Method::PATCH, "/api/v1/nodes/n", Level::Metadata),
        (&node, Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", Level::None),
    ];
    for (user, method, uri, expected) in table {
        assert_eq!(decide(&policy, user, &method, uri).level, expected, "{} {method} {uri}", user.name);
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = Policy::parse(POLICY).unwrap();
    let alice = UserInfo::authenticated("alice", &[]);
    let proxy = UserInfo::authenticated("system:kube-proxy", &[]);
    let level = |user: &UserInfo, uri: &str| decide(&policy, user, &Method::GET, uri).level;
    let table = [
        (&proxy, "/api/v1/services?watch=1", Level::None),
        (&alice, "/version", Level::None),
        (&alice, "/apis/apps", Level::None),
        (&UserInfo::anonymous(), "/version", Level::None),
        (&alice, "/api/v1/namespaces/kube-system/configmaps/leader", Level::Request),
        (&alice, "/api/v1/namespaces/default/configmaps/leader", Level::None),
        (&alice, "/api/v1/namespaces/default/secrets/s", Level::Metadata),
        (&alice, "/api/v1/namespaces/default/pods/p", Level::None),
        (&alice, "/api/v1/namespaces/default/pods/p/log", Level::Metadata),
        (&alice, "/api/v1/namespaces/default/pods/p/status", Level::Metadata),
        (&alice, "/apis/apps/v1/deployments", Level::RequestResponse),
        (&alice, "/apis/batch/v1/jobs", Level::None),
        (&alice, "/apis/coordination.k8s.io/v1/leases", Level::Request),
    ];
    for (user, uri, expected) in table {
        assert_eq!(level(user, uri), expected, "{} {uri}", user.name);
    }
    let apps = decide(&policy, &alice, &Method::GET, "/apis/apps/v1/deployments");
    assert_eq!(
        (apps.omit_stages.join(" "), apps.omit_managed_fields),
        ("RequestReceived ResponseStarted".into(), true)
    );
    let leader = decide(&policy, &alice, &Method::GET, "/api/v1/namespaces/kube-system/configmaps/leader");
    assert!(!leader.omit_managed_fields);
}

#[test]
fn policies_are_checked_whole() {
    let mistake = |rules: &str| {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n";
        Policy::parse(&format!("{head}{rules}")).unwrap_err()
    };
    assert!(mistake("- level: Some").contains("Some"));
    assert!(mistake("- level: None\n  stage: X").contains("stage"));
    assert!(mistake("- level: None\n  omitStages: [End]").contains("unknown stage"));
    assert!(mistake("- level: None\n  nonResourceURLs: [\"a\"]").starts_with("rules[0]: nonResourceURLs"));
    assert!(
        mistake("- level: None\n  nonResourceURLs: [\"/a\"]\n  namespaces: [x]")
            .contains("cannot apply to both")
    );
    assert!(Policy::parse("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []").is_err());
    assert!(Policy::parse("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]").is_err());
    assert!(Policy::load(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn source(address: Option<&str>) -> Source<'_> {
    Source {
        audit_id: "id",
        uri: "/apis/apps/v1/namespaces/ns/deployments?x=1",
        user_agent: "kubectl",
        address: address.map(|a| a.parse().unwrap()),
        forwarded_for: "10.0.0.9, junk, 10.0.0.8",
    }
}

#[tokio::test]
async fn events_carry_what_the_level_says() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("logs/audit.log");
    let sink = Sink::open(Target::File(path.clone(), Rotation::default()), Mode::Batch).unwrap();
    let log = Log::new(Policy::parse(POLICY).unwrap(), sink);
    let uri = "/apis/apps/v1/namespaces/ns/deployments".parse().unwrap();
    let info = RequestInfo::new(&Method::POST, &uri);
    let mut record =
        log.begin(source(Some("127.0.0.1")), &UserInfo::authenticated("alice", &[]), &info).unwrap();
    record.stage(Stage::RequestReceived);
    record.impersonated(&UserInfo::authenticated("bob", &[]));
    record.annotate("authorization.k8s.io/decision", "allow");
    let body = json!({ "kind": "Deployment", "metadata": { "name": "d", "managedFields": [{}] } });
    record.request_object("application/json", &Bytes::from(body.to_string()));
    record.response(201, "application/json", &Bytes::from(body.to_string()));
    record.stage(Stage::ResponseComplete);
    let get = RequestInfo::new(&Method::GET, &"/api/v1/namespaces/ns/secrets/s".parse().unwrap());
    let mut record = log.begin(source(None), &UserInfo::authenticated("alice", &[]), &get).unwrap();
    assert!(!record.wants_request() && !record.wants_response());
    let status = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "message": "gone", "code": 404 });
    record.response(404, "application/json", &Bytes::from(status.to_string()));
    record.stage(Stage::ResponseComplete);
    log.close().await;
    let events = lines(&path);
    assert_eq!(events.len(), 2, "{events:?}");
    let first = &events[0];
    assert_eq!(first["stage"], "ResponseComplete");
    assert_eq!(first["level"], "RequestResponse");
    assert_eq!(first["sourceIPs"], json!(["10.0.0.9", "10.0.0.8", "127.0.0.1"]));
    assert_eq!(first["user"]["username"], "alice");
    assert_eq!(first["impersonatedUser"]["username"], "bob");
    let reference = json!({ "resource": "deployments", "namespace": "ns", "name": "d", "apiGroup": "apps", "apiVersion": "v1" });
    assert_eq!(first["objectRef"], reference);
    assert_eq!(first["requestObject"]["metadata"], json!({ "name": "d" }));
    assert_eq!(first["responseObject"]["metadata"], json!({ "name": "d" }));
    assert_eq!(first["responseStatus"]["code"], 201);
    assert_eq!(first["annotations"]["authorization.k8s.io/decision"], "allow");
    let second = &events[1];
    assert_eq!(second["responseStatus"]["reason"], "NotFound");
    assert!(second["responseObject"].is_null() && second["requestObject"].is_null());
    let mut text = Text::default();
    log.render(&mut text);
    let page = text.finish();
    assert!(page.contains("apiserver_audit_event_total 2\n"), "{page}");
    assert!(page.contains("apiserver_audit_level_total{level=\"RequestResponse\"} 1\n"), "{page}");
}

#[tokio::test]
async fn files_are_set_aside_and_the_oldest_deleted() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("audit.log");
    let rotation = Rotation { max_bytes: 100, max_backups: 2, max_age_days: 0, compress: false };
    let sink = Sink::open(Target::File(path.clone(), rotation), Mode::Blocking).unwrap();
    for number in 0..6 {
        sink.write(&json!({ "number": number, "padding": "x".repeat(60) }));
        // Backups are named by the millisecond.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    sink.close().await;
    sink.write(&json!({}));
    assert_eq!(sink.lost(), 1, "after the end nothing is taken");
    assert_eq!(lines(&path)[0]["number"], 5);
    let mut names: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(lines(&dir.path().join(&names[1]))[0]["number"], 4, "{names:?}");
}

/// What is written after a while together, at the latest at the end.
#[tokio::test(start_paused = true)]
async fn events_wait_for_others() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("audit.log");
    let target = Target::File(path.clone(), Rotation::default());
    let max_wait = std::time::Duration::from_secs(10);
    let batching = Batching { buffer: 3, batch: 2, max_wait, throttle: None };
    let sink = Sink::batching(target, Mode::Batch, batching).unwrap();
    assert!(sink.write(&json!({ "n": 0 })));
    tokio::time::sleep(max_wait / 2).await;
    assert_eq!(lines(&path).len(), 0, "it waits");
    assert!(sink.write(&json!({ "n": 1 })));
    tokio::time::sleep(max_wait / 4).await;
    assert_eq!(lines(&path).len(), 2, "the batch is full");
    assert!(sink.write(&json!({ "n": 2 })));
    tokio::time::sleep(2 * max_wait).await;
    assert_eq!(lines(&path).len(), 3, "it has waited long enough");
    assert!((3..6).all(|n| sink.write(&json!({ "n": n }))));
    assert!(!sink.write(&json!({})) && sink.lost() == 1, "no room");
    sink.close().await;
    let numbers: Vec<_> = lines(&path).iter().map(|line| line["n"].as_u64()).collect();
    assert_eq!(numbers, (0..6).map(Some).collect::<Vec<_>>());
}

/// Neither the threads that serve requests nor the end of the process wait for a disk that hangs.
#[tokio::test]
async fn a_disk_that_hangs_holds_up_nobody() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("audit.log");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Opened for writing too, so that neither side waits for the other; nobody reads yet.
    let fifo = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let sink = Sink::open(Target::File(path, Rotation::default()), Mode::Batch).unwrap();
    // More than a pipe holds.
    let large = json!({ "padding": "x".repeat(1 << 20) });
    assert!(sink.write(&large) && sink.write(&large));
    // The runtime has this one thread: it would not come here if the write had it.
    tokio::task::yield_now().await;
    let (limit, from) = (std::time::Duration::from_secs(1), std::time::Instant::now());
    sink.close_within(limit).await;
    assert!(from.elapsed() < limit * 9 / 5, "the limit is one for all: {:?}", from.elapsed());
    assert_eq!(sink.lost(), 2, "neither was written by then");
    let reader = tokio::task::spawn_blocking(move || {
        let mut reader = std::io::BufReader::new(fifo);
        std::io::BufRead::read_line(&mut reader, &mut String::new()).unwrap();
        reader
    });
    let reader = reader.await.unwrap();
    // Waits for whoever writes.
    sink.close_within(std::time::Duration::from_secs(30)).await;
    assert!(reader.buffer().is_empty(), "a line that was given up is not written");
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(reader.get_ref(), nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
    let rest = std::io::Read::read(&mut reader.into_inner(), &mut [0; 1]);
    assert_eq!(rest.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nor its beginning");
    assert_eq!(sink.lost(), 2);
}

#[test]
fn bodies_are_read_in_every_form() {
    let decode =
        |kind: &str, body: &'static str| super::sink::decode(kind, &Bytes::from_static(body.as_bytes()));
    assert_eq!(decode("application/json; charset=utf-8", "{\"a\":1}"), Some(json!({ "a": 1 })));
    assert_eq!(decode("application/yaml", "a: 1"), Some(json!({ "a": 1 })));
    assert_eq!(decode("application/json-patch+json", "[]"), Some(json!([])));
    assert_eq!(decode("text/plain", "no"), None);
    assert_eq!(decode("application/vnd.kubernetes.protobuf", "no"), None);
}

#[tokio::test]
async fn only_strict_requests_need_their_event() {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{ level: Metadata }]";
    let get = RequestInfo::new(&Method::GET, &"/api/v1/nodes".parse().unwrap());
    for (mode, refused) in [(Mode::Blocking, false), (Mode::BlockingStrict, true)] {
        let full = Target::File("/dev/full".into(), Rotation::default());
        let log = Log::new(Policy::parse(policy).unwrap(), Sink::open(full, mode).unwrap());
        let mut record = log.begin(source(None), &UserInfo::anonymous(), &get).unwrap();
        assert_eq!(record.arrived().await.is_err(), refused, "{mode:?}");
        record.stage(Stage::ResponseComplete);
        let mut text = Text::default();
        log.render(&mut text);
        let page = text.finish();
        assert!(page.contains("apiserver_audit_error_total{plugin=\"log\"} 2\n"), "{page}");
        let rejected = format!("apiserver_audit_requests_rejected_total {}\n", u8::from(refused));
        assert!(page.contains(&rejected), "{page}");
    }
}

#[test]
fn what_is_set_aside_is_packed() {
    use std::io::Read;
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("audit.log");
    let rotation = Rotation { max_bytes: 100, compress: true, ..Rotation::default() };
    let sink = Sink::open(Target::File(path.clone(), rotation), Mode::Blocking).unwrap();
    for number in 0..2 {
        assert!(sink.write(&json!({ "number": number, "padding": "x".repeat(80) })));
    }
    let packed = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let names: Vec<_> = names.filter(|other| *other != path).collect();
        names.iter().all(|name| name.extension().is_some_and(|end| end == "gz")).then(|| names[0].clone())
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let name = loop {
        if let Some(name) = packed() {
            break name;
        }
        assert!(std::time::Instant::now() < until, "never packed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(name).unwrap()).read_to_string(&mut text).unwrap();
    assert!(text.starts_with("{\"number\":0,"), "{text}");
}
