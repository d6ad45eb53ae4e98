//! Static pods of a web server: one manifest, or a PodList.

use super::{HTTP, manifests};
use crate::configuration::config::Config;
use bytes::Bytes;
use coracle_tls::outbound::{self, ConnectError, Host};
use futures::future::pending;
use http::header::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Empty, Limited};
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;
use tokio::sync::watch;

/// How long the web server may take; upstream's.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of manifests that are read: more than a node's pods have.
const MAX_BYTES: usize = 10 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("no answer within {ANSWER_TIMEOUT:?}")]
    Silent,
    #[error("cannot connect")]
    Connect(#[from] ConnectError),
    #[error("whom to believe")]
    Tls(#[from] coracle_tls::TlsError),
    #[error("no HTTP")]
    Http(#[source] hyper::Error),
    #[error("the answer is cut off, or has more than {MAX_BYTES} bytes")]
    Body,
    #[error("the answer is {0}")]
    Status(http::StatusCode),
    #[error("the URL or its headers: {0}")]
    Request(String),
}

/// The pods that the web server shows. What it cannot be asked for now stays as it was: nobody's pod ends because a web
/// server is away. Never returns where there is none.
pub async fn follow(config: &Config, pods: watch::Sender<Vec<Pod>>) {
    let settings = &config.static_pods;
    let Some(url) = &settings.url else { return pending().await };
    let mut before = Bytes::new();
    let mut told = false;
    loop {
        match tokio::time::timeout(ANSWER_TIMEOUT, fetch(url, config))
            .await
            .unwrap_or(Err(FetchError::Silent))
        {
            Ok(text) if text == before => told = false,
            Ok(text) => {
                told = false;
                match manifests(url, &text, HTTP, config) {
                    Ok(found) => {
                        pods.send_replace(found);
                    }
                    Err(error) => tracing::error!(url, error, "static pod manifest not usable"),
                }
                before = text;
            }
            Err(error) if !told => {
                let error = coracle_api::error::chain(&error);
                tracing::warn!(url, error, "static pods cannot be asked for, those that are known stay");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(settings.http_check).await;
    }
}

async fn fetch(url: &str, config: &Config) -> Result<Bytes, FetchError> {
    let wrong = |why: &dyn std::fmt::Display| FetchError::Request(why.to_string());
    let uri: http::Uri = url.parse().map_err(|e| wrong(&e))?;
    let host = Host::of(&uri).ok_or_else(|| wrong(&"no host"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = http::Request::get(path).header("Host", uri.authority().map_or("", |a| a.as_str()));
    for (name, values) in &config.static_pods.headers {
        let name = HeaderName::try_from(name).map_err(|e| wrong(&e))?;
        for value in values {
            request = request.header(&name, HeaderValue::try_from(value).map_err(|e| wrong(&e))?);
        }
    }
    let request = request.body(Empty::new()).map_err(|e| wrong(&e))?;
    // By the authorities that the machine trusts.
    let tls = match host.is_secure {
        true => Some((
            coracle_tls::client_config(None, &[])?,
            outbound::server_name(&host.name).map_err(|e| wrong(&e))?,
        )),
        false => None,
    };
    exchange(request, outbound::connect(host.address(), tls).await?).await
}

async fn exchange(
    request: http::Request<Empty<Bytes>>,
    stream: Box<dyn outbound::Stream>,
) -> Result<Bytes, FetchError> {
    let (mut sender, _driver) = outbound::http1(stream).await.map_err(FetchError::Http)?;
    let response = sender.send_request(request).await.map_err(FetchError::Http)?;
    if response.status() != http::StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
    Ok(body.map_err(|_| FetchError::Body)?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers once for each of `answers`, and tells what it was asked.
    async fn server(answers: Vec<(&'static str, String)>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pods?x=1", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 2048];
                let read = stream.read(&mut buffer).await.unwrap();
                asked.push(String::from_utf8_lossy(&buffer[..read]).into_owned());
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
            asked
        });
        (url, asked)
    }

    #[tokio::test]
    async fn a_list_of_pods_is_shown_and_stays_while_the_server_is_away() {
        let pod = |name: &str| {
            format!("{{metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}")
        };
        let list = format!("{{kind: PodList, apiVersion: v1, items: [{}, {}]}}", pod("a"), pod("b"));
        let (url, asked) = server(vec![("200", list), ("500", String::new()), ("200", pod("c"))]).await;
        let mut config = Config::new("n1", "192.0.2.1".parse().unwrap());
        config.static_pods.url = Some(url);
        config.static_pods.headers.insert("X-Token".to_owned(), vec!["t".to_owned()]);
        config.static_pods.http_check = Duration::from_millis(1);
        let (sender, mut shown) = watch::channel(Vec::new());
        let following = tokio::spawn(async move { follow(&config, sender).await });
        let names = |pods: &[Pod]| pods.iter().map(|p| p.metadata.name.clone().unwrap()).collect::<Vec<_>>();
        let first = shown.wait_for(|pods| !pods.is_empty()).await.unwrap().clone();
        assert_eq!(names(&first), ["a-n1", "b-n1"]);
        assert_ne!(first[0].metadata.uid, first[1].metadata.uid);
        assert!(first.iter().all(crate::pod_facts::labels::is_static));
        let last = shown.wait_for(|pods| pods.len() < 2).await.unwrap().clone();
        assert_eq!(names(&last), ["c-n1"], "the failure between the two took nothing away");
        following.abort();
        let asked = asked.await.unwrap();
        assert!(asked[0].starts_with("GET /pods?x=1 HTTP/1.1\r\n"), "{asked:?}");
        assert!(asked[0].to_lowercase().contains("x-token: t\r\n"), "{asked:?}");
    }
}
