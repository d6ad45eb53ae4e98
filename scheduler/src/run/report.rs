//! What the scheduler says of pods: events for people, the PodScheduled condition and the nominated node for programs.

use crate::cache::PodInfo;
use coracle_api::condition::with_transition_time;
use coracle_client::{EventAction, EventThrottle, Recorder, write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// What becomes of `status.nominatedNodeName`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Set(String),
    Clear,
    /// Like `Clear`, though the pod as it was popped has none: it was given one since.
    TakeBack,
}

/// Bytes of an event's text that the events API takes.
const NOTE_LENGTH: usize = 1024;
const ELLIPSIS: &str = " ...";

/// Cloning shares the recorders.
#[derive(Clone)]
pub struct Reporter {
    client: kube::Client,
    recorders: Arc<Mutex<HashMap<String, Recorder>>>,
    /// While there is one, events wait: a pod that waits for a node has the server before one that has found it.
    pub storm: EventThrottle,
}

fn condition<'p>(pod: &'p PodInfo, kind: &str) -> Option<&'p PodCondition> {
    let conditions = pod.status().and_then(|s| s.conditions.as_ref());
    conditions.into_iter().flatten().find(|c| c.type_ == kind)
}

/// The condition, unless the pod has it already.
fn changed(pod: &PodInfo, reason: &str, message: &str) -> Option<Value> {
    let present = condition(pod, "PodScheduled");
    let same = present.is_some_and(|c| {
        c.status == "False" && c.reason.as_deref() == Some(reason) && c.message.as_deref() == Some(message)
    });
    if same {
        return None;
    }
    let new = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(Timestamp::now())),
        observed_generation: pod.generation,
        ..PodCondition::default()
    };
    Some(json!(with_transition_time(present.map(std::slice::from_ref).unwrap_or_default(), new)))
}

impl Reporter {
    pub fn new(client: kube::Client) -> Self {
        Self { client, recorders: Arc::default(), storm: EventThrottle::default() }
    }

    /// Events come from the profile's name, as upstream's do.
    pub fn recorder(&self, scheduler: &str) -> Recorder {
        let mut recorders = self.recorders.lock();
        if let Some(recorder) = recorders.get(scheduler) {
            return recorder.clone();
        }
        let recorder = Recorder::patient(self.client.clone(), scheduler, &self.storm);
        recorders.insert(scheduler.to_owned(), recorder.clone());
        recorder
    }

    /// `news` says whether the event is written too; the status is written where it differs.
    pub fn failed(
        &self,
        pod: &PodInfo,
        scheduler: &str,
        reason: &'static str,
        message: &str,
        nomination: &Nomination,
        news: bool,
    ) {
        if news {
            let recorder = self.recorder(scheduler);
            let text = truncated(message);
            recorder.acted(
                EventAction::named("Scheduling"),
                pod.reference(),
                "Warning",
                "FailedScheduling",
                text,
            );
        }
        let mut status = json!({});
        if let Some(condition) = changed(pod, reason, message) {
            status["conditions"] = json!([condition]);
        }
        match nomination {
            Nomination::Set(node) if pod.nominated_node() != Some(node) => {
                status["nominatedNodeName"] = json!(node);
            }
            Nomination::Clear if pod.nominated_node().is_none() => {}
            Nomination::Clear | Nomination::TakeBack => status["nominatedNodeName"] = Value::Null,
            _ => {}
        }
        self.write(pod, status);
    }

    /// Says where a pod is going to run while its binding takes time. That it could not be said stops nothing.
    pub async fn nominated(&self, pod: &PodInfo, node: &str) {
        if pod.nominated_node() != Some(node) {
            patch(self.client.clone(), pod, json!({ "nominatedNodeName": node })).await;
        }
    }

    /// Takes a nomination back that another pod overrides.
    pub fn unnominated(&self, pod: &PodInfo) {
        self.write(pod, json!({ "nominatedNodeName": Value::Null }));
    }

    fn write(&self, pod: &PodInfo, status: Value) {
        if status.as_object().is_none_or(serde_json::Map::is_empty) {
            return;
        }
        tokio::spawn(patch(self.client.clone(), pod, status));
    }
}

/// Changes a pod's status, if it is still this pod.
fn patch(client: kube::Client, pod: &PodInfo, status: Value) -> impl Future<Output = ()> + Send + use<> {
    let patch = json!({ "metadata": { "uid": pod.uid }, "status": status });
    let key = pod.key.clone();
    async move {
        let written = write::patch_status::<Pod>(&client, &key, &Patch::Strategic(patch)).await;
        if let Err(error) = written {
            tracing::debug!(pod = %key, %error, "status not written");
        }
    }
}

/// Upstream's limit of an event's text.
fn truncated(text: &str) -> String {
    if text.len() <= NOTE_LENGTH {
        return text.to_owned();
    }
    let end = (0..=NOTE_LENGTH - ELLIPSIS.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}{ELLIPSIS}", &text[..end])
}
