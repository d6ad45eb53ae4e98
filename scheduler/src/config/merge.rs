//! From `plugins` of a profile to the plugins of each extension point, as upstream merges them with its defaults.

use super::defaults::{BETA2_WEIGHTS, PLUGINS};
use crate::framework::Point;
use crate::framework::Registry;
use std::collections::{BTreeMap, HashSet};

/// Plugins with weights; 0 is none given.
pub type List = Vec<(String, i64)>;

/// `enabled` and `disabled` of one extension point, or of `multiPoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    pub enabled: List,
    pub disabled: HashSet<String>,
}

impl Set {
    fn disables(&self, name: &str) -> bool {
        self.disabled.contains("*") || self.disabled.contains(name)
    }
}

fn in_tree(beta2: bool) -> List {
    let weight = |name: &str, weight: i64| {
        let older = BETA2_WEIGHTS.iter().find(|(n, _)| beta2 && *n == name);
        older.map_or(weight, |(_, older)| *older)
    };
    PLUGINS.iter().map(|(name, w)| ((*name).to_owned(), weight(name, *w))).collect()
}

/// The defaults with what the profile's own set changes: a plugin that is named again keeps its place, others follow.
fn over_defaults(defaults: List, own: &Set) -> List {
    let mut merged: List = Vec::new();
    for (name, weight) in defaults {
        if own.disables(&name) {
            continue;
        }
        let again = own.enabled.iter().find(|(n, _)| *n == name);
        merged.push((name, again.map_or(weight, |(_, own)| if *own == 0 { weight } else { *own })));
    }
    for (name, weight) in &own.enabled {
        if !merged.iter().any(|(n, _)| n == name) {
            merged.push((name.clone(), *weight));
        }
    }
    merged
}

/// One point: first what the point names and multiPoint has too, then the rest of multiPoint, then what only the
/// point names.
fn expand(point: Point, multi: &List, own: &Set, registry: &Registry) -> List {
    let extends = |name: &str| registry.points(name).is_none_or(|points| points.contains(&point));
    let in_multi = |name: &str| multi.iter().find(|(n, _)| n == name);
    let weight = |name: &str, weight: i64| match in_multi(name) {
        Some((_, multi)) if weight == 0 => *multi,
        _ => weight,
    };
    let (overriding, further): (List, List) =
        own.enabled.iter().cloned().partition(|(name, _)| in_multi(name).is_some());
    let mut list: List = overriding.into_iter().map(|(n, w)| (n.clone(), weight(&n, w))).collect();
    for (name, w) in multi {
        let named = own.enabled.iter().any(|(n, _)| n == name);
        if !named && !own.disables(name) && extends(name) {
            list.push((name.clone(), *w));
        }
    }
    list.extend(further);
    list
}

/// All points of a profile.
pub fn merge(
    multi: &Set,
    sets: &BTreeMap<Point, Set>,
    registry: &Registry,
    beta2: bool,
) -> BTreeMap<Point, List> {
    let multi = over_defaults(in_tree(beta2), multi);
    let nothing = Set::default();
    let expand = |point: Point| expand(point, &multi, sets.get(&point).unwrap_or(&nothing), registry);
    Point::ALL.into_iter().map(|point| (point, expand(point))).collect()
}

/// Upstream's defaults.
pub fn default_plugins(registry: &Registry) -> BTreeMap<Point, List> {
    merge(&Set::default(), &BTreeMap::new(), registry, false)
}
