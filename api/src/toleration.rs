//! Whether a toleration tolerates a taint, of nodes
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>) and of devices (KEP-5055).

use k8s_openapi::api::core::v1;
use serde_json::Value;

/// A taint of a node or of a device.
#[derive(Clone, Copy, Debug)]
pub struct Taint<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

/// A toleration of a pod or of a claim. Fields that are not set are empty.
#[derive(Clone, Copy, Debug)]
pub struct Toleration<'a> {
    pub key: &'a str,
    pub operator: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

impl<'a> From<&'a v1::Taint> for Taint<'a> {
    fn from(taint: &'a v1::Taint) -> Self {
        Self { key: &taint.key, value: taint.value.as_deref().unwrap_or_default(), effect: &taint.effect }
    }
}

impl<'a> From<&'a Value> for Taint<'a> {
    fn from(taint: &'a Value) -> Self {
        let [key, value, effect] = ["key", "value", "effect"].map(|f| taint[f].as_str().unwrap_or_default());
        Self { key, value, effect }
    }
}

impl<'a> From<&'a v1::Toleration> for Toleration<'a> {
    fn from(toleration: &'a v1::Toleration) -> Self {
        Self {
            key: toleration.key.as_deref().unwrap_or_default(),
            operator: toleration.operator.as_deref().unwrap_or_default(),
            value: toleration.value.as_deref().unwrap_or_default(),
            effect: toleration.effect.as_deref().unwrap_or_default(),
        }
    }
}

impl<'a> From<&'a Value> for Toleration<'a> {
    fn from(toleration: &'a Value) -> Self {
        let fields = ["key", "operator", "value", "effect"];
        let [key, operator, value, effect] = fields.map(|f| toleration[f].as_str().unwrap_or_default());
        Self { key, operator, value, effect }
    }
}

impl Toleration<'_> {
    /// An empty key matches every key, an empty effect every effect, and an empty operator is `Equal`. `Lt` and `Gt`
    /// compare the taint's value with the toleration's as whole numbers (KEP-5471).
    pub fn tolerates(&self, taint: Taint<'_>) -> bool {
        let fits = |own: &str, theirs: &str| own.is_empty() || own == theirs;
        if !fits(self.key, taint.key) || !fits(self.effect, taint.effect) {
            return false;
        }
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Lt" => numbers().is_some_and(|(theirs, own)| theirs < own),
            "Gt" => numbers().is_some_and(|(theirs, own)| theirs > own),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_taints() {
        let taint = json!({ "key": "a", "value": "5", "effect": "NoSchedule" });
        let typed_taint: v1::Taint = serde_json::from_value(taint.clone()).unwrap();
        for (expected, toleration) in [
            (true, json!({ "key": "a", "operator": "Exists" })),
            (true, json!({ "operator": "Exists" })),
            (true, json!({ "key": "a", "value": "5" })),
            (true, json!({ "key": "a", "operator": "Equal", "value": "5", "effect": "NoSchedule" })),
            (false, json!({ "key": "a", "value": "c" })),
            (false, json!({ "key": "a" })),
            (true, json!({ "key": "a", "operator": "Gt", "value": "4" })),
            (false, json!({ "key": "a", "operator": "Gt", "value": "5" })),
            (true, json!({ "key": "a", "operator": "Lt", "value": "6" })),
            (false, json!({ "key": "a", "operator": "Lt", "value": "5" })),
            (false, json!({ "key": "a", "operator": "Lt", "value": "many" })),
            (false, json!({ "key": "a", "operator": "Like", "value": "5" })),
            (false, json!({ "key": "a", "operator": "Exists", "effect": "NoExecute" })),
            (false, json!({ "key": "b", "operator": "Exists" })),
        ] {
            let typed: v1::Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(Toleration::from(&toleration).tolerates((&taint).into()), expected, "{toleration}");
            assert_eq!(Toleration::from(&typed).tolerates((&typed_taint).into()), expected, "{toleration}");
        }
    }
}
