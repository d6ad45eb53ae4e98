//! An HTTP GET as probes make it: any status from 200 to 399 is a success, certificates are not checked.

use super::Outcome;
use super::action::dial_error;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Bytes of an answer that are read; upstream's limit.
const MAX_BODY: usize = 10 * 1024;

pub struct Get<'a> {
    pub host: &'a str,
    pub port: u16,
    pub https: bool,
    pub path: &'a str,
    pub headers: &'a [(String, String)],
}

impl Get<'_> {
    fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_owned() };
        format!("{scheme}://{host}:{}{}", self.port, self.path)
    }
}

pub async fn get(get: &Get<'_>) -> Outcome {
    match status(get).await {
        Ok(status) if (200..400).contains(&status) => Outcome::Success,
        Ok(status) => Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
        Err(message) => Outcome::Failure(format!("Get {:?}: {message}", get.url())),
    }
}

async fn status(get: &Get<'_>) -> Result<u16, String> {
    let stream = TcpStream::connect((get.host, get.port)).await;
    let stream = stream.map_err(|e| dial_error(get.host, get.port, &e))?;
    if get.https {
        let stream = super::tls::connect(get.host, stream).await.map_err(|e| e.to_string())?;
        exchange(get, stream).await
    } else {
        exchange(get, stream).await
    }
}

async fn exchange<S>(get: &Get<'_>, stream: S) -> Result<u16, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let text = |e: hyper::Error| e.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request(get)?).await;
    let result = match answer {
        Ok(response) => {
            let status = response.status().as_u16();
            // The server may care whether its answer is taken.
            let _ = Limited::new(response.into_body(), MAX_BODY).collect().await;
            Ok(status)
        }
        Err(error) => Err(text(error)),
    };
    connection.abort();
    result
}

fn request(get: &Get<'_>) -> Result<http::Request<Empty<Bytes>>, String> {
    let mut builder = http::Request::get(get.path);
    let given = |name: &str| get.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    let default_host = format!("{}:{}", get.host, get.port);
    let host = given("host").map_or(default_host.as_str(), |(_, value)| value.as_str());
    builder = builder.header("Host", host).header("Connection", "close");
    if given("user-agent").is_none() {
        builder = builder.header("User-Agent", "kube-probe/1.36");
    }
    if given("accept").is_none() {
        builder = builder.header("Accept", "*/*");
    }
    for (name, value) in get.headers.iter().filter(|(n, _)| !n.eq_ignore_ascii_case("host")) {
        builder = builder.header(name, value);
    }
    builder.body(Empty::new()).map_err(|e| e.to_string())
}
