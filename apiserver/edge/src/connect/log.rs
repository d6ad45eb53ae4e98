//! `pods/log`.

use super::backend::{Backend, KubeletClient};
use super::pods::{container, joined};
use super::{Target, forward, headers, pod, text};
use axum::body::Body;
use coracle_api::{ApiError, FieldError};
use coracle_registry::Query;
use coracle_requests::ObjectReader;
use form_urlencoded::Serializer;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Limited};
use serde_json::json;

/// As much of a kubelet's error text as becomes a message, in bytes.
const ERROR_TEXT: usize = 2048;

pub(super) async fn get(
    request: Request<Body>,
    target: Target<'_>,
    query: &Query,
    reader: &dyn ObjectReader,
    kubelets: &KubeletClient,
) -> Result<Response<Body>, ApiError> {
    let pod = pod(target, reader)?;
    let options = options(query, target.name)?;
    let container = container(&pod, target.name, query.get("container").unwrap_or_default())?;
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        return Ok(plain(Body::empty()));
    }
    let backend = kubelets.backend(node, reader)?;
    let path = format!("/containerLogs/{}/{}/{container}", target.namespace, target.name);
    let path = joined(&path, &options);
    if headers::upgrade_of(request.headers()).is_some_and(|p| p.as_bytes().eq_ignore_ascii_case(b"websocket"))
    {
        return socket(request, &backend, &path, target.name, kubelets).await;
    }
    fetch(&backend, &path, target.name).await
}

fn plain(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
    response
}

/// The log as messages of a WebSocket, which the kubelet makes.
async fn socket(
    request: Request<Body>,
    backend: &Backend,
    path: &str,
    pod: &str,
    kubelets: &KubeletClient,
) -> Result<Response<Body>, ApiError> {
    let (mut parts, body) = request.into_parts();
    parts.headers = headers::for_backend(&parts);
    parts.uri = path.parse().map_err(ApiError::internal)?;
    parts.version = http::Version::HTTP_11;
    let answer = forward::forward(Request::from_parts(parts, body), backend, &kubelets.ends).await;
    let answer = answer.map_err(|error| ApiError::internal(format!("error dialing backend: {error}")))?;
    if answer.status().as_u16() < 400 {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    Err(kubelet_error(code, error_text(answer.into_body()).await, pod))
}

async fn error_text<B>(body: B) -> String
where
    B: http_body::Body<Data: Send, Error: Into<axum::BoxError>>,
{
    match Limited::new(body, ERROR_TEXT).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim_end().to_owned(),
        Err(error) => format!("unreadable answer of the kubelet: {error}"),
    }
}

async fn fetch(backend: &Backend, path: &str, pod: &str) -> Result<Response<Body>, ApiError> {
    let request = Request::get(path).body(Body::empty()).map_err(ApiError::internal)?;
    let response = backend.send(request).await.map_err(|error| {
        ApiError::internal(format!("Get \"{}://{}{path}\": {error}", backend.scheme(), backend.authority()))
    })?;
    if response.status().is_success() {
        return Ok(plain(Body::new(response.into_body())));
    }
    let code = response.status().as_u16();
    Err(kubelet_error(code, error_text(response.into_body()).await, pod))
}

/// The Status for an error of the kubelet, whose body is plain text.
fn kubelet_error(code: u16, text: String, pod: &str) -> ApiError {
    match code {
        400 => ApiError::bad_request(text),
        404 => ApiError::new(
            404,
            "NotFound",
            format!("the server could not find the requested resource ( pods/log {pod})"),
        )
        .with_details(json!({
            "name": pod, "kind": "pods/log",
            "causes": [{ "reason": "UnexpectedServerResponse", "message": text }],
        })),
        _ => ApiError::internal(text),
    }
}

/// Checks the log options and writes them as the kubelet's query.
fn options(query: &Query, pod: &str) -> Result<String, ApiError> {
    let mut errors = Vec::new();
    let mut pairs = Serializer::new(String::new());
    for flag in ["follow", "previous", "timestamps"] {
        if query.flag(flag).unwrap_or(false) {
            pairs.append_pair(flag, "true");
        }
    }
    let limits = [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ];
    for (name, least, rule) in limits {
        if query.get(name) == Some("") {
            continue;
        }
        let Some(value) = query.integer(name)? else { continue };
        if value < least {
            errors.push(FieldError::invalid(name, &json!(value), rule));
        }
        pairs.append_pair(name, &value.to_string());
    }
    since_time(query, &mut pairs, &mut errors)?;
    stream(query, &mut pairs, &mut errors);
    if errors.is_empty() {
        Ok(pairs.finish())
    } else {
        Err(ApiError::invalid("", "PodLogOptions", pod, &errors))
    }
}

fn since_time(
    query: &Query,
    pairs: &mut Serializer<'_, String>,
    errors: &mut Vec<FieldError>,
) -> Result<(), ApiError> {
    let Some(time) = query.get("sinceTime").filter(|time| !time.is_empty()) else { return Ok(()) };
    if query.get("sinceSeconds").is_some_and(|seconds| !seconds.is_empty()) {
        errors
            .push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    time.parse::<jiff::Timestamp>()
        .map_err(|error| ApiError::bad_request(format!("parsing time \"{time}\": {error}")))?;
    pairs.append_pair("sinceTime", time);
    Ok(())
}

fn stream(query: &Query, pairs: &mut Serializer<'_, String>, errors: &mut Vec<FieldError>) {
    let Some(stream) = query.get("stream").filter(|stream| !stream.is_empty()) else { return };
    let supported = ["All", "Stderr", "Stdout"];
    if !supported.contains(&stream) {
        errors.push(FieldError::not_supported("stream", &json!(stream), &supported));
    } else if stream != "All" && query.get("tailLines").is_some_and(|lines| !lines.is_empty()) {
        errors.push(FieldError::forbidden(
            "",
            "`tailLines` and specific `stream` are mutually exclusive for now",
        ));
    }
    pairs.append_pair("stream", stream);
}
