//! Requests as a client library makes them, with the answers' headers, and watches. [`crate::http`] is for requests
//! that no library would send.

use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Longest that an event may take. It takes milliseconds on an idle machine.
const EVENT_LIMIT: Duration = Duration::from_secs(100);

/// Longest that an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(100);

/// A connection to a server as its administrator. Clones share it.
#[derive(Clone)]
pub struct Rest {
    runtime: Arc<Runtime>,
    client: Client,
}

/// An answer: the body as JSON where it is JSON, as a string where not.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    pub headers: http::HeaderMap,
    pub body: Value,
}

impl Reply {
    /// The answer is a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {}", self.code, self.body);
        self.body
    }

    /// The answer is a Status of this code and reason; returns its message.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str) -> String {
        assert_eq!((self.code, self.body["reason"].as_str()), (code, Some(reason)), "{}", self.body);
        assert_eq!(self.body["kind"], "Status", "{}", self.body);
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The texts of `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
        let quoted = all.map(|text| text.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')));
        quoted.map(|text| text.unwrap_or("no warning of code 299").replace("\\\"", "\"")).collect()
    }
}

impl Rest {
    pub fn new(kubeconfig: &Path) -> Self {
        // The second installation is refused, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig");
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            // Tests want to see every answer, 503 too.
            let mut config = config.expect("a configuration");
            config.default_retry = false;
            Client::try_from(config).expect("a client")
        });
        Self { runtime: Arc::new(runtime), client }
    }

    /// One request. `headers` are `Name: value`; a body goes as JSON unless they say otherwise.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let mut request = http::Request::builder().method(method).uri(path);
        let typed = headers.iter().any(|header| header.to_ascii_lowercase().starts_with("content-type:"));
        if !body.is_empty() && !typed {
            request = request.header("content-type", "application/json");
        }
        for header in headers {
            let (name, value) = header.split_once(": ").expect("a header is `Name: value`");
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.as_bytes().to_vec())).expect("a request");
        let answer = async {
            let response = self.client.send(request).await.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
            let (parts, body) = response.into_parts();
            let bytes = body.collect_bytes().await.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
            Reply { code: parts.status.as_u16(), headers: parts.headers, body }
        };
        let limited = async { tokio::time::timeout(ANSWER_LIMIT, answer).await };
        self.runtime
            .block_on(limited)
            .unwrap_or_else(|_| panic!("{method} {path}: no answer in {ANSWER_LIMIT:?}"))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.call("GET", path, &[], "").ok()
    }

    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        let reply = self.call("POST", path, &[], &object.to_string());
        assert_eq!(reply.code, 201, "{}", reply.body);
        reply.body
    }

    #[track_caller]
    pub fn replace(&self, path: &str, object: &Value) -> Value {
        self.call("PUT", path, &[], &object.to_string()).ok()
    }

    #[track_caller]
    pub fn merge(&self, path: &str, patch: &Value) -> Value {
        self.call("PATCH", path, &["Content-Type: application/merge-patch+json"], &patch.to_string()).ok()
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Value {
        self.call("DELETE", path, &[], "").ok()
    }

    /// A watch; `path` has its parameters.
    #[track_caller]
    pub fn watch(&self, path: &str) -> Watch {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let (sender, events) = channel();
        let client = self.client.clone();
        let path = path.to_owned();
        let task = self.runtime.spawn(async move {
            use futures::{AsyncBufReadExt, StreamExt};
            let Ok(stream) = client.request_stream(request).await else { return };
            let mut lines = Box::pin(stream).lines();
            while let Some(Ok(line)) = lines.next().await {
                let Ok(event) = serde_json::from_str(&line) else { return };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Watch { events, task, path, _runtime: self.runtime.clone() }
    }
}

/// An open watch; closed when dropped.
pub struct Watch {
    events: Receiver<Value>,
    task: JoinHandle<()>,
    path: String,
    _runtime: Arc<Runtime>,
}

impl Watch {
    /// The next event but bookmarks, as `TYPE name`, and its object.
    #[track_caller]
    pub fn next(&self) -> (String, Value) {
        loop {
            let event = match self.events.recv_timeout(EVENT_LIMIT) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => panic!("no event within {EVENT_LIMIT:?}: {}", self.path),
                Err(RecvTimeoutError::Disconnected) => panic!("the watch ended: {}", self.path),
            };
            if event["type"] != "BOOKMARK" {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                let text = format!("{} {name}", event["type"].as_str().unwrap_or_default());
                return (text, event["object"].clone());
            }
        }
    }

    /// The next event is this one.
    #[track_caller]
    pub fn sees(&self, expected: &str) -> Value {
        let (found, object) = self.next();
        assert_eq!(found, expected, "{}: {object}", self.path);
        object
    }

    /// Skips what comes until an event is `expected` and its object as wanted.
    #[track_caller]
    pub fn until(&self, expected: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (found, object) = self.next();
            if found == expected && wanted(&object) {
                return object;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
