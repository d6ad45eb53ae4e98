//! A browser without a window, spoken to by the Chrome DevTools Protocol.
//!
//! See <https://chromedevtools.github.io/devtools-protocol/>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Longest that a condition on a page is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(100);

/// One page in a browser of its own, gone with the value.
pub struct Browser {
    process: Child,
    socket: WebSocketStream<TcpStream>,
    session: String,
    next: u64,
    /// Loaders whose documents have loaded; the blank page that was there first may be among them.
    loaded: Vec<Value>,
    /// What the page complained of: exceptions, and what its policy forbade.
    pub complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Opens a page of this size in pixels. The server's certificate is not looked at: the test made it.
    pub async fn open(url: &str, width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().expect("temporary directory");
        let mut process = Command::new("chromium")
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--ignore-certificate-errors",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--remote-debugging-port=0", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium: scripts/prepare installs it");
        let lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let told = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
        let endpoint = told.expect("chromium says where it listens");
        let address =
            endpoint.strip_prefix("ws://").and_then(|rest| rest.split('/').next()).expect("an address");
        let stream = TcpStream::connect(address).await.expect("chromium listens");
        let (socket, _) =
            tokio_tungstenite::client_async(endpoint.as_str(), stream).await.expect("a WebSocket");
        let mut browser = Self {
            process,
            socket,
            session: String::new(),
            next: 0,
            loaded: Vec::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attached = browser
            .call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }))
            .await;
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        browser.call("Runtime.enable", json!({})).await;
        browser.call("Log.enable", json!({})).await;
        browser.call("Page.enable", json!({})).await;
        browser.resize(width, height).await;
        browser.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true })).await;
        let loader = browser.call("Page.navigate", json!({ "url": url })).await["loaderId"].take();
        while !browser.loaded.contains(&loader) {
            let told = browser.next().await;
            browser.note(&told);
        }
        browser
    }

    /// As of a telephone where it is narrow.
    pub async fn resize(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// The value of an expression; promises are waited for.
    pub async fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", asked).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The text that a person sees.
    pub async fn text(&mut self) -> String {
        self.value("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows this.
    ///
    /// # Panics
    /// When it does not, with what it shows.
    pub async fn shows(&mut self, part: &str) -> String {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let text = self.text().await;
            if text.contains(part) {
                return text;
            }
            assert!(
                tokio::time::Instant::now() < until,
                "{part:?} is not in:\n{text}\n{:#?}",
                self.complaints
            );
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Presses a button as soon as it can be pressed.
    ///
    /// # Panics
    /// When it cannot.
    pub async fn press(&mut self, selector: &str) {
        let button = format!("document.querySelector('{selector}')");
        let until = tokio::time::Instant::now() + PATIENCE;
        while self.value(&format!("!{button} || {button}.disabled")).await != false {
            assert!(
                tokio::time::Instant::now() < until,
                "{selector} cannot be pressed\n{:#?}",
                self.complaints
            );
            tokio::time::sleep(AGAIN).await;
        }
        self.value(&format!("{button}.click()")).await;
    }

    pub async fn screenshot(&mut self, file: &Path) {
        let shot =
            self.call("Page.captureScreenshot", json!({ "format": "png", "optimizeForSpeed": false })).await;
        let bytes = STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("base64");
        std::fs::write(file, bytes).expect("the picture is written");
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut asked = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            asked["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(asked.to_string())).await.expect("the browser lives");
        loop {
            let mut told = self.next().await;
            if told["id"] == id {
                assert!(told.get("error").is_none(), "{method}: {told}");
                return told["result"].take();
            }
            self.note(&told);
        }
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        let message = self.socket.next().await.expect("the browser lives").expect("a message");
        serde_json::from_str(message.to_text().unwrap_or_default()).unwrap_or_default()
    }

    fn note(&mut self, told: &Value) {
        if told["method"] == "Page.lifecycleEvent" && told["params"]["name"] == "load" {
            self.loaded.push(told["params"]["loaderId"].clone());
        }
        let is_error = told["params"]["entry"]["level"] == "error";
        if is_error || told["method"] == "Runtime.exceptionThrown" {
            self.complaints.push(told["params"].to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
