//! Groups and versions that another server answers for.

use crate::support::*;
use crate::toy::{self, API_SERVICES, Mood, SLICES, Toy};
use axum::body::Body;
use coracle_api::UserInfo;
use coracle_apiserver::aggregation::FrontProxy;
use coracle_apiserver::authz::{Attributes, Authorizer, Decision, rules};
use coracle_apiserver::pki::{Pki, PkiOptions};
use coracle_apiserver::server::EdgeOptions;
use http::Request;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

mod aggregation_documents;
mod aggregation_objects;

/// The user `tenant` may do everything in two namespaces, and nothing elsewhere; `nobody` may nothing, all others everything.
struct Tenancy;

impl Authorizer for Tenancy {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        let allowed = match asked.user.name.as_str() {
            "tenant" => matches!(asked.namespace, "n" | "v1.toy.io"),
            user => user != "nobody",
        };
        match allowed {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> rules::Resolved {
        rules::Resolved::default()
    }
}

struct World {
    fixture: Fixture,
    toy: Toy,
    _pki: tempfile::TempDir,
}

impl World {
    /// A server and a toy behind the Service `toy`, which no APIService names yet.
    async fn new() -> Self {
        Self::authorized_by(Tenancy).await
    }

    async fn authorized_by(authorizer: impl Authorizer + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), PkiOptions::default()).unwrap();
        let toy = Toy::start("toy.default.svc", &pki).await;
        let front_proxy = Some(FrontProxy::new(pki));
        let options = EdgeOptions { front_proxy, ..EdgeOptions::default() };
        let fixture = Fixture::authorized_by(authorizer, options).await;
        fixture.api.maintain_aggregation();
        toy.publish(&fixture, "toy").await;
        Self { fixture, toy, _pki: dir }
    }

    async fn aggregated() -> Self {
        let world = Self::new().await;
        world.register(&world.toy.api_service("toy")).await;
        world.until("Passed").await;
        world
    }

    async fn register(&self, api_service: &Value) {
        self.fixture.post(API_SERVICES, api_service).await.expect(201);
    }

    /// Waits for the condition's reason, and returns the condition.
    async fn until(&self, reason: &str) -> Value {
        until(&self.fixture, "v1.toy.io", reason).await
    }

    /// Waits until the merged documents say so.
    async fn discovers(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE / 3;
        loop {
            let found = self.version().await;
            if wanted(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "last: {found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The toy's version in aggregated discovery.
    async fn version(&self) -> Value {
        const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let list = self.fixture.get_as("/apis", V2).await.expect(200);
        let groups = list["items"].as_array().unwrap();
        let group = groups.iter().find(|g| g["metadata"]["name"] == "toy.io");
        group.map_or(Value::Null, |g| g["versions"][0].clone())
    }
}

async fn until(fixture: &Fixture, name: &str, reason: &str) -> Value {
    until_condition(fixture, name, |condition| condition["reason"] == reason).await
}

async fn until_condition(fixture: &Fixture, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE / 3;
    loop {
        let object = fixture.get(&format!("{API_SERVICES}/{name}")).await.json();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|c| c["type"] == "Available").unwrap_or_default();
        if wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "last: {object}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn requests_go_through_in_the_users_name() {
    let world = World::aggregated().await;
    let path = "/apis/toy.io/v1/namespaces/default/things";
    let request = Request::get(format!("{path}?labelSelector=a%3Db&x=1"))
        .header("authorization", "Bearer secret")
        .header("x-remote-user", "root")
        .header("x-remote-extra-evil", "1")
        .header("accept", "application/toy")
        .body(Body::empty())
        .unwrap();
    let answer = world.fixture.call(request).await;
    assert_eq!(answer.expect(200)["kind"], "ThingList");
    assert!(answer.headers.get("access-control-allow-origin").is_none());
    assert!(answer.headers.get("service-worker-allowed").is_none());
    let seen = world.toy.last("/things");
    assert_eq!(seen.client, "front-proxy-client");
    assert_eq!(seen.uri, format!("{path}?labelSelector=a%3Db&x=1"));
    let header = |name: &str| seen.headers.get(name).map_or("", |v| v.to_str().unwrap());
    assert_eq!((header("x-remote-user"), header("authorization")), ("admin", ""));
    assert_eq!((header("x-remote-extra-evil"), header("accept")), ("", "application/toy"));
    let groups: Vec<_> = seen.headers.get_all("x-remote-group").iter().collect();
    assert_eq!(groups, ["system:masters", "system:authenticated"]);
    assert_eq!(header("host"), "toy.default.svc:443");
    let script = Request::get(format!("{path}?worker=1")).header("service-worker", "script");
    let refused = world.fixture.call(script.body(Body::empty()).unwrap()).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body[..]),
        (400, &b"scripts of service workers are not proxied\n"[..])
    );
    assert!(!world.toy.uris().iter().any(|uri| uri.contains("worker")), "it is not asked");
}

/// Which of its kinds live in namespaces only that server knows: what is asked for through a namespace is authorized in
/// it and goes on as it is, so that it is not read there as something else.
#[tokio::test]
async fn through_a_namespace_an_aggregated_server_is_asked_for_what_was_authorized() {
    let world = World::aggregated().await;
    let tenant = world.fixture.as_user(Some(UserInfo::authenticated("tenant", &[])));
    let root = "/apis/toy.io/v1";
    for path in [
        "things",
        "things/t",
        "ships/n",
        "ships/n/status",
        "namespaces/n",
        "ships?fieldSelector=metadata.name%3Dn",
    ] {
        let uri = format!("{root}/namespaces/n/{path}");
        assert_ne!(tenant.get(&uri).await.status, 403, "{uri}");
        assert_eq!(world.toy.uris().last(), Some(&uri));
    }
    let own = "/apis/apiregistration.k8s.io/v1/namespaces/v1.toy.io/apiservices";
    let (one, finalizers) = (format!("{own}/v1.toy.io"), format!("{own}/v1.toy.io/status"));
    let elsewhere = [
        "ships",
        "ships/n",
        // The group's own kind of that name is no namespace.
        "namespaces/n",
        "namespaces/n/status",
        "namespaces/o/ships/n",
        "watch/namespaces/o/things",
        "namespaces/n/../../ships/n",
        "namespaces/n/%2e%2e/%2e%2e/ships/n",
        "namespaces/n/ships/..%2f..%2f..%2fships%2fn",
        "namespaces/n//ships/n",
        "namespaces/%6f/ships/n",
        "namespaces%2fn/ships/n",
    ];
    let elsewhere: Vec<String> = elsewhere.iter().map(|path| format!("{root}/{path}")).collect();
    let before = world.toy.uris().len();
    for path in elsewhere.iter().chain([&own.to_owned(), &one, &finalizers]) {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            let answer = tenant.ask(method, path, "application/merge-patch+json", "{}").await;
            assert!(matches!(answer.status.as_u16(), 403 | 404), "{method} {path}: {}", answer.status);
        }
    }
    let asked = world.toy.uris().split_off(before);
    let asked: Vec<&String> = asked.iter().filter(|uri| uri.starts_with(&format!("{root}/"))).collect();
    assert!(asked.is_empty(), "{asked:?}");
    world.fixture.get(&format!("{API_SERVICES}/v1.toy.io")).await.expect(200);
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let world = World::aggregated().await;
    let path = "/apis/toy.io/v1/namespaces/default/things";
    // More than any buffer holds, with bytes that are no text.
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let answer = world.fixture.ask("POST", path, "application/toy", large.clone()).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (201, large.len()));
    assert!(answer.body == large);
    let mut stream = world.fixture.watch("/apis/toy.io/v1/namespaces/default/stream?watch=true").await;
    for n in 0..3 {
        assert_eq!(stream.next().await.unwrap()["object"]["n"], n);
    }
    let path = "/apis/toy.io/v1/namespaces/default/things/t/away";
    let answer = world.fixture.get(path).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.body, "the backend attempted to redirect this request, which is not permitted\n");
}

#[tokio::test]
async fn connections_are_kept() {
    let world = World::aggregated().await;
    let path = "/apis/toy.io/v1/namespaces/default/things";
    world.fixture.get(path).await.expect(200);
    let before = world.toy.connections();
    for _ in 0..20 {
        world.fixture.get(path).await.expect(200);
    }
    let more = world.toy.connections() - before;
    assert!(more <= 1, "{more} new connections for 20 requests");
}

#[tokio::test]
async fn protocols_can_change() {
    let world = World::aggregated().await;
    let front = toy::front(&world.fixture).await;
    for protocol in ["SPDY/3.1", "websocket"] {
        let path = "/apis/toy.io/v1/namespaces/default/things/t/shell";
        let (head, mut stream) = toy::upgrade(front, path, protocol).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.to_lowercase().contains(&format!("upgrade: {}", protocol.to_lowercase())), "{head}");
        stream.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello");
        let seen = world.toy.last("/shell");
        assert_eq!(
            (seen.headers["x-remote-user"].to_str().unwrap(), &*seen.client),
            ("admin", "front-proxy-client")
        );
        assert_eq!(seen.headers["sec-websocket-protocol"], "v5.channel.k8s.io");
    }
    let (head, _) = toy::upgrade(front, "/apis/toy.io/v1/namespaces/default/things", "websocket").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
}

#[tokio::test]
async fn conditions_say_what_is_missing() {
    let world = World::new().await;
    let mut api_service = world.toy.api_service("nowhere");
    world.register(&api_service).await;
    let found = world.until("ServiceNotFound").await;
    assert_eq!(found["message"], "service/nowhere in \"default\" is not present");
    assert_eq!(found["status"], "False");
    let answer = world.fixture.get("/apis/toy.io/v1/namespaces/default/things").await;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (503, &b"service unavailable\n"[..]));
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    // A port that the Service does not have.
    api_service["spec"]["service"] = json!({ "namespace": "default", "name": "toy", "port": 444 });
    world.fixture.patch(&format!("{API_SERVICES}/v1.toy.io"), "merge-patch", &api_service).await.expect(200);
    let found = world.until("ServicePortError").await;
    assert_eq!(found["message"], "service/toy in \"default\" is not listening on port 444");
    api_service["spec"]["service"]["port"] = 443.into();
    world.fixture.patch(&format!("{API_SERVICES}/v1.toy.io"), "merge-patch", &api_service).await.expect(200);
    assert_eq!(world.until("Passed").await["message"], "all checks passed");
    // Without endpoints, and with them again.
    world.fixture.delete(&format!("{SLICES}/toy-1")).await.expect(200);
    world.until("EndpointsNotFound").await;
    let mut slice = world.toy.slice("toy");
    slice["endpoints"][0]["conditions"]["ready"] = false.into();
    world.fixture.post(SLICES, &slice).await.expect(201);
    let found = world.until("MissingEndpoints").await;
    assert_eq!(
        found["message"],
        "endpointslices for service/toy in \"default\" have no addresses with port name \"\""
    );
    slice["endpoints"][0]["conditions"]["ready"] = true.into();
    world.fixture.put(&format!("{SLICES}/toy-1"), &slice).await.expect(200);
    world.until("Passed").await;
}

#[tokio::test]
async fn certificates_are_checked() {
    let world = World::new().await;
    let mut api_service = world.toy.api_service("toy");
    let dir = tempfile::tempdir().unwrap();
    let other = Toy::start("toy.default.svc", &Pki::ensure(dir.path(), PkiOptions::default()).unwrap()).await;
    api_service["spec"]["caBundle"] = other.ca_bundle.clone().into();
    world.register(&api_service).await;
    let found = world.until("FailedDiscoveryCheck").await;
    let message = found["message"].as_str().unwrap();
    let address = world.toy.address;
    let start = format!("failing or missing response from https://{address}/apis/toy.io/v1: Get ");
    assert!(message.starts_with(&start), "{message}");
    // Its certificate is for another name.
    world.toy.publish(&world.fixture, "other").await;
    api_service["spec"]["caBundle"] = world.toy.ca_bundle.clone().into();
    api_service["spec"]["service"]["name"] = "other".into();
    world.fixture.patch(&format!("{API_SERVICES}/v1.toy.io"), "merge-patch", &api_service).await.expect(200);
    // It has been asked again once the condition says something else.
    let is_new = |c: &Value| c["reason"] == "FailedDiscoveryCheck" && c["message"] != message;
    until_condition(&world.fixture, "v1.toy.io", is_new).await;
    api_service["spec"]["caBundle"] = Value::Null;
    api_service["spec"]["insecureSkipTLSVerify"] = true.into();
    world.fixture.patch(&format!("{API_SERVICES}/v1.toy.io"), "merge-patch", &api_service).await.expect(200);
    world.until("Passed").await;
    world.fixture.get("/apis/toy.io/v1/things").await.expect(200);
}

#[tokio::test]
async fn a_bad_server_hurts_nobody_else() {
    let world = World::aggregated().await;
    world.discovers(|v| v["freshness"] == "Current").await;
    for mood in [Mood::Failing, Mood::Lying] {
        world.toy.set(mood);
        // A change of the endpoints makes the server be looked at again.
        let slice = world.fixture.get(&format!("{SLICES}/toy-1")).await.json();
        let mut touched = slice.clone();
        touched["metadata"]["labels"]["mood"] = format!("{mood:?}").into();
        world.fixture.put(&format!("{SLICES}/toy-1"), &touched).await.expect(200);
        let found = world.discovers(|v| v["freshness"] == "Stale").await;
        assert_eq!(found["resources"][0]["resource"], "things", "what it said before is still shown");
        // Everybody else is as before.
        world.fixture.get("/apis/apps/v1").await.expect(200);
        world.fixture.get(CONFIG_MAPS).await.expect(200);
        world.toy.set(Mood::Good);
        touched = world.fixture.get(&format!("{SLICES}/toy-1")).await.json();
        touched["metadata"]["labels"]["mood"] = "good".into();
        world.fixture.put(&format!("{SLICES}/toy-1"), &touched).await.expect(200);
        world.discovers(|v| v["freshness"] == "Current").await;
    }
    world.toy.set(Mood::Hanging);
    let fixture = world.fixture.clone();
    let hanging = tokio::spawn(async move { fixture.get("/apis/toy.io/v1/things").await.status });
    let begun = Instant::now();
    world.fixture.get("/apis").await.expect(200);
    world.fixture.get("/openapi/v3").await.expect(200);
    world.fixture.get(CONFIG_MAPS).await.expect(200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(!hanging.is_finished());
    hanging.abort();
}

#[tokio::test]
async fn what_goes_takes_everything_with_it() {
    let world = World::aggregated().await;
    world.discovers(|v| v["freshness"] == "Current").await;
    world.fixture.delete(&format!("{API_SERVICES}/v1.toy.io")).await.expect(200);
    world.discovers(Value::is_null).await;
    world.fixture.get("/apis/toy.io/v1/things").await.expect(404);
    world.fixture.get("/apis/toy.io/v1").await.expect(404);
    assert_eq!(world.fixture.get("/openapi/v3").await.json()["paths"].get("apis/toy.io/v1"), None);
    // Nobody asks it any more: another version of the same server is asked anew when its endpoints change, and the one
    // that is gone is not.
    let mut second = world.toy.api_service("toy");
    second["metadata"]["name"] = "v2.toy.io".into();
    second["spec"]["version"] = "v2".into();
    world.register(&second).await;
    let asked = || (world.toy.asked("/apis/toy.io/v1"), world.toy.asked("/apis/toy.io/v2"));
    let deadline = Instant::now() + PATIENCE / 3;
    let until_more_than = async |count: usize| {
        while asked().1 <= count {
            assert!(Instant::now() < deadline, "the second version is asked {} times", asked().1);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        asked()
    };
    let before = until_more_than(0).await;
    let mut slice = world.fixture.get(&format!("{SLICES}/toy-1")).await.json();
    slice["metadata"]["labels"]["touched"] = "true".into();
    world.fixture.put(&format!("{SLICES}/toy-1"), &slice).await.expect(200);
    let after = until_more_than(before.1).await;
    assert_eq!(after.0, before.0);
}

#[tokio::test]
async fn the_user_decides_who_sees_what() {
    let world = World::aggregated().await;
    let nobody = world.fixture.as_user(Some(coracle_api::UserInfo::authenticated("nobody", &[])));
    let answer = nobody.get("/apis/toy.io/v1/namespaces/default/things").await.expect(403);
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("things.toy.io is forbidden"), "{message}");
}

#[tokio::test]
async fn who_cannot_be_reached_is_looked_at_again() {
    let world = World::new().await;
    world.register(&world.toy.api_service("toy")).await;
    world.until("Passed").await;
    world.toy.stop();
    let answer = world.fixture.get("/apis/toy.io/v1/namespaces/default/things").await;
    assert_eq!(answer.status, 503);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.starts_with("error trying to reach service: "), "{text}");
    // Long before the next check is due.
    let found = world.until("FailedDiscoveryCheck").await;
    assert!(found["message"].as_str().unwrap().ends_with("connect: connection refused"), "{found}");
}
