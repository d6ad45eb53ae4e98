use super::super::batch::{Throttle, parts};
use super::*;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// Refuses the first few lists, and hands on the others.
struct Fake {
    refusals: Mutex<u32>,
    taken: UnboundedSender<Value>,
}

impl Collector for Fake {
    fn post(&self, list: Bytes) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let mut refusals = self.refusals.lock();
            if *refusals > 0 {
                *refusals -= 1;
                return Err("not now".to_owned());
            }
            let _ = self.taken.send(serde_json::from_slice(&list).unwrap());
            Ok(())
        })
    }
}

fn start(settings: Settings, refusals: u32) -> (Webhook, UnboundedReceiver<Value>) {
    let (taken, received) = unbounded_channel();
    (Webhook::start(settings, Fake { refusals: Mutex::new(refusals), taken }), received)
}

fn batching(change: impl Fn(&mut Batching)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.batching);
    settings
}

fn numbers(list: &Value) -> Vec<u64> {
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    list["items"].as_array().unwrap().iter().map(|item| item["n"].as_u64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn batches_are_full_late_or_last() {
    let settings = |b: &mut Batching| *b = Batching { batch: 3, throttle: None, ..b.clone() };
    let (webhook, mut received) = start(batching(settings), 0);
    (0..4).for_each(|n| webhook.write(&json!({ "n": n })));
    assert_eq!(numbers(&received.recv().await.unwrap()), [0, 1, 2]);
    let begun = Instant::now();
    assert_eq!(numbers(&received.recv().await.unwrap()), [3]);
    assert_eq!(begun.elapsed().as_secs(), 30);
    webhook.write(&json!({ "n": 5 }));
    webhook.close().await;
    assert_eq!(numbers(&received.recv().await.unwrap()), [5]);
    webhook.write(&json!({}));
    assert_eq!(webhook.lost(), 1, "after the end");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_repeated_and_then_given_up() {
    let (webhook, mut received) = start(batching(|b| b.batch = 1), 9);
    let begun = Instant::now();
    webhook.write(&json!({ "n": 1 }));
    webhook.write(&json!({ "n": 2 }));
    // The first list uses up its five attempts, the second succeeds with its last.
    assert_eq!(numbers(&received.recv().await.unwrap()), [2]);
    assert_eq!(webhook.lost(), 1);
    let pauses = 2.0 * (10.0 + 15.0 + 22.5 + 33.75);
    assert!((pauses..pauses * 1.2 + 1.0).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn strict_requests_need_their_event_taken() {
    for (mode, goes_on) in [(Mode::Batch, true), (Mode::Blocking, true), (Mode::BlockingStrict, false)] {
        let (webhook, _received) = start(Settings { mode, ..Settings::default() }, ATTEMPTS);
        assert_eq!(webhook.write_first(&json!({ "n": 1 })).await, goes_on, "{mode:?}");
        assert_eq!(webhook.lost(), u64::from(mode != Mode::Batch), "{mode:?}");
        let (webhook, mut received) = start(Settings { mode, ..Settings::default() }, 0);
        assert!(webhook.write_first(&json!({ "n": 1 })).await);
        if mode != Mode::Batch {
            assert_eq!(numbers(&received.try_recv().unwrap()), [1], "taken by now");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_throttled() {
    let throttle = Some(Throttle { per_second: 2.0, burst: 2 });
    let (webhook, mut received) = start(batching(|b| *b = Batching { batch: 1, throttle, ..b.clone() }), 0);
    let begun = Instant::now();
    (0..6).for_each(|n| webhook.write(&json!({ "n": n })));
    for _ in 0..6 {
        received.recv().await.unwrap();
    }
    assert_eq!(begun.elapsed().as_millis(), 2000);
}

/// At the end nobody waits for the throttle, nor for long for a collector; what is lost then is counted.
#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait() {
    let throttle = Some(Throttle { per_second: 0.01, burst: 1 });
    let one_by_one = || batching(|b| *b = Batching { batch: 1, throttle, ..b.clone() });
    let (webhook, mut received) = start(one_by_one(), 0);
    let begun = Instant::now();
    (0..6).for_each(|n| webhook.write(&json!({ "n": n })));
    assert_eq!(numbers(&received.recv().await.unwrap()), [0]);
    webhook.close().await;
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    assert_eq!((received.len(), webhook.lost()), (5, 0));
    let (webhook, _received) = start(one_by_one(), u32::MAX);
    (0..6).for_each(|n| webhook.write(&json!({ "n": n })));
    webhook.close().await;
    assert_eq!(webhook.lost(), 6);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_lost_and_counted() {
    let (webhook, _received) = start(batching(|b| b.buffer = 2), 0);
    (0..5).for_each(|n| webhook.write(&json!({ "n": n })));
    assert_eq!(webhook.lost(), 3);
    let truncation = Some(Truncation { max_event_bytes: 50, ..Truncation::default() });
    let (webhook, _received) = start(Settings { truncation, ..Settings::default() }, 0);
    webhook.write(&json!({ "user": "x".repeat(50) }));
    assert_eq!(webhook.lost(), 1);
}

#[test]
fn large_batches_are_divided() {
    let batch: Vec<Vec<u8>> = [4, 4, 4, 20, 1].map(|length| vec![b'x'; length]).into();
    let lengths = |most| parts(batch.clone(), most).iter().map(|part| part.len()).collect::<Vec<_>>();
    assert_eq!(lengths(None), [5]);
    assert_eq!(lengths(Some(10)), [2, 1, 1, 1]);
    assert_eq!(lengths(Some(33)), [5]);
}
