//! Requests that kubectl would not send, through curl.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// As whom to ask.
#[derive(Clone, Debug)]
pub enum Caller {
    Admin,
    /// No credentials at all.
    Nobody,
    Token(String),
    /// PEM of a client certificate with its key.
    Certificate(PathBuf),
}

/// Status code and body of an answer; code 0 when there was none.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub text: String,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }

    /// The answer is a Kubernetes Status of this code and reason; returns its message.
    #[track_caller]
    pub fn status(&self, code: u16, reason: &str) -> String {
        let body = self.json();
        let found = (self.code, body["kind"].as_str(), body["status"].as_str(), body["reason"].as_str());
        assert_eq!(found, (code, Some("Status"), Some("Failure"), Some(reason)), "{}", self.text);
        assert_eq!(body["code"], code, "{}", self.text);
        body["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// Asks the server on 127.0.0.1, over HTTP/1.1 because kubectl uses HTTP/2 already. A body goes as JSON unless `path` ends in ` TYPE`, as in `/api/v1/pods text/plain`.
pub fn request(port: u16, pki: &Path, caller: &Caller, method: &str, path: &str, body: &str) -> Answer {
    let (path, content_type) = path.split_once(' ').unwrap_or((path, "application/json"));
    let mut command = Command::new("curl");
    command.args([
        "-s",
        "--http1.1",
        "--max-time",
        "30",
        "--write-out",
        "\n%{http_code}",
        "--request",
        method,
        "--cacert",
    ]);
    command.arg(pki.join("ca.crt"));
    match caller {
        Caller::Admin => {
            command.arg("--cert").arg(pki.join("admin.crt")).arg("--key").arg(pki.join("admin.key"));
        }
        Caller::Nobody => {}
        Caller::Certificate(pem) => {
            command.arg("--cert").arg(pem).arg("--key").arg(pem);
        }
        Caller::Token(token) => {
            command.args(["--header", &format!("Authorization: Bearer {token}")]);
        }
    }
    if !body.is_empty() {
        command.args(["--header", &format!("Content-Type: {content_type}"), "--data-binary", "@-"]);
    }
    command.arg(format!("https://127.0.0.1:{port}{path}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("curl starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // The server may answer before it has read all; curl closes the pipe then.
    let _ = stdin.write_all(body.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("curl's output");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, code) = printed.rsplit_once('\n').unwrap_or(("", "0"));
    Answer { code: code.parse().unwrap_or(0), text: text.to_owned() }
}
