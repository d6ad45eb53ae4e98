use super::*;
use crate::authn::{Authenticator, Issuing, ServiceAccountTokens};
use crate::authz::testing::World;
use crate::authz::{Chain, MASTERS};
use coracle_api::UserInfo;
use coracle_pki::{Pki, PkiOptions};
use coracle_requests::ObjectReader as _;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

const RBAC: &str = "rbac.authorization.k8s.io";

/// jane may list pods in `a` and get /metrics; bot is a service account there.
fn world() -> Arc<World> {
    let world = World::new();
    let rules = json!([
        { "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] },
        { "verbs": ["get"], "nonResourceURLs": ["/metrics"] },
    ]);
    world.put(&format!("clusterroles.{RBAC}"), json!({ "metadata": { "name": "r" }, "rules": rules }));
    let jane = json!([{ "kind": "User", "name": "jane" }]);
    let role_ref = json!({ "kind": "ClusterRole", "name": "r" });
    world.put(
        &format!("rolebindings.{RBAC}"),
        json!({
            "metadata": { "name": "b", "namespace": "a" }, "subjects": jane, "roleRef": role_ref,
        }),
    );
    world.put("serviceaccounts.", json!({ "metadata": { "name": "bot", "namespace": "a", "uid": "u1" } }));
    world.put("nodes.", json!({ "metadata": { "name": "n1", "uid": "n1u" } }));
    let wants = json!([{ "audience": "bank" }]);
    world.put(
        "csidrivers.storage.k8s.io",
        json!({ "metadata": { "name": "secrets.example.com" }, "spec": { "tokenRequests": wants } }),
    );
    for (name, account) in [("web", "bot"), ("other", "default")] {
        world.put(
            "pods.",
            json!({
                "metadata": { "name": name, "namespace": "a", "uid": format!("{name}-uid") },
                "spec": { "serviceAccountName": account, "nodeName": "n1", "volumes": [{ "name": "t", "projected": {
                    "sources": [{ "serviceAccountToken": {} }, { "serviceAccountToken": { "audience": "vault" } }] } },
                    { "name": "d", "csi": { "driver": "secrets.example.com" } }] },
            }),
        );
    }
    world
}

fn chain() -> Chain {
    let world = world();
    Chain::new(world.clone(), world.generation())
}

fn review(kind: &str, spec: Value) -> Object {
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec })
}

fn list_pods(namespace: &str) -> Value {
    json!({ "verb": "list", "resource": "pods", "namespace": namespace })
}

#[test]
fn can_i() {
    let jane = UserInfo::authenticated("jane", &[]);
    let ask =
        |spec: Value| self_subject_access_review(review("SelfSubjectAccessReview", spec), &jane, &chain());
    let yes = ask(json!({ "resourceAttributes": list_pods("a") })).unwrap();
    assert_eq!(yes["status"]["allowed"], true);
    assert!(yes["status"]["reason"].as_str().unwrap().starts_with("RBAC: allowed by RoleBinding"), "{yes}");
    assert_eq!(
        ask(json!({ "resourceAttributes": list_pods("b") })).unwrap()["status"],
        json!({ "allowed": false })
    );
    assert_eq!(ask(json!({})).unwrap_err().code, 422);
    let both = json!({ "resourceAttributes": list_pods("a"), "nonResourceAttributes": { "path": "/", "verb": "get" } });
    assert_eq!(ask(both).unwrap_err().code, 422);
}

#[test]
fn can_somebody() {
    let ask = |spec: Value| subject_access_review(review("SubjectAccessReview", spec), &chain());
    let of = |user: &str| ask(json!({ "user": user, "resourceAttributes": list_pods("a") })).unwrap();
    assert_eq!(of("jane")["status"]["allowed"], true);
    assert_eq!(of("joe")["status"]["allowed"], false);
    assert_eq!(ask(json!({ "resourceAttributes": list_pods("a") })).unwrap_err().code, 422);
    let node = json!({
        "user": "system:node:n1", "groups": ["system:nodes"],
        "resourceAttributes": { "verb": "list", "resource": "pods", "fieldSelector": {
            "requirements": [{ "key": "spec.nodeName", "operator": "In", "values": ["n1"] }] } },
    });
    assert_eq!(ask(node).unwrap()["status"]["allowed"], true);
    let local = |namespace: &str| {
        let spec = json!({ "user": "jane", "resourceAttributes": list_pods("a") });
        local_subject_access_review(review("LocalSubjectAccessReview", spec), namespace, &chain())
    };
    assert_eq!(local("a").unwrap()["status"]["allowed"], true);
    assert_eq!(local("b").unwrap_err().code, 422);
}

#[test]
fn reviews_are_checked_whole() {
    let told = |change: &dyn Fn(&mut Object)| {
        let spec = json!({ "user": "jane", "resourceAttributes": list_pods("a") });
        let mut asked = review("LocalSubjectAccessReview", spec);
        change(&mut asked);
        local_subject_access_review(asked, "a", &chain())
            .map(|r| r["status"].clone())
            .map_err(|e| (e.code, e.message))
    };
    let prefix = "LocalSubjectAccessReview.authorization.k8s.io \"\" is invalid: ";
    for (path, value, why) in [
        (
            "/metadata",
            json!({ "labels": { "a": "b" } }),
            "metadata: Invalid value: {\"labels\":{\"a\":\"b\"},\"namespace\":\"a\"}: must be empty except for namespace",
        ),
        (
            "/spec",
            json!({ "user": "jane" }),
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "/spec/resourceAttributes/fieldSelector",
            json!({}),
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
        ),
        (
            "/spec/resourceAttributes/labelSelector",
            json!({ "requirements": [{ "key": "a", "operator": "Near" }] }),
            "spec.resourceAttributes.labelSelector.requirements[0].operator: Invalid value: \"Near\": not a valid selector operator",
        ),
    ] {
        let put = |object: &mut Object| {
            let (parent, key) = path.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value.clone();
        };
        assert_eq!(told(&put), Err((422, format!("{prefix}{why}"))));
    }
    assert_eq!(told(&|o| o["metadata"] = json!({ "namespace": "b" })).unwrap_err().0, 400);
    let status =
        told(&|o| o["spec"]["resourceAttributes"]["fieldSelector"] = json!({ "rawSelector": "a~b" }))
            .unwrap();
    assert_eq!(status["allowed"], true);
    assert!(status["evaluationError"].as_str().unwrap().contains("ignored due to parse error"), "{status}");
}

#[test]
fn what_can_i() {
    let ask = |user: &UserInfo, namespace: &str| {
        let spec = json!({ "namespace": namespace });
        self_subject_rules_review(review("SelfSubjectRulesReview", spec), user, &chain())
    };
    let jane = UserInfo::authenticated("jane", &[]);
    let rules = ask(&jane, "a").unwrap()["status"].clone();
    assert_eq!(
        rules["resourceRules"],
        json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] }])
    );
    assert_eq!(rules["nonResourceRules"][0]["nonResourceURLs"], json!(["/metrics"]));
    assert_eq!(rules["incomplete"], false);
    assert_eq!(ask(&jane, "b").unwrap()["status"]["resourceRules"], json!([]));
    assert_eq!(ask(&jane, "").unwrap_err().code, 400);
    let kubelet = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let status = ask(&kubelet, "b").unwrap()["status"].clone();
    assert_eq!(status["incomplete"], true);
    assert_eq!(status["evaluationError"], "node authorizer does not support user rule resolution");
    let root = UserInfo::authenticated("root", &[MASTERS]);
    assert_eq!(ask(&root, "b").unwrap()["status"]["resourceRules"][0]["resources"], json!(["*"]));
}

#[test]
fn who_am_i() {
    let jane = UserInfo { uid: "7".to_owned(), ..UserInfo::authenticated("jane", &["ops"]) };
    let review = self_subject_review(json!({ "kind": "SelfSubjectReview" }), &jane).unwrap();
    let info = &review["status"]["userInfo"];
    assert_eq!(*info, json!({ "username": "jane", "uid": "7", "groups": ["ops", "system:authenticated"] }));
}

struct Tokens {
    world: Arc<World>,
    authenticator: Authenticator,
    _dir: tempfile::TempDir,
}

impl Tokens {
    fn new() -> Self {
        Self::issuing(Issuing::default())
    }

    fn issuing(issuing: Issuing) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), PkiOptions::default()).unwrap();
        let tokens = Arc::new(ServiceAccountTokens::with(pki.service_account_key(), issuing));
        let world = world();
        let authenticator = Authenticator::new(&pki, tokens, world.clone()).unwrap();
        Self { world, authenticator, _dir: dir }
    }

    fn request_as(&self, user: &UserInfo, name: &str, spec: Value) -> Result<Object, ApiError> {
        self.granted_to(user, name, spec).map(|granted| granted.answer)
    }

    fn granted_to(&self, user: &UserInfo, name: &str, spec: Value) -> Result<Granted, ApiError> {
        let tokens = self.authenticator.tokens();
        let authorizer = Chain::new(self.world.clone(), self.world.generation());
        let context =
            TokenContext { tokens, read: &*self.world, user, authorizer: &authorizer, now: Timestamp::now() };
        let mut request =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        if let Some(metadata) = request["spec"].as_object_mut().and_then(|spec| spec.remove("of")) {
            request["metadata"] = metadata;
        }
        token_request(request, "a", name, &context)
    }

    fn request(&self, spec: Value) -> Result<Object, ApiError> {
        self.request_as(&UserInfo::authenticated("jane", &[]), "bot", spec)
    }

    fn review(&self, token: &str, audiences: Value) -> Value {
        let review = json!({ "kind": "TokenReview", "spec": { "token": token, "audiences": audiences } });
        token_review(review, &self.authenticator).now_or_never().expect("nobody is asked").unwrap()["status"]
            .clone()
    }
}

#[test]
fn who_asks_for_more_than_the_server_allows_is_told_what_it_got() {
    let tokens = Tokens::issuing(Issuing { max_seconds: 3600, ..Issuing::default() });
    let jane = UserInfo::authenticated("jane", &[]);
    for (asked, got, warning) in [
        (3600, 3600, None),
        (7200, 3600, Some("requested expiration of 7200 seconds shortened to 3600 seconds".to_owned())),
    ] {
        let granted = tokens.granted_to(&jane, "bot", json!({ "expirationSeconds": asked })).unwrap();
        assert_eq!(
            (granted.answer["spec"]["expirationSeconds"].as_i64(), granted.warning),
            (Some(got), warning)
        );
    }
}

#[test]
fn tokens_are_issued_and_reviewed() {
    let tokens = Tokens::new();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid" });
    let answer = tokens.request(json!({ "boundObjectRef": pod, "audiences": ["vault"] })).unwrap();
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    let account = tokens.world.get("serviceaccounts.", "a", "bot").unwrap();
    assert_eq!(answer["metadata"]["uid"], account["metadata"]["uid"]);
    let until: Timestamp = answer["status"]["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    let left = until.as_second() - Timestamp::now().as_second();
    assert!((3590..=3600).contains(&left), "{left}");
    let token = answer["status"]["token"].as_str().unwrap();
    let good = tokens.review(token, json!(["vault", "x"]));
    assert_eq!(good["authenticated"], true);
    assert_eq!(good["audiences"], json!(["vault"]));
    assert_eq!(good["user"]["username"], "system:serviceaccount:a:bot");
    assert_eq!(good["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["web"]));
    assert_eq!(good["user"]["extra"]["authentication.kubernetes.io/node-uid"], json!(["n1u"]));
    let bad = tokens.review(token, json!([]));
    assert!(bad["authenticated"].is_null() && bad["error"].is_string(), "{bad}");
    let empty = token_review(json!({ "kind": "TokenReview", "spec": {} }), &tokens.authenticator);
    assert_eq!(empty.now_or_never().expect("nobody is asked").unwrap_err().code, 400);
}

#[test]
fn a_token_says_no_uid_of_a_node_that_is_not_there() {
    let tokens = Tokens::new();
    let spec = json!({ "serviceAccountName": "bot", "nodeName": "gone" });
    let pod = json!({ "metadata": { "name": "far", "namespace": "a", "uid": "far-uid" }, "spec": spec });
    tokens.world.put("pods.", pod);
    let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "far" });
    let answer = tokens.request(json!({ "boundObjectRef": bound, "audiences": ["vault"] })).unwrap();
    let user = &tokens.review(answer["status"]["token"].as_str().unwrap(), json!(["vault"]))["user"];
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["gone"]));
    assert!(user["extra"]["authentication.kubernetes.io/node-uid"].is_null(), "{user}");
    let node = crate::authn::Reference { name: "gone".to_owned(), uid: String::new() };
    assert_eq!(serde_json::to_value(node).unwrap(), json!({ "name": "gone" }));
}

#[test]
fn bad_token_requests_are_refused() {
    let tokens = Tokens::new();
    let bind = |kind: &str, name: &str, uid: &str| json!({ "boundObjectRef": { "apiVersion": "v1", "kind": kind, "name": name, "uid": uid } });
    for (spec, code) in [
        (json!({ "expirationSeconds": 599 }), 422),
        (json!({ "expirationSeconds": (1_i64 << 32) + 1 }), 422),
        (bind("Pod", "gone", ""), 404),
        (bind("Pod", "web", "another"), 409),
        (bind("Pod", "other", ""), 400),
        (bind("ConfigMap", "x", ""), 400),
    ] {
        assert_eq!(tokens.request(spec.clone()).unwrap_err().code, code, "{spec}");
    }
    let uid = tokens.world.get("serviceaccounts.", "a", "bot").unwrap()["metadata"]["uid"].clone();
    tokens.request(json!({ "of": { "uid": uid } })).unwrap();
    let another = tokens.request(json!({ "of": { "uid": "x" } })).unwrap_err();
    let own = uid.as_str().unwrap_or_default();
    assert_eq!(
        (another.code, another.message),
        (
            409,
            format!(
                "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"bot\": the UID in the token request (x) \
                 does not match the UID of the service account ({own})"
            )
        )
    );
    let jane = UserInfo::authenticated("jane", &[]);
    assert_eq!(tokens.request_as(&jane, "nobody", json!({})).unwrap_err().code, 404);
    let node = |name: &str| UserInfo::authenticated(&format!("system:node:{name}"), &["system:nodes"]);
    tokens.request_as(&node("n1"), "bot", bind("Pod", "web", "web-uid")).unwrap();
    assert_eq!(tokens.request_as(&node("n2"), "bot", bind("Pod", "web", "web-uid")).unwrap_err().code, 403);
    assert_eq!(tokens.request_as(&node("n1"), "bot", json!({})).unwrap_err().code, 403);
}

#[test]
fn nodes_ask_for_the_audiences_that_their_pods_mount() {
    let tokens = Tokens::new();
    let node = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let ask = |audiences: &[&str]| {
        let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid" });
        let spec = json!({ "audiences": audiences, "boundObjectRef": bound });
        tokens.request_as(&node, "bot", spec).map(|_| ()).map_err(|e| e.message)
    };
    for audiences in [&[][..], &["vault"], &["bank"]] {
        ask(audiences).unwrap();
    }
    assert_eq!(
        ask(&["moon"]).unwrap_err(),
        "serviceaccounts \"bot\" is forbidden: audience \"moon\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"
    );
    assert!(ask(&["vault", "bank"]).unwrap_err().ends_with("node may only request 0 or 1 audiences"));
    let verbs = json!(["request-serviceaccounts-token-audience"]);
    let rule = json!({ "verbs": verbs, "apiGroups": [""], "resources": ["moon"], "resourceNames": ["bot"] });
    tokens
        .world
        .put(&format!("clusterroles.{RBAC}"), json!({ "metadata": { "name": "m" }, "rules": [rule] }));
    tokens.world.put(
        &format!("clusterrolebindings.{RBAC}"),
        json!({ "metadata": { "name": "m" }, "roleRef": { "kind": "ClusterRole", "name": "m" },
            "subjects": [{ "kind": "Group", "name": "system:nodes" }] }),
    );
    ask(&["moon"]).unwrap();
}

/// Puts the pod `web` of `n1` there anew, with one volume.
fn mount(tokens: &Tokens, volume: Value) {
    let spec = json!({ "serviceAccountName": "bot", "nodeName": "n1", "volumes": [volume] });
    let pod = json!({ "metadata": { "name": "web", "namespace": "a", "uid": "web-uid" }, "spec": spec });
    tokens.world.put("pods.", pod);
}

#[test]
fn a_node_is_told_what_is_missing_behind_the_volumes_of_its_pod() {
    let tokens = Tokens::new();
    let node = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let ask = |audience: &str| {
        let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid" });
        let spec = json!({ "audiences": [audience], "boundObjectRef": bound });
        tokens.request_as(&node, "bot", spec).map(|_| ()).map_err(|e| e.message)
    };
    let error = |audience: &str| {
        let told = ask(audience).unwrap_err();
        told.strip_prefix("serviceaccounts \"bot\" is forbidden: ").map(str::to_owned)
    };
    mount(&tokens, json!({ "name": "v", "csi": { "driver": "gone.example.com" } }));
    assert_eq!(
        error("moon").as_deref(),
        Some("error validating audience \"moon\": csidriver.storage.k8s.io \"gone.example.com\" not found")
    );
    mount(&tokens, json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }));
    assert_eq!(
        error("moon").as_deref(),
        Some("error validating audience \"moon\": persistentvolumeclaim \"c\" not found")
    );
    let claim = json!({ "metadata": { "name": "c", "namespace": "a" }, "spec": { "volumeName": "pv" } });
    tokens.world.put("persistentvolumeclaims.", claim);
    assert_eq!(
        error("moon").as_deref(),
        Some("error validating audience \"moon\": persistentvolume \"pv\" not found")
    );
    // Volumes of the older kinds are their drivers'.
    let file = json!({ "name": "v", "azureFile": { "shareName": "s", "secretName": "s" } });
    let wants = json!([{ "audience": "moon" }]);
    tokens.world.put("persistentvolumes.", json!({ "metadata": { "name": "pv" }, "spec": file.clone() }));
    tokens.world.put(
        "csidrivers.storage.k8s.io",
        json!({ "metadata": { "name": "file.csi.azure.com" }, "spec": { "tokenRequests": wants } }),
    );
    ask("moon").unwrap();
    mount(&tokens, file);
    ask("moon").unwrap();
}

#[test]
fn any_audience_can_be_granted_to_nodes() {
    let tokens = Tokens::new();
    mount(&tokens, json!({ "name": "v", "emptyDir": {} }));
    let node = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web-uid" });
    for audience in ["", "aud://one/two.com"] {
        let spec = json!({ "audiences": [audience], "boundObjectRef": bound });
        assert_eq!(tokens.request_as(&node, "bot", spec.clone()).map(|_| ()).unwrap_err().code, 403);
        let verbs = json!(["request-serviceaccounts-token-audience"]);
        let rule = json!({ "verbs": verbs, "apiGroups": [""], "resources": [audience] });
        tokens.world.put(
            &format!("roles.{RBAC}"),
            json!({ "metadata": { "name": "m", "namespace": "a" }, "rules": [rule] }),
        );
        tokens.world.put(
            &format!("rolebindings.{RBAC}"),
            json!({ "metadata": { "name": "m", "namespace": "a" }, "roleRef": { "kind": "Role", "name": "m" },
                "subjects": [{ "kind": "Group", "name": "system:nodes" }] }),
        );
        tokens.request_as(&node, "bot", spec).unwrap();
    }
}
