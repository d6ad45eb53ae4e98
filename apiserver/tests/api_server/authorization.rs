//! Authorizers that users configure, against HTTPS servers that are slow, down or lying.

use super::support::{Fixture, governed_by, in_memory};
use super::webhooks_support::{Hook, Reaction, Shown, hook, serve};
use coracle_api::UserInfo;
use coracle_apiserver::admission;
use coracle_apiserver::authz::config::{Plan, follow, reloads};
use coracle_apiserver::authz::{Gate, Locals};
use coracle_apiserver::server::{self, EdgeOptions, ServerConfig};
use http::Request;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn status(status: Value) -> Reaction {
    let review =
        json!({ "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": status });
    Reaction::Raw(200, review.to_string())
}

fn allows() -> Reaction {
    status(json!({ "allowed": true, "reason": "the webhook says so" }))
}

fn denies() -> Reaction {
    status(json!({ "allowed": false, "denied": true, "reason": "the webhook forbids it" }))
}

fn no_opinion() -> Reaction {
    status(json!({ "allowed": false }))
}

pub(super) fn write_kubeconfig(path: &Path, port: u16, bundle: &str) {
    let text = format!(
        "current-context: c\ncontexts: [{{ name: c, context: {{ cluster: a, user: u }} }}]\nusers: [{{ name: u, user: {{ token: \
         s }} }}]\nclusters: [{{ name: a, cluster: {{ server: 'https://localhost:{port}/authorize', \
         certificate-authority-data: {bundle} }} }}]\n"
    );
    std::fs::write(path, text).unwrap();
}

/// An element of `authorizers`; `fields` are added to the usual ones.
fn webhook(dir: &Path, name: &str, (port, bundle): (u16, &str), policy: &str, fields: &str) -> String {
    let path = dir.join(format!("{name}.kubeconfig"));
    write_kubeconfig(&path, port, bundle);
    format!(
        "- {{ type: Webhook, name: {name}, webhook: {{ timeout: 1s, subjectAccessReviewVersion: v1, failurePolicy: {policy}, \
         connectionInfo: {{ type: KubeConfigFile, kubeConfigFile: {} }}, {fields} }} }}\n",
        path.display()
    )
}

fn at(hook: &Hook) -> (u16, &str) {
    (hook.port, &hook.bundle)
}

const UNCACHED: &str = "cacheAuthorizedRequests: false, cacheUnauthorizedRequests: false";
const LOCAL: &str = "- { type: Node, name: node }\n- { type: RBAC, name: rbac }\n";

fn document(authorizers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n{authorizers}"
    )
}

struct Cluster {
    admin: Fixture,
    gate: Arc<Gate>,
    locals: Locals,
}

impl Cluster {
    /// With upstream's default roles, admission, and these authorizers.
    async fn new(authorizers: &str) -> Self {
        let (store, resources) = in_memory().await;
        let cache = resources.cache.clone();
        let locals = Locals::new(cache.clone(), server::rbac_generation(cache.clone()));
        locals.show_in(cache.metrics());
        let plan = Plan::parse(&document(authorizers)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let gate = Gate::new(plan.chain(&locals));
        let mut plugins = admission::Config::default();
        plugins.disabled.push("ServiceAccount".to_owned());
        plugins.enabled.push("OwnerReferencesPermissionEnforcement".to_owned());
        let chain = admission::Chain::new(cache.clone(), &plugins)
            .unwrap()
            .counted_in(cache.metrics().clone())
            .guard_escalation(gate.clone());
        let config = ServerConfig { admission: Arc::new(chain), ..governed_by(gate.clone()) };
        let admin = Fixture::of(config, EdgeOptions::default(), store, resources).bootstrapped(None).await;
        Self { admin, gate, locals }
    }

    fn user(&self, name: &str) -> Fixture {
        self.admin.as_user(Some(UserInfo::authenticated(name, &[])))
    }

    /// Lets a user do everything in the namespace `default`, by RBAC.
    async fn grant(&self, name: &str) {
        let binding = json!({
            "kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        self.admin.post(path, &binding).await.expect(201);
    }
}

fn asks(review: &Value) -> (String, String, String) {
    let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = "/spec/resourceAttributes";
    (text("/spec/user"), text(&format!("{resource}/verb")), text(&format!("{resource}/resource")))
}

#[tokio::test]
async fn the_first_who_decides_wins() {
    let dir = tempfile::tempdir().unwrap();
    let first =
        hook(|review| if review["spec"]["user"] == "mallory" { denies() } else { no_opinion() }).await;
    let second = hook(|review| match review["spec"]["user"].as_str() {
        Some("jane" | "mallory") => allows(),
        _ => no_opinion(),
    })
    .await;
    let chain = [
        webhook(dir.path(), "first", at(&first), "NoOpinion", ""),
        webhook(dir.path(), "second", at(&second), "NoOpinion", ""),
        LOCAL.to_owned(),
    ];
    let cluster = Cluster::new(&chain.concat()).await;
    for user in ["mallory", "joe"] {
        cluster.grant(user).await;
    }
    cluster.admin.get(MAPS).await.expect(200);
    assert!(first.seen().is_empty(), "masters were asked about: {:?}", first.seen());
    cluster.user("jane").get(MAPS).await.expect(200);
    cluster.user("joe").get(MAPS).await.expect(200);
    let refused = cluster.user("mallory").get(MAPS).await.expect(403);
    assert!(refused["message"].as_str().unwrap().ends_with(": the webhook forbids it"), "{refused}");
    cluster.user("nobody").get(MAPS).await.expect(403);
    assert_eq!((first.seen().len(), second.seen().len()), (4, 3));
    assert_eq!(first.uris()[0], "/authorize?timeout=1s");
    let page = String::from_utf8(cluster.admin.get("/metrics").await.body.to_vec()).unwrap();
    for series in [
        "apiserver_authorization_decisions_total{decision=\"denied\",name=\"first\",type=\"Webhook\"} 1",
        "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"second\",type=\"Webhook\"} 1",
        "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"rbac\",type=\"RBAC\"}",
        "apiserver_authorization_webhook_evaluations_total{name=\"first\",result=\"success\"} 4",
        "apiserver_authorization_webhook_duration_seconds_count{name=\"second\",result=\"success\"} 3",
    ] {
        assert!(page.contains(series), "{series}");
    }
}

/// Whatever is wrong with a webhook, it lets nobody in; its policy says whether those behind it may.
#[tokio::test]
async fn a_webhook_that_fails_allows_nothing() {
    let lying = |answer: Value| move |_: &Value| Reaction::Raw(200, answer.to_string());
    let review = |status: Value| json!({ "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": status });
    let down = hook(|_| allows()).await;
    let gone = (down.port, down.bundle.clone());
    drop(down);
    let hooks = [
        ("hangs", hook(|_| Reaction::Hang).await),
        ("fails", hook(|_| Reaction::Raw(503, "{\"allowed\":true}".to_owned())).await),
        ("redirects", hook(|_| Reaction::Redirect("https://localhost:1/".to_owned())).await),
        ("says-yes", hook(lying(review(json!({ "allowed": "yes" })))).await),
        ("is-no-review", hook(lying(json!({ "status": { "allowed": true } }))).await),
        ("is-no-json", hook(|_| Reaction::Raw(200, "allowed".to_owned())).await),
        ("is-huge", hook(|_| Reaction::Huge(11 << 20)).await),
        ("stranger", serve(Shown::Stranger, &[b"http/1.1"], |_, _| allows()).await),
        ("other-name", serve(Shown::OtherName, &[b"http/1.1"], |_, _| allows()).await),
    ];
    let mut all: Vec<(&str, (u16, &str))> = hooks.iter().map(|(name, hook)| (*name, at(hook))).collect();
    all.push(("down", (gone.0, &gone.1)));
    for (name, place) in all {
        for (policy, goes_on) in [("NoOpinion", true), ("Deny", false)] {
            let dir = tempfile::tempdir().unwrap();
            let chain = webhook(dir.path(), name, place, policy, "") + LOCAL;
            let cluster = Cluster::new(&chain).await;
            cluster.grant("joe").await;
            cluster.user("joe").get(MAPS).await.expect(if goes_on { 200 } else { 500 });
            let error = cluster.user("nobody").get(MAPS).await.expect(500);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("the request could not be authorized: "), "{name}: {message}");
            cluster.admin.get(MAPS).await.expect(200);
        }
    }
}

/// Who opens a stream by GET is asked about twice: one that fails allows nothing. The request is counted once.
#[tokio::test]
async fn a_stream_by_get_is_authorized_twice() {
    let dir = tempfile::tempdir().unwrap();
    let half = hook(|review| match asks(review) {
        (user, verb, _) if user == "joe" && verb == "create" => denies(),
        (user, verb, _) if user == "jane" && verb == "create" => Reaction::Raw(503, String::new()),
        _ => allows(),
    })
    .await;
    let cluster = Cluster::new(&webhook(dir.path(), "half", at(&half), "NoOpinion", "")).await;
    let denied = async || {
        let page = String::from_utf8(cluster.admin.get("/metrics").await.body.to_vec()).unwrap();
        let series = "authorization_attempts_total{result=\"denied\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(series)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{page}")).parse::<u64>().unwrap()
    };
    assert_eq!(denied().await, 0);
    let stream = "/api/v1/namespaces/default/pods/p/exec?command=ls&stdout=true";
    let refused = cluster.user("joe").get(stream).await.expect(403);
    assert_eq!(refused["message"], "pods \"p\" is forbidden: the webhook forbids it");
    let failed = cluster.user("jane").get(stream).await.expect(500);
    assert!(
        failed["message"].as_str().unwrap().contains("the request could not be authorized: "),
        "{failed}"
    );
    assert_eq!(denied().await, 0, "both were allowed to get");
    assert_eq!(asks(&half.seen()[1]), ("joe".to_owned(), "create".to_owned(), "pods".to_owned()));
}

#[tokio::test]
async fn both_yes_and_no_is_no() {
    let dir = tempfile::tempdir().unwrap();
    let both = hook(|_| status(json!({ "allowed": true, "denied": true }))).await;
    let cluster = Cluster::new(&(webhook(dir.path(), "both", at(&both), "NoOpinion", "") + LOCAL)).await;
    cluster.grant("joe").await;
    cluster.user("joe").get(MAPS).await.expect(500);
}

#[tokio::test]
async fn answers_are_believed_for_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let asked = hook(|review| if review["spec"]["user"] == "jane" { allows() } else { no_opinion() }).await;
    let times = "authorizedTTL: 700ms, unauthorizedTTL: 1h";
    let cluster = Cluster::new(&(webhook(dir.path(), "kept", at(&asked), "Deny", times) + LOCAL)).await;
    let jane = cluster.user("jane");
    let begun = tokio::time::Instant::now();
    jane.get(MAPS).await.expect(200);
    jane.get(MAPS).await.expect(200);
    if begun.elapsed() < Duration::from_millis(700) {
        assert_eq!(asked.seen().len(), 1, "the second answer was in the cache");
    }
    cluster.user("joe").get(MAPS).await.expect(403);
    let known = asked.seen().len();
    while asked.seen().len() == known {
        assert!(begun.elapsed() < Duration::from_secs(30), "an answer is believed for ever");
        tokio::time::sleep(Duration::from_millis(20)).await;
        jane.get(MAPS).await.expect(200);
    }
    cluster.user("joe").get(MAPS).await.expect(403);
    let of_joe = asked.seen().iter().filter(|review| review["spec"]["user"] == "joe").count();
    assert_eq!(of_joe, 1);
    let cluster = Cluster::new(&(webhook(dir.path(), "unkept", at(&asked), "Deny", UNCACHED) + LOCAL)).await;
    let before = asked.seen().len();
    for _ in 0..3 {
        cluster.user("jane").get(MAPS).await.expect(200);
    }
    assert_eq!(asked.seen().len(), before + 3);
}

#[tokio::test]
async fn conditions_choose_and_their_errors_follow_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let asked = hook(|_| denies()).await;
    let only_lists = "matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{ expression: \
         'has(request.resourceAttributes)' }, { expression: \"request.resourceAttributes.verb == 'list'\" }]";
    let cluster =
        Cluster::new(&(webhook(dir.path(), "lists", at(&asked), "NoOpinion", only_lists) + LOCAL)).await;
    cluster.grant("joe").await;
    cluster.user("joe").get(&format!("{MAPS}/none")).await.expect(404);
    assert!(asked.seen().is_empty(), "a condition did not keep it away");
    cluster.user("joe").get(MAPS).await.expect(403);
    let fails = "matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{ expression: \
         \"request.extra['team'][0] == 'a'\" }]";
    for (policy, code) in [("NoOpinion", 200), ("Deny", 500)] {
        let cluster = Cluster::new(&(webhook(dir.path(), "fails", at(&asked), policy, fails) + LOCAL)).await;
        cluster.grant("joe").await;
        cluster.user("joe").get(MAPS).await.expect(code);
    }
    assert_eq!(asked.seen().len(), 1, "nobody is asked whose conditions fail");
}

/// Everything that decides synchronously gets a webhook's answer, though nothing is kept from one request to the next.
#[tokio::test]
async fn every_door_waits_for_the_webhook() {
    let dir = tempfile::tempdir().unwrap();
    let refused: Arc<parking_lot::Mutex<Vec<(String, String)>>> = Arc::default();
    let now_refused = refused.clone();
    let asked = hook(move |review| {
        let (user, verb, resource) = asks(review);
        let listed = now_refused.lock().iter().any(|(v, r)| verb.starts_with(v) && *r == resource);
        if user == "jane" && !listed { allows() } else { no_opinion() }
    })
    .await;
    let cluster = Cluster::new(&(webhook(dir.path(), "doors", at(&asked), "Deny", UNCACHED) + LOCAL)).await;
    let jane = cluster.user("jane");
    let refuse = |verb: &str, resource: &str| {
        *refused.lock() = vec![(verb.to_owned(), resource.to_owned())];
    };
    let allow_all = || refused.lock().clear();

    let review = json!({ "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": { "user": "jane", "resourceAttributes": { "verb": "get", "resource": "secrets", "namespace": "x" } } });
    let path = format!("{REVIEWS}/subjectaccessreviews");
    assert_eq!(cluster.admin.post(&path, &review).await.expect(201)["status"]["allowed"], true);
    refuse("get", "secrets");
    assert_eq!(cluster.admin.post(&path, &review).await.expect(201)["status"]["allowed"], false);

    let impersonating = |user: &str| {
        let request = Request::get(MAPS).header("impersonate-user", user.to_owned());
        request.body(axum::body::Body::empty()).unwrap()
    };
    allow_all();
    cluster.grant("joe").await;
    assert_eq!(jane.send(impersonating("joe")).await.status(), 200);
    refuse("impersonate", "users");
    assert_eq!(jane.send(impersonating("joe")).await.status(), 403);

    let map = |name: &str| json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": name } });
    let apply = |name: &str| (format!("{MAPS}/{name}?fieldManager=m"), map(name));
    refuse("create", "configmaps");
    let (path, body) = apply("applied");
    jane.ask("PATCH", &path, "application/apply-patch+yaml", body.to_string()).await.expect(403);
    allow_all();
    jane.ask("PATCH", &path, "application/apply-patch+yaml", body.to_string()).await.expect(201);

    let role = |name: &str| {
        json!({ "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": { "name": name }, "rules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] })
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    refuse("escalate", "clusterroles");
    let told = jane.post(roles, &role("mighty")).await.expect(403);
    assert!(told["message"].as_str().unwrap().contains("not currently held"), "{told}");
    allow_all();
    jane.post(roles, &role("mighty")).await.expect(201);

    let mut owned = map("owned");
    owned["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "applied", "uid": "1",
        "blockOwnerDeletion": true }]);
    refuse("update", "configmaps");
    jane.post(MAPS, &owned).await.expect(403);
    allow_all();
    jane.post(MAPS, &owned).await.expect(201);
}

/// As above, for expressions of policies and of webhooks' match conditions.
#[tokio::test]
async fn expressions_wait_for_the_webhook() {
    let dir = tempfile::tempdir().unwrap();
    let asked = hook(|review| {
        let (user, verb, _) = asks(review);
        if user == "jane" || (user == "joe" && verb != "bless") { allows() } else { no_opinion() }
    })
    .await;
    let cluster = Cluster::new(&(webhook(dir.path(), "cel", at(&asked), "Deny", UNCACHED) + LOCAL)).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }]);
    let policy = json!({ "kind": "ValidatingAdmissionPolicy", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": { "name": "blessed" }, "spec": { "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": rules },
            "validations": [
                { "expression": "authorizer.requestResource.check('bless').allowed() || object.metadata.name != 'a'" },
                { "expression": "!authorizer.requestResource.check('bless').allowed() || object.metadata.name != 'b'" },
            ] } });
    cluster.admin.post(&format!("{group}/validatingadmissionpolicies"), &policy).await.expect(201);
    let binding = json!({ "kind": "ValidatingAdmissionPolicyBinding", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": { "name": "blessed" }, "spec": { "policyName": "blessed", "validationActions": ["Deny"] } });
    cluster.admin.post(&format!("{group}/validatingadmissionpolicybindings"), &binding).await.expect(201);
    let map = |name: &str| json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": name } });
    // What is not yet answered is neither allowed nor, by its negation, forbidden.
    cluster.user("jane").post(MAPS, &map("b")).await.expect(422);
    cluster.user("joe").post(MAPS, &map("a")).await.expect(422);
    cluster.user("jane").post(MAPS, &map("a")).await.expect(201);
    cluster.user("joe").post(MAPS, &map("b")).await.expect(201);
}

#[tokio::test]
async fn rules_are_incomplete_where_a_webhook_has_a_say() {
    let dir = tempfile::tempdir().unwrap();
    let asked = hook(|_| allows()).await;
    let cluster = Cluster::new(&(webhook(dir.path(), "rules", at(&asked), "Deny", "") + LOCAL)).await;
    let review = json!({ "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": { "namespace": "default" } });
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let status = cluster.user("jane").post(&path, &review).await.expect(201)["status"].clone();
    assert_eq!(status["incomplete"], true);
    let why = status["evaluationError"].as_str().unwrap();
    assert!(why.contains("webhook authorizer does not support user rule resolution"), "{why}");
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_file_is_followed_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (yes, no) = (hook(|_| allows()).await, hook(|_| denies()).await);
    let entry =
        |hook: &Hook, name: &str| document(&(webhook(dir.path(), name, at(hook), "Deny", UNCACHED) + LOCAL));
    let (first, second) = (entry(&no, "no"), entry(&yes, "yes"));
    let path = dir.path().join("authorization.yaml");
    std::fs::write(&path, &first).unwrap();
    let cluster = Cluster::new(&first[document("").len()..]).await;
    let stop = CancellationToken::new();
    let reloads = reloads(&first, cluster.admin.api.metrics());
    let file = (path.clone(), first);
    let following = follow(file, reloads, cluster.gate.clone(), cluster.locals.clone(), stop.clone());
    let task = tokio::spawn(following);
    let jane = cluster.user("jane");
    let code = async || jane.get(MAPS).await.status.as_u16();
    assert_eq!(code().await, 403);
    let replace = |text: &str| {
        let other = dir.path().join("other");
        std::fs::write(&other, text).unwrap();
        std::fs::rename(&other, &path).unwrap();
    };
    replace(&second);
    until("the new configuration", async || code().await == 200).await;
    let failures = async || {
        let page = String::from_utf8(cluster.admin.get("/metrics").await.body.to_vec()).unwrap();
        let line = page.lines().find(|line| {
            line.starts_with("apiserver_authorization_config_controller_automatic_reloads_total")
                && line.contains("failure")
        });
        line.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = failures().await;
    replace(&second.replace("Deny", "Maybe"));
    until("a failure in the metrics", async || failures().await > before).await;
    assert_eq!(code().await, 200, "the last good one did not stay");
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn a_webhook_may_change_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let old = hook(|_| allows()).await;
    let cluster = Cluster::new(&(webhook(dir.path(), "moving", at(&old), "Deny", UNCACHED) + LOCAL)).await;
    let jane = cluster.user("jane");
    jane.get(MAPS).await.expect(200);
    drop(old);
    let new = hook(|_| allows()).await;
    write_kubeconfig(&dir.path().join("moving.kubeconfig"), new.port, &new.bundle);
    until("the new certificate", async || jane.get(MAPS).await.status == 200 && !new.seen().is_empty()).await;
}

/// A claim's allocation is the scheduler's, whatever else is wrong with the update.
#[tokio::test]
async fn mistakes_hide_no_missing_right() {
    let cluster = Cluster::new(LOCAL).await;
    cluster.grant("jane").await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let requests = json!([{ "name": "r", "exactly": { "deviceClassName": "c" } }]);
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "devices": { "requests": requests } } });
    cluster.admin.post(claims, &claim).await.expect(201);
    let device = |number: &str| json!({ "driver": "d.example.com", "pool": "p", "device": number });
    let mut result = device("1");
    result["request"] = "r".into();
    let allocated = |results: Value| json!({ "allocation": { "devices": { "results": results } } });
    let (status, merge) = (format!("{claims}/c/status"), "merge-patch");
    let allocation = json!({ "status": allocated(json!([result])) });
    cluster.admin.patch(&status, merge, &allocation).await.expect(200);
    let mut change = allocated(json!([]));
    change["devices"] = json!([device("2")]);
    let refused = cluster.user("jane").patch(&status, merge, &json!({ "status": change })).await.expect(422);
    let causes = refused["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| &cause["field"]).collect();
    assert_eq!(fields, ["status", "status.devices[0]", "status.allocation"], "{refused}");
    assert_eq!(causes[0]["reason"], "FieldValueForbidden");
}
