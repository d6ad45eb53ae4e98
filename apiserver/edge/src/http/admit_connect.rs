//! Admission of streams and proxies: what a client asks for in the query is an object of its own
//! (`PodExecOptions` and its like), which webhooks and policies see as a CONNECT.

use super::RequestInfo;
use crate::connect;
use crate::http::ServerState;
use axum::body::Body;
use coracle_api::{ApiError, Object, UserInfo, catalogue};
use coracle_registry::{Operation, Query, RequestOptions, Scope};
use coracle_requests::stream_options::{OptionType, is_stream_parameter, stream_options};
use coracle_strategy as strategy;
use form_urlencoded::Serializer;
use http::{Request, Uri};
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a path is written without.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// The request as admission leaves it.
pub struct Admitted {
    pub request: Request<Body>,
    /// Its query, where admission has changed it.
    pub query: Option<Query>,
}

impl Admitted {
    fn unchanged(request: Request<Body>) -> Self {
        Self { request, query: None }
    }
}

/// Logs are read, so nobody is asked about them.
///
/// # Errors
/// The refusal, or what is wrong with the options.
pub async fn admit(
    server: &Arc<ServerState>,
    info: &RequestInfo,
    user: &UserInfo,
    request: Request<Body>,
) -> Result<Admitted, ApiError> {
    let request = resolved(request, info)?;
    let Some(resource) = catalogue::by_plural(&info.group, &info.version, &info.resource) else {
        return Ok(Admitted::unchanged(request));
    };
    if info.subresource == "log" {
        return Ok(Admitted::unchanged(request));
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
    let Some(sub) = resource.subresource(&info.subresource) else { return Ok(Admitted::unchanged(request)) };
    let before = options(&sub.kind, info)?;
    let after = scope.admit_body(Operation::Connect, before.clone(), RequestOptions::Nothing).await?;
    if after == before {
        return Ok(Admitted::unchanged(request));
    }
    let request = redirected(request, info, &after)?;
    let query = Some(Query::new(request.uri().query()));
    Ok(Admitted { request, query })
}

/// What a backend is asked for is the path that is admitted, without detours.
fn resolved(request: Request<Body>, info: &RequestInfo) -> Result<Request<Body>, ApiError> {
    let path = request.uri().path();
    match path.split_at_checked(info.rest_at) {
        Some((head, rest)) if info.subresource == "proxy" && rest != info.rest => {
            let target = format!("{head}{}", info.rest);
            to_path(request, &target)
        }
        _ => Ok(request),
    }
}

/// The request to another path, with its query.
fn to_path(request: Request<Body>, path: &str) -> Result<Request<Body>, ApiError> {
    let target = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    to_target(request, &target)
}

fn to_target(mut request: Request<Body>, target: &str) -> Result<Request<Body>, ApiError> {
    *request.uri_mut() = target.parse::<Uri>().map_err(ApiError::internal)?;
    Ok(request)
}

/// The options of this kind, from the values that the stream itself is made of.
fn options(kind: &str, info: &RequestInfo) -> Result<Object, ApiError> {
    let mut options = json!({ "kind": kind, "apiVersion": "v1" });
    if info.subresource == "proxy" {
        let path = info.proxied_path();
        if !path.is_empty() {
            options["path"] = path.into();
        }
        return Ok(options);
    }
    let query = &info.query;
    for (name, of) in stream_options(kind).unwrap_or_default() {
        let value = match of {
            OptionType::Flag => query.flag(name).filter(|on| *on).map(Value::from),
            OptionType::Text => query.get(name).map(Value::from),
            OptionType::Texts => Some(query.all(name)).filter(|all| !all.is_empty()).map(Value::from),
            OptionType::Ports => Some(connect::ports(query)?).filter(|all| !all.is_empty()).map(Value::from),
            OptionType::Path => None,
        };
        if let Some(value) = value {
            options[*name] = value;
        }
    }
    Ok(options)
}

/// The request with the parameters that somebody has changed; those that are none of the options' stay.
fn redirected(
    request: Request<Body>,
    info: &RequestInfo,
    options: &Object,
) -> Result<Request<Body>, ApiError> {
    let path = request.uri().path();
    if info.subresource == "proxy" {
        let (head, _) = path.split_at_checked(info.rest_at).unwrap_or((path, ""));
        let rest = options["path"].as_str().unwrap_or_default().trim_start_matches('/');
        let target = format!("{head}/{}", utf8_percent_encode(rest, ESCAPED));
        return to_path(request, &target);
    }
    let target = format!("{path}?{}", parameters(&info.query, options));
    to_target(request, &target)
}

fn parameters(query: &Query, options: &Object) -> String {
    let mut pairs = Serializer::new(String::new());
    pairs.extend_pairs(query.pairs().filter(|(name, _)| !is_stream_parameter(name)));
    for (key, value) in options.as_object().into_iter().flatten().filter(|(key, _)| is_stream_parameter(key))
    {
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
        let options = |uri: &str| options("PodExecOptions", &info(uri)).unwrap();
        let mut seen = options(uri);
        let wanted = json!({ "kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh", "-c"], "stdin": true,
            "container": "c" });
        assert_eq!(seen, wanted);
        seen["container"] = "d".into();
        let request = Request::post(uri).body(Body::empty()).unwrap();
        let after = redirected(request, &info(uri), &seen).unwrap();
        assert_eq!(options(&after.uri().to_string()), seen);
        assert!(after.uri().query().unwrap().contains("x=1"));
    }

    #[test]
    fn ports_and_paths() {
        let base = "/api/v1/namespaces/n/pods/p/portforward";
        let ports = |query: &str| options("PodPortForwardOptions", &info(&format!("{base}?{query}")));
        assert_eq!(ports("ports=80,81&ports=82").unwrap()["ports"], json!([80, 81, 82]));
        for query in ["ports=", "ports=80x", "ports=80,,81", "ports=65536", "ports=-1"] {
            assert_eq!(ports(query).unwrap_err().code, 400, "{query}");
        }
        let uri = "/api/v1/namespaces/n/services/s:80/proxy/a/b?c=d";
        let mut proxy = options("ServiceProxyOptions", &info(uri)).unwrap();
        assert_eq!(proxy["path"], "a/b");
        proxy["path"] = "/other".into();
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let after = redirected(request, &info(uri), &proxy).unwrap();
        assert_eq!(after.uri(), "/api/v1/namespaces/n/services/s:80/proxy/other?c=d");
    }

    /// What admission is shown is what the kubelet is asked for: the first of several counts, as everywhere.
    #[test]
    fn repeated_parameters() {
        let uri = "/api/v1/namespaces/n/pods/p/exec?stdin=false&stdin=true&tty=1&tty=0&container=a&container=b&command=x";
        let seen = options("PodExecOptions", &info(uri)).unwrap();
        let wanted = json!({ "kind": "PodExecOptions", "apiVersion": "v1", "command": ["x"], "tty": true, "container": "a" });
        assert_eq!(seen, wanted);
        let attached = options("PodAttachOptions", &info(&uri.replace("/exec?", "/attach?"))).unwrap();
        assert_eq!(attached["command"], Value::Null);
    }

    #[test]
    fn paths_lead_where_they_say() {
        let sent = |path: &str, changed: Option<&str>| {
            let uri = format!("/api/v1/namespaces/n/services/proxy/proxy{path}");
            let (info, request) = (info(&uri), Request::get(&uri).body(Body::empty()).unwrap());
            let mut options = options("ServiceProxyOptions", &info).unwrap();
            let shown = options["path"].as_str().unwrap_or_default().to_owned();
            let request = match changed {
                None => resolved(request, &info).unwrap(),
                Some(changed) => {
                    options["path"] = changed.into();
                    redirected(request, &info, &options).unwrap()
                }
            };
            (shown, request.uri().to_string().replace("/api/v1/namespaces/n/services/proxy/proxy", ""))
        };
        let pair = |shown: &str, uri: &str| (shown.to_owned(), uri.to_owned());
        assert_eq!(sent("/a/proxy/b?c=d", None), pair("a/proxy/b", "/a/proxy/b?c=d"));
        assert_eq!(sent("/public/../admin?c", None), pair("admin", "/admin?c"));
        assert_eq!(sent("/public/%2E%2e/admin", None), pair("admin", "/admin"));
        assert_eq!(sent("/../../../../n/pods", None), pair("n/pods", "/n/pods"));
        assert_eq!(sent("/a%2Fb//", None), pair("a/b", "/a%2Fb//"));
        assert_eq!(sent("", None), pair("", ""));
        assert_eq!(sent("/a?c=d", Some("x y?z=1#%")), pair("a", "/x%20y%3Fz=1%23%25?c=d"));
    }
}
