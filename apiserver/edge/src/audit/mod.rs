//! The audit log: who did what, as JSON events of `audit.k8s.io/v1`.
//!
//! A policy says which requests are recorded and how much of each. Events go to a file or to standard output, and to a
//! webhook, each in one of upstream's modes. See <https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>.

mod batch;
mod event;
mod policy;
mod rotate;
mod sink;
#[cfg(test)]
mod tests;
mod truncate;
mod webhook;

pub use batch::{Batching, Throttle};
pub use event::{Record, Source, Stage};
pub use policy::{Level, Policy, PolicyError, Rule};
pub use rotate::Rotation;
pub use sink::{Mode, Sink, Target};
pub use truncate::Truncation;
pub use webhook::{Collector, Settings, Webhook};

use coracle_api::UserInfo;
use coracle_component_base::metrics::{Counter, Text};
use coracle_requests::RequestInfo;
use serde_json::Value;
use std::sync::Arc;

/// One server's audit log.
pub struct Log {
    policy: Policy,
    sink: Option<Sink>,
    webhook: Option<Webhook>,
    events: Counter,
    refused: Counter,
    by_level: [Counter; 4],
}

impl Log {
    pub fn new(policy: Policy, sink: Sink) -> Arc<Self> {
        Self::with(policy, Some(sink), None)
    }

    pub fn with(policy: Policy, sink: Option<Sink>, webhook: Option<Webhook>) -> Arc<Self> {
        let (events, refused) = (Counter::default(), Counter::default());
        Arc::new(Self { policy, sink, webhook, events, refused, by_level: Default::default() })
    }

    /// The record of a request that the policy wants; `user` is the one who authenticated.
    pub fn begin(
        self: &Arc<Self>,
        source: Source<'_>,
        user: &UserInfo,
        info: &RequestInfo,
    ) -> Option<Record> {
        let rule = self.policy.decide(user, info);
        self.by_level[rule.level as usize].add(1);
        (rule.level != Level::None).then(|| Record::new(self.clone(), rule, source, user, info))
    }

    /// What cannot be written is counted.
    fn write(&self, event: &Value) {
        self.events.add(1);
        if let Some(sink) = &self.sink {
            sink.write(event);
        }
        if let Some(webhook) = &self.webhook {
            webhook.write(event);
        }
    }

    /// Writes the event of a request's arrival. Whether the request may go on.
    async fn write_first(&self, event: &Value) -> bool {
        self.events.add(1);
        let logged = self.sink.as_ref().is_none_or(|sink| sink.write_first(event));
        let posted = match &self.webhook {
            Some(webhook) => webhook.write_first(event).await,
            None => true,
        };
        logged && posted
    }

    fn refuse(&self) {
        self.refused.add(1);
    }

    /// Writes what is on its way, and waits for it, some seconds at most.
    pub async fn close(&self) {
        let sent = async {
            if let Some(webhook) = &self.webhook {
                webhook.close().await;
            }
        };
        let written = async {
            if let Some(sink) = &self.sink {
                sink.close().await;
            }
        };
        tokio::join!(sent, written);
    }

    /// Appends the figures to a page.
    pub fn render(&self, text: &mut Text) {
        text.single("apiserver_audit_event_total", "Audit events made.", "counter", self.events.get());
        let name = "apiserver_audit_level_total";
        text.head(name, "Requests by the level at which the policy records them.", "counter");
        for (level, counter) in Level::ALL.iter().zip(&self.by_level) {
            text.sample(name, &[("level", level.name())], counter.get());
        }
        let name = "apiserver_audit_requests_rejected_total";
        text.single(
            name,
            "Requests refused because they could not be recorded.",
            "counter",
            self.refused.get(),
        );
        let name = "apiserver_audit_error_total";
        text.head(name, "Audit events that were lost.", "counter");
        if let Some(sink) = &self.sink {
            text.sample(name, &[("plugin", "log")], sink.lost());
        }
        if let Some(webhook) = &self.webhook {
            text.sample(name, &[("plugin", "webhook")], webhook.lost());
        }
    }
}
