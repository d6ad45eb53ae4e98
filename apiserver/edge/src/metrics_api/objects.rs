//! NodeMetrics and PodMetrics, and their tables.

use super::API_VERSION;
use super::sample::{Usage, Used};
use crate::wire::shape::{Include, metadata_only};
use coracle_api::selector::{FieldSelector, LabelSelector};
use coracle_api::{ApiError, Object, meta};
use coracle_requests::value::{entries_at, name, namespace, str_at};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nodes,
    Pods,
}

impl Kind {
    pub fn of(plural: &str) -> Option<Self> {
        [Self::Nodes, Self::Pods].into_iter().find(|kind| kind.plural() == plural)
    }

    pub fn plural(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "NodeMetrics",
            Self::Pods => "PodMetrics",
        }
    }

    /// metrics-server names what it does not find by the kind.
    pub fn not_found_as(self) -> &'static str {
        match self {
            Self::Nodes => "nodemetrics",
            Self::Pods => "podmetrics",
        }
    }

    /// The objects that are measured.
    pub fn storage(self) -> &'static str {
        match self {
            Self::Nodes => "nodes.",
            Self::Pods => "pods.",
        }
    }

    /// The node whose kubelet knows about the object; empty if none does.
    pub fn node_of(self, object: &Object) -> &str {
        match self {
            Self::Nodes => name(object),
            Self::Pods => str_at(object, "spec.nodeName"),
        }
    }
}

pub fn selected(object: &Object, labels: &LabelSelector, fields: &FieldSelector) -> bool {
    let field = |field: &str| match field {
        "metadata.name" => Some(name(object)),
        "metadata.namespace" => Some(namespace(object)),
        _ => None,
    };
    labels.matches_object(object) && fields.matches(field)
}

/// There is no message for these kinds here; whoever would take JSON too gets that, as from metrics-server's clients'
/// point of view nothing is lost by it.
pub fn without_protobuf(accept: &str) -> Result<String, ApiError> {
    let is_protobuf = |clause: &&str| clause.trim_start().starts_with("application/vnd.kubernetes.protobuf");
    let rest: Vec<&str> = accept.split(',').filter(|clause| !is_protobuf(clause)).collect();
    if rest.is_empty() {
        return Err(ApiError::not_acceptable(&["application/json", "application/yaml"]));
    }
    Ok(rest.join(","))
}

fn metadata(object: &Object, now: Timestamp) -> Value {
    let mut metadata = json!({ "name": name(object), "creationTimestamp": meta::time::format_seconds(now) });
    if !namespace(object).is_empty() {
        metadata["namespace"] = namespace(object).into();
    }
    let labels: Map<String, Value> =
        entries_at(object, "metadata.labels").map(|(key, value)| (key.clone(), value.clone())).collect();
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    metadata
}

fn usage(nano_cores: u64, memory_bytes: u64) -> Value {
    json!({ "cpu": nanos(nano_cores), "memory": bytes(memory_bytes) })
}

/// Billionths, with the largest suffix that keeps the number whole.
fn nanos(count: u64) -> String {
    let suffixes = [(1_000_000_000, ""), (1_000_000, "m"), (1_000, "u"), (1, "n")];
    let fits = suffixes.into_iter().find(|(unit, _)| count.is_multiple_of(*unit));
    let (unit, suffix) = fits.unwrap_or((1, "n"));
    if count == 0 { "0".to_owned() } else { format!("{}{suffix}", count / unit) }
}

fn bytes(count: u64) -> String {
    let suffixes = [(1_u64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    match suffixes.into_iter().find(|(unit, _)| count > 0 && count.is_multiple_of(*unit)) {
        Some((unit, suffix)) => format!("{}{suffix}", count / unit),
        None => count.to_string(),
    }
}

/// As Go writes a duration: `1m15.5s`.
fn go_duration(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    let nanos = format!("{:09}", duration.subsec_nanos());
    let fraction = nanos.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    let hours = if minutes >= 60 { format!("{}h", minutes / 60) } else { String::new() };
    let minutes = if minutes > 0 { format!("{}m", minutes % 60) } else { String::new() };
    format!("{hours}{minutes}{seconds}{point}{fraction}s")
}

/// `None` if nothing is known of it.
pub fn node(node: &Object, known: &Usage, now: Timestamp) -> Option<Object> {
    let used = known.node?;
    Some(json!({
        "kind": "NodeMetrics", "apiVersion": API_VERSION, "metadata": metadata(node, now),
        "timestamp": meta::time::format_seconds(used.time), "window": go_duration(used.window),
        "usage": usage(used.nano_cores, used.memory_bytes),
    }))
}

/// The time is that of the oldest reading, as metrics-server has it.
pub fn pod(pod: &Object, known: &Usage, now: Timestamp) -> Option<Object> {
    let containers = known.pod(namespace(pod), name(pod))?;
    let first: &Used = containers.values().min_by_key(|used| used.time)?;
    let container = |(name, used): (&String, &Used)| json!({ "name": name, "usage": usage(used.nano_cores, used.memory_bytes) });
    Some(json!({
        "kind": "PodMetrics", "apiVersion": API_VERSION, "metadata": metadata(pod, now),
        "timestamp": meta::time::format_seconds(first.time), "window": go_duration(first.window),
        "containers": containers.iter().map(container).collect::<Vec<_>>(),
    }))
}

/// A pod's cells are the sums of its containers.
pub fn table(kind: Kind, items: &[Object], include: Include, version: &str) -> Value {
    let column = |name: &str, format: &str, description: &str| json!({ "name": name, "type": "string", "format": format, "description": description, "priority": 0 });
    let columns = [
        column("Name", "name", "Name of the object"),
        column("cpu", "quantity", "Cores in use"),
        column("memory", "quantity", "Memory in use"),
        column("Window", "duration", "Time over which the use of cores was measured"),
    ];
    let row = |item: &Object| {
        let (cpu, memory) = match kind {
            Kind::Nodes => (item["usage"]["cpu"].clone(), item["usage"]["memory"].clone()),
            Kind::Pods => sums(item),
        };
        let object = match include {
            Include::Nothing => Value::Null,
            Include::Metadata => metadata_only(item, version),
            Include::Object => item.clone(),
        };
        json!({ "cells": [name(item), cpu, memory, item["window"]], "object": object })
    };
    let rows: Vec<Value> = items.iter().map(row).collect();
    json!({ "kind": "Table", "apiVersion": version, "metadata": {}, "columnDefinitions": columns, "rows": rows })
}

fn sums(pod: &Object) -> (Value, Value) {
    let sum = |resource: &str, unit: u64| -> u64 {
        let containers = pod["containers"].as_array().into_iter().flatten();
        containers.filter_map(|c| parse(c["usage"][resource].as_str()?, unit)).sum()
    };
    (nanos(sum("cpu", 1_000_000_000)).into(), bytes(sum("memory", 1)).into())
}

/// The inverse of [`nanos`] (`unit` a billion) and [`bytes`] (`unit` 1).
fn parse(text: &str, unit: u64) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[digits..] {
        "" => unit,
        "m" => unit / 1_000,
        "u" => unit / 1_000_000,
        "n" => unit / 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_short_and_exact() {
        let cases = [
            (0, "0"),
            (1, "1n"),
            (1_500, "1500n"),
            (2_000, "2u"),
            (250_000_000, "250m"),
            (3_000_000_000, "3"),
        ];
        for (count, text) in cases {
            assert_eq!(nanos(count), text);
            assert_eq!(parse(text, 1_000_000_000), Some(count));
        }
        for (count, text) in [(0, "0"), (1000, "1000"), (4096, "4Ki"), (3 << 20, "3Mi"), (1025, "1025")] {
            assert_eq!(bytes(count), text);
            assert_eq!(parse(text, 1), Some(count));
        }
    }

    #[test]
    fn durations_as_go_writes_them() {
        let cases =
            [(1_003_214_000, "1.003214s"), (75_500_000_000, "1m15.5s"), (3_600_000_000_000, "1h0m0s")];
        for (nanos, text) in cases {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn tables_sum_up_containers() {
        let pod = json!({ "metadata": { "name": "p" }, "window": "1s", "containers": [
            { "usage": { "cpu": "1500u", "memory": "4Ki" } }, { "usage": { "cpu": "500u", "memory": "1Mi" } },
        ] });
        let table = table(Kind::Pods, &[pod], Include::Nothing, "meta.k8s.io/v1");
        assert_eq!(table["rows"][0]["cells"], json!(["p", "2m", "1028Ki", "1s"]));
    }

    #[test]
    fn json_is_what_there_is() {
        let of = |accept: &str| without_protobuf(accept).map_err(|e| e.code);
        assert_eq!(of("application/vnd.kubernetes.protobuf, */*"), Ok(" */*".to_owned()));
        assert_eq!(of("application/vnd.kubernetes.protobuf"), Err(406));
        assert_eq!(of("application/json"), Ok("application/json".to_owned()));
    }
}
