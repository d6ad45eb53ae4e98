use super::*;
use axum::Router;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Speaks HTTP, says who it is, and streams for ever at `/stream`.
struct Fake {
    url: Uri,
    runtime: Option<Runtime>,
    /// It takes connections and answers nobody, as a process that was stopped.
    silent: Arc<AtomicBool>,
    posts: Arc<AtomicUsize>,
}

impl Fake {
    /// In a runtime of its own, so that it can die with all its connections.
    fn start(name: &'static str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a setting");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let (silent, posts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (still, count) = (silent.clone(), posts.clone());
        let endless = || async {
            axum::body::Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>())
        };
        let post = move || {
            count.fetch_add(1, SeqCst);
            async { "{}" }
        };
        let pause = move |request: Request<axum::body::Body>, next: Next| {
            let still = still.clone();
            async move {
                if still.load(SeqCst) {
                    std::future::pending::<()>().await;
                }
                next.run(request).await
            }
        };
        let app = Router::new()
            .route("/readyz", get(|| async { "ok" }))
            .route("/name", get(move || async move { name }))
            .route("/stream", get(endless))
            .route("/api/v1/namespaces/n/configmaps", axum::routing::post(post))
            .layer(from_fn(pause));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, app).await.expect("it serves");
        });
        Self { url: url.parse().expect("a URL"), runtime: Some(runtime), silent, posts }
    }

    /// Returns when all its connections are closed.
    async fn kill(&mut self) {
        let runtime = self.runtime.take().expect("it lives");
        let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10)));
        ended.await.expect("its end");
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn plain(server: &Uri) -> Result<kube::Client, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    kube::Client::try_from(kube::Config::new(server.clone())).map_err(|e| chain(&e))
}

async fn name(client: &kube::Client) -> String {
    let request = Request::get("/name").body(Vec::new()).expect("a request");
    client.request_text(request).await.expect("an answer")
}

async fn two() -> (Fake, Fake, Arc<Servers>, kube::Client, tempfile::TempDir) {
    let (a, b) = (Fake::start("a"), Fake::start("b"));
    let dir = tempfile::tempdir().expect("temporary directory");
    let servers = Servers::load(a.url.clone(), Some(dir.path()));
    servers.know(vec![b.url.clone(), a.url.clone()]);
    let client = servers.client(plain).expect("a client");
    (a, b, servers, client, dir)
}

#[tokio::test]
async fn what_was_learnt_is_known_after_a_start() {
    let (a, b, servers, _, dir) = two().await;
    let first: Uri = "https://192.0.2.9:6443".parse().expect("a URL");
    let again = Servers::load(first.clone(), Some(dir.path())).all();
    assert_eq!(again.len(), 3);
    assert!(again.contains(&a.url) && again.contains(&b.url) && again.contains(&first));
    servers.know(Vec::new());
    assert_eq!(servers.all().len(), 2, "a list of nobody is none");
}

#[tokio::test]
async fn a_read_goes_to_the_next_server_when_one_is_dead() {
    let (mut a, _b, _, client, _dir) = two().await;
    assert_eq!(name(&client).await, "a");
    a.kill().await;
    assert_eq!(name(&client).await, "b", "nobody notices");
}

#[tokio::test]
async fn a_write_is_repeated_only_where_it_was_not_sent() {
    let (mut a, b, _, client, _dir) = two().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "n");
    a.kill().await;
    maps.create(&PostParams::default(), &ConfigMap::default()).await.expect("nothing listens at a");
    assert_eq!(b.posts.load(SeqCst), 1);
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert!(!call::may_be_repeated(&axum::http::Method::POST, &error), "it may have been done");
    assert!(call::may_be_repeated(&axum::http::Method::GET, &error));
}

#[tokio::test]
async fn a_server_that_is_silent_loses_its_watches_within_five_seconds() {
    let (a, b, servers, client, _dir) = two().await;
    let stream = Request::get("/stream").body(Body::empty()).expect("a request");
    let mut open = client.send(stream).await.expect("a stream").into_body();
    a.silent.store(true, SeqCst);
    let watching = tokio::spawn(servers.clone().watch_over(plain));
    let begun = Instant::now();
    let frame =
        std::future::poll_fn(|cx| axum::body::HttpBody::poll_frame(std::pin::Pin::new(&mut open), cx));
    let cut = tokio::time::timeout(Duration::from_secs(5), frame).await.expect("within five seconds");
    assert!(cut.expect("an end").is_err());
    assert!(begun.elapsed() >= LOOK_INTERVAL, "it was looked at first");
    assert_eq!((servers.place().server, name(&client).await.as_str()), (b.url.clone(), "b"));
    watching.abort();
}

#[tokio::test]
async fn a_server_that_answers_is_kept_and_so_is_one_when_nobody_does() {
    let (a, b, servers, client, _dir) = two().await;
    let clients = Clients { make: Arc::new(plain), made: Arc::default() };
    assert!(!servers.reconsider(&servers.place(), &clients, false).await, "it answers");
    assert_eq!(name(&client).await, "a");
    a.silent.store(true, SeqCst);
    b.silent.store(true, SeqCst);
    assert!(!servers.reconsider(&servers.place(), &clients, false).await);
    assert_eq!(servers.place().server, a.url, "nobody is better");
    b.silent.store(false, SeqCst);
    tokio::time::sleep(SETTLE_DURATION).await;
    assert!(servers.reconsider(&servers.place(), &clients, false).await);
    assert_eq!(servers.place().server, b.url);
}
