//! Which resources the API serves now, custom ones included.

use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer is good for what it shows; what it does not show is asked for again.
const DISCOVERY_TTL: Duration = Duration::from_secs(600);
/// Between two questions for what nobody serves.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// One resource, in its most stable version.
#[derive(Clone, Debug)]
pub struct Served {
    pub resource: ApiResource,
    pub namespaced: bool,
    capabilities: ApiCapabilities,
}

impl Served {
    #[cfg(test)]
    pub fn for_tests(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        Self {
            resource: ApiResource::from_gvk_with_plural(&gvk, plural),
            namespaced: true,
            capabilities: ApiCapabilities {
                scope: Scope::Namespaced,
                subresources: Vec::new(),
                operations: Vec::new(),
            },
        }
    }

    #[cfg(test)]
    #[must_use]
    pub fn with(mut self, subresource: &str) -> Self {
        let capabilities = ApiCapabilities { subresources: Vec::new(), ..self.capabilities.clone() };
        let resource = ApiResource { plural: subresource.to_owned(), ..self.resource.clone() };
        self.capabilities.subresources.push((resource, capabilities));
        self
    }

    pub fn has(&self, subresource: &str) -> bool {
        self.capabilities.subresources.iter().any(|(resource, _)| resource.plural == subresource)
    }

    pub fn can_delete_collection(&self) -> bool {
        self.capabilities.supports_operation(verbs::DELETE_COLLECTION)
    }

    pub fn can_delete(&self) -> bool {
        self.capabilities.supports_operation(verbs::DELETE)
    }

    pub fn can_list(&self) -> bool {
        self.capabilities.supports_operation(verbs::LIST)
    }

    pub fn can_watch(&self) -> bool {
        self.capabilities.supports_operation(verbs::WATCH)
    }
}

/// What was served when it was last looked. For components that look one resource up again and again.
pub struct Known {
    client: kube::Client,
    last: Mutex<Option<(Instant, Arc<Vec<Served>>)>>,
}

impl Known {
    pub fn new(client: kube::Client) -> Self {
        Self { client, last: Mutex::default() }
    }

    /// The first resource that passes, if one is served.
    pub async fn find(&self, is_it: impl Fn(&Served) -> bool) -> Result<Option<Served>, kube::Error> {
        let last = self.last.lock().clone();
        if let Some((at, all)) = last {
            let found = all.iter().find(|served| is_it(served)).cloned();
            let age = at.elapsed();
            if age < RETRY_INTERVAL || (found.is_some() && age < DISCOVERY_TTL) {
                return Ok(found);
            }
        }
        let all = Arc::new(served(&self.client).await?);
        *self.last.lock() = Some((Instant::now(), all.clone()));
        Ok(all.iter().find(|served| is_it(served)).cloned())
    }
}

/// Asks the aggregated discovery endpoints: two requests, whatever the number of groups.
pub async fn served(client: &kube::Client) -> Result<Vec<Served>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let resources = discovery.groups().flat_map(|group| group.resources_by_stability());
    Ok(resources
        .map(|(resource, capabilities)| Served {
            namespaced: capabilities.scope == Scope::Namespaced,
            resource,
            capabilities,
        })
        .collect())
}
