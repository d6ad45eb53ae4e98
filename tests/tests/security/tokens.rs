//! Bearer tokens of service accounts.

use base64::Engine;
use coracle_tests::http::Caller;
use coracle_tests::{Cluster, wait_for};
use std::time::Duration;

/// The status code of a request that carries these bytes as a browser carries a token.
fn by_websocket_header(cluster: &Cluster, bytes: &str) -> String {
    let port = cluster.port();
    cluster.ok(&format!(
        "P=$(printf '{bytes}' | basenc --base64url -w0 | tr -d =); curl -sk -o /dev/null -w '%{{http_code}}' \
         -H \"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.$P\" https://127.0.0.1:{port}/apis"
    ))
}

fn review(cluster: &Cluster, token: &str, audience: &str) -> serde_json::Value {
    let body = format!(
        r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{"token":"{token}","audiences":["{audience}"]}}}}"#
    );
    cluster.raw("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &body).json()["status"].take()
}

#[test]
fn a_token_for_a_vault_is_no_token_for_the_api_whoever_has_reviewed_it() {
    let cluster = Cluster::start(&[]);
    cluster.ok("kubectl create serviceaccount bot");
    let token = cluster.ok("kubectl create token bot --audience vault").trim().to_owned();
    let good = cluster.ok("kubectl create token bot").trim().to_owned();
    let joined = format!(r"{token}\0vault");
    assert_eq!(by_websocket_header(&cluster, &joined), "401");
    assert_eq!(by_websocket_header(&cluster, &token), "401");
    assert_eq!(review(&cluster, &token, "vault")["authenticated"], true);
    assert_eq!(by_websocket_header(&cluster, &joined), "401");
    assert_eq!(by_websocket_header(&cluster, &token), "401");
    assert_ne!(review(&cluster, &token, "other")["authenticated"], true);
    assert_eq!(by_websocket_header(&cluster, &good), "200", "the way itself is open");
    for bytes in [format!(r"{good}\0"), format!(r"{good}\n"), format!("{good} "), format!(r"\0{good}")] {
        assert_eq!(by_websocket_header(&cluster, &bytes), "401", "{bytes}");
    }
}

/// The token was used a moment before each of these; nothing remembers that.
#[test]
fn a_token_ends_with_what_it_hangs_on() {
    let cluster = Cluster::start(&[]);
    cluster.ok("kubectl create serviceaccount bot");
    cluster.ok("kubectl create secret generic box");
    let bound = cluster.ok("kubectl create token bot --bound-object-kind Secret --bound-object-name box");
    let free = cluster.ok("kubectl create token bot");
    let ask = |token: &str| cluster.http(&Caller::Token(token.trim().to_owned()), "GET", "/apis", "").code;
    assert_eq!((ask(&bound), ask(&free)), (200, 200));
    cluster.ok("kubectl delete secret box");
    assert_eq!((ask(&bound), ask(&free)), (401, 200));
    cluster.ok("kubectl delete serviceaccount bot");
    assert_eq!(ask(&free), 401);
    cluster.ok("kubectl create serviceaccount bot");
    assert_eq!(ask(&free), 401, "another account of that name");
}

#[test]
fn pods_tokens_need_not_live_for_a_year() {
    let life = |arguments: &[&str]| {
        let cluster = Cluster::start(&[arguments, &["--simulate-nodes", "1"]].concat());
        cluster.apply(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x}]}\n",
        );
        cluster.until("kubectl get pod p -o jsonpath={.status.phase}", "Running");
        // What the kubelet asks for a pod's projected volume.
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let uid = cluster.ok("kubectl get pod p -o jsonpath={.metadata.uid}");
        let body = format!(
            r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{{"expirationSeconds":3607,"boundObjectRef":{{"kind":"Pod","apiVersion":"v1","name":"p","uid":"{uid}"}}}}}}"#
        );
        let token = cluster.raw("POST", path, &body).json()["status"]["token"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let payload = token.split('.').nth(1).unwrap_or_default().to_owned();
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).expect("base64");
        let claims: serde_json::Value = serde_json::from_slice(&payload).expect("JSON");
        claims["exp"].as_i64().unwrap_or(0) - claims["iat"].as_i64().unwrap_or(0)
    };
    assert_eq!(life(&[]), 365 * 24 * 3600);
    assert_eq!(life(&["--service-account-extend-token-expiration=false"]), 3607);
}

#[test]
fn nobody_need_be_let_in_without_saying_who_they_are() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("authentication.yaml");
    let write = |text: &str| std::fs::write(&file, format!("{head}{text}")).expect("a file");
    write("anonymous: { enabled: true, conditions: [{ path: /readyz }, { path: /livez }] }\n");
    let cluster = Cluster::start(&["--authentication-config", &file.display().to_string()]);
    let ask = |path: &str| cluster.http(&Caller::Nobody, "GET", path, "").code;
    assert_eq!((ask("/readyz"), ask("/livez")), (200, 200));
    for path in ["/", "/api", "/version", "/healthz", "/readyz/ping", "/livez/../api", "/openid/v1/jwks"] {
        assert_eq!(ask(path), 401, "{path}");
    }
    write("anonymous: { enabled: true, conditions: [{ path: /livez }, { path: /version }] }\n");
    wait_for("the new paths", Duration::from_secs(20), || match (ask("/readyz"), ask("/version")) {
        (401, 200) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
