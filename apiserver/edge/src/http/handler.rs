//! Who answers a request.

use super::route::{NoRoute, Route};
use super::{RequestInfo, ServerState};
use crate::aggregation::{LocalService, Remote};
use crate::connect;
use coracle_resources::catalogue::Served;
use http::Method;
use std::sync::Arc;

/// Found once, by what the request names; every request has exactly one.
pub enum Handler {
    /// Another server, which an APIService names.
    Aggregated(Arc<Remote>),
    /// A part of this server that answers for a group of its own.
    Local(Arc<dyn LocalService>),
    /// Health, metrics, discovery, OpenAPI and the like.
    NonResource,
    /// A subresource that becomes a stream, or leads to a kubelet.
    Connect,
    /// The generic path.
    Resource(Route),
}

impl Handler {
    /// `served` is what the request's group, version and plural name.
    ///
    /// # Errors
    /// Paths that are not plain or lead nowhere, selectors that cannot be read, methods that a path does not have.
    pub fn find(
        server: &ServerState,
        info: &RequestInfo,
        served: Option<&Served>,
        method: &Method,
    ) -> Result<Self, NoRoute> {
        info.check_path().map_err(NoRoute::Refused)?;
        if let Some(remote) = server.aggregator.find(info) {
            return Ok(Self::Aggregated(remote));
        }
        if !info.is_resource {
            return Ok(Self::NonResource);
        }
        if info.subresource != "proxy" {
            // What is proxied, others read.
            info.query.check_readable().map_err(NoRoute::Refused)?;
        }
        if let Some(local) = server.aggregator.local(&info.group, &info.version) {
            return Ok(Self::Local(local.clone()));
        }
        let any_method = connect::takes_any_method(info) && method == Method::OPTIONS;
        let route = if any_method { Route::of_any_method(served, info) } else { Route::find(served, info) }?;
        if *method == Method::HEAD && info.subresource != "proxy" && route.has_methods_only() {
            return Err(NoRoute::Method(route.methods(info)));
        }
        if info.group.is_empty() && connect::handles(&info.resource, &info.subresource) {
            return Ok(Self::Connect);
        }
        Ok(Self::Resource(route))
    }
}
