//! What a Deployment asks for, its percentages resolved.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub replicas: i32,
    /// None for strategy Recreate.
    pub rolling: Option<Rolling>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolling {
    pub max_surge: i32,
    /// At most `replicas`.
    pub max_unavailable: i32,
}

impl Shape {
    pub fn of(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let replicas = spec.and_then(|s| s.replicas).unwrap_or(1);
        let strategy = spec.and_then(|s| s.strategy.as_ref());
        if strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate") {
            return Self { replicas, rolling: None };
        }
        let update = strategy.and_then(|s| s.rolling_update.as_ref());
        let surge = resolve(update.and_then(|u| u.max_surge.as_ref()), replicas, true);
        let mut unavailable = resolve(update.and_then(|u| u.max_unavailable.as_ref()), replicas, false);
        if surge == 0 && unavailable == 0 {
            // Both rounded to nothing: without this nothing could ever move.
            unavailable = 1;
        }
        let rolling = Rolling { max_surge: surge, max_unavailable: unavailable.min(replicas) };
        Self { replicas, rolling: Some(rolling) }
    }

    /// Pods that may exist at once.
    pub fn max_replicas(&self) -> i32 {
        self.replicas.saturating_add(self.rolling.map_or(0, |r| r.max_surge))
    }

    /// Pods that must be available during a rollout.
    pub fn min_available(&self) -> i32 {
        self.replicas - self.rolling.map_or(0, |r| r.max_unavailable)
    }
}

/// 25% is the API's default for both.
fn resolve(value: Option<&IntOrString>, of: i32, up: bool) -> i32 {
    let quarter = IntOrString::String("25%".to_owned());
    crate::common::resolve(value.unwrap_or(&quarter), of, up)
}

/// The part of a ReplicaSet that decisions are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetView {
    pub name: String,
    pub replicas: i32,
    /// By its status, but no more than are wanted: a set that was just told to shrink still tells of those that go.
    pub available: i32,
    /// Creation time in seconds, to tell older from newer.
    pub created: i64,
    /// `deployment.kubernetes.io/desired-replicas` and `max-replicas` as last written.
    pub desired: Option<i32>,
    pub max: Option<i32>,
}

impl SetView {
    pub fn of(set: &ReplicaSet) -> Self {
        let meta = &set.metadata;
        let number = |key: &str| meta.annotations.as_ref()?.get(key)?.parse().ok();
        let replicas = set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(0);
        let available = set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0);
        Self {
            name: meta.name.clone().unwrap_or_default(),
            replicas,
            available: available.min(replicas),
            created: meta.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
            desired: number(DESIRED),
            max: number(MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn percentages_round_surge_up_and_unavailable_down() {
        let cases = [
            (json!("25%"), json!("25%"), 3, (1, 0)),
            (json!("25%"), json!("25%"), 10, (3, 2)),
            (json!(0), json!("10%"), 5, (0, 1)),
            (json!(0), json!(9), 4, (0, 4)),
            (Value::Null, Value::Null, 4, (1, 1)),
        ];
        for (surge, unavailable, replicas, expected) in cases {
            let deployment: Deployment = serde_json::from_value(json!({ "spec": {
                "replicas": replicas, "selector": {}, "template": {},
                "strategy": { "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } } }))
            .unwrap();
            let rolling = Shape::of(&deployment).rolling.unwrap();
            assert_eq!((rolling.max_surge, rolling.max_unavailable), expected);
        }
    }

    #[test]
    fn pods_that_a_set_has_to_give_up_are_not_available() {
        for (replicas, status, expected) in [(5, 8, 5), (5, 3, 3), (0, 2, 0)] {
            let set: ReplicaSet = serde_json::from_value(json!({ "metadata": { "name": "s" },
                "spec": { "replicas": replicas, "selector": {} },
                "status": { "replicas": 8, "availableReplicas": status } }))
            .unwrap();
            assert_eq!(SetView::of(&set).available, expected);
        }
    }
}
