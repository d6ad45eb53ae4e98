//! The resource catalogue: every resource this server can serve, and where its objects are stored.
//!
//! Discovery, RBAC names, storage keys and OpenAPI all derive from it. Built-in resources come from generated
//! facts; custom resources are further values of the same [`Resource`] type, kept by the API server.

use crate::generated::{ResourceFact, resources::RESOURCES};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

type Text = Cow<'static, str>;

/// Group, version, plural.
type Gvr = (&'static str, &'static str, &'static str);

/// Only general availability: `v1`, `v2`, ...; upstream's alpha and beta versions are off here.
fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Resources whose objects are kept under another group and version than the one they are served in.
/// Each line: the served one, then the stored one.
const STORED_ELSEWHERE: &[(Gvr, Gvr)] = &[
    (("events.k8s.io", "v1", "events"), ("", "v1", "events")),
    (("autoscaling", "v1", "horizontalpodautoscalers"), ("autoscaling", "v2", "horizontalpodautoscalers")),
];

/// A resource of one group and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub list_kind: Text,
    pub plural: Text,
    pub singular: Text,
    pub short_names: Vec<Text>,
    pub categories: Vec<Text>,
    pub namespaced: bool,
    pub verbs: Vec<Text>,
    pub subresources: Vec<Subresource>,
    pub storage: Storage,
}

/// `status`, `scale`, `log`, ... of a resource, with the kind that goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: Text,
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub verbs: Vec<Text>,
}

/// Where the objects of a resource are kept. Resources with equal storage show the same objects; those whose
/// served form differs from the stored one pass through [`crate::convert`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// `<plural>.<group>`: the resource part of storage keys, such as `pods.` or `deployments.apps`.
    pub key: Text,
    pub group: Text,
    pub version: Text,
    pub kind: Text,
}

impl Resource {
    /// `v1`, `apps/v1`
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `<plural>.<group>`, as errors and RBAC name it in text; core resources keep the dot: `pods.`
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether objects of it are kept at all; reviews, bindings and component statuses are only asked for.
    pub fn is_stored(&self) -> bool {
        self.supports("watch")
    }

    /// Whether requests and responses differ from what is stored and need [`crate::convert`].
    pub fn needs_conversion(&self) -> bool {
        self.group != self.storage.group || self.version != self.storage.version
    }

    pub fn storage_api_version(&self) -> String {
        api_version(&self.storage.group, &self.storage.version)
    }

    fn from_fact(fact: &'static ResourceFact) -> Self {
        let texts = |list: &'static [&'static str]| list.iter().map(|s| Text::from(*s)).collect::<Vec<_>>();
        let subresources = fact.subresources.iter().map(|s| Subresource {
            name: s.name.into(),
            group: s.group.into(),
            version: s.version.into(),
            kind: s.kind.into(),
            verbs: texts(s.verbs),
        });
        Self {
            group: fact.group.into(),
            version: fact.version.into(),
            kind: fact.kind.into(),
            list_kind: format!("{}List", fact.kind).into(),
            plural: fact.plural.into(),
            singular: fact.singular.into(),
            short_names: texts(fact.short_names),
            categories: texts(fact.categories),
            namespaced: fact.namespaced,
            verbs: texts(fact.verbs),
            subresources: subresources.collect(),
            storage: storage_of(fact),
        }
    }
}

fn storage_of(fact: &'static ResourceFact) -> Storage {
    let served = (fact.group, fact.version, fact.plural);
    let elsewhere = STORED_ELSEWHERE.iter().find(|(from, _)| *from == served);
    let (group, version, plural) = elsewhere.map_or(served, |(_, to)| *to);
    Storage {
        key: format!("{plural}.{group}").into(),
        group: group.into(),
        version: version.into(),
        kind: fact.kind.into(),
    }
}

/// `v1` for core, else `group/version`.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The inverse of [`api_version`]; `None` for more than one slash or an empty part.
pub fn split_api_version(api_version: &str) -> Option<(&str, &str)> {
    match api_version.split_once('/') {
        None if !api_version.is_empty() => Some(("", api_version)),
        Some((group, version)) if !group.is_empty() && !version.is_empty() && !version.contains('/') => {
            Some((group, version))
        }
        _ => None,
    }
}

static CATALOGUE: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
    RESOURCES
        .iter()
        .filter(|f| is_stable(f.version))
        .map(|fact| Arc::new(Resource::from_fact(fact)))
        .collect()
});

/// All built-in resources: core first, then in upstream's order of groups and, within one, of versions.
pub fn catalogue() -> &'static [Arc<Resource>] {
    &CATALOGUE
}

/// By the three parts of a request's path.
pub fn by_plural(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Resource>> {
    CATALOGUE.iter().find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// By what an object says of itself.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Resource>> {
    CATALOGUE.iter().find(|r| r.kind == kind && r.group == group && r.version == version)
}

/// The resource whose own form is the stored one, by `<plural>.<group>` of a storage key.
pub fn by_storage_key(key: &str) -> Option<&'static Arc<Resource>> {
    CATALOGUE.iter().find(|r| r.storage.key == key && !r.needs_conversion())
}

/// A group with its served versions, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    pub name: &'a str,
    pub versions: Vec<&'a str>,
}

impl<'a> Group<'a> {
    pub fn preferred_version(&self) -> &'a str {
        self.versions.first().copied().unwrap_or_default()
    }
}

/// Groups in the order in which `resources` first names them, so upstream's for [`catalogue`]; core is the group
/// with the empty name.
pub fn groups<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for resource in resources {
        let (name, version) = (resource.group.as_ref(), resource.version.as_ref());
        match groups.iter_mut().find(|g| g.name == name) {
            Some(group) if group.versions.contains(&version) => {}
            Some(group) => group.versions.push(version),
            None => groups.push(Group { name, versions: vec![version] }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_agree() {
        for r in catalogue() {
            assert!(Arc::ptr_eq(by_plural(&r.group, &r.version, &r.plural).unwrap(), r));
            let stored = by_storage_key(&r.storage.key).unwrap();
            assert_eq!(stored.storage, r.storage, "{}", r.qualified());
            assert_eq!(split_api_version(&r.api_version()), Some((&*r.group, &*r.version)));
        }
        assert_eq!(by_kind("apps", "v1", "Deployment").unwrap().plural, "deployments");
        assert!(by_plural("apps", "v1beta1", "deployments").is_none());
        assert!(by_plural("resource.k8s.io", "v1beta1", "resourceclaims").is_none());
    }

    #[test]
    fn facts_of_some_resources() {
        let pods = by_plural("", "v1", "pods").unwrap();
        assert!(pods.namespaced && pods.is_stored() && pods.short_names == ["po"]);
        assert_eq!(pods.storage.key, "pods.");
        assert_eq!(pods.subresource("eviction").unwrap().group, "policy");
        assert_eq!(pods.subresource("log").unwrap().verbs, ["get"]);
        let scale = by_plural("apps", "v1", "deployments").unwrap().subresource("scale").unwrap();
        assert_eq!((&*scale.group, &*scale.version, &*scale.kind), ("autoscaling", "v1", "Scale"));
        assert!(!by_plural("", "v1", "bindings").unwrap().is_stored());
        assert!(!by_plural("", "v1", "nodes").unwrap().namespaced);
    }

    #[test]
    fn versions_of_one_thing_share_storage() {
        let core = by_plural("", "v1", "events").unwrap();
        let new = by_plural("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.storage, new.storage);
        assert!(new.needs_conversion() && !core.needs_conversion());
        let [old, new] =
            ["v1", "v2"].map(|v| by_plural("autoscaling", v, "horizontalpodautoscalers").unwrap());
        assert_eq!(old.storage, new.storage);
        assert!(old.needs_conversion() && !new.needs_conversion());
    }

    #[test]
    fn preferred_versions() {
        let groups = groups(catalogue());
        assert_eq!(groups[0], Group { name: "", versions: vec!["v1"] });
        assert_eq!(groups[1].name, "apiregistration.k8s.io");
        let autoscaling = groups.iter().find(|g| g.name == "autoscaling").unwrap();
        assert_eq!(autoscaling.versions, ["v2", "v1"]);
        assert_eq!(autoscaling.preferred_version(), "v2");
    }

    #[test]
    fn api_versions_split() {
        assert_eq!(split_api_version("v1"), Some(("", "v1")));
        assert_eq!(split_api_version("a/b"), Some(("a", "b")));
        for bad in ["", "/v1", "a/", "a/b/c"] {
            assert_eq!(split_api_version(bad), None, "{bad}");
        }
    }
}
