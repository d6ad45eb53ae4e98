//! Everything that is served at one moment: built-in resources, custom ones, and what other servers answer for.

use super::{Foreign, ForeignVersion, NoForeign, Ranking};
use coracle_api::Resource;
use coracle_resources::catalogue::Snapshot;
use coracle_resources::custom::CustomResource;
use std::sync::Arc;

/// A group with its versions, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub versions: Vec<String>,
}

/// What discovery and OpenAPI are made of. Never changed; made anew when something else is served.
pub struct ServedApis {
    /// Of this server: built-in ones first, then custom ones by name. None of a version that another server has.
    pub resources: Vec<Arc<Resource>>,
    pub custom: Arc<Snapshot>,
    pub versions: Vec<Arc<ForeignVersion>>,
    pub foreign: Arc<dyn Foreign>,
    /// All but core, in upstream's order.
    pub groups: Vec<Group>,
}

impl ServedApis {
    pub fn new(built_in: &[Arc<Resource>], custom: Arc<Snapshot>, foreign: Arc<dyn Foreign>) -> Self {
        let versions = foreign.versions();
        let elsewhere = |r: &Resource| versions.iter().any(|v| v.group == r.group && v.version == r.version);
        let added = custom.resources().map(|c| &c.resource).filter(|r| !elsewhere(r));
        let resources: Vec<Arc<Resource>> = built_in.iter().chain(added).cloned().collect();
        let groups = groups(&resources, built_in.len(), &versions, &foreign.ranking());
        Self { resources, custom, versions, foreign, groups }
    }

    /// These resources and nothing else.
    pub fn built_in(resources: &[Arc<Resource>]) -> Self {
        Self::new(resources, Arc::default(), Arc::new(NoForeign))
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The resources of this server in a version.
    pub fn of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources.iter().filter(move |r| r.group == group && r.version == version)
    }

    /// Custom resources of this server in a version.
    pub fn custom_of<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<CustomResource>> {
        self.all_custom().filter(move |c| c.resource.group == group && c.resource.version == version)
    }

    pub fn all_custom(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        let elsewhere = |r: &Resource| self.foreign_version(&r.group, &r.version).is_some();
        self.custom.resources().filter(move |c| !elsewhere(&c.resource))
    }

    pub fn foreign_version(&self, group: &str, version: &str) -> Option<&Arc<ForeignVersion>> {
        self.versions.iter().find(|v| v.group == group && v.version == version)
    }
}

/// Upstream orders by the priorities of APIServices. A server without them (of a test) keeps the order of the catalogue,
/// and puts what was added behind it.
fn groups(
    resources: &[Arc<Resource>],
    built_in: usize,
    foreign: &[Arc<ForeignVersion>],
    ranking: &Ranking,
) -> Vec<Group> {
    let pair = |r: &Arc<Resource>| (r.group.to_string(), r.version.to_string());
    let (first, added) = resources.split_at(built_in);
    let mut order: Vec<(String, String)> = first.iter().map(pair).collect();
    let mut rest: Vec<(String, String)> = added.iter().map(pair).collect();
    rest.extend(foreign.iter().map(|v| (v.group.clone(), v.version.clone())));
    ranking.sort(&mut rest);
    order.extend(rest);
    if *ranking != Ranking::default() {
        ranking.sort(&mut order);
    }
    let mut groups: Vec<Group> = Vec::new();
    for (name, version) in order.into_iter().filter(|(name, _)| !name.is_empty()) {
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) if group.versions.contains(&version) => {}
            Some(group) => group.versions.push(version),
            None => groups.push(Group { name, versions: vec![version] }),
        }
    }
    groups
}
