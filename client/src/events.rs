//! The event recorder: events in upstream's form, repeated ones counted instead of stored again.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Events waiting to be written; beyond it they are dropped, as upstream drops them, so that a storm of events
/// never slows the component that reports.
const BACKLOG: usize = 1000;
/// How long a repeated event is counted on the same object; upstream's correlator window.
const WINDOW: Duration = Duration::from_secs(600);
/// Distinct events remembered for counting; upstream's cache size.
const REMEMBERED: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    namespace: String,
    uid: String,
    name: String,
    kind: String,
    field_path: String,
    type_: &'static str,
    reason: String,
    message: String,
}

struct Report {
    regarding: ObjectReference,
    type_: &'static str,
    reason: String,
    message: String,
    at: Timestamp,
}

/// Writes events as one component. Cloning shares the backlog.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Report>,
}

impl Recorder {
    /// `component` is what `kubectl describe` shows under From, for example `deployment-controller`; `host` is the
    /// node for components of a node, else empty. Must be called inside the tokio runtime.
    pub fn new(client: kube::Client, component: &str, host: &str) -> Self {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let source = EventSource {
            component: Some(component.to_owned()),
            host: (!host.is_empty()).then(|| host.to_owned()),
        };
        tokio::spawn(write_all(client, source, receiver));
        Self { sender }
    }

    pub fn normal<K: Resource<DynamicType = ()>>(
        &self,
        regarding: &K,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event(reference(regarding), "Normal", reason, message);
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        regarding: &K,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event(reference(regarding), "Warning", reason, message);
    }

    /// `type_` is `Normal` or `Warning`. Never blocks.
    pub fn event(
        &self,
        regarding: ObjectReference,
        type_: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) {
        let report = Report {
            regarding,
            type_,
            reason: reason.to_owned(),
            message: message.into(),
            at: Timestamp::now(),
        };
        if self.sender.try_send(report).is_err() {
            tracing::debug!(reason, "event dropped, too many are waiting");
        }
    }
}

/// The reference by which an event names an object.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: object.namespace(),
        name: object.meta().name.clone(),
        uid: object.uid(),
        resource_version: object.resource_version(),
        field_path: None,
    }
}

/// An event of the past that a repetition adds to.
struct Seen {
    name: String,
    count: i32,
    last: Instant,
}

async fn write_all(client: kube::Client, source: EventSource, mut reports: mpsc::Receiver<Report>) {
    let mut seen: HashMap<Identity, Seen> = HashMap::new();
    while let Some(report) = reports.recv().await {
        if seen.len() >= REMEMBERED {
            seen.retain(|_, s| s.last.elapsed() < WINDOW);
            if seen.len() >= REMEMBERED {
                seen.clear();
            }
        }
        if let Err(error) = write(&client, &source, &mut seen, report).await {
            tracing::debug!(%error, "event not written");
        }
    }
}

fn identity(report: &Report) -> Identity {
    let r = &report.regarding;
    Identity {
        namespace: r.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        uid: r.uid.clone().unwrap_or_default(),
        name: r.name.clone().unwrap_or_default(),
        kind: r.kind.clone().unwrap_or_default(),
        field_path: r.field_path.clone().unwrap_or_default(),
        type_: report.type_,
        reason: report.reason.clone(),
        message: report.message.clone(),
    }
}

async fn write(
    client: &kube::Client,
    source: &EventSource,
    seen: &mut HashMap<Identity, Seen>,
    report: Report,
) -> Result<(), kube::Error> {
    let id = identity(&report);
    let api: Api<Event> = Api::namespaced(client.clone(), &id.namespace);
    if let Some(past) = seen.get_mut(&id).filter(|s| s.last.elapsed() < WINDOW) {
        past.count += 1;
        past.last = Instant::now();
        let patch = serde_json::json!({ "count": past.count, "lastTimestamp": Time(report.at) });
        match api.patch(&past.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other.map(|_| ()),
        }
    }
    let event = new_event(source, &id, report);
    let name = event.name_any();
    api.create(&PostParams::default(), &event).await?;
    seen.insert(id, Seen { name, count: 1, last: Instant::now() });
    Ok(())
}

fn new_event(source: &EventSource, id: &Identity, report: Report) -> Event {
    let nanos = report.at.as_nanosecond();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{nanos:x}", id.name)),
            namespace: Some(id.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: report.regarding,
        type_: Some(report.type_.to_owned()),
        reason: Some(report.reason),
        message: Some(report.message),
        count: Some(1),
        first_timestamp: Some(Time(report.at)),
        last_timestamp: Some(Time(report.at)),
        source: Some(source.clone()),
        reporting_component: source.component.clone(),
        reporting_instance: source.host.clone(),
        ..Event::default()
    }
}
