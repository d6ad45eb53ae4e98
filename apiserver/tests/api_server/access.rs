//! Who gets in and what they may do, against the whole server: default roles, admission, tokens and certificates.

use super::support::{Fixture, governed_by, in_memory, version};
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::UserInfo;
use coracle_apiserver::admission;
use coracle_apiserver::authn::{Authenticator, Reference, ServiceAccountTokens};
use coracle_apiserver::authz::{Chain, Gate};
use coracle_apiserver::pki::{Pki, PkiOptions};
use coracle_apiserver::server::{self, EdgeOptions, ServerConfig};
use http::Request;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use std::sync::Arc;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// With upstream's default roles and admission; the user is a member of `system:masters`.
pub async fn cluster() -> (Fixture, Arc<Pki>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::ensure(dir.path(), PkiOptions::default()).unwrap();
    let (store, resources) = in_memory().await;
    let cache = resources.cache.clone();
    let tokens = Arc::new(ServiceAccountTokens::new(pki.service_account_key()));
    let authorizer = Gate::new(Chain::new(cache.clone(), server::rbac_generation(cache.clone())));
    let admission = admission::Chain::new(cache.clone(), &admission::Config::default())
        .unwrap()
        .counted_in(cache.metrics().clone());
    let config = ServerConfig {
        authenticator: Some(Arc::new(Authenticator::new(&pki, tokens, cache.clone()).unwrap())),
        admission: Arc::new(admission.guard_escalation(authorizer.clone())),
        ..governed_by(authorizer)
    };
    let admin = Fixture::of(config, EdgeOptions::default(), store, resources);
    (admin.bootstrapped(Some(&pki)).await, pki, dir)
}

pub fn user(fixture: &Fixture, name: &str, groups: &[&str]) -> Fixture {
    fixture.as_user(Some(UserInfo::authenticated(name, groups)))
}

/// Grants the rules to the user `name` in the whole cluster.
pub async fn grant(admin: &Fixture, name: &str, rules: Value) {
    let metadata = json!({ "name": name });
    let role = json!({ "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata, "rules": rules });
    admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
    });
    admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
}

fn csr(name: &str, signer: &str, organization: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({
        "kind": "CertificateSigningRequest", "apiVersion": "certificates.k8s.io/v1", "metadata": { "name": name },
        "spec": { "request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"], "username": "root" },
    })
}

fn approved(csr: &Value, kind: &str) -> Value {
    let mut csr = csr.clone();
    csr["status"] =
        json!({ "conditions": [{ "type": kind, "status": "True", "reason": "Test", "message": "m" }] });
    csr
}

#[tokio::test]
async fn a_certificate_request_from_start_to_end() {
    let (admin, pki, _dir) = cluster().await;
    let rules = |verb: &str, sub: &str| {
        json!([
            { "verbs": ["create", "get", "update", "patch"], "apiGroups": ["certificates.k8s.io"],
              "resources": ["certificatesigningrequests", format!("certificatesigningrequests/{sub}")] },
            { "verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"],
              "resourceNames": ["example.com/*"] },
        ])
    };
    grant(&admin, "judge", rules("approve", "approval")).await;
    grant(&admin, "notary", rules("sign", "status")).await;
    let (judge, notary) = (user(&admin, "judge", &[]), user(&admin, "notary", &[]));
    let mut asked = csr("a", "example.com/s", "dev");
    asked["spec"]["expirationSeconds"] = 600.into();
    let made = judge.post(REQUESTS, &asked).await.expect(201);
    assert_eq!(made["spec"]["username"], "judge", "not who the request says");
    assert_eq!(made["spec"]["groups"], json!(["system:authenticated"]));
    let mut changed = made.clone();
    changed["spec"]["signerName"] = "example.com/other".into();
    changed["metadata"]["labels"] = json!({ "l": "1" });
    changed["status"] = json!({ "certificate": "eA==" });
    let kept = admin.put(&format!("{REQUESTS}/a"), &changed).await.expect(200);
    assert_eq!((&kept["spec"], &kept["metadata"]["labels"]["l"]), (&made["spec"], &json!("1")));
    assert_eq!(kept["status"], json!({}));

    let approval = format!("{REQUESTS}/a/approval");
    let denied = notary.put(&approval, &approved(&kept, "Approved")).await.expect(403);
    assert!(
        denied["message"]
            .as_str()
            .unwrap()
            .contains("cannot update resource \"certificatesigningrequests/approval\"")
    );
    let stored = judge.put(&approval, &approved(&kept, "Approved")).await.expect(200);
    let condition = &stored["status"]["conditions"][0];
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string());
    let mut both = approved(&stored, "Approved");
    let more = json!({ "type": "Denied", "status": "True" });
    both["status"]["conditions"].as_array_mut().unwrap().push(more);
    let refused = judge.put(&approval, &both).await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("mutually exclusive"), "{refused}");

    let status = format!("{REQUESTS}/a/status");
    let pem = pki.sign_client("jane", &["dev"]).unwrap().cert_pem;
    let mut issued = stored.clone();
    issued["status"]["certificate"] = STANDARD.encode(&pem).into();
    issued["status"]["conditions"] = json!([]);
    notary.put(&format!("{status}?dryRun=All"), &issued).await.expect(200);
    let done = notary.put(&status, &issued).await.expect(200);
    assert_eq!(done["status"]["conditions"], stored["status"]["conditions"], "an approval is not lost");
    let again = json!({ "status": { "certificate": STANDARD.encode(format!("{pem}{pem}")) } });
    let refused = notary.patch(&status, "merge-patch", &again).await.expect(422);
    assert!(
        refused["message"].as_str().unwrap().ends_with("updates may not modify existing certificate content")
    );
    is_counted_once(&admin).await;
    shown(&admin).await;
}

/// It asked for ten minutes, and got days.
async fn is_counted_once(admin: &Fixture) {
    let page = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
    let counted = |what: &str, count: u32| {
        format!("apiserver_certificates_registry_csr_{what}_duration_total{{signerName=\"other\"}} {count}\n")
    };
    assert!(page.contains(&counted("requested", 1)), "{page}");
    assert!(!page.contains(&counted("honored", 1)), "{page}");
}

async fn shown(admin: &Fixture) {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = admin.get_as(REQUESTS, accept).await.expect(200);
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"]);
    assert_eq!(table["rows"][0]["cells"][5], "Approved,Issued");
    let selected =
        admin.get(&format!("{REQUESTS}?fieldSelector=spec.signerName%3Dexample.com%2Fs")).await.expect(200);
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn signers_are_asked_for_by_name() {
    let (admin, _pki, _dir) = cluster().await;
    let resources = [
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "certificatesigningrequests/status",
    ];
    grant(
        &admin,
        "jane",
        json!([{ "verbs": ["*"], "apiGroups": ["certificates.k8s.io"], "resources": resources }]),
    )
    .await;
    let jane = user(&admin, "jane", &[]);
    let made = jane.post(REQUESTS, &csr("b", "other.org/s", "dev")).await.expect(201);
    let refused = jane.put(&format!("{REQUESTS}/b/approval"), &approved(&made, "Approved")).await.expect(403);
    assert_eq!(
        refused["message"],
        "certificatesigningrequests.certificates.k8s.io \"b\" is forbidden: user not permitted to approve requests with signerName \"other.org/s\""
    );
    let refused = jane.put(&format!("{REQUESTS}/b/status"), &approved(&made, "Failed")).await.expect(403);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .ends_with("user not permitted to sign requests with signerName \"other.org/s\"")
    );
    let masters = csr("c", "kubernetes.io/kube-apiserver-client", "system:masters");
    let refused = admin.post(REQUESTS, &masters).await.expect(403);
    assert!(
        refused["message"].as_str().unwrap().ends_with(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn discovery_documents_are_for_service_accounts() {
    let (admin, _pki, _dir) = cluster().await;
    let bot = user(&admin, "system:serviceaccount:default:bot", &["system:serviceaccounts"]);
    let answer = bot.get("/openid/v1/jwks").await;
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    assert_eq!(answer.expect(200)["keys"][0]["kty"], "EC");
    let answer = bot.get("/.well-known/openid-configuration").await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.expect(200)["issuer"], "https://kubernetes.default.svc.cluster.local");
    let refused = user(&admin, "jane", &[]).get("/openid/v1/jwks").await.expect(403);
    assert_eq!(refused["message"], "forbidden: User \"jane\" cannot get path \"/openid/v1/jwks\"");
    assert_eq!(refused["details"], json!({}));
    assert_eq!(bot.post("/openid/v1/jwks", &json!({})).await.status, 403);
    assert_eq!(admin.post("/openid/v1/jwks", &json!({})).await.status, 405);
}

#[tokio::test]
async fn without_credentials_one_is_anonymous() {
    let (admin, _pki, _dir) = cluster().await;
    let nobody = admin.as_user(None);
    let refused = nobody.get("/api/v1/pods").await.expect(403);
    assert_eq!(
        refused["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
    );
    nobody.get("/version").await.expect(200);
    let bad = nobody
        .call(Request::get("/version").header("authorization", "Bearer x").body("".into()).unwrap())
        .await;
    assert_eq!(bad.expect(401)["reason"], "Unauthorized");
}

#[tokio::test]
async fn some_may_impersonate_for_some_requests() {
    let (admin, _pki, _dir) = cluster().await;
    let rules = json!([
        { "verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["jane"] },
        { "verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"] },
    ]);
    grant(&admin, "agent", rules).await;
    grant(
        &admin,
        "jane",
        json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods", "secrets"] }]),
    )
    .await;
    let agent = user(&admin, "agent", &[]);
    let ask = |path: &'static str| {
        let agent = agent.clone();
        async move {
            agent.call(Request::get(path).header("impersonate-user", "jane").body("".into()).unwrap()).await
        }
    };
    ask("/api/v1/pods").await.expect(200);
    let refused = ask("/api/v1/secrets").await.expect(403);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("User \"agent\" cannot impersonate-on:user-info:list resource \"secrets\""),
        "{refused}"
    );
    let lone = Request::get("/api/v1/pods").header("impersonate-group", "ops").body("".into()).unwrap();
    assert_eq!(admin.call(lone).await.expect(400)["reason"], "BadRequest");
}

#[tokio::test]
async fn reviews_refuse_bad_input() {
    let (admin, _pki, _dir) = cluster().await;
    let group = "/apis/authorization.k8s.io/v1";
    let review = |kind: &str, spec: Value| json!({ "kind": kind, "apiVersion": "authorization.k8s.io/v1", "spec": spec });
    let pods = json!({ "verb": "list", "resource": "pods", "namespace": "default" });
    let local = review("LocalSubjectAccessReview", json!({ "user": "jane", "resourceAttributes": pods }));
    let answer = admin
        .post(&format!("{group}/namespaces/default/localsubjectaccessreviews"), &local)
        .await
        .expect(201);
    assert_eq!(answer["status"], json!({ "allowed": false }));
    let refused =
        admin.post(&format!("{group}/namespaces/other/localsubjectaccessreviews"), &local).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.resourceAttributes.namespace");
    let dry = format!("{group}/selfsubjectaccessreviews?dryRun=All");
    let own = review("SelfSubjectAccessReview", json!({ "resourceAttributes": pods }));
    assert_eq!(admin.post(&dry, &own).await.expect(201)["status"]["allowed"], true);
    for (resource, body, code) in [
        ("selfsubjectaccessreviews", review("SelfSubjectAccessReview", json!({})), 422),
        ("selfsubjectrulesreviews", review("SelfSubjectRulesReview", json!({})), 400),
        ("subjectaccessreviews", review("SubjectAccessReview", json!({ "resourceAttributes": pods })), 422),
        ("subjectaccessreviews", review("SubjectAccessReview", json!({ "user": 7 })), 400),
        ("subjectaccessreviews", review("SelfSubjectAccessReview", json!({})), 400),
    ] {
        let answer = admin.post(&format!("{group}/{resource}"), &body).await;
        assert_eq!(answer.status.as_u16(), code, "{resource} {body}: {:?}", answer.body);
    }
    let token = json!({ "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {} });
    let refused = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &token).await.expect(400);
    assert_eq!(refused["message"], "token is required for TokenReview in authentication");
}

#[tokio::test]
async fn nobody_grants_more_than_they_hold() {
    let (admin, _pki, _dir) = cluster().await;
    let all = json!(["create", "update", "get"]);
    let rules = json!([
        { "verbs": all, "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"] },
        { "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] },
    ]);
    grant(&admin, "jane", rules).await;
    let jane = user(&admin, "jane", &[]);
    let role = |name: &str, rest: Value| {
        let mut role = json!({ "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": { "name": name }, "rules": [] });
        for (key, value) in rest.as_object().unwrap() {
            role[key] = value.clone();
        }
        role
    };
    let roles = format!("{RBAC}/clusterroles");
    let pods = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }]);
    jane.post(&roles, &role("mine", json!({ "rules": pods }))).await.expect(201);
    let secrets = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] }]);
    let refused = jane.post(&roles, &role("more", json!({ "rules": secrets }))).await.expect(403);
    assert_eq!(
        refused["message"],
        "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    let aggregated =
        json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
    jane.post(&roles, &role("sum", aggregated)).await.expect(403);
    let binding = json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": { "name": "b" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
    });
    jane.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(403);
    admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
}

/// A token of a Secret marks it with the day it was used.
#[tokio::test]
async fn uses_of_secrets_tokens_are_noted() {
    let (admin, pki, _dir) = cluster().await;
    let account = json!({ "metadata": { "name": "bot" } });
    let account = admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let reference =
        Reference { name: "bot".into(), uid: account["metadata"]["uid"].as_str().unwrap().into() };
    let tokens = ServiceAccountTokens::new(pki.service_account_key());
    let token = tokens.issue_legacy("default", &reference, "box").unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({
        "metadata": { "name": "box", "annotations": { "kubernetes.io/service-account.name": "bot" } },
        "type": "kubernetes.io/service-account-token", "data": { "token": STANDARD.encode(&token) },
    });
    let made = admin.post(secrets, &secret).await.expect(201);
    let _tracking = admin.api.track_legacy_tokens().expect("nobody tracks yet");
    assert!(admin.api.track_legacy_tokens().is_none());
    let uri = format!("{secrets}?watch=1&resourceVersion={}", version(&made));
    let mut changes = admin.watch(&uri).await;
    let request = Request::get("/api").header("authorization", format!("Bearer {token}"));
    assert_eq!(admin.as_user(None).call(request.body(Body::empty()).unwrap()).await.status, 200);
    let changed = changes.next().await.unwrap();
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let label = &changed["object"]["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"];
    assert_eq!((&changed["type"], label), (&json!("MODIFIED"), &json!(today)));
}
