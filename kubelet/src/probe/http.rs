//! An HTTP GET as probes make it: any status from 200 to 299 is a success, certificates are not checked. Redirects are
//! followed on the same host; one to another host is a success with a warning. For a hook any answer is a success, and
//! redirects are followed wherever they lead.

use super::Outcome;
use super::action::dial_error;
use super::redirect::Place;
use bytes::Bytes;
use coracle_tls::outbound::{self, ConnectError};
use http::StatusCode;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;

/// Bytes of an answer that are read; upstream's limit.
const MAX_BODY: usize = 10 * 1024;

/// Requests of one probe; Go's limit, behind which a server sends its clients in circles.
const MAX_REQUESTS: usize = 10;

/// Headers that Go's client does not take along to another host.
const SECRETS: [&str; 4] = ["authorization", "www-authenticate", "cookie", "cookie2"];

pub struct Get<'a> {
    pub host: &'a str,
    pub port: u16,
    pub https: bool,
    pub path: &'a str,
    pub headers: &'a [(String, String)],
    pub caller: Caller,
}

/// On whose behalf a container is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Probe,
    /// A lifecycle handler, which wants to be heard and no more.
    Hook,
}

impl Caller {
    fn user_agent(self) -> &'static str {
        match self {
            Self::Probe => "kube-probe/1.36",
            Self::Hook => "kube-lifecycle/1.36",
        }
    }

    fn judged(self, answer: &Answer) -> Outcome {
        match self {
            Self::Probe => judged(answer),
            Self::Hook => Outcome::Success,
        }
    }
}

struct Answer {
    status: StatusCode,
    /// The server was asked by TLS and answered without, so it was asked again as it speaks.
    plain: bool,
    location: Option<String>,
    body: Bytes,
}

pub async fn get(get: &Get<'_>) -> Outcome {
    let first =
        Place { host: get.host.to_owned(), port: get.port, https: get.https, path: get.path.to_owned() };
    let (mut place, mut same_name) = (first.clone(), true);
    for _ in 0..MAX_REQUESTS {
        let failed = |message: String| Outcome::Failure(format!("Get {:?}: {message}", place.url()));
        let answer = match ask(&place, get, same_name).await {
            Ok(answer) => answer,
            Err(message) => return failed(message),
        };
        let Some(location) =
            answer.location.as_deref().filter(|to| sends_on(answer.status) && !to.is_empty())
        else {
            if answer.plain {
                let asked = place.authority();
                return Outcome::Warning(format!(
                    "request to HTTPS lifecycle hook {asked} got HTTP response, retry with HTTP succeeded"
                ));
            }
            return get.caller.judged(&answer);
        };
        let next = match place.follow(location) {
            Ok(next) => next,
            Err(message) => return failed(message),
        };
        if next.host != first.host && get.caller == Caller::Probe {
            return judged(&answer);
        }
        // A header Host of the probe's own names this server, until it calls itself something else.
        same_name &= !location.contains("//");
        place = next;
    }
    Outcome::Failure(format!("Get {:?}: stopped after {MAX_REQUESTS} redirects", place.url()))
}

fn sends_on(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn judged(answer: &Answer) -> Outcome {
    match answer.status.as_u16() {
        200..=299 => Outcome::Success,
        300..=399 => {
            let body = String::from_utf8_lossy(&answer.body);
            Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        status => Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

async fn ask(place: &Place, get: &Get<'_>, same_name: bool) -> Result<Answer, String> {
    let request = request(place, get, same_name)?;
    let tls = if place.https { Some(super::tls::of(&place.host).map_err(|e| e.to_string())?) } else { None };
    match outbound::connect((place.host.as_str(), place.port), tls).await {
        Ok(stream) => exchange(request, stream).await,
        Err(error) => {
            let told = connect_error(place, &error);
            if get.caller == Caller::Probe || !speaks_plainly(&error) {
                return Err(told);
            }
            let plain = Place { https: false, ..place.clone() };
            let answer = Box::pin(ask(&plain, get, same_name)).await;
            answer.map(|answer| Answer { plain: true, ..answer }).map_err(|_| told)
        }
    }
}

/// Whether the other side answers a handshake with something else, as servers of plain HTTP do. Handlers were asked without
/// TLS whatever they said, until Kubernetes 1.23, and are still heard so.
fn speaks_plainly(error: &ConnectError) -> bool {
    let ConnectError::Tls(source) = error else { return false };
    let broken = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(broken, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

fn connect_error(place: &Place, error: &ConnectError) -> String {
    match error {
        ConnectError::Dial(source) => dial_error(&place.host, place.port, source),
        ConnectError::Tls(source) => source.to_string(),
        ConnectError::Timeout => error.to_string(),
    }
}

async fn exchange(
    request: http::Request<Empty<Bytes>>,
    stream: Box<dyn outbound::Stream>,
) -> Result<Answer, String> {
    outbound::http1_once(stream, request, taken).await.map_err(|error| error.to_string())
}

async fn taken(response: http::Response<Incoming>) -> Answer {
    let location = response.headers().get("Location").and_then(|value| value.to_str().ok());
    let (status, location) = (response.status(), location.map(str::to_owned));
    // The server may care whether its answer is taken; what is too long counts for nothing.
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    Answer { status, plain: false, location, body: body.map(|body| body.to_bytes()).unwrap_or_default() }
}

fn request(place: &Place, get: &Get<'_>, same_name: bool) -> Result<http::Request<Empty<Bytes>>, String> {
    let mut builder = http::Request::get(&place.path);
    let headers = get.headers;
    let given = |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    let default_host = place.authority();
    let host = given("host").filter(|_| same_name).map_or(default_host.as_str(), |(_, value)| value.as_str());
    builder = builder.header("Host", host).header("Connection", "close");
    if given("user-agent").is_none() {
        builder = builder.header("User-Agent", get.caller.user_agent());
    }
    if given("accept").is_none() {
        builder = builder.header("Accept", "*/*");
    }
    // Of a handler: what was to go by TLS alone, and what another host is not to know.
    let below = format!(".{}", get.host);
    let elsewhere = place.host != get.host && !place.host.ends_with(&below);
    let exposed = get.https && !place.https;
    let secret = |name: &str| {
        let is = |secret: &&str| name.eq_ignore_ascii_case(secret);
        get.caller == Caller::Hook && (exposed && is(&"authorization") || elsewhere && SECRETS.iter().any(is))
    };
    for (name, value) in headers.iter().filter(|(n, _)| !n.eq_ignore_ascii_case("host") && !secret(n)) {
        builder = builder.header(name, value);
    }
    builder.body(Empty::new()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers `/<status>/<location>` with that status and a redirect to the location, until the listener is dropped.
    async fn server() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 1024];
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let (status, location) = match path[1..].split_once('/') {
                    Some(("circle", _)) => ("302", path),
                    Some(parts) => parts,
                    None => (&path[1..], ""),
                };
                let text = format!(
                    "HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
                );
                stream.write_all(text.as_bytes()).await.ok();
            }
        });
        port
    }

    #[test]
    fn what_a_handler_says_to_one_host_is_not_said_to_another() {
        let headers = ["Authorization", "Cookie", "X-Word"].map(|name| (name.to_owned(), "w".to_owned()));
        let said = |caller: Caller, host: &str, https: bool| {
            let get = Get { host: "a", port: 1, https: true, path: "/", headers: &headers, caller };
            let place = Place { host: host.to_owned(), port: 1, https, path: "/".to_owned() };
            let request = request(&place, &get, false).unwrap();
            headers.iter().filter(|(name, _)| request.headers().contains_key(name)).count()
        };
        assert_eq!((said(Caller::Hook, "a", true), said(Caller::Hook, "b.a", true)), (3, 3));
        assert_eq!((said(Caller::Hook, "b", true), said(Caller::Hook, "ba", true)), (1, 1));
        assert_eq!((said(Caller::Hook, "a", false), said(Caller::Probe, "a", false)), (2, 3));
    }

    #[tokio::test]
    async fn handlers_that_speak_no_tls_are_heard_and_told_no_secrets() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = tokio::spawn(async move {
            let mut heads = Vec::new();
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer).await.unwrap();
                heads.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                stream
                    .write_all(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .await
                    .unwrap();
            }
            heads
        });
        let headers =
            [("Authorization".to_owned(), "Bearer t".to_owned()), ("X-A".to_owned(), "b".to_owned())];
        let asked = |caller: Caller| {
            let headers = &headers;
            async move { get(&Get { host: "127.0.0.1", port, https: true, path: "/x", headers, caller }).await }
        };
        let probed = asked(Caller::Probe).await;
        assert!(matches!(probed, Outcome::Failure(_)), "a probe means what it says: {probed:?}");
        let told = format!(
            "request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
        );
        assert_eq!(asked(Caller::Hook).await, Outcome::Warning(told));
        let heads = heads.await.unwrap();
        let last = heads[2].to_ascii_lowercase();
        assert!(last.starts_with("get /x ") && last.contains("x-a: b"), "{last}");
        assert!(!last.contains("authorization"), "{last}");
    }

    #[tokio::test]
    async fn redirects() {
        let port = server().await;
        let asked = |caller: Caller, path: String| async move {
            get(&Get { host: "127.0.0.1", port, https: false, path: &path, headers: &[], caller }).await
        };
        let probed = |path: String| asked(Caller::Probe, path);
        let failure = |text: &str| Outcome::Failure(text.to_owned());
        assert_eq!(probed("/200".into()).await, Outcome::Success);
        assert_eq!(probed("/404".into()).await, failure("HTTP probe failed with statuscode: 404"));
        assert_eq!(probed("/302//200".into()).await, Outcome::Success, "to another path");
        assert_eq!(probed("/302//500".into()).await, failure("HTTP probe failed with statuscode: 500"));
        let own = format!("/301/http://127.0.0.1:{port}/503");
        assert_eq!(probed(own).await, failure("HTTP probe failed with statuscode: 503"));
        let warning = Outcome::Warning("Probe terminated redirects, Response body: body".to_owned());
        assert_eq!(probed("/302/http://other.example/x".into()).await, warning);
        assert_eq!(probed("/300".into()).await, warning, "no redirect at all");
        assert_eq!(probed("/302".into()).await, warning, "a redirect to nowhere");
        let other = server().await;
        let away = |status: u16| format!("/302/http://localhost:{other}/{status}");
        for path in ["/404".to_owned(), "/500".to_owned(), "/300".to_owned(), away(500)] {
            assert_eq!(asked(Caller::Hook, path.clone()).await, Outcome::Success, "{path}: it was heard");
        }
        let nowhere = asked(Caller::Hook, "/302/http://127.0.0.1:1/".into()).await;
        assert!(matches!(nowhere, Outcome::Failure(_)), "{nowhere:?}");
        let Outcome::Failure(text) = probed("/circle/".into()).await else { panic!("no end") };
        assert!(text.ends_with("stopped after 10 redirects"), "{text}");
    }
}
