//! `POST /checkpoint/<namespace>/<pod>/<container>`: the runtime writes what a container is at this moment to an archive
//! (<https://kubernetes.io/docs/reference/node/kubelet-checkpoint-api/>). What is in its memory is in the archive, so only
//! root may read it.

use super::Server;
use super::error::HttpError;
use super::routes::json_body;
use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `rest` is what follows `/checkpoint/`.
pub(super) async fn answer(
    server: &Server,
    request: Request<Body>,
    rest: &[&str],
) -> Result<Response<Body>, HttpError> {
    let [namespace, pod, container] = rest else { return Err(HttpError::not_found("404 page not found\n")) };
    if request.method() != Method::POST {
        return Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"));
    }
    let found = server.pods.find(namespace, pod, None);
    let found = found.ok_or_else(|| HttpError::not_found("pod does not exist"))?;
    let id = found.containers.iter().find(|known| known.name == *container).map(|known| known.id.clone());
    let id = id.ok_or_else(|| HttpError::not_found(format!("container {container} does not exist")))?;
    let limit = limit(request.uri().query().unwrap_or_default())?;
    let failed = |error: String| {
        HttpError::internal(format!("checkpointing of {namespace}/{pod}/{container} failed ({error})"))
    };
    let directory = directory(server).map_err(|error| failed(error.to_string()))?;
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let location = directory.join(format!("checkpoint-{pod}_{namespace}-{container}-{time}.tar"));
    server.pods.checkpoint(&id, &location, limit).await.map_err(|error| failed(error.to_string()))?;
    Ok(json_body(&json!({ "items": [location] })))
}

/// The last of the query's `timeout`s, in seconds; `None`, or less than the runtime's usual limit, is that.
fn limit(query: &str) -> Result<Option<Duration>, HttpError> {
    let last = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == "timeout").last();
    let Some((_, text)) = last else { return Ok(None) };
    let seconds: i64 =
        text.parse().map_err(|_| HttpError::not_found("cannot parse value of timeout parameter"))?;
    match u64::try_from(seconds) {
        Ok(seconds) => Ok(Some(Duration::from_secs(seconds)).filter(|limit| !limit.is_zero())),
        Err(_) => Err(HttpError::internal("CheckpointContainer requires the timeout value to be > 0")),
    }
}

/// `checkpoints`, beside the directories of pods.
fn directory(server: &Server) -> io::Result<PathBuf> {
    let directory = server.pods_dir.parent().unwrap_or(Path::new("/")).join("checkpoints");
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    Ok(directory)
}
