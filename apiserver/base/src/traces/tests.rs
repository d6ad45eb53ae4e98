use super::*;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

/// A collector: what it was sent, after the five bytes of gRPC.
async fn collector(code: &'static str) -> (Endpoint, UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let sender = sender.clone();
                async move { Ok::<_, Infallible>(answer(request, code, &sender).await) }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(async move { drop(server.serve_connection(TokioIo::new(stream), service).await) });
        }
    });
    (Endpoint::Host { host: "127.0.0.1".to_owned(), port }, receiver)
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    code: &'static str,
    sender: &mpsc::UnboundedSender<Vec<u8>>,
) -> Response<BoxBody<bytes::Bytes, Infallible>> {
    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(usize::from(body[0]), 0);
    assert_eq!(u32::from_be_bytes(body[1..5].try_into().unwrap()), u32::try_from(body.len() - 5).unwrap());
    sender.send(body[5..].to_vec()).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    let body = Full::new(bytes::Bytes::from_static(&[0; 5]))
        .with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
    Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
}

fn described() -> (String, Attributes) {
    ("GET /api/v1/pods".to_owned(), vec![("audit-id", Attribute::Text("the-audit-id".to_owned()))])
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_request_reaches_the_collector_with_its_steps() {
    let (endpoint, mut received) = collector("0").await;
    let tracer = Tracer::start(Config { endpoint, per_million: 0 });
    let parent = Context { trace: [7; 16], span: [9; 8], sampled: true };
    let span = tracer.begin(Some(parent), true, described).unwrap();
    assert!(span.header().to_str().unwrap().starts_with("00-07070707070707070707070707070707-"));
    let part = Part { name: "authorize", from: Duration::ZERO, to: Duration::from_millis(1) };
    span.finish(Duration::from_millis(2), Some(200), &[part]);
    tracer.close().await;
    let sent = received.recv().await.unwrap();
    for part in [&b"service.name"[..], b"GET /api/v1/pods", b"the-audit-id", b"authorize", &[7; 16], &[9; 8]]
    {
        assert!(contains(&sent, part), "{part:?}");
    }
    let mut text = Text::default();
    tracer.render(&mut text);
    assert!(text.finish().contains("coracle_trace_requests_total{outcome=\"sent\"} 1"));
}

#[tokio::test]
async fn a_refusing_or_missing_collector_is_counted() {
    let (refusing, _received) = collector("8").await;
    let missing = Endpoint::Unix("/nonexistent/collector.sock".into());
    for endpoint in [refusing, missing] {
        let tracer = Tracer::start(Config { endpoint, per_million: 1_000_000 });
        tracer.begin(None, false, described).unwrap().finish(Duration::ZERO, None, &[]);
        tracer.close().await;
        assert_eq!((tracer.figures.failed.get(), tracer.figures.sent.get()), (1, 0));
    }
}

#[tokio::test]
async fn only_the_trusted_decide_what_is_traced() {
    let endpoint = Endpoint::Unix("/nonexistent/collector.sock".into());
    let never = Tracer::start(Config { endpoint: endpoint.clone(), per_million: 0 });
    let always = Tracer::start(Config { endpoint, per_million: 1_000_000 });
    let parent = |sampled| Some(Context { trace: [7; 16], span: [9; 8], sampled });
    assert!(never.begin(None, true, described).is_none());
    assert!(never.begin(parent(true), false, described).is_none());
    assert!(never.begin(parent(true), true, described).is_some());
    assert!(always.begin(parent(false), true, described).is_none());
    let other = always.begin(parent(false), false, described).unwrap();
    assert_ne!(other.context.trace, [7; 16]);
    assert_eq!((other.parent, other.link), (None, parent(false)));
    let half = Tracer::start(Config { endpoint: Endpoint::Unix("/x".into()), per_million: 500_000 });
    let chosen = (0..1000).filter(|_| half.begin(None, false, described).is_some()).count();
    assert!((350..650).contains(&chosen), "{chosen}");
}
