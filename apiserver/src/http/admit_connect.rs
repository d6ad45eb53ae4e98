//! Admission of streams and proxies: what a client asks for in the query is an object of its own
//! (`PodExecOptions` and its like), which webhooks and policies see as a CONNECT.

use super::RequestInfo;
use crate::registry::{Asked, Operation, Scope};
use crate::server::Inner;
use crate::strategy;
use axum::body::Body;
use coracle_api::{ApiError, Object, UserInfo, catalogue};
use form_urlencoded::Serializer;
use http::{Request, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

/// Parameters of the options by their type.
const FLAGS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];
const TEXTS: [&str; 1] = ["container"];
const LISTS: [&str; 1] = ["command"];
const NUMBERS: [&str; 1] = ["ports"];

/// The request as admission leaves it. Logs are read, so nobody is asked about them.
///
/// # Errors
/// The refusal.
pub async fn admit(
    server: &Arc<Inner>,
    info: &RequestInfo,
    user: &UserInfo,
    request: Request<Body>,
) -> Result<Request<Body>, ApiError> {
    let Some(resource) = catalogue::by_plural(&info.group, &info.version, &info.resource) else {
        return Ok(request);
    };
    if info.subresource == "log" {
        return Ok(request);
    }
    let scope = Scope {
        registry: &server.registry,
        resource,
        strategy: strategy::for_resource(&resource.group, &resource.plural).into(),
        namespace: if resource.namespaced { &info.namespace } else { "" },
        name: &info.name,
        subresource: &info.subresource,
        user,
        now: (server.registry.clock)(),
        warnings: Mutex::default(),
    };
    let Some(sub) = resource.subresource(&info.subresource) else { return Ok(request) };
    let before = options(&sub.kind, info, request.uri().query());
    let after = scope.admit_body(Operation::Connect, before.clone(), Asked::Nothing).await?;
    if after == before { Ok(request) } else { redirected(request, info, &after) }
}

fn options(kind: &str, info: &RequestInfo, query: Option<&str>) -> Object {
    let mut options = json!({ "kind": kind, "apiVersion": "v1" });
    if info.subresource == "proxy" {
        if !info.rest.is_empty() {
            options["path"] = info.rest.as_str().into();
        }
        return options;
    }
    for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let name = &*key;
        if FLAGS.contains(&name) {
            if value != "0" && !value.eq_ignore_ascii_case("false") {
                options[name] = true.into();
            }
        } else if TEXTS.contains(&name) && options[name].is_null() {
            options[name] = value.into();
        } else if LISTS.contains(&name) {
            push(&mut options, name, value.into());
        } else if NUMBERS.contains(&name) {
            let numbers = value.split(',').filter_map(|number| number.parse::<i32>().ok());
            numbers.for_each(|number| push(&mut options, name, number.into()));
        }
    }
    options
}

fn push(options: &mut Object, name: &str, value: Value) {
    match options[name].as_array_mut() {
        Some(list) => list.push(value),
        None => options[name] = Value::Array(vec![value]),
    }
}

/// The request with the parameters that somebody has changed; those that are none of the options' stay.
fn redirected(
    request: Request<Body>,
    info: &RequestInfo,
    options: &Object,
) -> Result<Request<Body>, ApiError> {
    let (mut parts, body) = request.into_parts();
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let target = if info.subresource == "proxy" {
        let head = path.split_once("/proxy").map_or(path, |(head, _)| head);
        let rest = options["path"].as_str().unwrap_or_default().trim_start_matches('/');
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        format!("{head}/proxy/{rest}{query}")
    } else {
        format!("{path}?{}", parameters(query, options))
    };
    parts.uri = target.parse::<Uri>().map_err(ApiError::internal)?;
    Ok(Request::from_parts(parts, body))
}

fn parameters(query: &str, options: &Object) -> String {
    let own = |name: &str| [&FLAGS[..], &TEXTS, &LISTS, &NUMBERS].concat().contains(&name);
    let mut pairs = Serializer::new(String::new());
    for (key, value) in form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| !own(key)) {
        pairs.append_pair(&key, &value);
    }
    for (key, value) in options.as_object().into_iter().flatten().filter(|(key, _)| own(key)) {
        let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for item in list {
            let text = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            pairs.append_pair(key, &text);
        }
    }
    pairs.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn info(uri: &str) -> RequestInfo {
        RequestInfo::new(&Method::POST, &uri.parse().unwrap())
    }

    #[test]
    fn queries_become_options_and_options_queries() {
        let uri =
            "/api/v1/namespaces/n/pods/p/exec?command=sh&command=-c&stdin=true&tty=false&container=c&x=1";
        let query = uri.split_once('?').unwrap().1;
        let mut seen = options("PodExecOptions", &info(uri), Some(query));
        let wanted = json!({ "kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh", "-c"], "stdin": true,
            "container": "c" });
        assert_eq!(seen, wanted);
        seen["container"] = "d".into();
        let request = Request::post(uri).body(Body::empty()).unwrap();
        let after = redirected(request, &info(uri), &seen).unwrap();
        let again = options("PodExecOptions", &info(uri), after.uri().query());
        assert_eq!(again, seen);
        assert!(after.uri().query().unwrap().contains("x=1"));
    }

    #[test]
    fn ports_and_paths() {
        let forward = options(
            "PodPortForwardOptions",
            &info("/api/v1/namespaces/n/pods/p/portforward"),
            Some("ports=80,81&ports=82"),
        );
        assert_eq!(forward["ports"], json!([80, 81, 82]));
        let uri = "/api/v1/namespaces/n/services/s:80/proxy/a/b?c=d";
        let mut proxy = options("ServiceProxyOptions", &info(uri), Some("c=d"));
        assert_eq!(proxy["path"], "a/b");
        proxy["path"] = "/other".into();
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let after = redirected(request, &info(uri), &proxy).unwrap();
        assert_eq!(after.uri(), "/api/v1/namespaces/n/services/s:80/proxy/other?c=d");
    }
}
