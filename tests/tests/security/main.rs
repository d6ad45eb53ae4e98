//! Attacks, carried out as an attacker would, against the real binary. Needs kubectl and curl, and no root.

mod admission;
mod authorization;
mod certificates;
mod cis;
mod encryption;
mod issuers;
mod kms;
mod load;
mod nodes;
mod privileges;
mod requests;
mod revocation;
mod rotation;
mod streams;
mod token_webhook;
mod tokens;

use coracle_tests::Cluster;
use coracle_tests::http::Caller;
use serde_json::Value;

/// Status code and `userInfo` of whoever asks with this token who they are.
fn whoami(cluster: &Cluster, token: &str) -> (u16, Value) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let answer = cluster.http(&Caller::Token(token.to_owned()), "POST", path, body);
    let user = if answer.code == 201 { answer.json()["status"]["userInfo"].take() } else { Value::Null };
    (answer.code, user)
}

/// The name of the user whose token it is; `None` if nobody's.
fn user_of(cluster: &Cluster, token: &str) -> Option<String> {
    let (code, user) = whoami(cluster, token);
    assert!(matches!(code, 201 | 401), "{code}");
    user["username"].as_str().map(str::to_owned)
}

/// The command fails, and says this among other things.
#[track_caller]
fn fails(cluster: &Cluster, line: &str, part: &str) {
    let output = cluster.run(line);
    assert_ne!(output.code, 0, "{line} must fail\n{output}");
    assert!(output.stderr.contains(part), "{line}\nno {part:?} in:\n{}", output.stderr);
}
