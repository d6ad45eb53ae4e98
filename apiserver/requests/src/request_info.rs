//! What a request is about, derived from method, path and query alone, and read once: authorization, flow control,
//! audit, metrics, options, streams and proxies are all made from this value.
//!
//! Mirrors upstream's `RequestInfo`.
//! See <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>.

use super::segments::{BadPath, Segments, without_dots};
use crate::{ListOptions, Query, Selectors};
use coracle_api::ApiError;
use http::Method;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Below `/api/<version>/` or `/apis/<group>/<version>/`; everything else is a non-resource URL.
    pub is_resource: bool,
    /// The decoded path, without the query.
    pub path: String,
    /// `get list watch create update patch delete deletecollection`; for a non-resource URL the method in lower
    /// case.
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    /// Empty for cluster-scoped requests and requests over all namespaces. A namespace itself is in itself.
    pub namespace: String,
    /// The path goes through a namespace to something in it, which a namespace itself is not.
    pub within_namespace: bool,
    pub resource: String,
    pub subresource: String,
    /// Empty for collections.
    pub name: String,
    /// `name` comes from a field selector of a list, not from the path.
    pub by_selector: bool,
    /// What follows the subresource, as in `.../proxy/a/b`: `/a/b`. Still encoded; `.` and `..` are resolved.
    pub rest: String,
    /// Where in the encoded path the rest begins.
    pub rest_at: usize,
    pub query: Query,
    /// Of a list, a watch or a deletion of a collection that selects.
    pub selectors: Option<Arc<Selectors>>,
    /// The path names a resource in a way that others could read otherwise.
    bad_path: bool,
}

impl RequestInfo {
    pub fn new(method: &Method, uri: &http::Uri) -> Self {
        let path = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let query = Query::new(uri.query());
        let mut info = match Self::of_resource(method, uri.path(), &query) {
            Ok(Some(info)) => info,
            found => Self { verb: plain_verb(method), bad_path: found.is_err(), ..Self::default() },
        };
        info.path = path;
        info.query = query;
        info
    }

    /// 400 for a path to a resource that is not plain: with empty, `.` and `..` segments, slashes that are encoded, broken
    /// escapes. It is authorized as a path that is no resource's.
    pub fn check_path(&self) -> Result<(), ApiError> {
        if !self.bad_path {
            return Ok(());
        }
        let why =
            "the path has a segment that is empty, \".\" or \"..\", holds a slash, or cannot be decoded";
        Err(ApiError::bad_request(why))
    }

    /// `<plural>.<group>`, the name of the resource in store and cache.
    pub fn storage_name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// The options of a list, a watch or a deletion of a collection; they select what the request is authorized for.
    pub fn list_options(&self) -> Result<ListOptions, ApiError> {
        let mut options = self.query.list_options(self.selectors.clone())?;
        if self.verb == "watch" && !self.is_collection() {
            // The old form of watching one object: /watch/.../<name>.
            options.name = Some(self.name.clone());
        }
        Ok(options)
    }

    /// What a proxied request is for, decoded.
    pub fn proxied_path(&self) -> Cow<'_, str> {
        percent_decode_str(self.rest.trim_matches('/')).decode_utf8_lossy()
    }

    /// The method and the kind of path, without names: what traces call the request.
    pub fn pattern(&self, method: &Method) -> String {
        if !self.is_resource {
            return method.to_string();
        }
        let mut text = format!("{method} /{}", if self.group.is_empty() { "api" } else { "apis" });
        let by_name = !self.name.is_empty() && !self.by_selector;
        let steps = [
            (!self.group.is_empty(), self.group.as_str()),
            (true, self.version.as_str()),
            (!self.namespace.is_empty(), "namespaces/{:namespace}"),
            (true, self.resource.as_str()),
            (by_name, "{:name}"),
            (!self.subresource.is_empty(), self.subresource.as_str()),
        ];
        for (_, step) in steps.iter().filter(|(present, _)| *present) {
            text.push('/');
            text.push_str(step);
        }
        text
    }

    /// Whether the path names all objects of a resource. A list can have a name too: that of its field selector.
    pub fn is_collection(&self) -> bool {
        self.name.is_empty() || self.by_selector
    }

    /// `None` for a path that is no resource's.
    fn of_resource(method: &Method, path: &str, query: &Query) -> Result<Option<Self>, BadPath> {
        let mut parts = Segments::of(path);
        let group = match parts.next()?.as_deref() {
            Some("api") => Cow::Borrowed(""),
            Some("apis") => parts.next()?.unwrap_or_default(),
            _ => return Ok(None),
        };
        let (Some(version), Some(first)) = (parts.next()?, parts.next()?) else { return Ok(None) };
        let mut info = Self {
            is_resource: true,
            group: group.into_owned(),
            version: version.into_owned(),
            verb: resource_verb(method),
            ..Self::default()
        };
        let watched = if info.verb == "get" && first == "watch" { parts.next()? } else { None };
        let watching = watched.is_some();
        info.fill_names(watched.unwrap_or(first), &mut parts)?;
        if info.name.is_empty() || watching {
            info.fill_collection(query, watching);
        }
        Ok(Some(info))
    }

    fn fill_names(&mut self, first: Cow<'_, str>, parts: &mut Segments<'_>) -> Result<(), BadPath> {
        let owned = |part: Option<Cow<'_, str>>| part.map_or_else(String::new, Cow::into_owned);
        let second = parts.next()?;
        let third = parts.next()?;
        match (&*first, second, third) {
            // Subresources of a namespace, not resources inside it.
            ("namespaces", Some(namespace), None) => self.fill_namespace(namespace, String::new()),
            ("namespaces", Some(namespace), Some(sub)) if matches!(&*sub, "status" | "finalize") => {
                self.fill_namespace(namespace, sub.into_owned());
            }
            ("namespaces", Some(namespace), Some(resource)) => {
                self.namespace = namespace.into_owned();
                self.within_namespace = true;
                self.resource = resource.into_owned();
                self.name = owned(parts.next()?);
                self.subresource = owned(parts.next()?);
            }
            (_, name, subresource) => {
                self.resource = first.into_owned();
                self.name = owned(name);
                self.subresource = owned(subresource);
            }
        }
        let rest = parts.rest();
        if !rest.is_empty() {
            self.rest = without_dots(rest).into_owned();
        }
        self.rest_at = parts.at();
        Ok(())
    }

    fn fill_namespace(&mut self, name: Cow<'_, str>, subresource: String) {
        self.resource = "namespaces".to_owned();
        self.name = name.into_owned();
        self.subresource = subresource;
        // Another group's resource of that plural is no namespace, and whoever may do something in a namespace may not do
        // it there.
        if self.group.is_empty() {
            self.namespace.clone_from(&self.name);
        }
    }

    fn fill_collection(&mut self, query: &Query, watching: bool) {
        match self.verb {
            "delete" => self.verb = "deletecollection",
            "get" if watching || query.flag("watch").unwrap_or(false) => self.verb = "watch",
            "get" => self.verb = "list",
            _ => return,
        }
        self.selectors = Selectors::of(query).map(Arc::new);
        // Authorization of a list of one object is that of the object.
        if self.verb != "deletecollection"
            && self.name.is_empty()
            && let Some(name) = self.selectors.as_ref().and_then(|selectors| selectors.name())
        {
            self.name = name.to_owned();
            self.by_selector = true;
        }
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

fn resource_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: Method, uri: &str) -> RequestInfo {
        RequestInfo::new(&method, &uri.parse().unwrap())
    }

    fn shown(info: &RequestInfo) -> String {
        let RequestInfo { verb, group, version, namespace, resource, subresource, name, .. } = info;
        format!("{verb} {group}/{version} {namespace}/{resource}/{name}/{subresource}")
    }

    #[test]
    fn resource_requests() {
        let table = [
            (Method::GET, "/api/v1/pods", "list /v1 /pods//"),
            (Method::GET, "/api/v1/namespaces/ns/pods?watch=true", "watch /v1 ns/pods//"),
            (Method::GET, "/api/v1/namespaces/ns/pods/p", "get /v1 ns/pods/p/"),
            (Method::GET, "/api/v1/namespaces", "list /v1 /namespaces//"),
            (Method::GET, "/api/v1/namespaces/ns", "get /v1 ns/namespaces/ns/"),
            (Method::PUT, "/api/v1/namespaces/ns/finalize", "update /v1 ns/namespaces/ns/finalize"),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/ns/deployments",
                "deletecollection apps/v1 ns/deployments//",
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                "patch apps/v1 n/deployments/d/scale",
            ),
            (Method::POST, "/api/v1/namespaces/n/pods/p/exec?command=ls", "create /v1 n/pods/p/exec"),
            (Method::GET, "/api/v1/watch/namespaces/n/pods", "watch /v1 n/pods//"),
            (Method::GET, "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&watch=1", "watch /v1 /nodes/n1/"),
            (Method::GET, "/api/v1/nodes?fieldSelector=x!%3D%5C,metadata.name%3Dn1", "list /v1 /nodes//"),
            (
                Method::GET,
                "/api/v1/nodes?fieldSelector=&fieldSelector=metadata.name%3Dn1",
                "list /v1 /nodes//",
            ),
            (Method::GET, "/apis/g/v1/namespaces/n", "get g/v1 /namespaces/n/"),
        ];
        for (method, uri, expected) in table {
            let info = info(method, uri);
            assert!(info.is_resource, "{uri}");
            assert_eq!(shown(&info), expected, "{uri}");
        }
    }

    #[test]
    fn other_requests() {
        for uri in ["/healthz", "/api", "/api/v1", "/apis/apps/v1", "/", "/api/v1/"] {
            let info = info(Method::GET, uri);
            assert!(!info.is_resource, "{uri}");
            assert_eq!((info.verb, info.path.as_str()), ("get", uri));
        }
    }

    #[test]
    fn the_rest_of_a_proxied_path() {
        let info = info(Method::GET, "/api/v1/namespaces/n/services/s:80/proxy/a/b%20c");
        assert_eq!((info.name.as_str(), info.rest.as_str()), ("s:80", "/a/b%20c"));
        assert_eq!(info.proxied_path(), "a/b c");
    }
}
