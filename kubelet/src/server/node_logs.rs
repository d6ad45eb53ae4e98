//! `/logs/`: the files below the node's log directory, listed and served as they are.

use super::error::HttpError;
use super::routes::text;
use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use std::path::{Component, Path};
use tokio_util::io::ReaderStream;

/// Entries of a listing; a directory with more is cut there.
const MAX_ENTRIES: usize = 10_000;

/// `rest` are the decoded segments after `/logs`.
pub(super) async fn answer(root: &Path, rest: &[&str], slash: bool) -> Result<Response<Body>, HttpError> {
    let below: &Path = &rest.iter().collect::<std::path::PathBuf>();
    if below.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(HttpError::bad_request("invalid URL path"));
    }
    let path = root.join(below);
    let missing = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => HttpError::not_found("404 page not found\n"),
        _ => HttpError::internal(error.to_string()),
    };
    let kind = tokio::fs::metadata(&path).await.map_err(missing)?;
    if kind.is_dir() {
        return if slash { listing(&path).await.map_err(missing) } else { redirect(rest) };
    }
    if !kind.is_file() {
        return Err(HttpError::not_found("404 page not found\n"));
    }
    let file = tokio::fs::File::open(&path).await.map_err(missing)?;
    Ok(text(Body::from_stream(ReaderStream::new(file))))
}

/// A listing's links are relative, so its address must end with a slash.
fn redirect(rest: &[&str]) -> Result<Response<Body>, HttpError> {
    let location = rest.last().map_or_else(|| "logs/".to_owned(), |name| format!("{name}/"));
    let location =
        HeaderValue::from_str(&location).map_err(|_| HttpError::bad_request("invalid URL path"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

async fn listing(path: &Path) -> std::io::Result<Response<Body>> {
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(path).await?;
    while let Some(entry) = entries.next_entry().await? {
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if tokio::fs::metadata(entry.path()).await.is_ok_and(|kind| kind.is_dir()) {
            name.push('/');
        }
        names.push(name);
        if names.len() == MAX_ENTRIES {
            break;
        }
    }
    names.sort();
    let mut html =
        String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for name in names {
        let link =
            percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC).to_string();
        let link = link.replace("%2F", "/").replace("%2E", ".");
        let shown = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        html.push_str(&format!("<a href=\"{link}\">{shown}</a>\n"));
    }
    html.push_str("</pre>\n");
    let mut response = Response::new(Body::from(html));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
