//! Small pages for probes and scrapers: one request a connection, answered by its path.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest request line and headers that are read; no probe sends more.
const REQUEST_LIMIT: usize = 4096;
/// How long one connection may take, question and answer; probes ask at once. Without an end, silent connections would
/// use up the process's file descriptors.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// After an accept that failed.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The next connection. An accept that fails is tried again after a pause: mostly the process is out of file
/// descriptors then, and the same connection would fail again at once, for ever.
pub async fn next<F>(accept: impl Fn() -> F) -> TcpStream
where
    F: Future<Output = io::Result<(TcpStream, SocketAddr)>>,
{
    loop {
        match accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => tracing::debug!(%error, "no connection"),
        }
        tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
    }
}

/// Answers one HTTP request by its path with status, further headers (a line each) and a body of JSON. Whoever takes
/// longer than [`WAIT_TIMEOUT`] gets none.
pub async fn respond(
    stream: TcpStream,
    say: impl FnOnce(&str) -> (&'static str, String, String) + Send + 'static,
) {
    let say = |path: &str, _: &str| {
        let (status, more, body) = say(path);
        (status, "application/json", more, body)
    };
    respond_as(stream, say).await;
}

/// The same with a media type, by the path and the header `Accept`, which is empty where there is none.
pub async fn respond_as(
    stream: TcpStream,
    say: impl FnOnce(&str, &str) -> (&'static str, &'static str, String, String) + Send,
) {
    if tokio::time::timeout(WAIT_TIMEOUT, exchange(stream, say)).await.is_err() {
        tracing::debug!("a connection without a question was closed");
    }
}

async fn exchange(
    mut stream: TcpStream,
    say: impl FnOnce(&str, &str) -> (&'static str, &'static str, String, String),
) {
    let mut request = vec![0; REQUEST_LIMIT];
    let Ok(read) = stream.read(&mut request).await else { return };
    let request = String::from_utf8_lossy(&request[..read]);
    let (status, media, more, body) = say(request.split(' ').nth(1).unwrap_or_default(), accepted(&request));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The prober may be gone; there is nobody to tell.
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// The value of the header `Accept`.
fn accepted(request: &str) -> &str {
    let headers = request.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut values =
        headers.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value.trim());
    values.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::net::TcpListener;

    #[tokio::test(start_paused = true)]
    async fn failing_accepts_do_not_spin_and_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let _client =
            TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a connection");
        let (failures, began) = (AtomicU32::new(0), tokio::time::Instant::now());
        let accept = || async {
            match failures.fetch_add(1, Ordering::Relaxed) {
                0..3 => Err(io::Error::other("too many open files")),
                _ => listener.accept().await,
            }
        };
        next(accept).await;
        assert!(began.elapsed() >= ACCEPT_RETRY_INTERVAL * 3);
    }

    #[test]
    fn what_is_accepted_is_read_whatever_its_case() {
        assert_eq!(
            accepted("GET /statusz HTTP/1.1\r\nHost: a\r\naccept:  text/plain \r\n\r\n"),
            "text/plain"
        );
        assert_eq!(accepted("GET /accept:x HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let mut silent =
            TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a connection");
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(respond(stream, |_| ("200 OK", String::new(), String::new())));
        let read = tokio::time::timeout(WAIT_TIMEOUT * 2, silent.read(&mut [0])).await;
        assert_eq!(read.expect("closed before").expect("no error"), 0);
    }
}
