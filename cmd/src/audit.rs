//! The audit log as the flags ask for it.

use crate::edge::EdgeArgs;
use crate::posts::Posts;
use coracle_apiserver::audit::{
    Batching, Collector, Log, Mode, Policy, Rotation, Settings, Sink, Target, Throttle, Truncation, Webhook,
};
use futures::future::BoxFuture;
use std::sync::Arc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl EdgeArgs {
    pub fn check_audit(&self, mistakes: &mut Vec<String>) {
        for (flag, text) in [("log", &self.audit_log_mode), ("webhook", &self.audit_webhook_mode)] {
            let wrong = mode(flag, text.as_deref(), Mode::default()).err();
            mistakes.extend(wrong.map(|mistake| format!("audit-{flag}-mode: {mistake}")));
        }
        let kept = self.audit_log_path.is_some() || self.audit_webhook_config_file.is_some();
        if self.audit_policy_file.is_some() && !kept {
            mistakes.push("audit-policy-file: needs audit-log-path or audit-webhook-config-file".to_owned());
        }
        for (flag, number) in [
            ("audit-log-batch-buffer-size", self.audit_log_batch_buffer_size),
            ("audit-log-batch-max-size", self.audit_log_batch_max_size),
            ("audit-webhook-batch-buffer-size", self.audit_webhook_batch_buffer_size),
            ("audit-webhook-batch-max-size", self.audit_webhook_batch_max_size),
            ("audit-log-truncate-max-batch-size", self.audit_log_truncate_max_batch_size),
            ("audit-log-truncate-max-event-size", self.audit_log_truncate_max_event_size),
            ("audit-webhook-truncate-max-batch-size", self.audit_webhook_truncate_max_batch_size),
            ("audit-webhook-truncate-max-event-size", self.audit_webhook_truncate_max_event_size),
        ] {
            if number == Some(0) {
                mistakes.push(format!("{flag}: must be at least 1"));
            }
        }
        for (flag, qps) in [
            ("audit-log-batch-throttle-qps", self.audit_log_batch_throttle_qps),
            ("audit-webhook-batch-throttle-qps", self.audit_webhook_batch_throttle_qps),
        ] {
            if qps.is_some_and(|qps| !qps.is_finite() || qps <= 0.0) {
                mistakes.push(format!("{flag}: must be more than 0"));
            }
        }
        self.check_batching(mistakes);
    }

    /// What is not in use may say what it likes.
    fn check_batching(&self, mistakes: &mut Vec<String>) {
        let is_batch = |mode: &Option<String>, default: bool| mode.as_ref().map_or(default, |m| m == "batch");
        let (log, webhook) =
            (is_batch(&self.audit_log_mode, false), is_batch(&self.audit_webhook_mode, true));
        let throttled = log && self.audit_log_batch_throttle_enable == Some(true);
        for (flag, given) in [
            ("audit-log-batch-throttle-qps", self.audit_log_batch_throttle_qps.is_some()),
            ("audit-log-batch-throttle-burst", self.audit_log_batch_throttle_burst.is_some_and(|n| n > 0)),
        ] {
            if throttled && !given {
                mistakes.push(format!("{flag}: audit-log-batch-throttle-enable needs a positive number"));
            }
        }
        for (of, used, batch, buffer) in [
            ("log", log, self.audit_log_batch_max_size, self.audit_log_batch_buffer_size),
            ("webhook", webhook, self.audit_webhook_batch_max_size, self.audit_webhook_batch_buffer_size),
        ] {
            if let (true, Some(batch), Some(buffer)) = (used, batch, buffer)
                && batch > buffer
            {
                mistakes.push(format!(
                    "audit-{of}-batch-max-size: {batch} cannot be more than the buffer's size, {buffer}"
                ));
            }
        }
    }

    fn log_batching(&self) -> Batching {
        let default = Batching::of_log();
        let throttle = self.audit_log_batch_throttle_qps.zip(self.audit_log_batch_throttle_burst);
        let enabled = self.audit_log_batch_throttle_enable.unwrap_or(false);
        Batching {
            buffer: self.audit_log_batch_buffer_size.unwrap_or(default.buffer),
            batch: self.audit_log_batch_max_size.unwrap_or(default.batch),
            max_wait: self.audit_log_batch_max_wait.map_or(default.max_wait, |time| time.0),
            throttle: throttle.filter(|_| enabled).map(|(per_second, burst)| Throttle { per_second, burst }),
        }
    }

    fn webhook_batching(&self) -> Batching {
        let default = Batching::of_webhook();
        let throttle = default.throttle.map(|usual| Throttle {
            per_second: self.audit_webhook_batch_throttle_qps.unwrap_or(usual.per_second),
            burst: self.audit_webhook_batch_throttle_burst.unwrap_or(usual.burst),
        });
        Batching {
            buffer: self.audit_webhook_batch_buffer_size.unwrap_or(default.buffer),
            batch: self.audit_webhook_batch_max_size.unwrap_or(default.batch),
            max_wait: self.audit_webhook_batch_max_wait.map_or(default.max_wait, |time| time.0),
            throttle: throttle.filter(|_| self.audit_webhook_batch_throttle_enable.unwrap_or(true)),
        }
    }

    /// Opens it; `None` if nothing is to be recorded. The webhook's task begins.
    pub async fn audit_log(&self) -> Result<Option<Arc<Log>>, Failure> {
        if self.audit_log_path.is_none() && self.audit_webhook_config_file.is_none() {
            return Ok(None);
        }
        let policy = self.audit_policy_file.as_deref().map_or_else(Policy::minimal, Policy::load)?;
        let sink = self.audit_log_path.as_deref().map(|path| self.sink(path)).transpose()?;
        let webhook = match &self.audit_webhook_config_file {
            Some(file) => Some(Webhook::start(self.webhook()?, Posts::of_file(file).await?)),
            None => None,
        };
        Ok(Some(Log::with(policy, sink, webhook)))
    }

    fn sink(&self, path: &str) -> Result<Sink, Failure> {
        let rotation = Rotation {
            max_bytes: self.audit_log_maxsize.unwrap_or(100) << 20,
            max_backups: self.audit_log_maxbackup.unwrap_or(100),
            max_age_days: self.audit_log_maxage.unwrap_or(366),
            compress: self.audit_log_compress.unwrap_or(false),
        };
        let mode = mode("log", self.audit_log_mode.as_deref(), Mode::Blocking)?;
        let truncation = truncation(
            self.audit_log_truncate_enabled,
            self.audit_log_truncate_max_event_size,
            self.audit_log_truncate_max_batch_size,
        );
        let sink = Sink::batching(Target::new(path, rotation), mode, self.log_batching())?;
        Ok(sink.truncating(truncation))
    }

    fn webhook(&self) -> Result<Settings, String> {
        let default = Settings::default();
        Ok(Settings {
            mode: mode("webhook", self.audit_webhook_mode.as_deref(), default.mode)?,
            initial_backoff: self
                .audit_webhook_initial_backoff
                .map_or(default.initial_backoff, |time| time.0),
            batching: self.webhook_batching(),
            truncation: truncation(
                self.audit_webhook_truncate_enabled,
                self.audit_webhook_truncate_max_event_size,
                self.audit_webhook_truncate_max_batch_size,
            ),
        })
    }
}

fn mode(of: &str, text: Option<&str>, default: Mode) -> Result<Mode, String> {
    let Some(text) = text else { return Ok(default) };
    Mode::parse(text).ok_or_else(|| {
        format!("invalid audit {of} mode {text}, allowed modes are \"batch,blocking,blocking-strict\"")
    })
}

fn truncation(enabled: Option<bool>, event: Option<usize>, batch: Option<usize>) -> Option<Truncation> {
    let default = Truncation::default();
    enabled.unwrap_or(false).then(|| Truncation {
        max_event_bytes: event.unwrap_or(default.max_event_bytes),
        max_batch_bytes: batch.unwrap_or(default.max_batch_bytes),
    })
}

impl Collector for Posts {
    fn post(&self, list: bytes::Bytes) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let posted = Posts::post(self, list.to_vec()).await;
            posted.map(|_| ()).map_err(|error| error.message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn mistakes(args: &EdgeArgs) -> Vec<String> {
        let mut mistakes = Vec::new();
        args.check_audit(&mut mistakes);
        mistakes
    }

    #[test]
    fn a_policy_needs_a_place() {
        let policy = EdgeArgs { audit_policy_file: Some("p".into()), ..EdgeArgs::default() };
        assert_eq!(
            mistakes(&policy),
            ["audit-policy-file: needs audit-log-path or audit-webhook-config-file"]
        );
        let hook = EdgeArgs { audit_webhook_config_file: Some("k".into()), ..EdgeArgs::default() };
        assert!(mistakes(&hook).is_empty(), "a place without a policy has the built-in one");
        assert!(mistakes(&EdgeArgs { audit_policy_file: Some("p".into()), ..hook }).is_empty());
    }

    #[test]
    fn nonsense_is_told() {
        let args = EdgeArgs {
            audit_webhook_mode: Some("later".to_owned()),
            audit_webhook_batch_max_size: Some(0),
            audit_webhook_batch_throttle_qps: Some(0.0),
            ..EdgeArgs::default()
        };
        let all = mistakes(&args);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].starts_with("audit-webhook-mode: invalid audit webhook mode later"), "{all:?}");
    }

    #[test]
    fn what_is_not_said_is_upstreams_default() {
        assert_eq!(EdgeArgs::default().webhook().unwrap(), Settings::default());
        let args = EdgeArgs {
            audit_webhook_batch_throttle_enable: Some(false),
            audit_webhook_truncate_enabled: Some(true),
            audit_webhook_truncate_max_event_size: Some(7),
            audit_webhook_batch_max_wait: Some("1s".parse().unwrap()),
            ..EdgeArgs::default()
        };
        let settings = args.webhook().unwrap();
        assert_eq!((settings.batching.throttle, settings.batching.max_wait.as_secs()), (None, 1));
        let truncation = Truncation { max_event_bytes: 7, ..Truncation::default() };
        assert_eq!(settings.truncation, Some(truncation));
    }

    #[test]
    fn the_log_has_batches_of_its_own() {
        assert_eq!(EdgeArgs::default().log_batching(), Batching::of_log());
        let args = EdgeArgs {
            audit_log_mode: Some("batch".to_owned()),
            audit_log_batch_buffer_size: Some(5),
            audit_log_batch_max_size: Some(9),
            audit_log_batch_throttle_enable: Some(true),
            audit_log_batch_throttle_qps: Some(2.0),
            ..EdgeArgs::default()
        };
        assert_eq!(
            mistakes(&args),
            [
                "audit-log-batch-throttle-burst: audit-log-batch-throttle-enable needs a positive number",
                "audit-log-batch-max-size: 9 cannot be more than the buffer's size, 5",
            ]
        );
        let unused = EdgeArgs { audit_log_mode: None, ..args.clone() };
        assert!(mistakes(&unused).is_empty(), "what is not in use was judged");
        let args = EdgeArgs { audit_log_batch_throttle_burst: Some(3), ..args };
        assert_eq!(args.log_batching().throttle, Some(Throttle { per_second: 2.0, burst: 3 }));
    }

    /// Whoever listens: what it was sent, and what it answers.
    async fn collector(
        code: u16,
    ) -> (String, tokio::sync::mpsc::UnboundedReceiver<(String, String, Vec<u8>)>) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let take = move |request: axum::extract::Request| {
            let sender = sender.clone();
            async move {
                let (parts, body) = request.into_parts();
                let who =
                    parts.headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
                let body = axum::body::to_bytes(body, 1 << 20).await.unwrap().to_vec();
                sender.send((format!("{} {}", parts.method, parts.uri), who.to_owned(), body)).unwrap();
                http::StatusCode::from_u16(code).unwrap()
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}/audit", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(take)).await.unwrap() });
        (server, receiver)
    }

    fn leading_to(dir: &Path, server: &str) -> std::path::PathBuf {
        let path = dir.join("collector.yaml");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{ name: a, cluster: {{ server: {server:?} }} }}]\n\
             users: [{{ name: u, user: {{ token: secret }} }}]\ncontexts: [{{ name: c, context: {{ cluster: a, user: u }} }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    #[tokio::test]
    async fn events_are_posted_to_the_server_of_a_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let (server, mut received) = collector(200).await;
        let posts = Posts::of_file(&leading_to(dir.path(), &server)).await.unwrap();
        posts.post(b"{}".to_vec()).await.unwrap();
        let expected = ("POST /audit".to_owned(), "Bearer secret".to_owned(), b"{}".to_vec());
        assert_eq!(received.recv().await.unwrap(), expected);
        let (server, _received) = collector(500).await;
        let refused = Posts::of_file(&leading_to(dir.path(), &server)).await.unwrap();
        assert!(refused.post(Vec::new()).await.is_err());
        assert!(Posts::of_file(&dir.path().join("none")).await.is_err());
    }
}
