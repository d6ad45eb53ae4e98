//! Which resources the API serves now, custom ones included.

use kube::core::ApiResource;
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};

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
