//! Posting JSON to the server of a kubeconfig, with its trust and its credentials: to collectors of audit events and to
//! webhooks that are asked who somebody is or what they may.

use crate::kubeconfig;
use http::Request;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// For one attempt: upstream's limit of all calls of webhooks.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostError {
    pub message: String,
    /// Whether the same post may succeed in a moment: upstream's rule, which has a connection that broke, and a server
    /// that says that it failed or has too much to do.
    pub again: bool,
}

pub struct Posts {
    client: kube::Client,
    /// The server's URL may have one.
    path: String,
}

impl Posts {
    /// # Errors
    /// A file that cannot be read or leads nowhere; it is named.
    pub async fn of_file(file: &Path) -> Result<Self, String> {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let mut config = kubeconfig::config(file).await?;
        // Attempts are repeated and bounded by those who make them.
        config.default_retry = false;
        let path = config.cluster_url.path().to_owned();
        let mut url = std::mem::take(&mut config.cluster_url).into_parts();
        url.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        config.cluster_url = http::Uri::from_parts(url).map_err(|e| failed(&e))?;
        let client = kube::Client::try_from(config).map_err(|e| failed(&e))?;
        Ok(Self { client, path })
    }

    /// The body of the answer, within half a minute.
    pub async fn post(&self, body: Vec<u8>) -> Result<String, PostError> {
        let request = Request::post(&self.path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .body(body)
            .map_err(|e| PostError { message: e.to_string(), again: false })?;
        match tokio::time::timeout(ATTEMPT_TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(status))) => Err(PostError {
                message: format!("the server answered {}: {}", status.code, status.message),
                again: matches!(status.code, 429 | 500 | 503 | 504),
            }),
            Ok(Err(error)) => {
                Err(PostError { message: coracle_api::error::chain(&error), again: is_reset(&error) })
            }
            Err(_) => {
                let message = format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs());
                Err(PostError { message, again: false })
            }
        }
    }
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn is_reset(error: &(dyn Error + 'static)) -> bool {
    sources(error).filter_map(|error| error.downcast_ref::<io::Error>()).any(|error| {
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
    })
}
