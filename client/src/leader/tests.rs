use super::*;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;

/// How the API behaves.
#[derive(Clone, Copy, Default)]
enum Mood {
    #[default]
    Answers,
    /// Somebody was quicker, at every write.
    Conflicts,
    Forbids,
    /// Takes requests and never answers.
    Silent,
}

/// An API with one Lease.
#[derive(Clone, Default)]
struct World(Arc<Mutex<(Option<Value>, Mood)>>);

impl World {
    fn client(&self) -> kube::Client {
        let world = self.clone();
        let serve = move |request: Request<Body>| {
            let world = world.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap_or_default();
                let answer = world.answer(&parts.method, &bytes);
                match answer {
                    Some((code, body)) => {
                        let body = Full::new(Bytes::from(body.to_string()));
                        Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("an answer"))
                    }
                    None => std::future::pending().await,
                }
            }
        };
        kube::Client::new(tower::service_fn(serve), "default")
    }

    fn answer(&self, method: &Method, body: &[u8]) -> Option<(u16, Value)> {
        let (lease, mood) = &mut *self.0.lock();
        let status = |code: u16, reason: &str| {
            let text = json!({ "kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code });
            Some((code, text))
        };
        match mood {
            Mood::Silent => return None,
            Mood::Forbids => return status(403, "Forbidden"),
            Mood::Conflicts if *method != Method::GET => return status(409, "Conflict"),
            _ => {}
        }
        if *method != Method::GET {
            *lease = serde_json::from_slice(body).ok();
        }
        lease.clone().map_or_else(|| status(404, "NotFound"), |lease| Some((200, lease)))
    }

    fn is(&self, mood: Mood) {
        self.0.lock().1 = mood;
    }

    async fn leader(&self) -> Leadership {
        let candidate = Candidate {
            client: self.client(),
            namespace: "kube-system".to_owned(),
            lease: "kube-scheduler".to_owned(),
            identity: "us".to_owned(),
            times: Times::default(),
        };
        candidate.lead(CancellationToken::new()).await.expect("nobody stops it")
    }
}

/// Whatever the API does, the leader has ended before somebody else may take over.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_begins() {
    for (mood, why) in [
        (Mood::Silent, "the API did not answer in time"),
        (Mood::Forbids, "the API refused"),
        (Mood::Conflicts, "somebody else writes it, too"),
    ] {
        let world = World::default();
        let leadership = world.leader().await;
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!leadership.ended.is_cancelled() && leadership.lost().is_none());
        world.is(mood);
        let since = Instant::now();
        leadership.ended.cancelled().await;
        assert!(since.elapsed() <= Times::default().renew, "{why}: {:?}", since.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(60) + Times::default().lease);
        let lost = leadership.lost().expect("a reason");
        assert_eq!(lost.to_string(), "lease kube-system/kube-scheduler could not be renewed for 10s");
        let source = std::error::Error::source(lost).expect("its source");
        assert_eq!(source.to_string(), why);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_costs_nothing() {
    let world = World::default();
    let leadership = world.leader().await;
    for mood in [Mood::Conflicts, Mood::Forbids, Mood::Silent] {
        world.is(mood);
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.is(Mood::Answers);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(leadership.lost().is_none(), "{:?}", leadership.lost());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_took_the_lease_is_named() {
    let world = World::default();
    let leadership = world.leader().await;
    {
        let mut state = world.0.lock();
        let lease = state.0.as_mut().expect("a lease");
        lease["spec"]["holderIdentity"] = "them".into();
    }
    leadership.ended.cancelled().await;
    let lost = leadership.lost().expect("a reason");
    assert_eq!(lost.to_string(), "lease kube-system/kube-scheduler is held by them now");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_told_to_end_has_lost_nothing() {
    let world = World::default();
    let stop = CancellationToken::new();
    let candidate = Candidate {
        client: world.client(),
        namespace: "kube-system".to_owned(),
        lease: "kube-scheduler".to_owned(),
        identity: "us".to_owned(),
        times: Times::default(),
    };
    let leadership = candidate.clone().lead(stop.clone()).await.expect("a leader");
    stop.cancel();
    assert!(leadership.ended.is_cancelled() && leadership.lost().is_none());
    candidate.release().await.expect("released");
    assert_eq!(world.0.lock().0.as_ref().expect("a lease")["spec"]["leaseDurationSeconds"], 1);
}
