//! `/logs/`: the files below the node's log directory, listed and served as they are. Links that lead out of it are not followed.

use super::error::HttpError;
use super::routes::text;
use axum::body::Body;
use coracle_storage::beneath::{Dir, Node};
use http::{HeaderValue, Response, StatusCode, header};
use nix::errno::Errno;
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
    let missing = |error: std::io::Error| match error.raw_os_error().map(Errno::from_raw) {
        // A link that leads out of the directory: containers that have it mounted may have made it.
        Some(Errno::EXDEV | Errno::ELOOP | Errno::ENOENT | Errno::ENOTDIR) => {
            HttpError::not_found("404 page not found\n")
        }
        _ => HttpError::internal(error.to_string()),
    };
    let (root, below) = (root.to_owned(), if rest.is_empty() { ".".into() } else { below.to_owned() });
    let found = blocking(move || Dir::open(&root)?.within(below)).await.map_err(missing)?;
    if found.is_dir() {
        return if slash { blocking(move || listing(&found)).await.map_err(missing) } else { redirect(rest) };
    }
    if !found.is_file() {
        return Err(HttpError::not_found("404 page not found\n"));
    }
    let file = blocking(move || found.open()).await.map_err(missing)?;
    Ok(text(Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)))))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.into()))
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

fn listing(found: &Node) -> std::io::Result<Response<Body>> {
    let dir = Dir::open(&found.path())?;
    let mut names = Vec::new();
    for entry in dir.entries()?.take(MAX_ENTRIES) {
        let entry = entry?.file_name();
        let mut name = entry.to_string_lossy().into_owned();
        if dir.within(&entry).is_ok_and(|node| node.is_dir()) {
            name.push('/');
        }
        names.push(name);
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
