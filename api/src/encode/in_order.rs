//! JSON of what no table of facts describes, in the order of upstream's structs.

use super::Ordered;
use crate::schema;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// Tables, and the metadata of objects alone.
pub(super) const SHAPES: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "columnDefinitions",
    "rows",
    "items",
    "name",
    "type",
    "format",
    "status",
    "reason",
    "message",
    "description",
    "priority",
    "cells",
    "conditions",
    "object",
];

/// Writes the members of every object in one order, and those that it does not name behind them, by name. What stands
/// in `metadata` and `object` has an order of its own.
#[derive(Clone, Copy)]
pub struct InOrder<'a> {
    pub value: &'a Value,
    pub order: &'a [&'a str],
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let of = |value| InOrder { value, order: self.order };
        match self.value {
            Value::Array(items) => out.collect_seq(items.iter().map(of)),
            Value::Object(fields) => {
                let place =
                    |name: &str| self.order.iter().position(|known| *known == name).unwrap_or(usize::MAX);
                let mut members: Vec<(&String, &Value)> = fields.iter().collect();
                members.sort_by_key(|(name, _)| place(name));
                let mut map = out.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    match (name.as_str(), value) {
                        ("metadata", Value::Object(_)) => {
                            let ty = schema::by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
                            map.serialize_entry(name, &Ordered { value, ty, nil: false })?;
                        }
                        ("object", Value::Object(_)) => map.serialize_entry(name, &Ordered::of(value))?,
                        _ => map.serialize_entry(name, &of(value))?,
                    }
                }
                map.end()
            }
            other => other.serialize(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_written_as_their_structs() {
        let object = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": { "labels": {}, "uid": "u", "name": "a" } });
        let table = json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": { "resourceVersion": "1", "continue": "x" },
            "columnDefinitions": [{ "description": "d", "format": "", "name": "Name", "priority": 0, "type": "string" }],
            "rows": [{ "cells": ["a"], "conditions": [{ "status": "True", "type": "Completed" }], "object": object }] });
        assert_eq!(
            serde_json::to_string(&Ordered::of(&table)).unwrap(),
            concat!(
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1","continue":"x"},"#,
                r#""columnDefinitions":[{"name":"Name","type":"string","format":"","description":"d","priority":0}],"#,
                r#""rows":[{"cells":["a"],"conditions":[{"type":"Completed","status":"True"}],"#,
                r#""object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#,
                r#""metadata":{"name":"a","uid":"u","labels":{}}}}]}"#,
            )
        );
    }
}
