//! The audit log of whole requests.

use crate::support::*;
use coracle_api::UserInfo;
use coracle_apiserver::audit::{Log, Mode, Policy, Rotation, Sink, Target};
use coracle_apiserver::server::EdgeOptions;
use http::Request;
use serde_json::{Value, json};
use std::sync::Arc;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: RequestResponse
  resources: [{group: \"\", resources: [configmaps]}]
- level: Metadata
  omitStages: [RequestReceived]
";

struct Audited {
    fixture: Fixture,
    log: Arc<Log>,
    dir: tempfile::TempDir,
}

impl Audited {
    async fn new() -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let target = Target::File(dir.path().join("audit.log"), Rotation::default());
        let log = Log::new(Policy::parse(POLICY).unwrap(), Sink::open(target, Mode::Blocking).unwrap());
        let options = EdgeOptions { audit: Some(log.clone()), ..EdgeOptions::default() };
        Self { fixture: Fixture::with_options(options).await, log, dir }
    }

    async fn events(&self) -> Vec<Value> {
        self.log.close().await;
        let text = std::fs::read_to_string(self.dir.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn stages(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|e| format!("{} {}", e["verb"].as_str().unwrap(), e["stage"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn bodies_are_recorded_as_they_were() {
    let audited = Audited::new().await;
    let answer = audited.fixture.post(CONFIG_MAPS, &config_map("c")).await;
    answer.expect(201);
    let id = answer.header("audit-id").to_owned();
    let events = audited.events().await;
    assert_eq!(stages(&events), ["create RequestReceived", "create ResponseComplete"]);
    let event = &events[1];
    assert_eq!(event["auditID"], id);
    assert_eq!(event["requestObject"]["data"], json!({ "k": "v" }));
    assert_eq!(event["responseObject"]["metadata"]["uid"], answer.json()["metadata"]["uid"]);
    assert_eq!(event["responseStatus"]["code"], 201);
    assert_eq!(event["objectRef"]["name"], "c");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(event["user"]["username"], "admin");
    assert!(events[0]["responseStatus"].is_null() && events[0]["requestObject"].is_null());
}

#[tokio::test]
async fn refusals_failures_and_panics_are_recorded() {
    let audited = Audited::new().await;
    let as_user = |name: &str| audited.fixture.as_user(Some(UserInfo::authenticated(name, &[])));
    as_user("nobody").get(PODS).await.expect(403);
    audited.fixture.get(&format!("{PODS}/none")).await.expect(404);
    as_user("panics").get(PODS).await.expect(500);
    audited.fixture.as_user(None).get(PODS).await.expect(401);
    let events = audited.events().await;
    assert_eq!(
        stages(&events),
        ["list ResponseComplete", "get ResponseComplete", "list Panic", "list ResponseComplete"]
    );
    assert_eq!(events[0]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[0]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(events[1]["responseStatus"]["reason"], "NotFound");
    assert!(events[1]["responseObject"].is_null());
    assert_eq!(events[3]["responseStatus"]["code"], 401);
}

#[tokio::test]
async fn a_watch_has_a_beginning_and_an_end() {
    let audited = Audited::new().await;
    let watch = audited.fixture.watch(&format!("{PODS}?watch=1")).await;
    drop(watch);
    let events = audited.events().await;
    assert_eq!(stages(&events), ["watch ResponseStarted", "watch ResponseComplete"]);
    assert_eq!(events[1]["responseStatus"]["code"], 200);
}

#[tokio::test]
async fn impersonation_shows_both_users() {
    let audited = Audited::new().await;
    let request = Request::get(PODS)
        .header("impersonate-user", "bob")
        .header("user-agent", "test/1")
        .header("audit-id", "mine")
        .body(axum::body::Body::empty())
        .unwrap();
    audited.fixture.call(request).await.expect(200);
    let events = audited.events().await;
    assert_eq!(events[0]["user"]["username"], "admin");
    assert_eq!(events[0]["impersonatedUser"]["username"], "bob");
    assert_eq!((&events[0]["userAgent"], &events[0]["auditID"]), (&json!("test/1"), &json!("mine")));
}

/// A client that goes before it is answered is recorded and counted, and its seat is free again.
#[tokio::test]
async fn who_goes_early_is_recorded_too() {
    let audited = Audited::new().await;
    let endless =
        axum::body::Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let request = Request::post(PODS).header("content-type", "application/json").body(endless).unwrap();
    let waited = std::time::Duration::from_millis(20);
    assert!(tokio::time::timeout(waited, audited.fixture.send(request)).await.is_err());
    let page = audited.fixture.get("/metrics").await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let aborts =
        page.lines().find(|l| l.starts_with("apiserver_request_aborts_total{verb=\"POST\"")).unwrap();
    assert!(aborts.contains("resource=\"pods\"") && aborts.ends_with(" 1"), "{aborts}");
    let events = audited.events().await;
    assert_eq!(stages(&events)[0], "create ResponseComplete");
    assert!(events[0]["responseStatus"].is_null());
}
