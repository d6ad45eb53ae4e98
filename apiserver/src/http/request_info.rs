//! What a request is about, derived from method, path and query alone.
//!
//! Mirrors upstream's `RequestInfo`: the attributes that authorization, admission, audit and metrics speak of.
//! See <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>.

use coracle_api::FieldSelector;
use http::Method;
use percent_encoding::percent_decode_str;

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
    /// What follows the subresource, as in `.../proxy/a/b`: `a/b`.
    pub rest: String,
}

impl RequestInfo {
    pub fn new(method: &Method, uri: &http::Uri) -> Self {
        let path = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let mut info = Self { verb: plain_verb(method), path, ..Self::default() };
        let raw: Vec<&str> = uri.path().split('/').skip(1).collect();
        let trimmed = match raw.split_last() {
            Some((&"", head)) if info.path.len() > 1 => head,
            _ => &raw[..],
        };
        let parts: Vec<String> =
            trimmed.iter().map(|p| percent_decode_str(p).decode_utf8_lossy().into_owned()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => info.fill("", version, rest, method, uri),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                info.fill(group, version, rest, method, uri);
            }
            _ => {}
        }
        info
    }

    /// `<plural>.<group>`, the name of the resource in store and cache.
    pub fn storage_name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
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

    fn fill(&mut self, group: &str, version: &str, parts: &[&str], method: &Method, uri: &http::Uri) {
        self.is_resource = true;
        group.clone_into(&mut self.group);
        version.clone_into(&mut self.version);
        self.verb = resource_verb(method);
        let mut parts = parts;
        let mut watching = false;
        if let (["watch", rest @ ..], "get") = (parts, self.verb)
            && !rest.is_empty()
        {
            watching = true;
            parts = rest;
        }
        self.fill_names(group, parts);
        if self.name.is_empty() || watching {
            self.fill_collection(uri, watching);
        }
    }

    fn fill_names(&mut self, group: &str, parts: &[&str]) {
        let parts = match parts {
            // Subresources of a namespace, not resources inside it.
            ["namespaces", namespace, "status" | "finalize", ..] | ["namespaces", namespace] => {
                // Another group's resource of that name is not the namespace, and whoever may do something in the
                // namespace may not do it there.
                if group.is_empty() {
                    (*namespace).clone_into(&mut self.namespace);
                }
                parts
            }
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (*namespace).clone_into(&mut self.namespace);
                self.within_namespace = true;
                rest
            }
            _ => parts,
        };
        let mut parts = parts.iter();
        let mut next = || parts.next().map_or_else(String::new, |p| (*p).to_owned());
        self.resource = next();
        self.name = next();
        self.subresource = next();
        self.rest = parts.copied().collect::<Vec<_>>().join("/");
    }

    fn fill_collection(&mut self, uri: &http::Uri, watching: bool) {
        let query = uri.query().unwrap_or_default();
        let pairs = || form_urlencoded::parse(query.as_bytes());
        if self.verb == "delete" {
            self.verb = "deletecollection";
        } else if self.verb == "get" {
            let asked = pairs().any(|(k, v)| k == "watch" && v != "0" && !v.eq_ignore_ascii_case("false"));
            self.verb = if watching || asked { "watch" } else { "list" };
            // Authorization of a list of one object is that of the object.
            if self.name.is_empty()
                && let Some((_, selector)) = pairs().find(|(k, _)| k == "fieldSelector")
                && let Some(name) = named_by(&selector)
            {
                self.name = name;
                self.by_selector = true;
            }
        }
    }
}

/// The name in a field selector that requires one.
fn named_by(selector: &str) -> Option<String> {
    let selector = FieldSelector::parse(selector).ok()?;
    selector.exact("metadata.name").filter(|name| !name.is_empty()).map(str::to_owned)
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
            (Method::GET, "/api/v1/nodes?fieldSelector=&fieldSelector=metadata.name%3Dn1", "list /v1 /nodes//"),
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
        assert_eq!((info.name.as_str(), info.rest.as_str()), ("s:80", "a/b c"));
    }
}
