//! `/containerLogs/<namespace>/<pod>/<container>`.

mod follow;
mod line;
mod tail;

use super::Server;
use super::error::HttpError;
use super::routes::text;
use crate::pods_api::{ContainerHandle, PodHandle};
use crate::streaming::Ends;
use axum::body::Body;
use http::Response;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Pieces of log that wait for a slow client; each is what one read of the file gave (64 KiB at most).
const PIECES: usize = 2;

/// Which of a container's two streams are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    #[default]
    All,
    Stdout,
    Stderr,
}

/// `PodLogOptions` as far as they concern the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    /// Lines from the end to begin with.
    pub tail_lines: Option<u64>,
    pub since: Option<Timestamp>,
    pub limit_bytes: Option<u64>,
    pub shown: Shown,
}

impl Options {
    fn parse(query: &str, now: Timestamp) -> Result<Self, HttpError> {
        let mut options = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || {
                let invalid = |_| HttpError::bad_request(format!("{key}: \"{value}\" is not a valid number"));
                value.parse::<u64>().map_err(invalid)
            };
            let flag = !matches!(&*value, "false" | "0");
            match &*key {
                "follow" => options.follow = flag,
                "previous" => options.previous = flag,
                "timestamps" => options.timestamps = flag,
                "tailLines" => options.tail_lines = Some(number()?),
                "limitBytes" => options.limit_bytes = Some(number()?),
                "sinceSeconds" => {
                    let ago = SignedDuration::from_secs(i64::try_from(number()?).unwrap_or(i64::MAX));
                    options.since = Some(now.checked_sub(ago).unwrap_or(Timestamp::MIN));
                }
                "sinceTime" => {
                    let invalid = |_| HttpError::bad_request(format!("sinceTime: \"{value}\" is not a time"));
                    options.since = Some(value.parse().map_err(invalid)?);
                }
                "stream" => options.shown = shown(&value)?,
                _ => {}
            }
        }
        Ok(options)
    }
}

fn shown(name: &str) -> Result<Shown, HttpError> {
    match name {
        "" | "All" => Ok(Shown::All),
        "Stdout" => Ok(Shown::Stdout),
        "Stderr" => Ok(Shown::Stderr),
        _ => Err(HttpError::bad_request(format!("stream: \"{name}\" is not supported"))),
    }
}

pub(super) fn answer(
    server: &Arc<Server>,
    query: Option<&str>,
    namespace: &str,
    pod: &str,
    container: &str,
    ends: Ends,
) -> Result<Response<Body>, HttpError> {
    let options = Options::parse(query.unwrap_or_default(), Timestamp::now())?;
    let missing = || HttpError::not_found(format!("pod \"{pod}\" does not exist\n"));
    let handle = server.pods.find(namespace, pod, None).ok_or_else(missing)?;
    if !in_spec(&handle.pod, container) {
        return Err(HttpError::not_found(format!("container \"{container}\" not found in pod \"{pod}\"\n")));
    }
    let (path, id) = log_of(&handle, pod, container, options.previous).map_err(HttpError::bad_request)?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let alive = alive(server.clone(), &handle, container, id);
    tokio::spawn(async move {
        let copied = ends.run(follow::copy(&path, &options, &sender, alive)).await;
        if let Some(Err(error)) = copied {
            tracing::debug!(%error, path = %path.display(), "container log");
            // The status is sent; upstream also writes the error where the log would be.
            let text = format!("unable to retrieve container logs: {error}");
            let _ = sender.send(text.into()).await;
        }
    });
    Ok(text(Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, std::io::Error>))))
}

/// Tells whether the container that the log belongs to may still write.
fn alive(
    server: Arc<Server>,
    pod: &PodHandle,
    container: &str,
    id: Option<String>,
) -> impl Fn() -> bool + use<> {
    let metadata = &pod.pod.metadata;
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let name = metadata.name.clone().unwrap_or_default();
    let (uid, container) = (pod.uid.clone(), container.to_owned());
    move || {
        let Some(id) = &id else { return false };
        let pod = server.pods.find(&namespace, &name, Some(&uid));
        pod.is_some_and(|pod| pod.containers.iter().any(|c| c.name == container && c.id == *id && c.running))
    }
}

fn in_spec(pod: &Pod, container: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.containers.iter().any(|c| c.name == container)
        || spec.init_containers.iter().flatten().any(|c| c.name == container)
        || spec.ephemeral_containers.iter().flatten().any(|c| c.name == container)
}

/// The log file to show, and the id of its container if that one may still run. The texts of refusals are upstream's.
fn log_of(
    handle: &PodHandle,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<(PathBuf, Option<String>), String> {
    let status = status(&handle.pod, container);
    let newest = handle.containers.iter().find(|c| c.name == container);
    if previous {
        return newest.and_then(|newest| previous_log(newest, status)).map(|path| (path, None)).ok_or_else(
            || format!("previous terminated container \"{container}\" in pod \"{pod}\" not found"),
        );
    }
    match newest {
        Some(newest) => Ok((newest.log_path.clone(), newest.running.then(|| newest.id.clone()))),
        None => Err(not_started(status, pod, container)),
    }
}

fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container)
}

/// While a container waits for its restart, the attempt that ended last is its previous one already.
fn previous_log(newest: &ContainerHandle, status: Option<&ContainerStatus>) -> Option<PathBuf> {
    let waiting = status.and_then(|s| s.state.as_ref()).is_some_and(|state| state.waiting.is_some());
    if waiting && !newest.running {
        return Some(newest.log_path.clone());
    }
    newest.previous_log_path.clone()
}

fn not_started(status: Option<&ContainerStatus>, pod: &str, container: &str) -> String {
    let Some(status) = status else {
        return format!("container \"{container}\" in pod \"{pod}\" is not available");
    };
    let state = status.state.clone().unwrap_or_default();
    let last = status.last_state.clone().unwrap_or_default();
    if state.running.is_none() && state.waiting.is_none() && ended(&state)
        || state.terminated.is_none() && ended(&last)
    {
        return format!("container \"{container}\" in pod \"{pod}\" is terminated");
    }
    let Some(waiting) = state.waiting else {
        return format!("container \"{container}\" in pod \"{pod}\" is waiting to start - no logs yet");
    };
    let reason = match waiting.reason.as_deref().unwrap_or_default() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {reason}")
}

fn ended(state: &ContainerState) -> bool {
    state.terminated.is_some()
}

#[cfg(test)]
mod tests;
