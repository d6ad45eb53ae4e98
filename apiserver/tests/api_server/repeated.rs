//! Headers that come twice: whoever stands in front of the server may have judged either, so each is read by one rule, by
//! everybody who reads it.

use super::access::{cluster, grant};
use super::support::{Answer, Fixture};
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// As somebody over a socket, with these lines.
async fn post(server: &Fixture, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let request =
        headers.iter().fold(Request::post(path), |request, (name, value)| request.header(*name, *value));
    server.as_user(None).call(request.body(Body::from(body.to_owned())).unwrap()).await
}

async fn token(admin: &Fixture, name: &str) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &json!({ "metadata": { "name": name } })).await.expect(201);
    let asked = admin.post(&format!("{accounts}/{name}/token"), &json!({ "spec": {} })).await.expect(201);
    format!("Bearer {}", asked["status"]["token"].as_str().unwrap())
}

async fn whoami(server: &Fixture, headers: &[(&str, &str)]) -> Result<Value, u16> {
    let json = ("content-type", "application/json");
    let answer = post(server, REVIEWS, &[&[json], headers].concat(), "{}").await;
    match answer.status.as_u16() {
        201 => Ok(answer.json()["status"]["userInfo"].take()),
        code => Err(code),
    }
}

#[tokio::test]
async fn one_rule_for_each_header() {
    let (admin, _pki, _dir) = cluster().await;
    let (one, two) = (token(&admin, "one").await, token(&admin, "two").await);
    let account = |name: &str| json!(format!("system:serviceaccount:default:{name}"));
    for (first, second, name) in [(&one, &two, "one"), (&two, &one, "two")] {
        let user = whoami(&admin, &[("authorization", first), ("authorization", second)]).await;
        assert_eq!(user.unwrap()["username"], account(name));
    }
    let nobody = whoami(&admin, &[("authorization", "Bearer x"), ("authorization", &one)]).await;
    assert_eq!(nobody, Err(401), "the second is no second chance");
    // Claims of a front proxy's are nothing without its certificate.
    let claims = [("x-remote-user", "root"), ("authorization", &*one), ("x-remote-group", "system:masters")];
    assert_eq!(whoami(&admin, &claims).await.unwrap()["username"], account("one"));
    let rules = json!([
        { "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["jane"] },
        { "apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["ops"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"] },
    ]);
    grant(&admin, "system:serviceaccount:default:one", rules).await;
    let own = ("authorization", &*one);
    let jane = ("impersonate-user", "jane");
    let user = whoami(&admin, &[own, jane, ("impersonate-group", "ops")]).await.unwrap();
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("jane"), &json!(["ops", "system:authenticated"]))
    );
    for second in ["jane", "root"] {
        assert_eq!(whoami(&admin, &[own, jane, ("impersonate-user", second)]).await, Err(400), "{second}");
    }
    // All groups count, so each must be allowed.
    let groups = [own, jane, ("impersonate-group", "ops"), ("impersonate-group", "system:masters")];
    assert_eq!(whoami(&admin, &groups).await, Err(403));
}

#[tokio::test]
async fn what_a_body_and_an_answer_are_is_said_once() {
    let (admin, _pki, _dir) = cluster().await;
    let one = token(&admin, "one").await;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"] }]);
    grant(&admin, "system:serviceaccount:default:one", rules).await;
    let (own, yaml) = (("authorization", &*one), "metadata:\n  name: a\n");
    let create = |kinds: [&'static str; 2]| {
        let headers = [own, ("content-type", kinds[0]), ("content-type", kinds[1])];
        let admin = &admin;
        async move { post(admin, MAPS, &headers, yaml).await.status.as_u16() }
    };
    assert_eq!(create(["application/json", "application/yaml"]).await, 400);
    assert_eq!(create(["text/plain", "application/yaml"]).await, 415);
    assert_eq!(create(["application/yaml", "application/json"]).await, 201);
    let accepting = |kinds: [&'static str; 2]| {
        let headers = [own, ("content-type", "application/json"), ("accept", kinds[0]), ("accept", kinds[1])];
        let admin = &admin;
        async move { post(admin, REVIEWS, &headers, "{}").await.header("content-type").to_owned() }
    };
    assert_eq!(accepting(["application/yaml", "application/json"]).await, "application/yaml");
    assert_eq!(accepting(["application/json", "application/yaml"]).await, "application/json");
}
