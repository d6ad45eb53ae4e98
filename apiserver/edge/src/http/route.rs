//! Which way to its resource a request takes.

use super::RequestInfo;
use coracle_api::{ApiError, Resource, Subresource};
use coracle_resources::catalogue::Served;
use std::sync::Arc;

/// A request that names something that is served, with a method it has.
#[derive(Clone)]
pub struct Route {
    pub served: Served,
    /// Its place among those of the resource.
    subresource: Option<usize>,
}

/// Why there is no route.
#[derive(Debug)]
pub enum NoRoute {
    /// Mostly 404.
    Refused(ApiError),
    /// The value of the `Allow` header.
    Method(String),
}

impl Route {
    /// `served` is what the request's group, version and plural name.
    pub fn find(served: Option<&Served>, info: &RequestInfo) -> Result<Self, NoRoute> {
        let route = Self::of_any_method(served, info)?;
        let allowed = route.verbs(info);
        if allowed.is_empty() {
            return Err(NoRoute::Refused(ApiError::page_not_found()));
        }
        if !allowed.contains(&info.verb) {
            return Err(NoRoute::Method(methods(&allowed)));
        }
        Ok(route)
    }

    /// Whether upstream finds the way by the method itself, so that HEAD, which has no route, leads nowhere. Of custom
    /// resources it only looks at the verb, which HEAD has in common with GET.
    pub fn has_methods_only(&self) -> bool {
        matches!(self.served, Served::BuiltIn(_))
    }

    /// The value of the `Allow` header.
    pub fn methods(&self, info: &RequestInfo) -> String {
        methods(&self.verbs(info))
    }

    /// As [`find`](Self::find) whatever the method is. A path through a namespace leads to what is in a namespace, and
    /// only such a path: who may do something in a namespace is asked about the namespace of the path.
    pub fn of_any_method(served: Option<&Served>, info: &RequestInfo) -> Result<Self, NoRoute> {
        let missing = || NoRoute::Refused(ApiError::page_not_found());
        let served = served.ok_or_else(missing)?.clone();
        let resource = served.resource();
        let outside = !resource.namespaced && info.within_namespace;
        let nowhere = resource.namespaced && !info.within_namespace && !info.is_collection();
        // Only what is proxied has a path behind the subresource.
        let beyond = info.subresource != "proxy" && !info.rest.trim_matches('/').is_empty();
        if outside || nowhere || beyond {
            return Err(missing());
        }
        let subresource = match info.subresource.as_str() {
            "" => None,
            name => {
                let known = resource.subresources.iter().position(|s| s.name == name);
                Some(known.ok_or_else(|| NoRoute::Refused(no_subresource(&served, info)))?)
            }
        };
        Ok(Self { served, subresource })
    }

    pub fn resource(&self) -> &Arc<Resource> {
        self.served.resource()
    }

    pub fn subresource(&self) -> Option<&Subresource> {
        self.subresource.map(|at| &self.resource().subresources[at])
    }

    /// The verbs that this path has.
    fn verbs(&self, info: &RequestInfo) -> Vec<&str> {
        if let Some(subresource) = self.subresource() {
            return subresource.verbs.iter().map(|v| &**v).collect();
        }
        let everywhere = self.resource().namespaced && info.namespace.is_empty();
        let here: &[&str] = match (info.is_collection(), everywhere) {
            (true, true) => &["list", "watch"],
            (true, false) => &["list", "watch", "create", "deletecollection"],
            (false, _) => &["get", "watch", "update", "patch", "delete"],
        };
        self.resource().verbs.iter().map(|v| &**v).filter(|v| here.contains(v)).collect()
    }
}

/// Upstream's router knows no such path of a built-in resource; that of custom ones misses the object.
fn no_subresource(served: &Served, info: &RequestInfo) -> ApiError {
    match served {
        Served::BuiltIn(_) => ApiError::page_not_found(),
        Served::Custom(_) => ApiError::not_found(&info.group, &info.resource, &info.name),
    }
}

fn methods(verbs: &[&str]) -> String {
    let mut methods: Vec<&str> = verbs
        .iter()
        .map(|verb| match *verb {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            _ => "GET",
        })
        .collect();
    methods.sort_unstable();
    methods.dedup();
    methods.join(", ")
}
