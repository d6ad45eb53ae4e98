use super::follow::copy;
use super::*;
use bytes::{Bytes, BytesMut};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LOG: &str = "\
2024-01-01T00:00:01.000000000Z stdout F one
2024-01-01T00:00:02.000000000Z stderr F two
2024-01-01T00:00:03.000000000Z stdout P thr
2024-01-01T00:00:03.100000000Z stdout F ee
2024-01-01T00:00:04.000000000Z stdout F four
";

async fn read(query: &str, log: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    std::fs::write(&path, log).unwrap();
    let options = Options::parse(query, Timestamp::UNIX_EPOCH).unwrap();
    let (sender, mut receiver) = mpsc::channel(100);
    copy(&path, &options, &sender, || false).await.unwrap();
    drop(sender);
    let mut got = BytesMut::new();
    while let Some(piece) = receiver.recv().await {
        got.extend_from_slice(&piece);
    }
    String::from_utf8(got.to_vec()).unwrap()
}

#[tokio::test]
async fn options_choose_what_is_shown() {
    let cases = [
        ("", "one\ntwo\nthree\nfour\n"),
        ("stream=Stderr", "two\n"),
        ("stream=Stdout", "one\nthree\nfour\n"),
        ("tailLines=1", "four\n"),
        ("tailLines=3", "three\nfour\n"),
        ("tailLines=0", ""),
        ("tailLines=99", "one\ntwo\nthree\nfour\n"),
        ("limitBytes=5", "one\nt"),
        ("sinceTime=2024-01-01T00:00:03Z", "three\nfour\n"),
        (
            "timestamps=true&tailLines=3",
            concat!("2024-01-01T00:00:03.000000000Z three\n", "2024-01-01T00:00:04.000000000Z four\n"),
        ),
        ("timestamps=true&limitBytes=10", "2024-01-01"),
        ("follow=true&tailLines=1", "four\n"),
    ];
    for (query, shown) in cases {
        assert_eq!(read(query, LOG).await, shown, "{query}");
    }
}

#[tokio::test]
async fn odd_files_do_no_harm() {
    assert_eq!(read("", "").await, "");
    assert_eq!(read("tailLines=5", "").await, "");
    assert_eq!(read("", "garbage\n2024-01-01T00:00:01Z stdout F ok\n\u{0}\n").await, "ok\n");
    assert_eq!(read("", "2024-01-01T00:00:01Z stdout F no newline").await, "no newline\n");
    let long = format!("2024-01-01T00:00:01Z stdout F {}\n", "x".repeat(200_000));
    assert_eq!(read("", &long).await.len(), 200_001);
    assert_eq!(read("tailLines=1", &long).await.len(), 200_001);
}

#[test]
fn bad_options_are_refused() {
    for query in ["tailLines=x", "tailLines=-1", "limitBytes=", "sinceTime=now", "stream=All2"] {
        assert!(Options::parse(query, Timestamp::UNIX_EPOCH).is_err(), "{query}");
    }
}

fn line(text: &str) -> String {
    format!("2024-01-01T00:00:01Z stdout F {text}\n")
}

async fn expect(receiver: &mut mpsc::Receiver<Bytes>, wanted: &str) {
    let mut got = String::new();
    while got.len() < wanted.len() {
        let piece = tokio::time::timeout(Duration::from_secs(60), receiver.recv()).await;
        got.push_str(std::str::from_utf8(&piece.expect("log stalled").expect("log ended")).unwrap());
    }
    assert_eq!(got, wanted);
}

#[tokio::test]
async fn following_goes_through_growth_and_rotation_to_the_containers_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    std::fs::write(&path, line("old")).unwrap();
    let options = Options { follow: true, ..Options::default() };
    let running = Arc::new(AtomicBool::new(true));
    let (sender, mut receiver) = mpsc::channel(1);
    let (followed, flag) = (path.clone(), running.clone());
    let follow = tokio::spawn(async move {
        copy(&followed, &options, &sender, move || flag.load(Ordering::SeqCst)).await.unwrap();
    });
    expect(&mut receiver, "old\n").await;

    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let (head, tail) = ("2024-01-01T00:00:01Z std", "out F cut\n");
    file.write_all(head.as_bytes()).unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    file.write_all(tail.as_bytes()).unwrap();
    expect(&mut receiver, "cut\n").await;

    std::fs::rename(&path, folder.path().join("0.log.1")).unwrap();
    file.write_all(line("after rename").as_bytes()).unwrap();
    std::fs::write(&path, line("new file")).unwrap();
    expect(&mut receiver, "after rename\nnew file\n").await;

    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(line("last").as_bytes()).unwrap();
    running.store(false, Ordering::SeqCst);
    expect(&mut receiver, "last\n").await;
    tokio::time::timeout(Duration::from_secs(60), follow).await.expect("follows for ever").unwrap();
}

#[tokio::test]
async fn following_ends_with_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0.log");
    std::fs::write(&path, "").unwrap();
    let options = Options { follow: true, ..Options::default() };
    let (sender, receiver) = mpsc::channel(1);
    let follow = tokio::spawn(async move { copy(&path, &options, &sender, || true).await });
    drop(receiver);
    tokio::time::timeout(Duration::from_secs(60), follow).await.expect("follows for ever").unwrap().unwrap();
}

#[test]
fn containers_that_never_ran_say_why() {
    let status = |state: serde_json::Value| -> ContainerStatus {
        let base = serde_json::json!({ "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0 });
        let mut status = base;
        status["state"] = state;
        serde_json::from_value(status).unwrap()
    };
    let waiting = |reason: &str| serde_json::json!({ "waiting": { "reason": reason } });
    let cases = [
        (waiting("ContainerCreating"), "is waiting to start: ContainerCreating"),
        (waiting("ErrImagePull"), "is waiting to start: image can't be pulled"),
        (waiting("ImagePullBackOff"), "is waiting to start: trying and failing to pull image"),
        (serde_json::json!({}), "is waiting to start - no logs yet"),
        (serde_json::json!({ "terminated": { "exitCode": 1 } }), "is terminated"),
    ];
    for (state, text) in cases {
        assert_eq!(
            not_started(Some(&status(state)), "p", "c"),
            format!("container \"c\" in pod \"p\" {text}")
        );
    }
    assert_eq!(not_started(None, "p", "c"), "container \"c\" in pod \"p\" is not available");
}

mod properties {
    use super::super::line::Printer;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(raw in proptest::collection::vec(any::<u8>(), 0..300), limit in 0u64..50) {
            let options = Options { limit_bytes: Some(limit), timestamps: true, ..Options::default() };
            let mut out = BytesMut::new();
            Printer::new(&options).print(&raw, &mut out);
            prop_assert!(out.len() as u64 <= limit);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn tail_is_the_last_lines(
            lengths in proptest::collection::vec(0usize..4000, 0..60), tail in 0usize..70
        ) {
            let lines: Vec<String> = lengths.iter().map(|length| "x".repeat(*length)).collect();
            let log: String = lines.iter().map(|text| line(text)).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let got = runtime.block_on(read(&format!("tailLines={tail}"), &log));
            let wanted: String =
                lines.iter().skip(lines.len().saturating_sub(tail)).map(|text| format!("{text}\n")).collect();
            prop_assert_eq!(got, wanted);
        }
    }
}
