//! The condition of the Node that says that its proxy goes by another configuration than it was told to.
//!
//! Upstream has none. It is on the Node only from the first refusal on, and is written by whoever may write the Node: the
//! proxy's own identity may not.

use coracle_client::Informer;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub const TYPE: &str = "ProxyConfigurationRefused";
/// Until a write that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of a message; a document can be wrong in many places.
const LONGEST: usize = 1024;

/// What is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing yet: what an earlier process said stays.
    Unknown,
    /// What was asked for is in force.
    None,
    /// By this reason and in these words.
    Of(&'static str, String),
}

/// Where it is said.
pub struct Condition(Option<watch::Sender<Refusal>>);

impl Condition {
    /// `client` acts as the node; without one nothing is said. What keeps it said ends with `self`.
    pub fn of(client: Option<Client>, nodes: &Informer<Node>, node: &str) -> Self {
        let Some(client) = client else { return Self(None) };
        let (say, wanted) = watch::channel(Refusal::Unknown);
        let changed = Arc::new(tokio::sync::Notify::new());
        let (wake, name) = (Arc::downgrade(&changed), node.to_owned());
        nodes.on_change_while(move |delta| {
            let own = delta.new.as_ref().is_some_and(|n| n.metadata.name.as_deref() == Some(&name));
            let wake = wake.upgrade();
            if let Some(wake) = wake.as_ref().filter(|_| own) {
                wake.notify_one();
            }
            wake.is_some()
        });
        let writer = ConditionWriter {
            api: Api::all(client),
            nodes: nodes.clone(),
            name: node.to_owned(),
            changed,
            wanted,
        };
        tokio::spawn(writer.run());
        Self(Some(say))
    }

    pub fn say(&self, refusal: &Refusal) {
        if let Some(say) = &self.0 {
            say.send_if_modified(|said| std::mem::replace(said, refusal.clone()) != *refusal);
        }
    }
}

struct ConditionWriter {
    api: Api<Node>,
    nodes: Informer<Node>,
    name: String,
    changed: Arc<tokio::sync::Notify>,
    wanted: watch::Receiver<Refusal>,
}

impl ConditionWriter {
    async fn run(mut self) {
        let mut failed = false;
        loop {
            tokio::select! {
                said = self.wanted.changed() => if said.is_err() { return },
                () = self.changed.notified() => {}
                () = tokio::time::sleep(RETRY_INTERVAL), if failed => {}
            }
            failed = match self.write().await {
                Ok(()) => false,
                Err(error) => {
                    if !failed {
                        tracing::warn!(%error, "the node's condition is not written, trying again");
                    }
                    true
                }
            };
        }
    }

    async fn write(&mut self) -> Result<(), kube::Error> {
        let refusal = self.wanted.borrow_and_update().clone();
        // Where it comes later, it is said then.
        let Some(node) = self.nodes.get("", &self.name) else { return Ok(()) };
        let Some(patch) = patch(&node, &refusal, Timestamp::now()) else { return Ok(()) };
        self.api.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(&patch)).await.map(drop)
    }
}

/// What the Node lacks.
fn patch(node: &Node, refusal: &Refusal, now: Timestamp) -> Option<Value> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let present: Option<&NodeCondition> = conditions.into_iter().find(|condition| condition.type_ == TYPE);
    let (status, reason, message) = match refusal {
        Refusal::Unknown => return None,
        Refusal::Of(reason, why) => {
            let end = (0..=LONGEST.min(why.len())).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
            ("True", *reason, format!("{}; the last good configuration stays in force", &why[..end]))
        }
        Refusal::None if present.is_none() => return None,
        Refusal::None => ("False", "ConfigurationInForce", "the proxy goes by its configuration".to_owned()),
    };
    let is_said = |c: &NodeCondition| {
        (c.status.as_str(), c.reason.as_deref(), c.message.as_deref())
            == (status, Some(reason), Some(message.as_str()))
    };
    if present.is_some_and(is_said) {
        return None;
    }
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let since = present.filter(|c| c.status == status).and_then(|c| c.last_transition_time.as_ref());
    let since = since.map_or_else(|| json!(now), |since| json!(since));
    Some(json!({ "status": { "conditions": [{
        "type": TYPE, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": since,
    }] } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &Value) -> Node {
        let ready = json!({ "type": "Ready", "status": "True" });
        let all: Vec<Value> =
            std::iter::once(ready).chain(conditions.as_array().cloned().unwrap_or_default()).collect();
        serde_json::from_value(json!({ "metadata": { "name": "n" }, "status": { "conditions": all } }))
            .expect("a node")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_node_has_it_from_the_first_refusal_on() {
        let refused = Refusal::Of("InvalidConfiguration", "mode: unknown".to_owned());
        assert_eq!(patch(&node(&json!([])), &Refusal::None, at(0)), None);
        let first = patch(&node(&json!([])), &refused, at(0)).expect("news");
        let said = first["status"]["conditions"].clone();
        assert_eq!(
            (&said[0]["status"], &said[0]["reason"]),
            (&json!("True"), &json!("InvalidConfiguration"))
        );
        assert_eq!(said[0]["message"], "mode: unknown; the last good configuration stays in force");
        assert_eq!(patch(&node(&said), &refused, at(9)), None, "the same again is no news");
        assert_eq!(patch(&node(&said), &Refusal::Unknown, at(9)), None, "an earlier process said so");
        let other = Refusal::Of("ModeRefused", "ipvs: no such module".to_owned());
        let other = patch(&node(&said), &other, at(9)).expect("news")["status"]["conditions"][0].clone();
        assert_eq!(other["lastTransitionTime"], said[0]["lastTransitionTime"]);
        let good = patch(&node(&said), &Refusal::None, at(9)).expect("news")["status"]["conditions"].clone();
        assert_eq!(
            (&good[0]["status"], &good[0]["lastTransitionTime"]),
            (&json!("False"), &json!("1970-01-01T00:00:09Z"))
        );
        assert_eq!(patch(&node(&good), &Refusal::None, at(19)), None);
    }

    #[test]
    fn a_long_story_is_cut_between_letters() {
        let long = Refusal::Of("InvalidConfiguration", "ü".repeat(LONGEST));
        let patch = patch(&node(&json!([])), &long, at(0)).expect("news");
        let message = patch["status"]["conditions"][0]["message"].as_str().expect("words").to_owned();
        assert!(message.starts_with('ü') && message.len() < LONGEST + 64, "{}", message.len());
    }
}
