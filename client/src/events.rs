//! The event recorder: events in upstream's form, repeated ones counted instead of stored again.

use crate::correlate::{Correlator, Kin, Subject, WINDOW};
use crate::informer::ObjectKey;
pub use crate::pace::Pace;
use crate::pace::Paced;
use crate::write;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Events waiting to be written; beyond it they are dropped, as upstream drops them, so that a storm of events
/// never slows the component that reports.
const BACKLOG: usize = 1000;
/// The same for a recorder whose events wait in a storm. One takes some 400 bytes.
const STORM_BACKLOG: usize = 32_768;
/// In a storm one event is written so often: a twentieth of what the server can take.
const STORM_DELAY: Duration = Duration::from_millis(5);

/// What an event of the API group events.k8s.io says beyond the older ones.
#[derive(Clone, Debug)]
pub struct EventAction {
    /// What was done or could not be done to the object: `Binding`.
    pub name: &'static str,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
}

impl EventAction {
    /// One that concerns no other object.
    pub fn named(name: &'static str) -> Self {
        Self { name, related: None }
    }
}

struct Report {
    /// `None` for an event in the older form.
    action: Option<EventAction>,
    regarding: ObjectReference,
    type_: &'static str,
    reason: String,
    message: String,
    at: Timestamp,
}

/// By which a component says that it, and with it the server, has a storm of work: events wait for its end, because
/// each costs as much as the work that it tells of. Cloning shares it; when the last one goes the storm is over.
#[derive(Clone)]
pub struct EventThrottle(Arc<watch::Sender<bool>>);

impl Default for EventThrottle {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl EventThrottle {
    pub fn set(&self, storm: bool) {
        self.0.send_if_modified(|now| std::mem::replace(now, storm) != storm);
    }
}

/// Waits for the end of a storm, but not so long that events never came.
async fn storm_over(storm: &mut watch::Receiver<bool>) {
    // Either is good: the time, the end of the storm, and of who could tell it.
    let _ = tokio::time::timeout(STORM_DELAY, storm.wait_for(|storm| !storm)).await;
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
        Self::paced(client, component, host, None)
    }

    /// As [`new`](Self::new), and no more events are written than the pace allows; the rest waits.
    pub fn paced(client: kube::Client, component: &str, host: &str, pace: Option<Pace>) -> Self {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let wait = Wait { storm: None, pace: pace.map(Paced::new) };
        tokio::spawn(write_all(client, source(component, host), receiver, wait));
        Self { sender }
    }

    /// As [`new`](Self::new) for a component of no node, with events that wait while there is a storm.
    pub fn patient(client: kube::Client, component: &str, storm: &EventThrottle) -> Self {
        let (sender, receiver) = mpsc::channel(STORM_BACKLOG);
        let wait = Wait { storm: Some(storm.0.subscribe()), pace: None };
        tokio::spawn(write_all(client, source(component, ""), receiver, wait));
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
        self.report(None, regarding, type_, reason, message.into());
    }

    /// An event in the form of events.k8s.io/v1, which upstream's scheduler writes. Never blocks.
    pub fn acted(
        &self,
        action: EventAction,
        regarding: ObjectReference,
        type_: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.report(Some(action), regarding, type_, reason, message.into());
    }

    fn report(
        &self,
        action: Option<EventAction>,
        regarding: ObjectReference,
        type_: &'static str,
        reason: &str,
        message: String,
    ) {
        let at = Timestamp::now();
        let report = Report { action, regarding, type_, reason: reason.to_owned(), message, at };
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

fn source(component: &str, host: &str) -> EventSource {
    let host = (!host.is_empty()).then(|| host.to_owned());
    EventSource { component: Some(component.to_owned()), host }
}

/// What an event waits for.
struct Wait {
    storm: Option<watch::Receiver<bool>>,
    pace: Option<Paced>,
}

impl Wait {
    async fn turn(&mut self) {
        if let Some(storm) = &mut self.storm {
            storm_over(storm).await;
        }
        if let Some(pace) = &mut self.pace {
            pace.turn().await;
        }
    }
}

async fn write_all(
    client: kube::Client,
    source: EventSource,
    mut reports: mpsc::Receiver<Report>,
    mut wait: Wait,
) {
    let mut correlator = Correlator::default();
    let mut tidied = Instant::now();
    while let Some(report) = next_report(&mut reports, &mut correlator, &mut tidied).await {
        wait.turn().await;
        if let Err(error) = record(&client, &source, &mut correlator, report).await {
            tracing::debug!(%error, "event not written");
        }
    }
}

/// The next report; what is no longer needed of earlier ones goes while it is waited for. With nothing left nobody wakes up.
async fn next_report(
    reports: &mut mpsc::Receiver<Report>,
    correlator: &mut Correlator,
    tidied: &mut Instant,
) -> Option<Report> {
    while !correlator.is_empty() {
        if let Ok(report) = tokio::time::timeout_at(*tidied + WINDOW, reports.recv()).await {
            return report;
        }
        *tidied = Instant::now();
        correlator.forget(*tidied);
    }
    reports.recv().await
}

fn kin(report: &Report) -> Kin {
    let r = &report.regarding;
    let subject = Subject {
        namespace: r.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        uid: r.uid.clone().unwrap_or_default(),
        name: r.name.clone().unwrap_or_default(),
        kind: r.kind.clone().unwrap_or_default(),
        field_path: r.field_path.clone().unwrap_or_default(),
    };
    Kin { subject, type_: report.type_, reason: report.reason.clone() }
}

async fn record(
    client: &kube::Client,
    source: &EventSource,
    correlator: &mut Correlator,
    mut report: Report,
) -> Result<(), kube::Error> {
    let Some(verdict) = correlator.judge(kin(&report), &report.message, Instant::now()) else {
        return Ok(());
    };
    report.message = verdict.message;
    let subject = &verdict.identity.kin.subject;
    if let Some((name, count)) = verdict.past {
        let key = ObjectKey::new(subject.namespace.as_str(), name.as_str());
        let count = count + 1;
        let patch = again(&report, count);
        match write::patch_part::<Event>(client, &key, None, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => {
                other?;
                correlator.written(&verdict.identity, name, count, Instant::now());
                return Ok(());
            }
        }
    }
    let event = new_event(source, subject, report);
    let name = event.name_any();
    write::create(client, &subject.namespace, &event).await?;
    correlator.written(&verdict.identity, name, 1, Instant::now());
    Ok(())
}

/// What changes in an event that comes again.
fn again(report: &Report, count: i32) -> Value {
    if report.action.is_some() {
        let series = json!({ "count": count, "lastObservedTime": MicroTime(report.at) });
        return json!({ "series": series, "message": report.message });
    }
    json!({ "count": count, "lastTimestamp": Time(report.at), "message": report.message })
}

/// The event in the form of events.k8s.io: one moment, nothing of the older fields.
fn in_the_newer_form(event: Event, source: &EventSource, action: EventAction, at: Timestamp) -> Event {
    let component = source.component.as_deref().unwrap_or_default();
    Event {
        action: Some(action.name.to_owned()),
        related: action.related,
        event_time: Some(MicroTime(at)),
        reporting_instance: Some(format!("{component}-{}", *HOST)),
        ..event
    }
}

/// The event in the older form.
fn in_the_older_form(event: Event, source: &EventSource, at: Timestamp) -> Event {
    Event {
        count: Some(1),
        first_timestamp: Some(Time(at)),
        last_timestamp: Some(Time(at)),
        source: Some(source.clone()),
        reporting_instance: source.host.clone(),
        ..event
    }
}

/// The machine's name, as far as it is text.
static HOST: LazyLock<String> = LazyLock::new(|| {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
});

fn new_event(source: &EventSource, subject: &Subject, report: Report) -> Event {
    let nanos = report.at.as_nanosecond();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{nanos:x}", subject.name)),
            namespace: Some(subject.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: report.regarding,
        type_: Some(report.type_.to_owned()),
        reason: Some(report.reason),
        message: Some(report.message),
        reporting_component: source.component.clone(),
        ..Event::default()
    };
    match report.action {
        Some(action) => in_the_newer_form(event, source, action, report.at),
        None => in_the_older_form(event, source, report.at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_wait_while_there_is_a_storm_but_not_for_ever() {
        let storm = EventThrottle::default();
        let mut seen = storm.0.subscribe();
        let begun = Instant::now();
        storm_over(&mut seen).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "no storm, no pause");
        storm.set(true);
        storm_over(&mut seen).await;
        let paused = begun.elapsed();
        assert!((STORM_DELAY..STORM_DELAY * 2).contains(&paused), "{paused:?}");
        storm.set(false);
        storm_over(&mut seen).await;
        assert_eq!(begun.elapsed(), paused);
        storm.set(true);
        drop(storm);
        storm_over(&mut seen).await;
        assert!(begun.elapsed() <= STORM_DELAY * 2, "who could tell of its end is gone");
    }
}
