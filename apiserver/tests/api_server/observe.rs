//! Metrics, health, warnings, timeouts and headers.

use crate::support::*;
use axum::body::Body;
use coracle_api::UserInfo;
use coracle_apiserver::server::EdgeOptions;
use coracle_apiserver::traces::{Config, Endpoint};
use http::Request;
use std::time::Duration;

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

fn value(page: &str, series: &str) -> f64 {
    let line =
        page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series} in\n{page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn requests_show_up_in_the_metrics() {
    let fixture = Fixture::new().await;
    fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    fixture
        .ask("POST", &format!("{CONFIG_MAPS}?dryRun=All"), "application/json", config_map("b").to_string())
        .await;
    fixture.get(CONFIG_MAPS).await.expect(200);
    fixture.get(&format!("{CONFIG_MAPS}/none")).await.expect(404);
    let watch = fixture.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let labels = |verb: &str, dry: &str, scope: &str| {
        format!(
            r#"{{verb="{verb}",dry_run="{dry}",group="",version="v1",resource="configmaps",subresource="",scope="{scope}",component="apiserver","#
        )
    };
    let answer = fixture.get("/metrics").await;
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let page = text(&answer);
    let total = |labels: String, code: &str| {
        value(&page, &format!("apiserver_request_total{labels}code=\"{code}\"}}"))
    };
    assert_eq!(total(labels("POST", "", "resource"), "201"), 1.0);
    assert_eq!(total(labels("POST", "All", "resource"), "201"), 1.0);
    assert_eq!(total(labels("LIST", "", "namespace"), "200"), 1.0);
    assert_eq!(total(labels("GET", "", "resource"), "404"), 1.0);
    assert!(!page.contains("apiserver_request_total{verb=\"WATCH\""), "it has not ended");
    let watching = |page: &str| {
        page.lines()
            .any(|l| l.starts_with("apiserver_longrunning_requests{verb=\"WATCH\"") && l.ends_with(" 1"))
    };
    assert!(watching(&page));
    drop(watch);
    let page = text(&fixture.get("/metrics").await);
    assert!(!watching(&page));
    assert_eq!(
        value(&page, &format!("apiserver_request_total{}code=\"200\"}}", labels("WATCH", "", "namespace"))),
        1.0
    );
    assert!(value(&page, "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"exempt\"") >= 5.0);
    assert!(value(&page, "authentication_attempts{result=\"success\"}") >= 5.0);
    assert!(value(&page, "kubernetes_build_info{") == 1.0);
}

#[tokio::test]
async fn health_checks_are_told_as_upstream_tells_them() {
    let fixture = Fixture::new().await;
    assert_eq!(text(&fixture.get("/livez").await), "ok");
    assert!(text(&fixture.get("/").await).starts_with("{\n  \"paths\": [\n    \"/"), "for people to read");
    assert_eq!(text(&fixture.get("/readyz/shutdown").await), "ok");
    let verbose = text(&fixture.get("/readyz?verbose").await);
    assert_eq!(verbose, "[+]ping ok\n[+]shutdown ok\nreadyz check passed\n");
    assert_eq!(
        value(
            &text(&fixture.get("/metrics/slis").await),
            "kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"}"
        ),
        1.0
    );
    fixture.api.announce_shutdown();
    let failing = fixture.get("/readyz").await;
    assert_eq!(failing.status, 500);
    assert_eq!(text(&failing), "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n");
    assert_eq!(fixture.get("/livez").await.status, 200);
    assert_eq!(text(&fixture.get("/readyz?exclude=shutdown").await), "ok");
    fixture.get(PODS).await.expect(200);
    assert_eq!(
        value(
            &text(&fixture.get("/metrics/slis").await),
            "kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"}"
        ),
        0.0
    );
}

#[tokio::test]
async fn health_is_told_before_anybody_asks_for_it() {
    let fixture = Fixture::new().await;
    fixture.api.health().started();
    let page = text(&fixture.get("/metrics/slis").await);
    assert_eq!(value(&page, "kubernetes_healthcheck{name=\"etcd\",type=\"livez\"}"), 1.0);
}

#[tokio::test]
async fn deprecated_resources_warn() {
    let fixture = Fixture::new().await;
    let warning = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    assert_eq!(fixture.get("/api/v1/endpoints").await.header("warning"), warning);
    assert_eq!(fixture.get("/api/v1/namespaces/default/endpoints/none").await.header("warning"), warning);
    assert_eq!(fixture.get("/apis/discovery.k8s.io/v1/endpointslices").await.header("warning"), "");
    let page = text(&fixture.get("/metrics").await);
    assert!(page.contains(
        "apiserver_requested_deprecated_apis{group=\"\",removed_release=\"\",resource=\"endpoints\""
    ));
}

#[tokio::test(start_paused = true)]
async fn requests_end_after_their_time() {
    let fixture = Fixture::with_options(EdgeOptions::default()).await;
    let slow = |uri: &str| {
        // Quick enough to be waited for.
        let pieces = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; 10_000])), ()))
        });
        let body = Body::from_stream(pieces);
        Request::post(uri).header("content-type", "application/json").body(body).unwrap()
    };
    for (uri, seconds) in [(CONFIG_MAPS.to_owned(), 60), (format!("{CONFIG_MAPS}?timeout=7s"), 7)] {
        let began = tokio::time::Instant::now();
        let answer = fixture.call(slow(&uri)).await;
        // What the steps before took is real time, and is taken off.
        assert_eq!((began.elapsed() + Duration::from_millis(500)).as_secs(), seconds);
        let status = answer.expect(504);
        assert_eq!(status["reason"], "Timeout");
        assert_eq!(
            status["message"],
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
        );
    }
    let refused = fixture.get(&format!("{CONFIG_MAPS}?timeout=soon")).await.expect(400);
    assert!(refused["message"].as_str().unwrap().contains("invalid timeout specified in the request URL"));
    // Watches have their own time.
    let mut watch = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=80")).await;
    let began = tokio::time::Instant::now();
    while watch.next().await.is_some() {}
    assert!(began.elapsed() >= Duration::from_secs(79), "{:?}", began.elapsed());
}

#[tokio::test]
async fn every_answer_has_its_headers() {
    let fixture = Fixture::new().await;
    for (user, uri, code) in
        [("admin", PODS, 200), ("nobody", PODS, 403), ("panics", PODS, 500), ("x", "/none", 404)]
    {
        let answer = fixture.as_user(Some(UserInfo::authenticated(user, &[]))).get(uri).await;
        assert_eq!(answer.status, code, "{uri}");
        assert_eq!(answer.header("cache-control"), "no-cache, private", "{uri}");
        assert_eq!(answer.header("audit-id").len(), 36, "{uri}");
        assert!(answer.headers.contains_key("x-kubernetes-pf-flowschema-uid"), "{uri}");
    }
    let echoed = Request::get(PODS).header("audit-id", "my-own").body(Body::empty()).unwrap();
    assert_eq!(fixture.call(echoed).await.header("audit-id"), "my-own");
}

/// What a collector is sent, as far as it can be read without speaking its protocol; it never answers.
async fn collected(listener: tokio::net::TcpListener, last: &str) -> Vec<u8> {
    use tokio::io::AsyncReadExt;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut sent = Vec::new();
    while !String::from_utf8_lossy(&sent).contains(last) {
        assert_ne!(stream.read_buf(&mut sent).await.unwrap(), 0, "{}", String::from_utf8_lossy(&sent));
    }
    sent
}

/// A privileged client's request belongs to its trace, and its spans go to the collector.
#[tokio::test]
async fn requests_are_traced_where_the_client_asks_for_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = Endpoint::Host { host: "127.0.0.1".to_owned(), port };
    let traces = Some(Config { endpoint, per_million: 0 });
    let fixture = Fixture::with_options(EdgeOptions { traces, ..EdgeOptions::default() }).await;
    let fixture = fixture.as_user(Some(UserInfo::authenticated("root", &["system:masters"])));
    fixture.get(CONFIG_MAPS).await.expect(200);
    let traced = |trace: &str| {
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        Request::get(format!("{CONFIG_MAPS}/none?pretty=0")).header("traceparent", parent).body(Body::empty())
    };
    let others = fixture.as_user(Some(UserInfo::authenticated("admin", &[])));
    others.call(traced("11111111111111111111111111111111").unwrap()).await;
    fixture.call(traced("0af7651916cd43dd8448eb211c80319c").unwrap()).await.expect(404);
    let tracer = fixture.api.tracer().unwrap();
    let last = "dispatch";
    let (sent, ()) = tokio::join!(collected(listener, last), tracer.close());
    let text = String::from_utf8_lossy(&sent);
    let name = "GET /api/v1/namespaces/{:namespace}/configmaps/{:name}";
    assert_eq!(text.matches(name).count(), 1, "{text}");
    assert!(text.contains("/none?pretty=0") && text.contains("http.response.status_code"), "{text}");
    let trace =
        [0x0a, 16, 0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80];
    assert!(sent.windows(trace.len()).any(|part| part == trace));
    assert!(!sent.windows(8).any(|part| part == [0x11; 8]));
}
