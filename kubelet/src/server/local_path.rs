//! `/localPath/`: volumes of the built-in provisioner that are moved off this node, or to it. Whoever asks may `create`
//! `nodes/<node>/proxy`, and to write pieces `update` it; who may only `get` it learns how much a volume holds. (By `get`, as
//! upstream, exec begins too: what running pods have mounted is no secret from whoever has it.)
//!
//! `GET contents?directory=` looks, `POST contents?directory=` reads a volume. `POST volume?volume=` begins one, of which
//! `PUT volume?piece=<number>/<attempt>` are the pieces; `POST volume?end=<attempt>` says what was made of them.

use super::error::HttpError;
use super::routes::json_body;
use axum::body::Body;
use coracle_storage::incoming::LARGEST_PIECE_BYTES;
use coracle_storage::transfer::{NodeVolumes, Said, TransferError, Wanted};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde_json::json;

pub(super) async fn answer(
    volumes: &NodeVolumes,
    request: Request<Body>,
    path: &[&str],
) -> Result<Response<Body>, HttpError> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    match (&parts.method, path) {
        (&Method::GET, ["contents"]) => said(volumes.look(&needed(query, "directory")?).await),
        (&Method::POST, ["contents"]) => Ok(stream(volumes, &needed(query, "directory")?)),
        (&Method::POST, ["volume"]) => match parameter(query, "end") {
            Some(attempt) => said(volumes.end(&attempt).await),
            None => {
                let wanted: Wanted = serde_json::from_str(&needed(query, "volume")?)
                    .map_err(|error| HttpError::bad_request(format!("volume: {error}")))?;
                said(Ok(volumes.begin(wanted)))
            }
        },
        (&Method::PUT, ["volume"]) => piece(volumes, &needed(query, "piece")?, body).await,
        (_, ["contents" | "volume"]) => {
            Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
        }
        _ => Err(HttpError::not_found("404 page not found\n")),
    }
}

fn stream(volumes: &NodeVolumes, directory: &str) -> Response<Body> {
    let mut response = Response::new(Body::from_stream(volumes.read(directory)));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn piece(volumes: &NodeVolumes, of: &str, body: Body) -> Result<Response<Body>, HttpError> {
    let number = of.split_once('/').and_then(|(number, attempt)| Some((number.parse().ok()?, attempt)));
    let (number, attempt) =
        number.ok_or_else(|| HttpError::bad_request("piece: NUMBER/ATTEMPT is needed"))?;
    let whole = axum::body::to_bytes(body, LARGEST_PIECE_BYTES).await;
    let piece = whole.map_err(|error| HttpError::bad_request(format!("the piece did not come: {error}")))?;
    said(volumes.piece(attempt, number, piece).await)
}

fn parameter(query: &str, wanted: &str) -> Option<String> {
    let mut all = form_urlencoded::parse(query.as_bytes());
    all.find(|(key, _)| key == wanted).map(|(_, value)| value.into_owned())
}

fn needed(query: &str, wanted: &str) -> Result<String, HttpError> {
    parameter(query, wanted).ok_or_else(|| HttpError::bad_request(format!("{wanted} is missing")))
}

fn said<T: Serialize>(done: Result<T, TransferError>) -> Result<Response<Body>, HttpError> {
    let said = match done {
        Ok(done) => Said::Done(done),
        Err(TransferError::Refused(why)) => Said::Refused(why),
        Err(TransferError::Again(why)) => return Err(HttpError::new(StatusCode::CONFLICT, why)),
    };
    Ok(json_body(&json!(said)))
}
