//! The order of groups and versions (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/api-service-v1/>).

use coracle_api::Object;
use coracle_requests::value::{i64_at, str_at};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};

/// What groups of custom resources get, and whoever has no APIService yet (upstream's CRD registration).
pub const CUSTOM_GROUP_PRIORITY: i64 = 1_000;
pub const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// The priorities that APIServices give, by group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranking {
    groups: HashMap<String, i64>,
    versions: BTreeMap<(String, String), i64>,
}

impl Ranking {
    /// A group has the highest `groupPriorityMinimum` of its APIServices.
    pub fn new<'a>(api_services: impl IntoIterator<Item = &'a Object>) -> Self {
        let mut ranking = Self::default();
        for spec in api_services.into_iter().map(|object| &object["spec"]) {
            let (group, version) = (str_at(spec, "group").to_owned(), str_at(spec, "version").to_owned());
            let priority = i64_at(spec, "groupPriorityMinimum").unwrap_or(0);
            let highest = ranking.groups.entry(group.clone()).or_insert(priority);
            *highest = priority.max(*highest);
            ranking.versions.insert((group, version), i64_at(spec, "versionPriority").unwrap_or(0));
        }
        ranking
    }

    pub fn group_priority(&self, group: &str) -> i64 {
        self.groups.get(group).copied().unwrap_or(CUSTOM_GROUP_PRIORITY)
    }

    pub fn version_priority(&self, group: &str, version: &str) -> i64 {
        let key = (group.to_owned(), version.to_owned());
        self.versions.get(&key).copied().unwrap_or(CUSTOM_VERSION_PRIORITY)
    }

    /// Whether there is an APIService for it.
    pub fn knows(&self, group: &str, version: &str) -> bool {
        self.versions.contains_key(&(group.to_owned(), version.to_owned()))
    }

    /// The group with the higher priority first, then by name; the version with the higher priority first, then as
    /// [`newer_first`].
    pub fn sort(&self, list: &mut Vec<(String, String)>) {
        list.sort_by_cached_key(|(group, version)| {
            let rank = (Reverse(self.group_priority(group)), group.clone());
            (rank, Reverse(self.version_priority(group, version)), ByAge::new(version))
        });
        list.dedup();
    }
}

/// The order of versions that have equal priority: `v10`, `v2`, `v1`, `v2beta1`, `v1beta2`, `v1alpha1`, and then what is
/// no version in this sense, by its letters.
pub fn newer_first(a: &str, b: &str) -> Ordering {
    ByAge::new(a).cmp(&ByAge::new(b))
}

/// Least is newest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ByAge {
    Known { stability: u8, major: Reverse<u64>, minor: Reverse<u64> },
    Other(String),
}

impl ByAge {
    fn new(version: &str) -> Self {
        Self::known(version).unwrap_or_else(|| Self::Other(version.to_owned()))
    }

    fn known(version: &str) -> Option<Self> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('0')).map(Reverse);
        let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, number(minor)?),
            (_, Some(minor)) => (2, number(minor)?),
            _ if rest.is_empty() => (0, Reverse(0)),
            _ => return None,
        };
        Some(Self::Known { stability, major: number(major)?, minor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_by_age() {
        let mut versions =
            ["foo10", "v1alpha1", "v1beta2", "v2", "v10", "foo1", "v1", "v2beta1", "v11alpha2"];
        versions.sort_by(|a, b| newer_first(a, b));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta2", "v11alpha2", "v1alpha1", "foo1", "foo10"]
        );
    }

    #[test]
    fn groups_by_priority() {
        let service = |group: &str, version: &str, low: i64, priority: i64| json!({ "spec": { "group": group, "version": version, "groupPriorityMinimum": low, "versionPriority": priority } });
        let all = [
            service("late", "v1", 10, 5),
            service("apps", "v1", 17_800, 15),
            service("late", "v2", 2_000, 4),
            service("late", "v3", 10, 5),
        ];
        let ranking = Ranking::new(&all);
        let pair = |(g, v): (&str, &str)| (g.to_owned(), v.to_owned());
        let mut list: Vec<_> = [
            ("zcustom", "v1"),
            ("late", "v1"),
            ("apps", "v1"),
            ("acustom", "v1beta1"),
            ("late", "v2"),
            ("late", "v3"),
            ("acustom", "v1"),
            ("apps", "v1"),
        ]
        .into_iter()
        .map(pair)
        .collect();
        ranking.sort(&mut list);
        let expected = [
            ("apps", "v1"),
            ("late", "v3"),
            ("late", "v1"),
            ("late", "v2"),
            ("acustom", "v1"),
            ("acustom", "v1beta1"),
            ("zcustom", "v1"),
        ];
        assert_eq!(list, expected.map(pair));
    }
}
