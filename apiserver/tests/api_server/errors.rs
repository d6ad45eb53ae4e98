//! What is refused, and how; every route of the catalogue is asked.

use crate::support::*;
use coracle_api::{Resource, UserInfo, catalogue};
use serde_json::json;

/// (method, path, whether the catalogue says it is served)
fn routes(resource: &Resource) -> Vec<(&'static str, String, bool)> {
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let collection = if resource.namespaced {
        format!("{root}/namespaces/default/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    };
    let item = format!("{collection}/x");
    let mut routes = Vec::new();
    for (method, verb) in [("GET", "list"), ("POST", "create"), ("DELETE", "deletecollection")] {
        routes.push((method, collection.clone(), resource.supports(verb)));
    }
    routes.push(("PUT", collection.clone(), false));
    for (method, verb) in [("GET", "get"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")] {
        routes.push((method, item.clone(), resource.supports(verb)));
    }
    routes.push(("POST", item.clone(), false));
    for sub in &resource.subresources {
        for (method, verb) in
            [("GET", "get"), ("POST", "create"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")]
        {
            let served = sub.verbs.iter().any(|v| v == verb);
            routes.push((method, format!("{item}/{}", sub.name), served));
        }
    }
    routes
}

#[tokio::test]
async fn every_route_authenticates_authorizes_and_knows_its_methods() {
    let api = Fixture::new().await;
    let (anonymous, nobody) = (api.as_user(None), api.as_user(Some(UserInfo::authenticated("nobody", &[]))));
    let mut count = 0;
    for resource in catalogue::catalogue() {
        for (method, path, served) in routes(resource) {
            count += 1;
            let body = "[";
            let type_ = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let refused = anonymous.ask(method, &path, type_, body).await;
            assert_eq!(refused.expect(401)["reason"], "Unauthorized", "{method} {path}");
            let forbidden = nobody.ask(method, &path, type_, body).await.expect(403);
            let message = forbidden["message"].as_str().unwrap();
            assert!(message.contains("is forbidden: User \"nobody\" cannot"), "{message}");
            let answer = api.ask(method, &path, type_, body).await;
            let code = answer.status.as_u16();
            if served && path.ends_with("/resize") && code == 405 {
                continue;
            }
            if served {
                // Options of a deletion that cannot be read are no client's fault, as upstream has it.
                let broken = if method == "DELETE" { 501 } else { 500 };
                assert!(
                    ![401, 403, 405, broken].contains(&code),
                    "{method} {path}: {code} {:?}",
                    answer.body
                );
            } else if code == 405 {
                assert_eq!(answer.json()["reason"], "MethodNotAllowed");
                assert!(
                    !answer.header("allow").is_empty() && !answer.header("allow").contains(method),
                    "{path}"
                );
            } else {
                assert_eq!(code, 404, "{method} {path}: {:?}", answer.body);
                assert_eq!(answer.json()["message"], "the server could not find the requested resource");
            }
            // A patch is looked at when there is something to patch, as upstream.
            if served && ["POST", "PUT"].contains(&method) && code != 503 {
                assert_eq!(code, 400, "malformed JSON: {method} {path}: {:?}", answer.body);
            }
        }
    }
    assert!(count > 400, "only {count} routes");
}

#[tokio::test]
async fn unknown_paths() {
    let api = Fixture::new().await;
    for path in [
        "/nope",
        "/api/v1/nope",
        "/api/v2/pods",
        "/apis/apps/v1/pods",
        "/apis/nope/v1/pods",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/x",
        "/api/v1/namespaces/default/pods/x/nope",
        "/api/v1/namespaces/default/configmaps/x/status",
    ] {
        let missing = api.get(path).await.expect(404);
        assert_eq!(missing["kind"], "Status", "{path}");
        assert_eq!(missing["reason"], "NotFound");
    }
    assert_eq!(api.post("/api/v1/pods", &pod("p")).await.status, 405);
}

#[tokio::test]
async fn head_leads_to_pages_that_any_method_reaches() {
    let api = Fixture::new().await;
    let head = async |path: &str| api.ask("HEAD", path, "", "").await;
    for (path, methods) in [
        ("/api/v1/pods", "GET"),
        (CONFIG_MAPS, "DELETE, GET, POST"),
        ("/api/v1/namespaces/default", "DELETE, GET, PATCH, PUT"),
        ("/api/v1/namespaces/default/pods/p/log", "GET"),
        ("/apis/apps/v1/namespaces/default/deployments/d/scale", "GET, PATCH, PUT"),
        ("/version", "GET"),
        ("/api", "GET"),
        ("/api/v1", "GET"),
        ("/apis/apps/v1", "GET"),
    ] {
        let answer = head(path).await;
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, methods), "{path}");
    }
    for path in ["/healthz", "/livez/ping", "/metrics", "/apis", "/apis/apps", "/openapi/v3", "/"] {
        assert_eq!(head(path).await.status, 200, "{path}");
        for method in ["POST", "PUT", "PATCH", "OPTIONS"] {
            assert_eq!(api.ask(method, path, "", "").await.status, 200, "{method} {path}");
        }
    }
    assert_eq!(api.ask("POST", "/version", "", "").await.status, 405);
    assert_eq!(api.ask("DELETE", "/metrics", "", "").await.status, 405, "figures only grow");
    assert_eq!(api.ask("POST", "/nope", "", "").await.status, 404);
}

#[tokio::test]
async fn bodies_and_types() {
    let api = Fixture::new().await;
    api.ask("POST", CONFIG_MAPS, "application/json", "{\"a\"").await.expect(400);
    api.ask("POST", CONFIG_MAPS, "application/json", "").await.expect(400);
    api.ask("POST", CONFIG_MAPS, "application/json", "[]").await.expect(400);
    api.ask("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", "k8s").await.expect(400);
    api.ask("POST", CONFIG_MAPS, "application/cbor", "k8s").await.expect(415);
    api.ask("POST", CONFIG_MAPS, "text/plain", "{}").await.expect(415);
    let big = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(3 << 20)}});
    let refused = api.post(CONFIG_MAPS, &big).await.expect(413);
    assert_eq!(refused["reason"], "RequestEntityTooLarge");
    let wrong_type = json!({"metadata": {"name": "a"}, "data": ["x"]});
    api.post(CONFIG_MAPS, &wrong_type).await.expect(400);
    api.get_as(CONFIG_MAPS, "text/html").await.expect(406);
    assert_eq!(api.get(CONFIG_MAPS).await.json()["items"], json!([]));
}

#[tokio::test]
async fn health_needs_no_credentials() {
    let api = Fixture::new().await.as_user(None);
    for path in ["/livez", "/readyz", "/healthz", "/livez/ping"] {
        let answer = api.get(path).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"ok"[..]), "{path}");
    }
    assert_eq!(api.get("/version").await.expect(200)["minor"], "36");
    api.get("/api").await.expect(401);
    assert_eq!(api.post("/version", &json!({})).await.status, 405);
}

#[tokio::test]
async fn the_root_lists_what_is_there() {
    let api = Fixture::new().await;
    let index = api.get("/").await.expect(200);
    let paths: Vec<&str> =
        index["paths"].as_array().unwrap().iter().filter_map(|path| path.as_str()).collect();
    assert!(paths.is_sorted() && paths.contains(&"/apis/apps/v1"), "{paths:?}");
    for path in paths {
        let status = api.get(path).await.status.as_u16();
        assert!(status == 200 || path.contains("open"), "{path}: {status}");
    }
}

#[tokio::test]
async fn what_has_no_columns_is_no_table() {
    let api = Fixture::new().await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, status) in [(table.to_owned(), 406), (format!("{table},application/json"), 201)] {
        let request =
            http::Request::post(uri).header("content-type", "application/json").header("accept", &accept);
        let answer = api.call(request.body(review.to_string().into()).unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{accept}");
    }
}

#[tokio::test]
async fn a_panic_is_an_answer() {
    let api = Fixture::new().await;
    let broken = api.as_user(Some(UserInfo::authenticated("panics", &[])));
    let status = broken.get(CONFIG_MAPS).await.expect(500);
    assert_eq!(status["reason"], "InternalError");
    api.get(CONFIG_MAPS).await.expect(200);
}

#[tokio::test]
async fn every_answer_names_itself_and_forbids_caching() {
    let api = Fixture::new().await;
    for path in ["/livez", CONFIG_MAPS, "/nope"] {
        let answer = api.get(path).await;
        assert!(answer.header("audit-id").len() > 30, "{path}");
        assert_eq!(answer.header("cache-control"), "no-cache, private");
    }
}
