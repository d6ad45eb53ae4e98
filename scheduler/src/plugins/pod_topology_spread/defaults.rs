//! Constraints for pods that have none: upstream's, or those of the profile.

use crate::cache::{PodInfo, Spread, WhenUnsatisfiable};
use crate::framework::Cluster;
use crate::plugins::{ArgumentErrors, Arguments};
use coracle_api::selector::{LabelSelector, Requirement};
use coracle_api::validation::qualified_name;
use coracle_api::well_known;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde_json::{Value, json};

/// The constraints of a profile, and whether they are upstream's own.
pub struct Defaults {
    pub constraints: Vec<Spread>,
    pub system: bool,
}

fn soft(topology_key: &str, max_skew: i64) -> Spread {
    Spread {
        max_skew,
        topology_key: topology_key.to_owned(),
        when: WhenUnsatisfiable::ScheduleAnyway,
        selector: LabelSelector::nothing(),
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
    }
}

impl Default for Defaults {
    fn default() -> Self {
        let constraints = vec![soft(well_known::HOSTNAME, 3), soft(well_known::ZONE, 5)];
        Self { constraints, system: true }
    }
}

impl Defaults {
    pub fn parse(arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let mut mistakes = Vec::new();
        let listed = arguments.take("defaultConstraints").unwrap_or_else(|| json!([]));
        let listed = listed.as_array().cloned().unwrap_or_default();
        let kind = arguments.one_of("defaultingType", &["System", "List"]);
        let system = kind.as_deref() != Some("List");
        if system && !listed.is_empty() {
            let why = "when .defaultConstraints are not empty";
            mistakes.push(format!("defaultingType: Invalid value: \"System\": {why}"));
        }
        let constraints = listed.iter().enumerate().filter_map(|(i, c)| constraint(i, c, &mut mistakes));
        let constraints: Vec<Spread> = constraints.collect();
        for (i, own) in constraints.iter().enumerate() {
            let same = |c: &Spread| c.topology_key == own.topology_key && c.when == own.when;
            if constraints[..i].iter().any(same) {
                let value = format!("{{{}, {:?}}}", own.topology_key, own.when);
                mistakes.push(format!("defaultConstraints[{i}]: Duplicate value: {value:?}"));
            }
        }
        mistakes.extend(arguments.finish().err().unwrap_or_default());
        match mistakes.as_slice() {
            [] if system => Ok(Self::default()),
            [] => Ok(Self { constraints, system }),
            _ => Err(mistakes),
        }
    }

    /// The default constraints that hold for a pod, with the selector of what it belongs to; none for a pod that
    /// belongs to nothing.
    pub fn of(&self, pod: &PodInfo, cluster: &dyn Cluster, when: WhenUnsatisfiable) -> Vec<Spread> {
        let wanted: Vec<&Spread> = self.constraints.iter().filter(|c| c.when == when).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let selector = selector_of(pod, cluster);
        if selector.requirements().is_empty() {
            return Vec::new();
        }
        wanted.into_iter().map(|c| Spread { selector: selector.clone(), ..c.clone() }).collect()
    }
}

fn constraint(index: usize, value: &Value, mistakes: &mut ArgumentErrors) -> Option<Spread> {
    let path = format!("defaultConstraints[{index}]");
    let typed: TopologySpreadConstraint = match serde_json::from_value(value.clone()) {
        Ok(typed) => typed,
        Err(error) => {
            mistakes.push(format!("{path}: Invalid value: {value}: {error}"));
            return None;
        }
    };
    let before = mistakes.len();
    if typed.max_skew <= 0 {
        mistakes
            .push(format!("{path}.maxSkew: Invalid value: {}: not in valid range (0, inf)", typed.max_skew));
    }
    if typed.topology_key.is_empty() {
        mistakes.push(format!("{path}.topologyKey: Required value: can not be empty"));
    } else {
        let key = &typed.topology_key;
        let wrong = qualified_name(key).into_iter();
        mistakes.extend(wrong.map(|why| format!("{path}.topologyKey: Invalid value: {key:?}: {why}")));
    }
    if typed.when_unsatisfiable.is_empty() {
        mistakes.push(format!("{path}.whenUnsatisfiable: Required value: can not be empty"));
    } else if !["DoNotSchedule", "ScheduleAnyway"].contains(&typed.when_unsatisfiable.as_str()) {
        mistakes.push(format!(
            "{path}.whenUnsatisfiable: Unsupported value: {:?}: supported values: \"DoNotSchedule\", \
             \"ScheduleAnyway\"",
            typed.when_unsatisfiable
        ));
    }
    if typed.label_selector.is_some() {
        let why = "constraint must not define a selector, as they deduced for each pod";
        mistakes.push(format!("{path}.labelSelector: Forbidden: {why}"));
    }
    (mistakes.len() == before).then(|| Spread::parse(None, &typed))
}

/// What Services and the owner of the pod select it by, all together.
fn selector_of(pod: &PodInfo, cluster: &dyn Cluster) -> LabelSelector {
    let Some(labels) = pod.labels().filter(|l| !l.is_empty()) else { return LabelSelector::default() };
    let owner = pod.controller();
    let mut requirements: Vec<Requirement> = Vec::new();
    for object in cluster.selectors(&pod.key.namespace) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (name, raw) = (&object["name"], &object["selector"]);
        let plain = matches!(kind, "Service" | "ReplicationController");
        let selector = if plain { LabelSelector::from_map(raw) } else { LabelSelector::from_object(raw) };
        let Ok(selector) = selector else { continue };
        let ours = if kind == "Service" {
            !selector.is_everything() && selector.matches_with(|key| labels.get(key).map(String::as_str))
        } else {
            owner.is_some_and(|o| o.kind == kind && name == o.name.as_str())
        };
        if ours {
            requirements.extend(selector.requirements().iter().cloned());
        }
    }
    LabelSelector::new(requirements)
}
