//! What a list, a get and a deletion of a collection may be asked for, and upstream's words for what they may not.

use crate::support::*;
use serde_json::{Value, json};

const ALL: &str = "/api/v1/configmaps";

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

async fn with(count: usize) -> Fixture {
    let api = Fixture::new().await;
    for n in 0..count {
        api.post(CONFIG_MAPS, &config_map(&format!("c{n:02}"))).await.expect(201);
    }
    api
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn refusals_have_upstreams_words() {
    let api = with(1).await;
    let invalid = "ListOptions.meta.k8s.io \"\" is invalid: ";
    let table = [
        ("limit=abc", 400, "strconv.ParseInt: parsing \"abc\": invalid syntax".to_owned()),
        ("timeoutSeconds=1s", 400, "strconv.ParseInt: parsing \"1s\": invalid syntax".into()),
        (
            "resourceVersion=abc",
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
             invalid syntax"
                .into(),
        ),
        (
            "resourceVersionMatch=Exact",
            422,
            format!(
                "{invalid}resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is \
                 provided"
            ),
        ),
        (
            "sendInitialEvents=true",
            422,
            format!("{invalid}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        ("continue=%21", 400, "invalid continue token: continue key is not valid: ".into()),
        ("labelSelector=a%20b", 400, "unable to parse requirement: found 'b', expected: in, notin".into()),
        ("labelSelector=a,", 400, "found '', expected: identifier after ','".into()),
        ("fieldSelector=x", 400, "invalid selector: 'x'; can't understand 'x'".into()),
        (
            "fieldSelector=spec.x%3D1",
            400,
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".into(),
        ),
    ];
    for (query, code, words) in table {
        let status = api.get(&format!("{CONFIG_MAPS}?{query}")).await.expect(code);
        assert!(message(&status).starts_with(&words), "{query}: {}", message(&status));
        let reason = if code == 400 { "BadRequest" } else { "Invalid" };
        assert_eq!(status["reason"], reason, "{query}");
    }
    // Neither is an error upstream.
    for query in ["limit=-1", "timeoutSeconds=-1", "resourceVersion=0&resourceVersionMatch=NotOlderThan"] {
        assert_eq!(names(&api.get(&format!("{CONFIG_MAPS}?{query}")).await.expect(200)), ["c00"], "{query}");
    }
}

#[tokio::test]
async fn fields_differ_by_kind() {
    let api = Fixture::new().await;
    let table = [
        ("/api/v1/pods", "spec.x", "field label not supported: spec.x"),
        ("/api/v1/namespaces", "metadata.namespace", "field label not supported: metadata.namespace"),
        ("/apis/batch/v1/jobs", "status.x", "field label \"status.x\" not supported for batchv1.Job"),
        ("/apis/apps/v1/replicasets", "x", "field label not supported for apps/v1, Kind=ReplicaSet: x"),
        (
            "/apis/apps/v1/deployments",
            "status.replicas",
            "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "/apis/events.k8s.io/v1/events",
            "involvedObject.name",
            "field label not supported: involvedObject.name",
        ),
    ];
    for (uri, field, words) in table {
        let status = api.get(&format!("{uri}?fieldSelector={field}%3Dx")).await.expect(400);
        assert_eq!(message(&status), words, "{uri}");
    }
    let mut body = pod("p");
    body["spec"]["nodeName"] = "n1".into();
    api.post(PODS, &body).await.expect(201);
    let taken = [
        ("spec.host%3Dn1", 1),
        ("spec.hostNetwork%3Dfalse", 1),
        ("spec.nodeName!%3Dn1", 0),
        ("status.podIPs%3D10.0.0.1", 0),
        ("metadata.namespace%3Ddefault,spec.nodeName%3Dn1", 1),
        ("metadata.namespace%3Dother", 0),
        ("metadata.name%3Dp,metadata.name%3Dq", 0),
    ];
    for (selector, count) in taken {
        let list = api.get(&format!("/api/v1/pods?fieldSelector={selector}")).await.expect(200);
        assert_eq!(names(&list).len(), count, "{selector}");
    }
}

#[tokio::test]
async fn a_revision_that_has_not_come() {
    let api = with(1).await;
    for uri in [
        format!("{CONFIG_MAPS}?resourceVersion=100000"),
        format!("{CONFIG_MAPS}?resourceVersion=100000&resourceVersionMatch=Exact"),
        format!("{CONFIG_MAPS}/c00?resourceVersion=100000"),
    ] {
        let answer = api.get(&uri).await;
        let status = answer.expect(504);
        assert!(
            message(&status).starts_with("Timeout: Too large resource version: 100000, current: "),
            "{uri}"
        );
        assert_eq!(status["reason"], "Timeout");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(
            status["details"]["causes"],
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}])
        );
        assert_eq!(answer.header("retry-after"), "1");
    }
    let made = api.get(&format!("{CONFIG_MAPS}/c00?resourceVersion=0")).await.expect(200);
    api.get(&format!("{CONFIG_MAPS}/c00?resourceVersion={}", version(&made))).await.expect(200);
}

#[tokio::test]
async fn exact_revisions_and_their_end() {
    let api = with(2).await;
    let then = version(&api.get(CONFIG_MAPS).await.json());
    api.patch(&format!("{CONFIG_MAPS}/c00"), "merge-patch", &json!({"data": {"k": "new"}})).await.expect(200);
    api.delete(&format!("{CONFIG_MAPS}/c01")).await.expect(200);
    let exact = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let old = api.get(&exact).await.expect(200);
    assert_eq!((names(&old), version(&old)), (vec!["c00", "c01"], then));
    assert_eq!(old["items"][0]["data"]["k"], "v");
    // With a limit and without a match, an old revision is exact as well: upstream's first behaviour.
    let page = api.get(&format!("{CONFIG_MAPS}?resourceVersion={then}&limit=1")).await.expect(200);
    assert_eq!((names(&page), version(&page)), (vec!["c00"], then));
    let newest = version(&api.get(CONFIG_MAPS).await.json());
    api.api.registry().store.compact(coracle_apiserver::store::Revision(newest)).await.unwrap();
    let gone = api.get(&exact).await.expect(410);
    assert_eq!(message(&gone), "The resourceVersion for the provided list is too old.");
    assert_eq!(gone["reason"], "Expired");
}

#[tokio::test]
async fn counts_of_what_remains() {
    let api = with(5).await;
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await.expect(200);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let selected = api.get(&format!("{CONFIG_MAPS}?limit=2&labelSelector=!x")).await.expect(200);
    assert!(selected["metadata"].get("remainingItemCount").is_none());
    assert!(selected["metadata"]["continue"].is_string());
    let whole = api.get(&format!("{CONFIG_MAPS}?limit=5")).await.expect(200);
    assert!(whole["metadata"].get("continue").is_none());
    let token = first["metadata"]["continue"].as_str().unwrap();
    let refused = api.get(&format!("{CONFIG_MAPS}?continue={token}&resourceVersion=7")).await.expect(400);
    assert_eq!(message(&refused), "specifying resource version is not allowed when using continue");
    let refused = format!("{CONFIG_MAPS}?continue={token}&resourceVersion=7&resourceVersionMatch=Exact");
    api.get(&refused).await.expect(422);
    assert_eq!(names(&api.get(&format!("{CONFIG_MAPS}?continue={token}")).await.expect(200)).len(), 3);
}

/// What changes between two pages shows in neither, and unchanged objects are not decoded again.
#[tokio::test]
async fn pages_stay_what_they_were() {
    let api = with(6).await;
    let first = api.get(&format!("{ALL}?limit=2")).await.expect(200);
    for n in 0..6 {
        let body = json!({"data": {"k": "changed"}});
        api.patch(&format!("{CONFIG_MAPS}/c{n:02}"), "merge-patch", &body).await.expect(200);
    }
    api.delete(&format!("{CONFIG_MAPS}/c03")).await.expect(200);
    let (mut seen, mut page) = (0, first.clone());
    loop {
        for item in page["items"].as_array().unwrap() {
            assert_eq!(item["data"]["k"], "v");
            seen += 1;
        }
        assert_eq!(version(&page), version(&first));
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        page = api.get(&format!("{ALL}?limit=2&continue={token}")).await.expect(200);
    }
    assert_eq!(seen, 6);
}

#[tokio::test]
async fn collections_go_page_by_page() {
    let api = with(5).await;
    let first = api.delete(&format!("{CONFIG_MAPS}?limit=2")).await.expect(200);
    assert_eq!((first["kind"].as_str(), names(&first)), (Some("ConfigMapList"), vec!["c00", "c01"]));
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert_eq!(names(&api.get(CONFIG_MAPS).await.expect(200)), ["c02", "c03", "c04"]);
    let named = api.delete(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dc03")).await.expect(200);
    assert_eq!(names(&named), ["c03"]);
    let kept = json!({"propagationPolicy": "Foreground"}).to_string();
    let held = api.ask("DELETE", CONFIG_MAPS, "application/json", kept).await.expect(200);
    assert_eq!(names(&held), ["c02", "c04"]);
    let left = api.get(CONFIG_MAPS).await.expect(200);
    assert!(left["items"].as_array().unwrap().iter().all(|i| i["metadata"]["deletionTimestamp"].is_string()));
    api.delete(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact")).await.expect(422);
    let wrong = json!({"preconditions": {"uid": "x"}}).to_string();
    api.ask("DELETE", CONFIG_MAPS, "application/json", wrong).await.expect(409);
    let nothing = api.delete(&format!("{CONFIG_MAPS}?labelSelector=no%3Dbody")).await.expect(200);
    assert_eq!(nothing["items"], json!([]));
}

#[tokio::test]
async fn preconditions_name_both_sides() {
    let api = with(1).await;
    let made = api.get(&format!("{CONFIG_MAPS}/c00")).await.expect(200);
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let ask = |body: Value| {
        let (api, uri) = (api.clone(), format!("{CONFIG_MAPS}/c00"));
        async move { api.ask("DELETE", &uri, "application/json", body.to_string()).await }
    };
    let refused = ask(json!({"preconditions": {"uid": "other"}})).await.expect(409);
    assert_eq!(
        message(&refused),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"c00\": the UID in the precondition (other) does not match the \
             UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    let refused = ask(json!({"preconditions": {"resourceVersion": "1000"}})).await.expect(409);
    assert!(message(&refused).ends_with(&format!(
        "the ResourceVersion in the precondition (1000) does not match the ResourceVersion in record ({}). The object \
         might have been modified",
        version(&made)
    )));
    ask(json!({"gracePeriodSeconds": "1"})).await.expect(500);
    ask(json!({"propagationPolicy": "Never"})).await.expect(422);
    ask(json!({"propagationPolicy": "Orphan", "orphanDependents": true})).await.expect(422);
    let fitting = json!({"preconditions": {"uid": uid, "resourceVersion": version(&made).to_string()}});
    ask(fitting).await.expect(200);
}

#[tokio::test]
async fn orphans_by_default_and_by_the_old_option() {
    let api = Fixture::new().await;
    let job = json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "j"}, "spec": {"template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    api.post(jobs, &job).await.expect(201);
    let held = api.delete(&format!("{jobs}/j")).await.expect(200);
    assert_eq!(held["metadata"]["finalizers"], json!(["orphan"]), "as upstream's batch/v1 always did");
    api.delete(&format!("{jobs}/j?propagationPolicy=Background")).await.expect(200);
    api.get(&format!("{jobs}/j")).await.expect(404);
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let held = api.delete(&format!("{CONFIG_MAPS}/a?orphanDependents=true")).await.expect(200);
    assert_eq!(held["metadata"]["finalizers"], json!(["orphan"]));
    let mut body = config_map("b");
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    api.post(CONFIG_MAPS, &body).await.expect(201);
    api.delete(&format!("{CONFIG_MAPS}/b?orphanDependents=false")).await.expect(202);
    api.delete(&format!("{CONFIG_MAPS}/b?propagationPolicy=Background")).await.expect(200);
}

#[tokio::test]
async fn negative_grace_is_a_second() {
    let api = Fixture::new().await;
    let mut body = pod("p");
    body["spec"]["nodeName"] = "n".into();
    api.post(PODS, &body).await.expect(201);
    let marked = api.delete(&format!("{PODS}/p?gracePeriodSeconds=-5")).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 1);
}
