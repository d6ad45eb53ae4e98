//! The quality-of-service class of a pod
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>).

use super::super::rules::parse_quantity;
use super::super::value::*;
use coracle_api::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Only cpu and memory above zero count. Resources of the whole pod, where given, take the place of the containers'.
pub fn class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut guaranteed = true;
    for resources in holders(spec) {
        add(resources, "requests", &mut requests);
        let limited = add(resources, "limits", &mut limits);
        guaranteed &= limited == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn holders(spec: &Value) -> Vec<&Value> {
    let whole = at(spec, "resources");
    if has(whole, "requests") || has(whole, "limits") {
        return vec![whole];
    }
    ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list_at(spec, field))
        .map(|container| at(container, "resources"))
        .collect()
}

/// Adds one container's amounts to the sums and returns how many of the two resources it has.
fn add<'a>(resources: &Value, kind: &str, sums: &mut Amounts<'a>) -> usize {
    let mut found = 0;
    for name in ["cpu", "memory"] {
        match at(resources, kind).get(name).and_then(parse_quantity) {
            Some(amount) if !amount.is_zero() && !amount.is_negative() => {
                *sums.entry(name).or_default() += amount;
                found += 1;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes() {
        let full = json!({ "cpu": "1", "memory": "1Gi" });
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({ "requests": { "cpu": "0" } }), "BestEffort"),
            (json!({ "requests": { "nvidia.com/gpu": 1 } }), "BestEffort"),
            (json!({ "requests": { "cpu": "1" } }), "Burstable"),
            (json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1" } }), "Burstable"),
            (json!({ "limits": full, "requests": { "cpu": "1000m", "memory": "1024Mi" } }), "Guaranteed"),
            (json!({ "limits": full, "requests": { "cpu": "1", "memory": "1Mi" } }), "Burstable"),
        ] {
            let spec = json!({ "containers": [{ "resources": resources }] });
            assert_eq!(class(&spec), expected, "{spec}");
        }
    }
}
