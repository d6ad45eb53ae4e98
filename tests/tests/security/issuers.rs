//! Tokens of an OpenID Connect issuer.

use super::{user_of, whoami};
use coracle_tests::cluster::free_port;
use coracle_tests::provider::now;
use coracle_tests::{Cluster, Provider, Shell, SigningKey, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What takes effect at once may take so long on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(20);

fn document(provider: &Provider, mappings: &str) -> String {
    let url = provider.url();
    let pem: String = provider.authority().lines().map(|line| format!("      {line}\n")).collect();
    // Nobody answers there: others are not held up by it.
    let away = format!("https://127.0.0.1:{}", free_port());
    format!(
        "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n\
         - issuer:\n    url: {away}\n    audiences: [kube]\n  claimMappings: {{ username: {{ claim: sub, prefix: 'away:' }} }}\n\
         - issuer:\n    url: {url}\n    audiences: [kube, other]\n    audienceMatchPolicy: MatchAny\n    certificateAuthority: |\n{pem}\
         {mappings}"
    )
}

const MAPPINGS: &str = "  claimMappings:
    username: { expression: \"'oidc:' + claims.sub\" }
    groups: { expression: claims.roles }
    extra: [{ key: example.com/tenant, valueExpression: claims.tenant }]
  claimValidationRules: [{ expression: 'claims.exp - claims.nbf <= 86400', message: too long }]
  userValidationRules: [{ expression: \"!user.username.startsWith('oidc:system:')\", message: reserved }]
";

fn write(file: &Path, text: &str) {
    // As tools do it, so that nobody reads half a file.
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).expect("a file");
    std::fs::rename(&beside, file).expect("a file");
}

fn until_user(cluster: &Cluster, token: &str, wanted: Option<&str>) {
    wait_for("the user", AT_ONCE, || {
        let found = user_of(cluster, token);
        if found.as_deref() == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

fn with(claims: &Value, changes: &Value) -> Value {
    let mut claims = claims.clone();
    for (claim, value) in changes.as_object().into_iter().flatten() {
        claims[claim] = value.clone();
    }
    claims
}

/// A server that believes a provider by its file, the provider, its key, and claims of a user.
fn believing() -> (tempfile::TempDir, Cluster, Provider, SigningKey, Value) {
    let key = SigningKey::new("k1");
    let provider = Provider::start(&[&key]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("authentication.yaml");
    write(&file, &document(&provider, MAPPINGS));
    let cluster = Cluster::start(&["--authentication-config", &file.display().to_string()]);
    let claims = with(&provider.claims("jane", "kube"), &json!({"roles": ["dev", "ops"], "tenant": "acme"}));
    until_user(&cluster, &key.sign(&claims), Some("oidc:jane"));
    (dir, cluster, provider, key, claims)
}

#[test]
fn only_its_good_tokens_are_believed() {
    let (_dir, cluster, provider, key, claims) = believing();
    let good = key.sign(&claims);
    let (code, user) = whoami(&cluster, &good);
    assert_eq!(code, 201);
    assert_eq!(user["groups"], json!(["dev", "ops", "system:authenticated"]));
    assert_eq!(user["extra"]["example.com/tenant"], json!(["acme"]));
    let server = format!(
        "--kubeconfig=/dev/null --server=https://127.0.0.1:{} --insecure-skip-tls-verify",
        cluster.port()
    );
    cluster.says(
        &format!("kubectl auth whoami --token={good} {server} -o jsonpath='{{.status.userInfo.username}}'"),
        "oidc:jane",
    );
    let stranger = SigningKey::new("k1");
    assert_eq!(user_of(&cluster, &stranger.sign(&claims)), None, "another key of that name");
    for changes in [
        json!({"aud": "vault"}),
        json!({"aud": []}),
        json!({"exp": now() - 1, "nbf": now() - 60}),
        json!({"nbf": now() + 3600}),
        json!({"iss": "https://elsewhere.example.com"}),
        json!({"iss": format!("{}/", provider.url())}),
        json!({"roles": 7}),
        json!({"tenant": {}}),
        json!({"exp": now() + 100_000}),
        json!({"sub": "system:admin"}),
        json!({"sub": null}),
    ] {
        assert_eq!(user_of(&cluster, &key.sign(&with(&claims, &changes))), None, "{changes}");
    }
    let parts: Vec<&str> = good.split('.').collect();
    let none = "eyJhbGciOiJub25lIn0";
    assert_eq!(user_of(&cluster, &format!("{none}.{}.", parts[1])), None, "no signature");
    let review = |audience: &str| {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": good, "audiences": [audience]},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        cluster.raw("POST", path, &body.to_string()).json()["status"]["authenticated"].take()
    };
    assert_ne!(review("vault"), true, "the issuer is believed for the API alone");
    assert_ne!(review("kube"), true);
    assert_eq!(review("https://kubernetes.default.svc.cluster.local"), true);
}

#[test]
fn keys_change() {
    let (_dir, cluster, provider, first, claims) = believing();
    let second = SigningKey::new("k2");
    provider.publish(&[&second]);
    assert_eq!(user_of(&cluster, &second.sign(&claims)).as_deref(), Some("oidc:jane"), "fetched for it");
    let old = first.sign(&with(&claims, &json!({"jti": "1"})));
    assert_eq!(user_of(&cluster, &old), None, "the old key went with the new set");
    drop(provider);
    let late = second.sign(&with(&claims, &json!({"jti": "2"})));
    assert_eq!(user_of(&cluster, &late).as_deref(), Some("oidc:jane"), "its keys are here");
    let third = SigningKey::new("k3");
    assert_eq!(user_of(&cluster, &third.sign(&claims)), None);
}

#[test]
fn the_file_is_followed() {
    let (dir, cluster, provider, key, claims) = believing();
    let file = dir.path().join("authentication.yaml");
    let token = key.sign(&claims);
    let reloads = |status: &str| {
        let line = cluster.ok(&format!(
            "kubectl get --raw /metrics | grep ^apiserver_authentication_config_controller_automatic_reloads_total | grep '\"{status}\"'"
        ));
        line.split_whitespace().last().unwrap_or_default().to_owned()
    };
    assert_eq!((reloads("success"), reloads("failure")), ("0".to_owned(), "0".to_owned()));
    write(&file, &document(&provider, &MAPPINGS.replace("claims.sub\"", "claims.\"")));
    wait_for("the broken document", AT_ONCE, || {
        let failures = reloads("failure");
        if failures == "1" { Ok(()) } else { Err(failures) }
    });
    assert_eq!(user_of(&cluster, &token).as_deref(), Some("oidc:jane"), "the last good one is in effect");
    assert!(cluster.log().contains("jwt[1].claimMappings.username.expression"), "{}", cluster.log());
    write(&file, &document(&provider, &MAPPINGS.replace("'oidc:'", "'other:'")));
    until_user(&cluster, &token, Some("other:jane"));
    assert_eq!((reloads("success"), reloads("failure")), ("1".to_owned(), "1".to_owned()));
    write(&file, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n");
    until_user(&cluster, &token, None);
}

#[test]
fn one_issuer_by_flags() {
    let key = SigningKey::new("k1");
    let provider = Provider::start(&[&key]);
    let dir = tempfile::tempdir().expect("a directory");
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, provider.authority()).expect("a file");
    let cluster = Cluster::start(&[
        "--oidc-issuer-url",
        &provider.url(),
        "--oidc-client-id",
        "kube",
        "--oidc-ca-file",
        &ca.display().to_string(),
        "--oidc-groups-claim",
        "groups",
        "--oidc-groups-prefix",
        "oidc:",
        "--oidc-signing-algs",
        "RS256,ES256",
        "--oidc-required-claim",
        "hd=example.com",
    ]);
    let claims = with(&provider.claims("jane", "kube"), &json!({"groups": "dev", "hd": "example.com"}));
    until_user(&cluster, &key.sign(&claims), Some(&format!("{}#jane", provider.url())));
    let (_, user) = whoami(&cluster, &key.sign(&claims));
    assert_eq!(user["groups"], json!(["oidc:dev", "system:authenticated"]));
    for changes in [json!({"hd": "other.com"}), json!({"hd": null}), json!({"aud": "other"})] {
        assert_eq!(user_of(&cluster, &key.sign(&with(&claims, &changes))), None, "{changes}");
    }
}

#[test]
fn a_server_does_not_start_with_a_broken_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let shell = Shell::new(dir.path(), &dir.path().join("kubeconfig"));
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: http://a\n    audiences: []\n";
    std::fs::write(dir.path().join("a.yaml"), text).expect("a file");
    let output = shell
        .run("timeout 20 coracle server --data-dir ./d --authentication-config a.yaml --oidc-client-id x");
    assert_eq!(output.code, 1, "{output}");
    for line in [
        "authentication-config file and oidc-* flags are mutually exclusive",
        "authentication-config: a.yaml: jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https",
        "authentication-config: a.yaml: jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        "authentication-config: a.yaml: jwt[0].claimMappings.username: Required value: claim or expression is required",
    ] {
        assert!(output.stderr.contains(line), "{line} is missing\n{output}");
    }
    assert!(!dir.path().join("d").exists());
}
