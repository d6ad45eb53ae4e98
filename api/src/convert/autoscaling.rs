//! HorizontalPodAutoscalers in autoscaling/v1, kept as autoscaling/v2.
//!
//! What v1 has no field for stands in annotations, as upstream writes them: other metrics and the state of all in the
//! notation of v1, conditions, and the behaviour under the names of Go's fields. They exist in v1 only; on the way to
//! v2 they become fields again.

use crate::Object;
use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// (v2, v1) of the fields that only differ in name.
const BEHAVIOR_NAMES: &[(&str, &str)] = &[
    ("scaleUp", "ScaleUp"),
    ("scaleDown", "ScaleDown"),
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("tolerance", "Tolerance"),
    ("type", "Type"),
    ("value", "Value"),
    ("periodSeconds", "PeriodSeconds"),
];

pub fn to_v2(object: &mut Object) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let percent = take(spec, "targetCPUUtilizationPercentage");
        if !percent.is_null() {
            let target = json!({ "type": "Utilization", "averageUtilization": percent });
            let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
            spec.insert("metrics".into(), json!([metric]));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let percent = take(status, "currentCPUUtilizationPercentage");
        if !percent.is_null() {
            let current = json!({ "averageUtilization": percent });
            let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "current": current } });
            status.insert("currentMetrics".into(), json!([metric]));
        }
    }
    let mut carried = |name: &str| -> Value {
        let text = annotations_mut(object).and_then(|a| a.remove(name));
        text.as_ref().and_then(Value::as_str).and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default()
    };
    let (metrics, current) = (carried(METRICS), carried(CURRENT_METRICS));
    let (conditions, behavior) = (carried(CONDITIONS), carried(BEHAVIOR));
    if annotations_mut(object).is_some_and(|a| a.is_empty())
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("annotations");
    }
    let mut specs = objects(&metrics, spec_to_v2);
    if !specs.is_empty() && object["spec"].is_object() {
        let cpu = object["spec"]["metrics"].as_array().and_then(|m| m.first()).cloned();
        specs.extend(cpu);
        object["spec"]["metrics"] = specs.into();
    }
    if let Some(renamed) = behavior.as_object().filter(|b| !b.is_empty()).map(|_| rename(&behavior, false))
        && object["spec"].is_object()
    {
        object["spec"]["behavior"] = renamed;
    }
    let statuses = objects(&current, status_to_v2);
    if !statuses.is_empty() && object["status"].is_object() {
        object["status"]["currentMetrics"] = statuses.into();
    }
    if conditions.as_array().is_some_and(|c| !c.is_empty()) && object["status"].is_object() {
        object["status"]["conditions"] = conditions;
    }
}

pub fn to_v1(object: &mut Object) {
    let mut carried: Vec<(&str, Value)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = take(spec, "metrics");
        let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(first) = metrics.iter().find(|m| is_cpu(m))
            && let percent @ Value::Number(_) = &first["resource"]["target"]["averageUtilization"]
        {
            spec.insert("targetCPUUtilizationPercentage".into(), percent.clone());
        }
        let others: Vec<Value> =
            metrics.iter().filter(|m| !is_cpu_percentage(m)).filter_map(spec_to_v1).collect();
        carried.push((METRICS, others.into()));
        carried.push((BEHAVIOR, rename(&take(spec, "behavior"), true)));
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = take(status, "currentMetrics");
        let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
        let percent =
            metrics.iter().find(|m| is_cpu(m)).map(|m| &m["resource"]["current"]["averageUtilization"]);
        if let Some(percent @ Value::Number(_)) = percent {
            status.insert("currentCPUUtilizationPercentage".into(), percent.clone());
        }
        carried.push((CURRENT_METRICS, metrics.iter().filter_map(status_to_v1).collect::<Vec<_>>().into()));
        carried.push((CONDITIONS, take(status, "conditions")));
        for required in ["currentReplicas", "desiredReplicas"] {
            status.entry(required).or_insert_with(|| 0.into());
        }
    }
    for (name, value) in carried {
        let empty = match &value {
            Value::Array(list) => list.is_empty(),
            other => !other.is_object(),
        };
        if !empty && object["metadata"].is_object() {
            if !object["metadata"]["annotations"].is_object() {
                object["metadata"]["annotations"] = json!({});
            }
            object["metadata"]["annotations"][name] = value.to_string().into();
        }
    }
}

fn annotations_mut(object: &mut Object) -> Option<&mut Map<String, Value>> {
    object.pointer_mut("/metadata/annotations")?.as_object_mut()
}

fn take(fields: &mut Map<String, Value>, name: &str) -> Value {
    fields.remove(name).unwrap_or_default()
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn is_cpu_percentage(metric: &Value) -> bool {
    is_cpu(metric) && metric["resource"]["target"]["averageUtilization"].is_number()
}

fn objects(list: &Value, convert: fn(&Value) -> Option<Value>) -> Vec<Value> {
    list.as_array().into_iter().flatten().filter_map(convert).collect()
}

/// Keys of the behaviour to Go's names or back; what Go would print as null is left out of v2.
fn rename(value: &Value, to_go: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.iter().filter(|(_, v)| to_go || !v.is_null()).map(|(key, inner)| {
                let names = BEHAVIOR_NAMES.iter().find(|(v2, go)| if to_go { v2 == key } else { go == key });
                let key = names.map_or(key.as_str(), |(v2, go)| if to_go { go } else { v2 });
                (key.to_owned(), rename(inner, to_go))
            });
            renamed.collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(|inner| rename(inner, to_go)).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

/// An object of the fields that have a value.
fn of<const N: usize>(fields: [(&str, &Value); N]) -> Value {
    let set = fields.into_iter().filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| (name.to_owned(), value.clone())).collect::<Map<_, _>>().into()
}

/// The field that holds a metric's source: its type with a small first letter.
fn source_name(metric: &Value) -> Option<&'static str> {
    Some(match metric["type"].as_str()? {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "External" => "external",
        _ => return None,
    })
}

fn with_source(metric: &Value, make: fn(&str, &Value) -> Value) -> Option<Value> {
    let name = source_name(metric)?;
    let mut made = json!({ "type": metric["type"] });
    if metric[name].is_object() {
        made[name] = make(name, &metric[name]);
    }
    Some(made)
}

fn zero_unless(value: &Value) -> Value {
    if value.is_null() { "0".into() } else { value.clone() }
}

fn spec_to_v1(metric: &Value) -> Option<Value> {
    with_source(metric, |name, s| {
        let (target, about) = (&s["target"], &s["metric"]);
        match name {
            "object" => of([
                ("target", &s["describedObject"]),
                ("metricName", &about["name"]),
                ("selector", &about["selector"]),
                ("targetValue", &zero_unless(&target["value"])),
                ("averageValue", &target["averageValue"]),
            ]),
            "pods" => of([
                ("metricName", &about["name"]),
                ("selector", &about["selector"]),
                ("targetAverageValue", &zero_unless(&target["averageValue"])),
            ]),
            "external" => of([
                ("metricName", &about["name"]),
                ("metricSelector", &about["selector"]),
                ("targetValue", &target["value"]),
                ("targetAverageValue", &target["averageValue"]),
            ]),
            _ => of([
                ("name", &s["name"]),
                ("container", &s["container"]),
                ("targetAverageUtilization", &target["averageUtilization"]),
                ("targetAverageValue", &target["averageValue"]),
            ]),
        }
    })
}

fn spec_to_v2(metric: &Value) -> Option<Value> {
    let typed = |kind: &str, value: &Value, average: &Value, percent: &Value| {
        of([
            ("type", &kind.into()),
            ("value", value),
            ("averageValue", average),
            ("averageUtilization", percent),
        ])
    };
    let source = source_name(metric)?;
    let s = &metric[source];
    let mut made = json!({ "type": metric["type"] });
    if !s.is_object() {
        return Some(made);
    }
    let null = Value::Null;
    made[source] = match source {
        "object" => {
            let kind = if s["averageValue"].is_null() { "Value" } else { "AverageValue" };
            // Beside an average the other form has a zero, for want of a way to leave the value out.
            let unset = kind == "AverageValue" && s["targetValue"] == "0";
            let value = if unset { &null } else { &s["targetValue"] };
            json!({ "describedObject": s["target"], "metric": metric_of(s, "selector"),
                "target": typed(kind, value, &s["averageValue"], &null) })
        }
        "pods" => json!({ "metric": metric_of(s, "selector"),
            "target": typed("AverageValue", &null, &s["targetAverageValue"], &null) }),
        "external" => {
            let kind = if s["targetValue"].is_null() { "AverageValue" } else { "Value" };
            json!({ "metric": metric_of(s, "metricSelector"),
                "target": typed(kind, &s["targetValue"], &s["targetAverageValue"], &null) })
        }
        _ => {
            let percent = &s["targetAverageUtilization"];
            let kind = if percent.is_null() { "AverageValue" } else { "Utilization" };
            let target = typed(kind, &null, &s["targetAverageValue"], percent);
            of([("name", &s["name"]), ("container", &s["container"]), ("target", &target)])
        }
    };
    Some(made)
}

fn metric_of(source: &Value, selector: &str) -> Value {
    of([("name", &source["metricName"]), ("selector", &source[selector])])
}

fn status_to_v1(metric: &Value) -> Option<Value> {
    with_source(metric, |name, s| {
        let (current, about) = (&s["current"], &s["metric"]);
        match name {
            "object" => of([
                ("target", &s["describedObject"]),
                ("metricName", &about["name"]),
                ("selector", &about["selector"]),
                ("currentValue", &zero_unless(&current["value"])),
                ("averageValue", &current["averageValue"]),
            ]),
            "pods" => of([
                ("metricName", &about["name"]),
                ("selector", &about["selector"]),
                ("currentAverageValue", &zero_unless(&current["averageValue"])),
            ]),
            "external" => of([
                ("metricName", &about["name"]),
                ("metricSelector", &about["selector"]),
                ("currentValue", &zero_unless(&current["value"])),
                ("currentAverageValue", &current["averageValue"]),
            ]),
            _ => of([
                ("name", &s["name"]),
                ("container", &s["container"]),
                ("currentAverageUtilization", &current["averageUtilization"]),
                ("currentAverageValue", &zero_unless(&current["averageValue"])),
            ]),
        }
    })
}

fn status_to_v2(metric: &Value) -> Option<Value> {
    with_source(metric, |name, s| {
        let current = of([
            ("value", &s["currentValue"]),
            ("averageValue", if name == "object" { &s["averageValue"] } else { &s["currentAverageValue"] }),
            ("averageUtilization", &s["currentAverageUtilization"]),
        ]);
        match name {
            "object" => of([
                ("describedObject", &s["target"]),
                ("metric", &metric_of(s, "selector")),
                ("current", &current),
            ]),
            "pods" => of([("metric", &metric_of(s, "selector")), ("current", &current)]),
            "external" => of([("metric", &metric_of(s, "metricSelector")), ("current", &current)]),
            _ => of([("name", &s["name"]), ("container", &s["container"]), ("current", &current)]),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Object {
        let selector = json!({ "matchLabels": { "a": "b" } });
        json!({ "metadata": { "name": "h", "annotations": { "own": "x" } },
            "spec": {
                "scaleTargetRef": { "kind": "Deployment", "name": "d" }, "maxReplicas": 3,
                "metrics": [
                    { "type": "ContainerResource", "containerResource": { "name": "memory", "container": "c",
                        "target": { "type": "AverageValue", "averageValue": "1Gi" } } },
                    { "type": "Object", "object": { "describedObject": { "kind": "Service", "name": "s" },
                        "metric": { "name": "hits", "selector": selector }, "target": { "type": "Value", "value": "5" } } },
                    { "type": "Pods", "pods": { "metric": { "name": "p" },
                        "target": { "type": "AverageValue", "averageValue": "7" } } },
                    { "type": "External", "external": { "metric": { "name": "q", "selector": selector },
                        "target": { "type": "AverageValue", "averageValue": "2" } } },
                    { "type": "Resource", "resource": { "name": "cpu",
                        "target": { "type": "Utilization", "averageUtilization": 60 } } },
                ],
                "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0, "selectPolicy": "Min",
                    "policies": [{ "type": "Pods", "value": 4, "periodSeconds": 60 }] } },
            },
            "status": { "currentReplicas": 1, "desiredReplicas": 2,
                "conditions": [{ "type": "AbleToScale", "status": "True" }],
                "currentMetrics": [
                    { "type": "Resource", "resource": { "name": "cpu",
                        "current": { "averageUtilization": 70, "averageValue": "100m" } } },
                    { "type": "Object", "object": { "describedObject": { "kind": "Service", "name": "s" },
                        "metric": { "name": "hits" }, "current": { "value": "6", "averageValue": "3" } } },
                ] },
        })
    }

    #[test]
    fn there_and_back() {
        let mut object = full();
        to_v1(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 60);
        assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 70);
        let annotations = &object["metadata"]["annotations"];
        let behavior: Value = serde_json::from_str(annotations[BEHAVIOR].as_str().unwrap()).unwrap();
        assert_eq!(
            behavior["ScaleDown"]["Policies"],
            json!([{ "Type": "Pods", "Value": 4, "PeriodSeconds": 60 }])
        );
        assert_eq!((annotations.as_object().unwrap().len(), object["spec"].get("metrics")), (5, None));
        to_v2(&mut object);
        assert_eq!(object, full());
    }

    #[test]
    fn an_average_of_an_object_comes_back_alone() {
        let target = json!({ "type": "AverageValue", "averageValue": "10" });
        let object = json!({ "describedObject": { "kind": "Service", "name": "s" }, "metric": { "name": "m" },
            "target": target });
        let metrics = json!([{ "type": "Object", "object": object }]);
        let mut hpa =
            json!({ "metadata": { "name": "h" }, "spec": { "maxReplicas": 1, "metrics": metrics } });
        let before = hpa.clone();
        to_v1(&mut hpa);
        to_v2(&mut hpa);
        assert_eq!(hpa, before);
    }

    #[test]
    fn plain_and_odd_objects() {
        let mut object = json!({ "metadata": { "name": "h" }, "spec": { "maxReplicas": 1,
            "targetCPUUtilizationPercentage": 80 } });
        let before = object.clone();
        to_v2(&mut object);
        assert_eq!(object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        to_v1(&mut object);
        assert_eq!(object, before);
        let mut odd =
            json!({ "metadata": { "annotations": { METRICS: "no json", BEHAVIOR: "[1]" } }, "spec": 3 });
        to_v2(&mut odd);
        assert_eq!(odd, json!({ "metadata": {}, "spec": 3 }));
        to_v1(&mut odd);
    }
}
