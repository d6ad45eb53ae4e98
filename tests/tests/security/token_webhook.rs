//! Tokens that a webhook knows.

use super::{user_of, whoami};
use coracle_tests::hook::Told;
use coracle_tests::{Cluster, Hook};
use serde_json::{Value, json};

/// Knows `secret`, and `vaulted` for another audience than the API's; fails for `broken`.
fn webhook(version: &'static str) -> Hook {
    Hook::start(move |call| {
        let status = match call.body["spec"]["token"].as_str().unwrap_or_default() {
            "secret" => json!({
                "authenticated": true,
                "user": {"username": "jane", "groups": ["dev"], "extra": {"a/b": ["c"]}},
            }),
            "vaulted" => json!({"authenticated": true, "user": {"username": "jane"}, "audiences": ["vault"]}),
            "broken" => return Told::text(403, "no"),
            _ => json!({"authenticated": false}),
        };
        let review = json!({
            "apiVersion": format!("authentication.k8s.io/{version}"), "kind": "TokenReview", "status": status,
        });
        Told::json(201, &review)
    })
}

fn kubeconfig(hook: &Hook) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "a", "cluster": {
            "server": hook.url("/review"), "certificate-authority-data": hook.bundle(),
        }}],
        "users": [{"name": "u", "user": {"token": "mine"}}],
        "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u"}}],
    })
}

#[test]
fn it_is_asked_once_and_its_silence_lets_nobody_in() {
    let hook = webhook("v1");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("webhook.yaml");
    std::fs::write(&file, kubeconfig(&hook).to_string()).expect("a file");
    let cluster = Cluster::start(&[
        "--authentication-token-webhook-config-file",
        &file.display().to_string(),
        "--authentication-token-webhook-version",
        "v1",
    ]);
    let (code, user) = whoami(&cluster, "secret");
    assert_eq!((code, &user["username"]), (201, &json!("jane")));
    assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
    assert_eq!(user["extra"]["a/b"], json!(["c"]));
    let calls = hook.take();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(
        (calls[0].method.as_str(), calls[0].route(), calls[0].header("authorization")),
        ("POST", "/review", "Bearer mine")
    );
    assert_eq!(calls[0].body["spec"]["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    assert_eq!(user_of(&cluster, "secret").as_deref(), Some("jane"));
    assert_eq!(hook.take().len(), 0, "the answer is remembered");
    for token in ["unknown", "vaulted", "broken"] {
        assert_eq!(user_of(&cluster, token), None, "{token}");
    }
    cluster.ok("kubectl create serviceaccount bot");
    hook.take();
    let own = cluster.ok("kubectl create token bot").trim().to_owned();
    assert_eq!(user_of(&cluster, &own).as_deref(), Some("system:serviceaccount:default:bot"));
    assert_eq!(hook.take().len(), 0, "what is known here is asked of nobody");
    drop(hook);
    assert_eq!(user_of(&cluster, "secret").as_deref(), Some("jane"), "for two minutes");
    assert_eq!(user_of(&cluster, "another"), None, "nobody answers");
    assert_eq!(user_of(&cluster, &own).as_deref(), Some("system:serviceaccount:default:bot"));
}

#[test]
fn an_answer_of_another_version_is_none() {
    let hook = webhook("v1");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("webhook.yaml");
    std::fs::write(&file, kubeconfig(&hook).to_string()).expect("a file");
    let cluster =
        Cluster::start(&["--authentication-token-webhook-config-file", &file.display().to_string()]);
    assert_eq!(user_of(&cluster, "secret"), None);
    assert_eq!(hook.take()[0].body["apiVersion"], "authentication.k8s.io/v1beta1");
}
