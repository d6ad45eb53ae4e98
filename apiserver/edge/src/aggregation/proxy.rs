//! One request on its way to an aggregated server, and the answer on its way back.

use super::identity::set_user;
use super::resolve::resolve;
use super::table::Remote;
use crate::connect::backend::BackendError;
use crate::connect::{forward, headers};
use axum::body::Body;
use coracle_api::UserInfo;
use coracle_requests::ObjectReader;
use coracle_requests::RequestInfo;
use http::header::{CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;

const UNAVAILABLE: &str = "service unavailable";

/// The group and version that a request is about: by its resource, or by the path of their discovery or OpenAPI.
pub fn addressed(info: &RequestInfo) -> Option<(&str, &str)> {
    if info.is_resource {
        return Some((&info.group, &info.version));
    }
    let path = info.path.trim_matches('/');
    of_path(path.strip_prefix("openapi/v3/").unwrap_or(path))
}

/// `apis/<group>/<version>` or `api/<version>`
pub fn of_path(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.split('/');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        ("apis", group, Some(version), None) => Some((group, version)),
        ("api", version, None, None) => Some(("", version)),
        _ => None,
    }
}

/// Sends the request on in the user's name. What fails before the server answers is told in plain text, as upstream's
/// aggregator does.
pub async fn answer(
    remote: &Remote,
    user: &UserInfo,
    mut request: Request<Body>,
    reader: &dyn ObjectReader,
    stop: &CancellationToken,
) -> Response<Body> {
    if !remote.available {
        return plain(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE);
    }
    if let Err(error) = headers::refuse_service_worker(request.headers()) {
        return plain(StatusCode::BAD_REQUEST, &error.message);
    }
    let transport = match &remote.transport {
        Ok(transport) => transport,
        Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, error),
    };
    let address = match resolve(reader, &transport.settings.service) {
        Ok(address) => address,
        Err(error) => {
            tracing::debug!(api_service = remote.name, error, "no way to an aggregated server");
            return plain(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE);
        }
    };
    let client = forward::client_side(&mut request);
    let ends = forward::Ends::from(stop);
    let Some(request) = readdressed(request, user) else {
        return plain(StatusCode::BAD_REQUEST, "the request's path cannot be sent on");
    };
    let answered = if client.is_some() {
        let sent = transport.send_alone(&address, request).await;
        sent.and_then(|response| forward::answer(response, client, &ends))
    } else {
        let sent = transport.send(&address, request).await;
        sent.and_then(|response| forward::answer(response, None, &ends))
    };
    match answered {
        Ok(response) => checked(response),
        Err(error @ BackendError::NoUpgrade(_)) => plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(error) => {
            transport.doubt.notify_one();
            let why = format!("error trying to reach service: {error}");
            plain(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

/// In origin form, with the headers that an aggregated server may see.
fn readdressed(request: Request<Body>, user: &UserInfo) -> Option<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let mut headers = headers::for_backend(&parts);
    headers::add_forwarded(&mut headers, &parts);
    set_user(&mut headers, user);
    parts.headers = headers;
    parts.uri = parts.uri.path_and_query()?.as_str().parse().ok()?;
    parts.version = http::Version::HTTP_11;
    Some(Request::from_parts(parts, body))
}

/// Redirects could lead clients' credentials elsewhere.
fn checked(mut response: Response<Body>) -> Response<Body> {
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        let why = "the backend attempted to redirect this request, which is not permitted";
        return plain(StatusCode::BAD_GATEWAY, why);
    }
    headers::remove_rights_of_pages(response.headers_mut());
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn requests_are_about_groups() {
        let table = [
            ("/apis/g/v1", Some(("g", "v1"))),
            ("/apis/g/v1/", Some(("g", "v1"))),
            ("/apis/g/v1/things", Some(("g", "v1"))),
            ("/apis/g/v1/namespaces/n/things/t/sub/x", Some(("g", "v1"))),
            ("/openapi/v3/apis/g/v1", Some(("g", "v1"))),
            ("/openapi/v3/api/v1", Some(("", "v1"))),
            ("/api/v1", Some(("", "v1"))),
            ("/apis/g", None),
            ("/apis", None),
            ("/openapi/v3", None),
            ("/openapi/v2", None),
            ("/version", None),
            ("/", None),
        ];
        for (path, expected) in table {
            let info = RequestInfo::new(&Method::GET, &path.parse().unwrap());
            assert_eq!(addressed(&info), expected, "{path}");
        }
    }
}
