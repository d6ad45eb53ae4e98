use super::*;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

type Asked = Arc<Mutex<Vec<String>>>;

/// Answers each request with the next of `answers`, and afterwards with a watch that stays silent.
fn client(answers: &[(u16, &str)]) -> (kube::Client, Asked) {
    let answers: VecDeque<(u16, String)> =
        answers.iter().map(|(code, text)| (*code, (*text).to_owned())).collect();
    let (answers, asked) = (Arc::new(Mutex::new(answers)), Asked::default());
    let seen = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        seen.lock().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = answers.lock().pop_front();
        async move {
            let Some((code, text)) = answer else { return std::future::pending().await };
            let mut response = Response::new(Body::from(text.into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    (kube::Client::new(service, "default"), asked)
}

#[tokio::test]
async fn what_is_there_is_had_without_waiting() {
    let lines = event("ADDED", "a", 1) + &event("ADDED", "b", 2);
    let (client, _) = client(&[(200, &lines)]);
    let mut reflector = Reflector::new(client, Selection::of("/api/v1/pods"));
    assert!(reflector.now().is_none(), "nothing is asked for on the side");
    assert_eq!(reflector.next().await, Change::Restart);
    for there in [true, true, false] {
        assert_eq!(reflector.now().is_some(), there);
    }
}

fn event(kind: &str, name: &str, version: u32) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"{name}\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

fn end_of_copy(version: u32) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\",\"annotations\":{{\"{INITIAL_END}\":\"true\"}}}}}}}}\n"
    )
}

async fn changes(reflector: &mut Reflector, count: usize) -> String {
    let mut told = String::new();
    for _ in 0..count {
        told += &match reflector.next().await {
            Change::Restart => "restart ".to_owned(),
            Change::Synced => "synced ".to_owned(),
            Change::Applied(object) => format!("+{} ", name(&object)),
            Change::Deleted(object) => format!("-{} ", name(&object)),
        };
    }
    told
}

fn name(object: &[u8]) -> String {
    let object: serde_json::Value = serde_json::from_slice(object).unwrap();
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_copy_comes_first_and_a_watch_resumes_where_it_ended() {
    let first = event("ADDED", "a", 3) + &end_of_copy(5) + &event("MODIFIED", "a", 7);
    let second = event("DELETED", "a", 9);
    let (client, asked) = client(&[(200, &first), (500, "{}"), (200, &second)]);
    let mut reflector = Reflector::new(client, Selection::of("/api/v1/pods").fields("metadata.name=a"));
    assert_eq!(changes(&mut reflector, 5).await, "restart +a synced +a -a ");
    let asked = asked.lock();
    assert!(
        asked[0].contains("sendInitialEvents=true") && asked[0].contains("fieldSelector=metadata.name%3Da")
    );
    assert!(asked[1].contains("resourceVersion=7"), "{asked:?}");
    assert!(asked[2].contains("resourceVersion=7"), "an error moves nothing: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_starts_anew() {
    let first = event("ADDED", "a", 3) + &end_of_copy(5);
    let gone = "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n";
    let again = end_of_copy(20);
    let (client, asked) = client(&[(200, &first), (200, gone), (200, &again)]);
    let mut reflector = Reflector::new(client, Selection::of("/api/v1/pods"));
    assert_eq!(changes(&mut reflector, 5).await, "restart +a synced restart synced ");
    assert_eq!(asked.lock().iter().filter(|q| q.contains("sendInitialEvents")).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_breaks_off_is_begun_again() {
    let half = event("ADDED", "a", 3);
    let whole = event("ADDED", "a", 3) + &end_of_copy(5);
    let (client, _) = client(&[(200, &half), (200, "no event\n"), (200, &whole)]);
    let mut reflector = Reflector::new(client, Selection::of("/api/v1/pods"));
    assert_eq!(changes(&mut reflector, 6).await, "restart +a restart restart +a synced ");
}

#[tokio::test]
async fn versions_are_found_wherever_they_stand() {
    let theirs = br#"{"metadata":{"name":"a","labels":{"resourceVersion":"7"},"resourceVersion":"13"}}"#;
    let mut reflector = Reflector::new(client(&[]).0, Selection::default());
    reflector.synced = true;
    reflector.event(false, Bytes::from_static(theirs).into()).unwrap();
    assert_eq!(reflector.from, From::Version("13".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_server_in_this_process_hands_objects_over_in_pieces() {
    let stored = Bytes::from_static(br#""name":"a"}}"#);
    let shared = stored.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        if let Some(pieces) = request.extensions().get::<Pieces>() {
            pieces.promise();
        }
        let head = br#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"3","#;
        let whole = event("MODIFIED", "b", 4) + &end_of_copy(5) + &event("DELETED", "b", 6);
        let frames = [Bytes::from_static(head), shared.clone(), Bytes::from_static(PIECE_END), whole.into()];
        let frames = frames.map(|data| Ok::<_, Infallible>(http_body::Frame::data(data)));
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let client = kube::Client::new(service, "default");
    let mut reflector = Reflector::sharing(client.clone(), Selection::of("/api/v1/pods"));
    assert_eq!(reflector.next_document().await, Change::Restart);
    let Change::Applied(first) = reflector.next_document().await else { panic!("no object") };
    assert!(first.is_shared());
    assert_eq!(first.bytes(), &br#"{"metadata":{"resourceVersion":"3","name":"a"}}"#[..]);
    let Change::Applied(second) = reflector.next_document().await else { panic!("no object") };
    assert!(!second.is_shared());
    assert_eq!(changes(&mut reflector, 2).await, "synced -b ");
    let mut whole = Reflector::new(client, Selection::of("/api/v1/pods"));
    assert_eq!(changes(&mut whole, 5).await, "restart +a +b synced -b ");
}
