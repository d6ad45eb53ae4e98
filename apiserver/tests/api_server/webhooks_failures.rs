//! Webhooks that answer late, wrong, or not at all.

use crate::support::{CONFIG_MAPS, config_map};
use crate::webhooks_support::*;
use coracle_apiserver::audit::{Log, Mode, Policy, Rotation, Sink, Target};
use coracle_apiserver::server::EdgeOptions;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn on_create(hook: &Hook, fields: Value) -> Value {
    json!([with(entry("a.b.c", hook.url("/"), rule(&["CREATE"], &["configmaps"])), fields)])
}

fn internal(why: &str) -> String {
    format!("Internal error occurred: failed calling webhook \"a.b.c\": {why}")
}

#[tokio::test]
async fn time_is_limited_and_the_failure_policy_decides() {
    let server = server().await;
    let late = hook(|_| Reaction::Wait(Duration::from_millis(1500), json!({ "allowed": true }))).await;
    configure(&server, VALIDATING, "c", on_create(&late, json!({ "timeoutSeconds": 1 }))).await;
    let began = Instant::now();
    let status = server.post(CONFIG_MAPS, &config_map("m")).await.expect(500);
    assert!(began.elapsed() < Duration::from_millis(1400));
    let url = format!("https://localhost:{}/?timeout=1s", late.port);
    let why = format!("failed to call webhook: Post \"{url}\": context deadline exceeded");
    assert_eq!((&status["message"], &status["reason"]), (&json!(internal(&why)), &json!("InternalError")));
    let ignoring =
        json!({ "webhooks": on_create(&late, json!({ "timeoutSeconds": 1, "failurePolicy": "Ignore" })) });
    server.patch(&format!("{VALIDATING}/c"), "merge-patch", &ignoring).await.expect(200);
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    let patient = json!({ "webhooks": on_create(&late, json!({ "timeoutSeconds": 5 })) });
    server.patch(&format!("{VALIDATING}/c"), "merge-patch", &patient).await.expect(200);
    server.post(CONFIG_MAPS, &config_map("n")).await.expect(201);
}

#[tokio::test]
async fn the_requests_own_time_counts() {
    let server = server().await;
    let never = hook(|_| Reaction::Hang).await;
    configure(&server, VALIDATING, "c", on_create(&never, json!({ "timeoutSeconds": 30 }))).await;
    let began = Instant::now();
    server.post(&format!("{CONFIG_MAPS}?timeout=1s"), &config_map("m")).await.expect(504);
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(never.uris(), ["/?timeout=1s"]);
}

/// An answer that is wrong in the way that the request's object is called.
fn nonsense(review: &Value) -> Reaction {
    let uid = &review["request"]["uid"];
    let of = |response: Value| {
        let review =
            json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response });
        Reaction::Raw(200, review.to_string())
    };
    match review["request"]["name"].as_str().unwrap() {
        "text" => Reaction::Raw(200, "hello".to_owned()),
        "nothing" => Reaction::Raw(200, String::new()),
        "bare" => Reaction::Raw(200, "{}".to_owned()),
        "kind" => Reaction::Raw(
            200,
            json!({ "kind": "Pod", "apiVersion": "v1",
            "response": { "uid": uid, "allowed": true } })
            .to_string(),
        ),
        "uid" => of(json!({ "uid": "other", "allowed": true })),
        "types" => of(json!({ "uid": uid, "allowed": "yes" })),
        "patch" => of(json!({ "uid": uid, "allowed": true, "patch": "W10=", "patchType": "JSONPatch" })),
        "error" => Reaction::Raw(500, "it broke".to_owned()),
        "gone" => Reaction::Raw(404, String::new()),
        "redirect" => Reaction::Redirect("https://localhost/elsewhere".to_owned()),
        "huge" => Reaction::Huge(11 << 20),
        other => panic!("{other}"),
    }
}

/// Names of wrong answers, and what is told of them.
fn complaints() -> Vec<(&'static str, String)> {
    let called = "failed to call webhook: ";
    let invalid = "received invalid webhook response: ";
    vec![
        (
            "text",
            format!("{called}couldn't get version/kind; json parse error: expected value at line 1 column 1"),
        ),
        (
            "nothing",
            format!("{called}couldn't get version/kind; json parse error: EOF while parsing a value"),
        ),
        ("bare", format!("{invalid}webhook response was absent")),
        (
            "kind",
            format!(
                "{invalid}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /v1, Kind=Pod"
            ),
        ),
        ("uid", format!("{invalid}expected response.uid=")),
        (
            "types",
            format!(
                "{called}json: cannot unmarshal string into Go struct field AdmissionResponse.allowed of type bool"
            ),
        ),
        ("patch", format!("{invalid}validating webhook may not return response.patch")),
        (
            "error",
            format!(
                "{called}an error on the server (\"it broke\") has prevented the request from succeeding"
            ),
        ),
        ("gone", format!("{called}the server could not find the requested resource")),
        (
            "redirect",
            format!(
                "{called}the server responded with the status code 302 but did not return more information"
            ),
        ),
        ("huge", format!("{called}the response of ")),
    ]
}

#[tokio::test]
async fn nonsense_is_a_failure() {
    let server = server().await;
    let hook = hook(nonsense).await;
    configure(&server, VALIDATING, "c", on_create(&hook, json!({}))).await;
    for (name, why) in complaints() {
        let status = server.post(CONFIG_MAPS, &config_map(name)).await.expect(500);
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with(&internal(&why)), "{name}: {message}");
    }
    let left = server.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(left["items"], json!([]));
}

#[tokio::test]
async fn certificates_must_be_right() {
    let server = server().await;
    for (shown, why) in [
        (Shown::SelfSigned, None),
        (Shown::Authority, None),
        (
            Shown::Stranger,
            Some("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        ),
        (
            Shown::OtherName,
            Some(
                "tls: failed to verify certificate: x509: certificate is valid for elsewhere.example.com, not localhost",
            ),
        ),
    ] {
        let hook = serve(shown, &[b"http/1.1"], |_, _| allow()).await;
        configure(&server, VALIDATING, "c", on_create(&hook, json!({}))).await;
        let answer = server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("m")).await;
        match why {
            None => drop(answer.expect(201)),
            Some(why) => {
                let url = format!("https://localhost:{}/?timeout=10s", hook.port);
                let wanted = internal(&format!("failed to call webhook: Post \"{url}\": {why}"));
                assert_eq!(answer.expect(500)["message"], wanted);
            }
        }
        server.delete(&format!("{VALIDATING}/c")).await.expect(200);
    }
}

#[tokio::test]
async fn nobody_at_home() {
    let server = server().await;
    let service = json!({ "service": { "name": "hook", "namespace": "default", "path": "/x" } });
    let rules = rule(&["CREATE"], &["configmaps"]);
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", service, rules.clone())])).await;
    let message = |answer: Value| answer["message"].as_str().unwrap().to_owned();
    let url = "https://hook.default.svc:443/x?timeout=10s";
    let failed = message(server.post(CONFIG_MAPS, &config_map("m")).await.expect(500));
    assert_eq!(
        failed,
        internal(&format!("failed to call webhook: Post \"{url}\": service \"hook\" not found"))
    );
    server.delete(&format!("{VALIDATING}/c")).await.expect(200);
    let closed = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() };
    let config = json!({ "url": format!("https://127.0.0.1:{closed}/") });
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", config, rules)])).await;
    let failed = message(server.post(CONFIG_MAPS, &config_map("m")).await.expect(500));
    let why = format!("dial tcp 127.0.0.1:{closed}: connect: connection refused");
    let url = format!("https://127.0.0.1:{closed}/?timeout=10s");
    assert_eq!(failed, internal(&format!("failed to call webhook: Post \"{url}\": {why}")));
}

#[tokio::test]
async fn dry_runs_only_where_nothing_else_happens() {
    let server = server().await;
    let hook = hook(|_| allow()).await;
    configure(&server, VALIDATING, "c", on_create(&hook, json!({ "sideEffects": "NoneOnDryRun" }))).await;
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    server.post(&dry, &config_map("m")).await.expect(201);
    assert_eq!(hook.only()["dryRun"], true);
    server.get(&format!("{CONFIG_MAPS}/m")).await.expect(404);
    // New configurations may not say so any more; stored ones do.
    let lax = hook_with_effects(&server, &hook).await;
    let status = server.post(&dry, &config_map("m")).await.expect(400);
    assert_eq!(status["message"], "admission webhook \"a.b.c\" does not support dry run");
    assert_eq!((hook.seen().len(), lax), (1, "Some".to_owned()));
}

/// The configuration of an older server, which let that be.
async fn hook_with_effects(server: &crate::support::Fixture, hook: &Hook) -> String {
    let mut object = server.get(&format!("{VALIDATING}/c")).await.expect(200);
    object["webhooks"] = on_create(hook, json!({ "sideEffects": "Some" }));
    object["metadata"]["generation"] = 7.into();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    write_raw(server, "validatingwebhookconfigurations.admissionregistration.k8s.io//c", &object).await;
    let shown = server.get(&format!("{VALIDATING}/c")).await.expect(200);
    shown["webhooks"][0]["sideEffects"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn services_lead_to_their_endpoints() {
    let server = server().await;
    let hook = hook(|_| deny("found")).await;
    let service = json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": "hook" },
        "spec": { "clusterIP": "None", "ports": [{ "name": "https", "port": 8443, "targetPort": 9 }] } });
    server.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let slice = |addresses: Value| {
        json!({ "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": { "name": "hook-1", "namespace": "default", "labels": { "kubernetes.io/service-name": "hook" } },
            "ports": [{ "name": "https", "port": hook.port, "protocol": "TCP" }], "endpoints": addresses })
    };
    let config = json!({ "service": { "name": "hook", "namespace": "default", "path": "/p", "port": 8443 },
        "caBundle": hook.bundle });
    configure(&server, VALIDATING, "c", json!([entry("a.b.c", config, rule(&["CREATE"], &["configmaps"]))]))
        .await;
    let nobody = server.post(CONFIG_MAPS, &config_map("m")).await.expect(500);
    let why = "failed to call webhook: Post \"https://hook.default.svc:8443/p?timeout=10s\": no endpoints available for \
               service \"hook\"";
    assert_eq!(nobody["message"], internal(why));
    let key = "endpointslices.discovery.k8s.io/default/hook-1";
    write_raw(&server, key, &slice(json!([{ "addresses": ["127.0.0.1"], "conditions": { "ready": true } }])))
        .await;
    let denied = server.post(CONFIG_MAPS, &config_map("m")).await.expect(400);
    assert_eq!(denied["message"], "admission webhook \"a.b.c\" denied the request: found");
    assert_eq!(hook.uris(), ["/p?timeout=10s"]);
}

#[tokio::test]
async fn the_older_review_is_spoken_too() {
    let server = server().await;
    let hook = hook(|_| Reaction::Raw(200, json!({ "response": { "allowed": false } }).to_string())).await;
    configure(
        &server,
        VALIDATING,
        "c",
        on_create(&hook, json!({ "admissionReviewVersions": ["v9", "v1beta1", "v1"] })),
    )
    .await;
    let status = server.post(CONFIG_MAPS, &config_map("m")).await.expect(400);
    assert_eq!(status["message"], "admission webhook \"a.b.c\" denied the request without explanation");
    assert_eq!(hook.seen()[0]["apiVersion"], "admission.k8s.io/v1beta1");
}

#[tokio::test]
async fn connections_are_kept() {
    let server = server().await;
    let single = hook(|_| allow()).await;
    let shared = serve(Shown::SelfSigned, &[b"h2", b"http/1.1"], |_, _| allow()).await;
    configure(&server, VALIDATING, "one", on_create(&single, json!({}))).await;
    configure(&server, VALIDATING, "two", on_create(&shared, json!({}))).await;
    for i in 0..10 {
        server.post(CONFIG_MAPS, &config_map(&format!("m{i}"))).await.expect(201);
    }
    assert_eq!((single.seen().len(), single.connections()), (10, 1));
    assert_eq!((shared.seen().len(), shared.connections()), (10, 1));
    // A change of something else in the configuration keeps them, too.
    let relabel = json!({ "webhooks": on_create(&single, json!({ "timeoutSeconds": 7 })) });
    server.patch(&format!("{VALIDATING}/one"), "merge-patch", &relabel).await.expect(200);
    server.post(CONFIG_MAPS, &config_map("last")).await.expect(201);
    assert_eq!((single.seen().len(), single.connections()), (11, 1));
    let all = futures::future::join_all((0..40).map(|i| {
        let server = server.clone();
        async move { server.post(CONFIG_MAPS, &config_map(&format!("p{i}"))).await.expect(201) }
    }));
    all.await;
    assert_eq!(shared.connections(), 1);
}

#[tokio::test]
async fn warnings_are_limited() {
    let server = server().await;
    let hook = hook(|_| {
        let warnings: Vec<String> = (0..50).map(|i| format!("{i:02}{}", "w".repeat(400))).collect();
        Reaction::Answer(json!({ "allowed": true, "warnings": warnings }))
    })
    .await;
    configure(&server, VALIDATING, "c", on_create(&hook, json!({}))).await;
    let answer = server.post(CONFIG_MAPS, &config_map("m")).await;
    answer.expect(201);
    let sent: Vec<usize> = answer.headers.get_all("warning").iter().map(|w| w.len()).collect();
    assert_eq!(sent, vec![256 + "299 - \"\"".len(); 16]);
}

#[tokio::test]
async fn the_audit_log_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let policy =
        Policy::parse("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request}]\n").unwrap();
    let log =
        Log::new(policy, Sink::open(Target::File(file.clone(), Rotation::default()), Mode::Batch).unwrap());
    let server = server_with(EdgeOptions { audit: Some(log.clone()), ..EdgeOptions::default() }).await;
    let mutates = hook(|_| {
        let Reaction::Answer(mut response) = patch(json!([{ "op": "add", "path": "/data/x", "value": "y" }]))
        else {
            unreachable!()
        };
        response["auditAnnotations"] = json!({ "why": "because", "not valid!": "x" });
        Reaction::Answer(response)
    })
    .await;
    let breaks = hook(|_| Reaction::Raw(500, String::new())).await;
    configure(&server, MUTATING, "m", on_create(&mutates, json!({}))).await;
    configure(&server, VALIDATING, "v", on_create(&breaks, json!({ "failurePolicy": "Ignore" }))).await;
    server.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    log.close().await;
    let written = std::fs::read_to_string(&file).unwrap();
    let event: Value = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["objectRef"]["resource"] == "configmaps" && event["stage"] == "ResponseComplete")
        .expect("the event of the write");
    let annotations = &event["annotations"];
    assert_eq!(annotations["a.b.c/why"], "because");
    let mutation: Value = serde_json::from_str(
        annotations["mutation.webhook.admission.k8s.io/round_0_index_0"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(mutation, json!({ "configuration": "m", "webhook": "a.b.c", "mutated": true }));
    let patched: Value =
        serde_json::from_str(annotations["patch.webhook.admission.k8s.io/round_0_index_0"].as_str().unwrap())
            .unwrap();
    assert_eq!(
        (&patched["patch"][0]["path"], &patched["patchType"]),
        (&json!("/data/x"), &json!("JSONPatch"))
    );
    assert_eq!(annotations["failed-open.validating.webhook.admission.k8s.io/round_0_index_0"], "a.b.c");
}
