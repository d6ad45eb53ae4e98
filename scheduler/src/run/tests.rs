//! Bindings that do not come to be, against an API that nobody serves.

use super::binding::{Binder, Outcome, Unbound, Verdict};
use super::*;
use crate::cache::PodInfo;
use crate::config::Profile;
use crate::plugins::testing::pod;
use crate::queue::Popped;
use coracle_client::Delta;
use coracle_metrics::Text;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

fn client() -> kube::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let nobody = "http://127.0.0.1:1".parse().expect("an address");
    kube::Client::try_from(kube::Config::new(nobody)).expect("a client")
}

fn framework() -> Arc<Framework> {
    let registry = Registry::in_tree();
    let profile = Profile::default_for("default-scheduler", &registry);
    Arc::new(Framework::new(&profile, &registry, &Handle::offline()).expect("a profile"))
}

fn binder() -> (Binder, UnboundedReceiver<Event>) {
    let (sender, events) = unbounded_channel();
    let (waiting, metrics) = (WaitingPods::default(), Arc::new(Metrics::default()));
    let extenders = Arc::new(Extenders::new(&[]).expect("none"));
    (Binder::new(Reporter::new(client()), waiting, extenders, metrics, sender, 1), events)
}

fn verdict(framework: &Arc<Framework>) -> Verdict {
    let pod: Arc<PodInfo> =
        Arc::new(pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": []}})));
    let popped =
        Popped { pod, framework: framework.clone(), attempts: 1, first: Instant::now(), flushed: false };
    Verdict { popped, node: "a".to_owned(), begun: Instant::now() }
}

#[tokio::test]
async fn a_pod_that_was_just_permitted_can_be_cancelled() {
    let (binder, mut events) = binder();
    let permit = binder.waiting.hold("p", &[("X", MINUTE)]);
    binder.bind(verdict(&framework()), permit).await;
    assert!(binder.waiting.allow("p", "X"));
    assert!(binder.waiting.cancel("p", "preempted"), "nothing of its binding has begun");
    let Some(Event::Bound(outcome)) = events.recv().await else { panic!("its outcome") };
    assert!(
        matches!(outcome.failure, Some(Unbound::Failed { why, rejected: true }) if why == "preempted"),
        "whoever cancelled it relies on it"
    );
}

#[tokio::test]
async fn of_a_deleted_pod_nothing_is_told() {
    for (deleted, attempts) in [(false, 1), (true, 0)] {
        let ((binder, _events), framework) = (binder(), framework());
        let metrics = binder.metrics.clone();
        let core = SchedulerState::new([framework.clone()], 0, Config::default().backoff);
        let mut scheduler = Scheduler::new(core, binder, client(), metrics.clone(), Box::new(|_| None));
        let verdict = verdict(&framework);
        let pod: Arc<Pod> = verdict.popped.pod.waiting().expect("it waits").clone();
        let came = Delta { old: None, new: Some(pod.clone()) };
        scheduler.take_in(Event::Pod(came));
        if deleted {
            scheduler.take_in(Event::Pod(Delta { old: Some(pod), new: None }));
        }
        let failure = Some(Unbound::Failed { why: "removed".to_owned(), rejected: true });
        scheduler.take_in(Event::Bound(Box::new(Outcome { verdict, failure, announced: true })));
        let mut page = Text::default();
        metrics.render(&mut page);
        let counted =
            page.finish().lines().filter(|l| l.starts_with("scheduler_schedule_attempts_total")).count();
        assert_eq!(counted, attempts, "deleted: {deleted}");
    }
}
