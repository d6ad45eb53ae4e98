//! Scores of a node by how much of it is requested, under upstream's three strategies.

use crate::cache::{NodeInfo, PodInfo};
use crate::framework::MAX_NODE_SCORE;
use crate::plugins::ArgumentErrors;
use serde_json::Value;

/// A resource and its share in the score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted {
    pub name: String,
    pub weight: i64,
}

/// A score (0 to 100) at a utilization (percent).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    pub utilization: i64,
    pub score: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

#[derive(Clone, Debug)]
pub struct Strategy {
    pub kind: Kind,
    pub resources: Vec<Weighted>,
}

impl Default for Strategy {
    fn default() -> Self {
        Self { kind: Kind::LeastAllocated, resources: cpu_and_memory() }
    }
}

pub fn cpu_and_memory() -> Vec<Weighted> {
    ["cpu", "memory"].map(|name| Weighted { name: name.to_owned(), weight: 1 }).to_vec()
}

/// `[{name, weight}]`; `path` is where it stands. `valid` is asked about every weight, and says what is wrong with it. A
/// weight of 0 is none given, as upstream.
pub fn resources(
    path: &str,
    value: &Value,
    mistakes: &mut ArgumentErrors,
    valid: impl Fn(&str, i64) -> Result<(), String>,
) -> Vec<Weighted> {
    let mut list: Vec<Weighted> = Vec::new();
    for (i, entry) in value.as_array().into_iter().flatten().enumerate() {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            mistakes.push(format!("{path}[{i}].name: Required value"));
        }
        let weight = match &entry["weight"] {
            Value::Null => Some(1),
            weight => weight.as_i64().map(|weight| if weight == 0 { 1 } else { weight }),
        };
        match weight.ok_or_else(|| "must be an integer".to_owned()).and_then(|w| valid(&name, w).map(|()| w))
        {
            Ok(weight) => list.push(Weighted { name, weight }),
            Err(why) => {
                mistakes.push(format!("{path}[{i}].weight: Invalid value: {}: {why}", entry["weight"]));
            }
        }
    }
    list
}

fn fits_a_percentage(name: &str, weight: i64) -> Result<(), String> {
    let valid = (1..=100).contains(&weight);
    if valid { Ok(()) } else { Err(format!("resource weight of {name} not in valid range (0, 100]")) }
}

fn shape(value: &Value, mistakes: &mut ArgumentErrors) -> Vec<ShapePoint> {
    let path = "scoringStrategy.requestedToCapacityRatio.shape";
    let points = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if points.is_empty() {
        mistakes.push(format!("{path}: Required value: at least one point must be specified"));
    }
    let mut shape: Vec<ShapePoint> = Vec::new();
    for (i, point) in points.iter().enumerate() {
        let (utilization, score) =
            (point["utilization"].as_i64().unwrap_or(0), point["score"].as_i64().unwrap_or(0));
        let mut refuse = |field: &str, value: i64, why: &str| {
            mistakes.push(format!("{path}[{i}].{field}: Invalid value: {value}: {why}"));
        };
        if !(0..=100).contains(&utilization) {
            refuse("utilization", utilization, "not in valid range [0, 100]");
        } else if shape.last().is_some_and(|last| last.utilization >= utilization) {
            refuse("utilization", utilization, "values must be sorted in increasing order");
        }
        if !(0..=10).contains(&score) {
            refuse("score", score, "not in valid range [0, 10]");
        }
        shape.push(ShapePoint { utilization, score: score * 10 });
    }
    shape
}

impl Strategy {
    pub fn parse(value: &Value, mistakes: &mut ArgumentErrors) -> Self {
        let mut strategy = Self::default();
        if let Some(fields) = value.as_object() {
            let known = ["type", "resources", "requestedToCapacityRatio"];
            for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
                mistakes.push(format!("scoringStrategy.{name}: Forbidden: unknown field"));
            }
        }
        if !value["resources"].is_null() {
            let path = "scoringStrategy.resources";
            let given = resources(path, &value["resources"], mistakes, fits_a_percentage);
            if !given.is_empty() {
                strategy.resources = given;
            }
        }
        let ratio = &value["requestedToCapacityRatio"];
        let by_ratio = value["type"] == "RequestedToCapacityRatio";
        if by_ratio && ratio.is_null() {
            mistakes.push(
                "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is \
                 RequestedToCapacityRatio"
                    .to_owned(),
            );
        } else if !by_ratio && !ratio.is_null() {
            // Of no effect, and checked all the same.
            shape(&ratio["shape"], mistakes);
        }
        strategy.kind = match value["type"].as_str().unwrap_or("LeastAllocated") {
            "LeastAllocated" => Kind::LeastAllocated,
            "MostAllocated" => Kind::MostAllocated,
            "RequestedToCapacityRatio" if ratio.is_null() => Kind::RequestedToCapacityRatio(Vec::new()),
            "RequestedToCapacityRatio" => Kind::RequestedToCapacityRatio(shape(&ratio["shape"], mistakes)),
            other => {
                mistakes.push(format!(
                    "scoringStrategy.type: Unsupported value: {other:?}: supported values: \"LeastAllocated\", \
                     \"MostAllocated\", \"RequestedToCapacityRatio\""
                ));
                Kind::LeastAllocated
            }
        };
        strategy
    }

    /// 0 to `MAX_NODE_SCORE`. CPU and memory are counted with a minimum for containers that ask for nothing.
    pub fn score(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for resource in &self.resources {
            let name = resource.name.as_str();
            let allocatable = node.allocatable.get(name);
            let counted = name == "cpu" || name == "memory";
            let (wanted, used) = if counted {
                (pod.counted.get(name), node.counted.get(name))
            } else {
                (pod.requests.get(name), node.requested.get(name))
            };
            // A device that the pod does not ask for says nothing about how well it is placed.
            if allocatable <= 0 || (!counted && wanted == 0 && name != "ephemeral-storage") {
                continue;
            }
            let score = self.kind.score(used.saturating_add(wanted), allocatable);
            if matches!(self.kind, Kind::RequestedToCapacityRatio(_)) && score <= 0 {
                continue;
            }
            sum += score * resource.weight;
            weights += resource.weight;
        }
        match (weights, &self.kind) {
            (0, _) => 0,
            (_, Kind::RequestedToCapacityRatio(_)) => (sum + weights / 2) / weights,
            _ => sum / weights,
        }
    }
}

impl Kind {
    /// Of one resource.
    fn score(&self, requested: i64, allocatable: i64) -> i64 {
        match self {
            Self::LeastAllocated if requested > allocatable => 0,
            Self::LeastAllocated => percent(allocatable - requested, allocatable),
            Self::MostAllocated => percent(requested.min(allocatable), allocatable),
            Self::RequestedToCapacityRatio(shape) => {
                let utilization = if requested > allocatable { 100 } else { percent(requested, allocatable) };
                interpolate(shape, utilization)
            }
        }
    }
}

fn percent(part: i64, whole: i64) -> i64 {
    i64::try_from(i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(whole)).unwrap_or(MAX_NODE_SCORE)
}

/// The shape's value: straight between its points, level outside of them.
fn interpolate(shape: &[ShapePoint], utilization: i64) -> i64 {
    let Some(above) = shape.iter().position(|p| utilization <= p.utilization) else {
        return shape.last().map_or(0, |p| p.score);
    };
    if above == 0 {
        return shape[0].score;
    }
    let (a, b) = (shape[above - 1], shape[above]);
    a.score + (b.score - a.score) * (utilization - a.utilization) / (b.utilization - a.utilization)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;
    use std::sync::Arc;

    fn asking(cpu: &str, memory: &str, gpus: &str) -> PodInfo {
        pod(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": cpu, "memory": memory, "example.com/gpu": gpus}}}]}}))
    }

    fn score(strategy: &Value, pod: &PodInfo) -> i64 {
        let mut mistakes = Vec::new();
        let strategy = Strategy::parse(strategy, &mut mistakes);
        assert_eq!(mistakes, Vec::<String>::new());
        let mut busy = node(json!({"status": {"allocatable":
            {"cpu": "4", "memory": "8Gi", "example.com/gpu": "4", "pods": "9"}}}));
        busy.add(Arc::new(asking("1", "2Gi", "0")));
        strategy.score(pod, &busy)
    }

    #[test]
    fn each_strategy_scores_as_upstream() {
        let pod = asking("1", "2Gi", "1");
        assert_eq!(score(&json!({}), &pod), 50);
        assert_eq!(score(&json!({"type": "MostAllocated"}), &pod), 50);
        let weighted = json!({"type": "LeastAllocated", "resources":
            [{"name": "cpu", "weight": 1}, {"name": "example.com/gpu", "weight": 3}]});
        assert_eq!(score(&weighted, &pod), (50 + 75 * 3) / 4);
        assert_eq!(score(&weighted, &asking("1", "2Gi", "0")), 50);
        let packing = json!({"type": "RequestedToCapacityRatio",
            "resources": [{"name": "example.com/gpu", "weight": 1}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}});
        assert_eq!(score(&packing, &pod), 25);
        // More than there is.
        let crowding = asking("4", "8Gi", "0");
        assert_eq!(score(&json!({}), &crowding), 0);
        assert_eq!(score(&json!({"type": "MostAllocated"}), &crowding), 100);
    }

    #[test]
    fn all_mistakes_are_told_with_their_paths() {
        let mut mistakes = Vec::new();
        let wrong = json!({"type": "Tightest", "resources": [{"name": "cpu", "weight": 101}, {"weight": 1}],
            "requestedToCapacityRatio": {}});
        Strategy::parse(&wrong, &mut mistakes);
        assert_eq!(mistakes.len(), 4, "{mistakes:?}");
        let words = "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid \
                     range (0, 100]";
        assert_eq!(mistakes[0], words);
        mistakes.clear();
        let shape = json!([{"utilization": 50, "score": 1}, {"utilization": 40, "score": 11}]);
        let wrong = json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}});
        Strategy::parse(&wrong, &mut mistakes);
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
        mistakes.clear();
        Strategy::parse(&json!({"type": "RequestedToCapacityRatio"}), &mut mistakes);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        mistakes.clear();
        // Upstream takes it, though another strategy does not read it.
        let unread = json!({"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 1}]}});
        Strategy::parse(&unread, &mut mistakes);
        assert_eq!(mistakes, Vec::<String>::new());
    }
}
