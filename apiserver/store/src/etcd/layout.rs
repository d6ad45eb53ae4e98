//! Where upstream keeps what in etcd, and where that is here.
//!
//! ```text
//! pods./default/web                  /registry/pods/default/web
//! nodes.//n1                         /registry/minions/n1
//! deployments.apps/default/web       /registry/deployments/default/web
//! crontabs.example.com/default/a     /registry/example.com/crontabs/default/a
//! ```

use coracle_api::catalogue::by_storage_key;
use std::sync::Arc;

/// Resources that upstream keeps under other words than their plural.
const ELSEWHERE: &[(&str, &str)] = &[
    ("replicationcontrollers.", "controllers"),
    ("endpoints.", "services/endpoints"),
    ("services.", "services/specs"),
    ("nodes.", "minions"),
    ("ingresses.networking.k8s.io", "ingress"),
];

/// Built-in groups that upstream keeps as it does custom resources: under their group, in JSON.
pub(super) const AS_CUSTOM: &[&str] = &["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Keys under one prefix, which begins with a slash and ends without one.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: String,
}

impl Layout {
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("/{}", prefix.trim_matches('/')) }
    }

    /// The first key of the prefix, and the first behind it.
    pub fn range(&self) -> (String, String) {
        (format!("{}/", self.prefix), format!("{}0", self.prefix))
    }

    /// A key that holds nothing: written where nothing else would tell that the watch has caught up.
    pub fn mark(&self) -> String {
        format!("{}/coracle-mark", self.prefix)
    }

    /// A key that stands while a state is moved here: until it goes, what is here is not whole.
    pub fn moving(&self) -> String {
        format!("{}/coracle-moving", self.prefix)
    }

    pub fn path(&self, key: &str) -> String {
        let (resource, rest) = key.split_once('/').unwrap_or((key, ""));
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        match ELSEWHERE.iter().find(|(known, _)| *known == resource) {
            Some((_, folder)) => format!("{}/{folder}/{rest}", self.prefix),
            None => format!("{}/{}/{rest}", self.prefix, folder_of(resource)),
        }
    }

    /// `None` for what is no object: upstream's allocators, leases of its endpoints, and what others left here.
    pub fn key(&self, path: &str) -> Option<Arc<str>> {
        let path = path.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        let found = ELSEWHERE.iter().find_map(|(resource, folder)| {
            Some((resource.to_string(), path.strip_prefix(folder)?.strip_prefix('/')?))
        });
        let (resource, rest) = match found {
            Some(found) => found,
            None => resource_of(path)?,
        };
        let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
        if name.is_empty() || name.contains('/') || resource == "ranges." || resource == "masterleases." {
            return None;
        }
        Some(format!("{resource}/{namespace}/{name}").into())
    }
}

fn folder_of(resource: &str) -> String {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let built_in = !AS_CUSTOM.contains(&group) && by_storage_key(resource).is_some();
    if group.is_empty() || built_in { plural.to_owned() } else { format!("{group}/{plural}") }
}

/// The resource, and what follows it. Groups have a dot, and plurals of built-in resources none.
fn resource_of(path: &str) -> Option<(String, &str)> {
    let (first, rest) = path.split_once('/')?;
    if first.contains('.') {
        let (plural, rest) = rest.split_once('/')?;
        return Some((format!("{plural}.{first}"), rest));
    }
    let is_it = |resource: &&&str| resource.split_once('.').is_some_and(|(plural, _)| plural == first);
    Some((GROUPED.iter().find(is_it).map_or_else(|| format!("{first}."), |found| found.to_string()), rest))
}

/// Storage keys of the built-in resources with a group.
static GROUPED: std::sync::LazyLock<Vec<&str>> = std::sync::LazyLock::new(|| {
    let all = coracle_api::catalogue::catalogue().iter();
    let grouped = all.filter(|resource| resource.is_stored() && !resource.storage.group.is_empty());
    let mut keys: Vec<&str> = grouped
        .filter(|resource| !AS_CUSTOM.contains(&&*resource.storage.group))
        .map(|resource| &*resource.storage.key)
        .collect();
    keys.dedup();
    keys
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_where_upstream_has_them() {
        let layout = Layout::new("/registry/");
        for (key, path) in [
            ("pods./default/web", "/registry/pods/default/web"),
            ("nodes.//n1", "/registry/minions/n1"),
            ("services./a/b", "/registry/services/specs/a/b"),
            ("endpoints./a/b", "/registry/services/endpoints/a/b"),
            ("replicationcontrollers./a/b", "/registry/controllers/a/b"),
            ("events./a/b", "/registry/events/a/b"),
            ("deployments.apps/a/b", "/registry/deployments/a/b"),
            ("ingresses.networking.k8s.io/a/b", "/registry/ingress/a/b"),
            ("leases.coordination.k8s.io/kube-system/l", "/registry/leases/kube-system/l"),
            ("clusterroles.rbac.authorization.k8s.io//admin", "/registry/clusterroles/admin"),
            ("horizontalpodautoscalers.autoscaling/a/b", "/registry/horizontalpodautoscalers/a/b"),
            (
                "customresourcedefinitions.apiextensions.k8s.io//a.b.c",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a.b.c",
            ),
            ("apiservices.apiregistration.k8s.io//v1.", "/registry/apiregistration.k8s.io/apiservices/v1."),
            ("crontabs.example.com/a/b", "/registry/example.com/crontabs/a/b"),
            ("crontabs.example.com//b", "/registry/example.com/crontabs/b"),
        ] {
            assert_eq!(layout.path(key), path);
            assert_eq!(layout.key(path).as_deref(), Some(key));
        }
    }

    #[test]
    fn every_resource_has_a_folder_of_its_own() {
        let layout = Layout::new("registry");
        for resource in coracle_api::catalogue::catalogue().iter().filter(|resource| resource.is_stored()) {
            let namespace = if resource.namespaced { "a" } else { "" };
            let key = format!("{}/{namespace}/b", resource.storage.key);
            assert_eq!(layout.key(&layout.path(&key)).as_deref(), Some(&*key));
        }
    }

    #[test]
    fn what_is_no_object_is_passed_over() {
        let layout = Layout::new("/registry");
        for path in [
            "/registry/ranges/serviceips",
            "/registry/masterleases/10.0.0.1",
            "/registry/health",
            "/other/pods/a/b",
        ] {
            assert_eq!(layout.key(path), None, "{path}");
        }
        assert_eq!((layout.key(&layout.mark()), layout.key(&layout.moving())), (None, None));
        assert_eq!(layout.range(), ("/registry/".into(), "/registry0".into()));
    }
}
