//! etcd under the suite that every backend passes, and what several servers on one etcd see.

use coracle_store::etcd::moving::{self, MoveError};
use coracle_store::etcd::{EtcdOptions, EtcdStore};
use coracle_store::{KeyValue, Precondition, Revision, Store, StoreError, Txn, suite};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// One member with a data directory of its own, which goes with it.
struct Etcd {
    process: Child,
    dir: TempDir,
    url: String,
    peer: String,
}

impl Etcd {
    fn start() -> Self {
        let (url, peer) = (free(), free());
        let dir = tempfile::tempdir().expect("temporary directory");
        let process = Self::spawn(&dir, &url, &peer);
        Self { process, dir, url, peer }
    }

    fn spawn(dir: &TempDir, url: &str, peer: &str) -> Child {
        Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd, of Debian's package etcd-server")
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn start_again(&mut self) {
        self.stop();
        self.process = Self::spawn(&self.dir, &self.url, &self.peer);
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions { servers: vec![self.url.clone()], ..EtcdOptions::default() }
    }

    /// A server's store, as soon as etcd answers.
    async fn open(&self) -> Arc<dyn Store> {
        for _ in 0..300 {
            match EtcdStore::open(&self.options()).await {
                Ok(store) => return store,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("etcd does not answer");
    }

    /// What etcdctl prints.
    fn ctl(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url]).args(arguments);
        let output = command.output().expect("etcdctl, of Debian's package etcd-client");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    format!("http://127.0.0.1:{port}")
}

coracle_store::store_suite!({
    let etcd = Etcd::start();
    (etcd.open().await, etcd)
});

#[tokio::test]
async fn a_write_by_one_server_is_seen_by_the_next_read_of_another() {
    let etcd = Etcd::start();
    let (one, two) = (etcd.open().await, etcd.open().await);
    for round in 0..50 {
        let revision = one.commit(suite::txn(vec![suite::put("a./n/1", round.to_string())])).await.unwrap();
        assert!(two.sync().await.unwrap() >= revision);
        let seen = suite::value(&*two, "a./n/1").await.unwrap();
        assert_eq!(seen, round.to_string());
    }
    let late = etcd.open().await;
    assert_eq!(late.revision(), one.revision());
    assert!(late.oldest() < Revision(10), "who comes late knows the past: {:?}", late.oldest());
}

#[tokio::test]
async fn of_two_servers_that_create_one_key_one_succeeds() {
    let etcd = Etcd::start();
    let (one, two) = (etcd.open().await, etcd.open().await);
    for round in 0..50 {
        let key = format!("a./n/{round}");
        let create = || Txn {
            guards: vec![Precondition { key: key.as_str().into(), expect: None }],
            ..suite::txn(vec![suite::put(&key, "x")])
        };
        let (first, second) = tokio::join!(one.commit(create()), two.commit(create()));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let lost = first.err().or(second.err()).unwrap();
        assert!(matches!(lost, StoreError::Conflict { actual: Some(_), .. }), "{lost:?}");
    }
}

#[tokio::test]
async fn foreign_keys_hold_nobody_up() {
    let etcd = Etcd::start();
    let store = etcd.open().await;
    etcd.ctl(&["put", "/other/a", "x"]);
    etcd.ctl(&["put", "/registry/ranges/serviceips", "x"]);
    let seen = tokio::time::timeout(Duration::from_secs(5), store.sync()).await.expect("in time").unwrap();
    assert!(seen >= Revision(3) && store.revision() >= seen);
    assert!(store.range(Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn values_and_keys_are_upstreams() {
    let etcd = Etcd::start();
    let store = etcd.open().await;
    let pod = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default","uid":"u"},"spec":{"containers":[{"name":"c","image":"i","resources":{}}]},"status":{}}"#;
    let custom = r#"{"kind":"CronTab","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"default"},"spec":{"x":1}}"#;
    let ops =
        vec![suite::put("pods./default/web", pod), suite::put("crontabs.example.com/default/a", custom)];
    store.commit(suite::txn(ops)).await.unwrap();
    let stored = etcd.ctl(&["get", "--print-value-only", "/registry/pods/default/web"]);
    assert!(stored.starts_with(b"k8s\0\n\t\n\x02v1\x12\x03Pod"), "{:?}", String::from_utf8_lossy(&stored));
    let stored = etcd.ctl(&["get", "--print-value-only", "/registry/example.com/crontabs/default/a"]);
    assert_eq!(String::from_utf8_lossy(&stored).trim_end(), custom);
    assert_eq!(suite::value(&*store, "pods./default/web").await.unwrap(), pod);
    assert_eq!(suite::value(&*store, "crontabs.example.com/default/a").await.unwrap(), custom);
}

#[tokio::test]
async fn events_go_by_etcds_lease() {
    let etcd = Etcd::start();
    drop(etcd.open().await);
    let options = EtcdOptions { event_ttl: Duration::from_secs(0), ..etcd.options() };
    let store = EtcdStore::open(&options).await.unwrap();
    store
        .commit(suite::txn(vec![suite::put("events./a/b", "x"), suite::put("pods./a/b", "x")]))
        .await
        .unwrap();
    let lease = |key: &str| {
        let shown = etcd.ctl(&["get", key, "-w", "json"]);
        String::from_utf8(shown).unwrap().contains("\"lease\":")
    };
    assert!(lease("/registry/events/a/b") && !lease("/registry/pods/a/b"));
}

#[tokio::test]
async fn an_etcd_that_is_away_refuses_writes_and_watches_go_on_when_it_is_back() {
    let mut etcd = Etcd::start();
    let store = etcd.open().await;
    let before = store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await.unwrap();
    let mut events = store.watch("a.", before).unwrap();
    etcd.stop();
    let refused = store.commit(suite::txn(vec![suite::put("a./n/1", "y")])).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))), "{refused:?}");
    assert!(matches!(store.sync().await, Err(StoreError::Unavailable(_))));
    assert_eq!(suite::value(&*store, "a./n/1").await.unwrap(), "x", "what is known can be read");
    etcd.start_again();
    let mut written = store.commit(suite::txn(vec![suite::put("a./n/1", "z")])).await;
    while let Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) = written {
        tokio::time::sleep(Duration::from_millis(50)).await;
        written = store.commit(suite::txn(vec![suite::put("a./n/1", "z")])).await;
    }
    let written = written.unwrap();
    let mut last = before;
    while last < written {
        let event = tokio::time::timeout(Duration::from_secs(30), events.recv()).await.unwrap().unwrap();
        assert!(event.revision > last);
        last = event.revision;
    }
}

#[tokio::test]
async fn a_watch_goes_on_through_a_compaction_that_it_missed() {
    let mut etcd = Etcd::start();
    let store = etcd.open().await;
    let ops = vec![suite::put("a./n/gone", "x"), suite::put("a./n/kept", "x")];
    let before = store.commit(suite::txn(ops)).await.unwrap();
    let mut events = store.watch("", before).unwrap();
    etcd.stop();
    // On another port, so that this server cannot follow what is compacted.
    let (hidden, peer) = (free(), etcd.peer.clone());
    let mut process = Etcd::spawn(&etcd.dir, &hidden, &peer);
    let options = EtcdOptions { servers: vec![hidden], ..EtcdOptions::default() };
    let other = loop {
        match EtcdStore::open(&options).await {
            Ok(other) => break other,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    other.commit(suite::txn(vec![suite::delete("a./n/gone")])).await.unwrap();
    let last = other.commit(suite::txn(vec![suite::put("a./n/new", "y")])).await.unwrap();
    other.compact(last).await.unwrap();
    let _ = process.kill();
    let _ = process.wait();
    etcd.start_again();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let event = tokio::time::timeout(Duration::from_secs(30), events.recv()).await.unwrap().unwrap();
        seen.extend(event.changes.iter().map(|change| (change.key.to_string(), change.value.is_some())));
    }
    seen.sort();
    assert_eq!(seen, [("a./n/gone".to_owned(), false), ("a./n/new".to_owned(), true)]);
    let kept = store.get("a./n/kept").await.unwrap().unwrap();
    assert_eq!(kept.modified, before);
    let resumed = store.watch("", before);
    assert!(matches!(resumed, Err(StoreError::Compacted { .. })));
}

#[tokio::test]
async fn what_is_too_large_says_so() {
    let etcd = Etcd::start();
    let store = etcd.open().await;
    let refused = store.commit(suite::txn(vec![suite::put("a./n/1", suite::bytes_of(3_000_000))])).await;
    assert!(matches!(refused, Err(StoreError::TooLarge(_))), "{refused:?}");
    let many = (0..200).map(|n| suite::put(&format!("a./n/{n}"), "x")).collect();
    let refused = store.commit(suite::txn(many)).await;
    assert!(matches!(refused, Err(StoreError::TooLarge(_))), "{refused:?}");
}

#[tokio::test]
async fn members_of_two_clusters_are_refused() {
    let (one, two) = (Etcd::start(), Etcd::start());
    drop((one.open().await, two.open().await));
    let mut etcd = one;
    let servers = vec![etcd.url.clone(), two.url.clone()];
    let store = EtcdStore::open(&EtcdOptions { servers, ..EtcdOptions::default() }).await.unwrap();
    etcd.stop();
    let mut said = String::new();
    for _ in 0..100 {
        if let Err(error) = store.sync().await {
            said = error.to_string();
        }
        if said.contains("different clusters") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the other cluster was taken: {said}");
}

/// A way to a member that can be cut, as a network is: connections stay and nothing comes through.
struct Way {
    url: String,
    cut: tokio::sync::watch::Sender<bool>,
}

impl Way {
    async fn to(etcd: &Etcd) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (cut, is_cut) = tokio::sync::watch::channel(false);
        let there = etcd.url.trim_start_matches("http://").to_owned();
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let (mut is_cut, there) = (is_cut.clone(), there.clone());
                tokio::spawn(async move {
                    let Ok(mut there) = tokio::net::TcpStream::connect(there).await else { return };
                    let cut = async { drop(is_cut.wait_for(|cut| *cut).await) };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut here, &mut there) => {}
                        // Silent from now on, and open.
                        () = cut => std::future::pending().await,
                    }
                });
            }
        });
        Self { url, cut }
    }
}

/// A member that is silent is no reason to say that etcd is away; one that is the only one is, soon.
#[tokio::test]
async fn another_member_answers_for_one_that_is_silent() {
    let etcd = Etcd::start();
    drop(etcd.open().await);
    let (first, second) = (Way::to(&etcd).await, Way::to(&etcd).await);
    let servers = vec![first.url.clone(), second.url.clone()];
    let store = EtcdStore::open(&EtcdOptions { servers, ..EtcdOptions::default() }).await.unwrap();
    store.reach().await.unwrap();
    first.cut.send_replace(true);
    let begun = std::time::Instant::now();
    tokio::time::timeout(Duration::from_millis(1_500), store.reach()).await.expect("soon").unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(500), "the first was asked, and was silent");
    second.cut.send_replace(true);
    let none = tokio::time::timeout(Duration::from_secs(20), store.reach()).await.expect("it gives up");
    assert!(matches!(none, Err(StoreError::Unavailable(_))), "{none:?}");
}

impl Etcd {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill(1)").success());
    }
}

fn object(key: String, value: String) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: value.into_bytes().into(),
        created: Revision(1),
        modified: Revision(2),
    }
}

/// More than a page by number and by size, protobuf and JSON, and a value that nobody can read.
fn state() -> Vec<KeyValue> {
    let map = |n: usize, bytes: usize| {
        let value = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"m{n}","namespace":"n","uid":"u{n}","creationTimestamp":"2026-01-01T00:00:00Z"}},"data":{{"x":"{}"}}}}"#,
            "x".repeat(bytes)
        );
        object(format!("configmaps./n/m{n}"), value)
    };
    let mut items: Vec<KeyValue> = (0..350).map(|n| map(n, 10)).collect();
    items.extend((350..360).map(|n| map(n, 300_000)));
    items.push(object(
        "boats.example.com/n/b".to_owned(),
        r#"{"kind":"Boat","apiVersion":"example.com/v1","metadata":{"name":"b","namespace":"n","uid":"b"},"spec":{"weight":12.5}}"#.to_owned(),
    ));
    items.push(object("secrets./n/s".to_owned(), "k8s:enc:aescbc:v1:key:sealed".to_owned()));
    items
}

#[tokio::test]
async fn a_state_is_moved_whole_and_watches_of_before_are_told() {
    let etcd = Etcd::start();
    drop(etcd.open().await);
    let (items, options) = (state(), etcd.options());
    let moved = moving::fill(&options, &items, Revision(3_000), &|_| {}).await.unwrap();
    assert_eq!(moved.objects, items.len());
    assert!(moved.revision > Revision(3_000), "{moved:?}");
    let store = etcd.open().await;
    assert!(matches!(store.watch("", Revision(2_999)), Err(StoreError::Compacted { .. })));
    let (_, there) = moving::read(&options).await.unwrap();
    moving::compare(&items, &there).unwrap();
    let again = moving::fill(&options, &items, Revision(0), &|_| {}).await;
    assert!(matches!(again, Err(MoveError::NotEmpty(count, _)) if count == items.len()), "{again:?}");
    // As an attempt leaves it that was killed.
    etcd.ctl(&["put", "/registry/coracle-moving", "x"]);
    etcd.ctl(&["del", "/registry/configmaps/n/m1"]);
    let begun = EtcdStore::open(&options).await.map(drop);
    assert!(matches!(&begun, Err(StoreError::Unavailable(why)) if why.contains("being moved")), "{begun:?}");
    assert!(matches!(moving::read(&options).await, Err(MoveError::Unfinished)));
    moving::fill(&options, &items, Revision(0), &|_| {}).await.unwrap();
    moving::compare(&items, &moving::read(&options).await.unwrap().1).unwrap();
    let large = [object("configmaps./n/large".to_owned(), "x".repeat(3_000_000))];
    let other = EtcdOptions { prefix: "/other".to_owned(), ..options };
    let refused = moving::fill(&other, &large, Revision(0), &|_| {}).await;
    assert!(
        matches!(&refused, Err(MoveError::TooLarge { key, .. }) if key.ends_with("large")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_etcd_that_grants_no_rights_says_so() {
    let etcd = Etcd::start();
    let store = etcd.open().await;
    for words in ["user add root:secret", "role add root", "user grant-role root root", "auth enable"] {
        etcd.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    let begun = EtcdStore::open(&etcd.options()).await.map(drop);
    assert!(
        matches!(&begun, Err(StoreError::Unavailable(why)) if why.contains("user name is empty")),
        "{begun:?}"
    );
    let refused = store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn an_etcd_that_pauses_is_waited_for_and_told_when_it_does_not_answer() {
    let etcd = Etcd::start();
    let store = etcd.open().await;
    etcd.signal("-STOP");
    let writing = {
        let store = store.clone();
        tokio::spawn(async move { store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await })
    };
    // Slower than a second, and not yet given up.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!writing.is_finished());
    etcd.signal("-CONT");
    writing.await.unwrap().unwrap();
    etcd.signal("-STOP");
    let begun = EtcdStore::open(&etcd.options()).await.map(drop);
    assert!(matches!(&begun, Err(StoreError::Unavailable(why)) if why.contains(&etcd.url)), "{begun:?}");
    etcd.signal("-CONT");
    assert_eq!(suite::value(&*etcd.open().await, "a./n/1").await.unwrap(), "x");
}
