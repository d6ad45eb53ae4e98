//! Authorizers that the administrator configures: a webhook in front of RBAC, its failures, and changes of the file.

use super::fails;
use coracle_tests::hook::Told;
use coracle_tests::{Cluster, Hook};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

pub(crate) fn kubeconfig(path: &Path, hook: &Hook) {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "a", "cluster": {
            "server": hook.url("/authorize"), "certificate-authority-data": hook.bundle(),
        }}],
        "users": [{"name": "u", "user": {"token": "mine"}}],
        "contexts": [{"name": "c", "context": {"cluster": "a", "user": "u"}}],
    });
    std::fs::write(path, text.to_string()).expect("a kubeconfig");
}

fn told(status: &Value) -> Told {
    let version = "authorization.k8s.io/v1";
    Told::json(201, &json!({"apiVersion": version, "kind": "SubjectAccessReview", "status": status}))
}

/// Lets `jane` read Secrets, forbids `mallory` everything, and has no opinion else.
fn authorizer() -> Hook {
    Hook::start(|call| {
        let spec = &call.body["spec"];
        let secrets = spec["resourceAttributes"]["resource"] == "secrets";
        told(&match spec["user"].as_str().unwrap_or_default() {
            "jane" if secrets => json!({"allowed": true, "reason": "jane may read secrets"}),
            "mallory" => json!({"allowed": false, "denied": true, "reason": "mallory may nothing"}),
            _ => json!({"allowed": false}),
        })
    })
}

fn document(kubeconfig: &Path, policy: &str) -> String {
    format!(
        r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: outside.example.com
  webhook:
    timeout: 2s
    cacheAuthorizedRequests: false
    cacheUnauthorizedRequests: false
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: {policy}
    connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}
    matchConditions:
    - expression: "!request.user.startsWith('system:') && request.user != 'kubernetes-admin'"
- {{type: Node, name: node}}
- {{type: RBAC, name: rbac}}
"#,
        kubeconfig.display()
    )
}

/// Another file in its place, as editors do.
fn replace(path: &Path, text: &str) {
    let other = path.with_extension("new");
    std::fs::write(&other, text).expect("a file");
    std::fs::rename(&other, path).expect("its place");
}

#[test]
fn a_webhook_decides_before_rbac_and_its_absence_opens_nothing() {
    let hook = authorizer();
    let dir = tempfile::tempdir().expect("a directory");
    let (file, leads) = (dir.path().join("authorization.yaml"), dir.path().join("kubeconfig"));
    kubeconfig(&leads, &hook);
    std::fs::write(&file, document(&leads, "NoOpinion")).expect("a file");
    let cluster = Cluster::start(&["--authorization-config", &file.display().to_string()]);
    for user in ["mallory", "joe"] {
        cluster.ok(&format!("kubectl create clusterrolebinding {user} --clusterrole=view --user={user}"));
    }
    cluster.says("kubectl auth can-i get secrets --as=jane", "yes");
    cluster.ok("kubectl get secrets -A --as=jane");
    fails(&cluster, "kubectl get pods --as=jane", "User \"jane\" cannot list resource \"pods\"");
    cluster.ok("kubectl get pods --as=joe");
    fails(&cluster, "kubectl get pods --as=mallory", "mallory may nothing");
    cluster.shows("kubectl auth whoami --as=joe", &["joe"]);
    cluster.shows("kubectl auth can-i --list --as=joe", &["pods"]);
    assert!(hook.take().iter().all(|call| call.header("authorization") == "Bearer mine"));
    // The administrator and the server's components go on: by the match condition nobody is asked about them.
    cluster.ok("kubectl create configmap a");
    assert!(hook.take().is_empty(), "somebody was asked about who does not match");

    drop(hook);
    cluster.ok("kubectl get pods --as=joe");
    fails(&cluster, "kubectl get secrets --as=jane", "the request could not be authorized");
    replace(&file, &document(&leads, "Deny"));
    cluster.until_that("kubectl get pods --as=joe 2>&1 || true", |shown| {
        shown.contains("the request could not be authorized")
    });
    cluster.ok("kubectl get pods");
    replace(&file, &document(&leads, "Maybe"));
    cluster.until_that(
        "kubectl get --raw /metrics | grep apiserver_authorization_config_controller_automatic_reloads_total",
        |shown| shown.lines().any(|line| line.contains("\"failure\"") && !line.ends_with(" 0")),
    );
    fails(&cluster, "kubectl get pods --as=joe", "the request could not be authorized");
    assert!(cluster.log().contains("authorizers[0].failurePolicy: Unsupported value: "), "{}", cluster.log());
    let hook = authorizer();
    kubeconfig(&leads, &hook);
    cluster.until_that("kubectl get pods --as=joe 2>&1 || true", |shown| shown.contains("No resources"));
    fails(&cluster, "kubectl get pods --as=mallory", "mallory may nothing");
}

/// Whoever may write roles by a webhook's word still grants no more than RBAC has given them.
#[test]
fn what_a_webhook_allows_is_not_held() {
    let hook = Hook::start(|call| {
        let spec = &call.body["spec"];
        let verb = spec["resourceAttributes"]["verb"].as_str().unwrap_or_default();
        told(&json!({"allowed": spec["user"] == "jane" && !matches!(verb, "escalate" | "bind")}))
    });
    let dir = tempfile::tempdir().expect("a directory");
    let leads = dir.path().join("kubeconfig");
    kubeconfig(&leads, &hook);
    let cluster = Cluster::start(&[
        "--authorization-mode",
        "Node,RBAC,Webhook",
        "--authorization-webhook-config-file",
        &leads.display().to_string(),
        "--authorization-webhook-version",
        "v1",
    ]);
    cluster.ok("kubectl get secrets --as=jane");
    let grant = "kubectl create clusterrolebinding jane --clusterrole=cluster-admin --user=jane --as=jane";
    fails(&cluster, grant, "attempting to grant RBAC permissions not currently held");
    fails(
        &cluster,
        "kubectl create clusterrole all --verb=* --resource=* --as=jane",
        "attempting to grant RBAC permissions not currently held",
    );
}

#[test]
fn a_broken_file_is_refused_at_start_with_all_its_mistakes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("authorization.yaml");
    std::fs::write(&file, document(Path::new("/nowhere"), "Maybe")).expect("a file");
    let started = Command::new(coracle_tests::coracle())
        .args(["server", "--authorization-mode", "RBAC", "--authorization-config"])
        .arg(&file)
        .arg("--data-dir")
        .arg(dir.path())
        .output()
        .expect("the server runs");
    assert!(!started.status.success());
    let said = String::from_utf8_lossy(&started.stderr).into_owned();
    for word in [
        "authorization-config can not be specified when authorization-mode",
        "authorization.yaml: authorizers[0].failurePolicy: Unsupported value: \"Maybe\"",
        "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/nowhere\": error loading file",
    ] {
        assert!(said.contains(word), "{word} is missing from {said}");
    }
}
