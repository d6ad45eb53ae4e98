//! `additionalPrinterColumns`: tables of custom resources.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#additional-printer-columns>

use super::PrinterColumn;
use super::jsonpath::Path;
use coracle_api::Object;
use coracle_strategy::duration;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The columns of one version behind the name.
pub(super) struct Columns(Vec<Column>);

struct Column {
    spec: PrinterColumn,
    path: Path,
}

fn age() -> PrinterColumn {
    PrinterColumn {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        format: String::new(),
        description: "When the object was created".to_owned(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".to_owned(),
    }
}

impl Columns {
    /// Without any, the age is shown. Columns behind one that cannot be read are not shown either, as upstream.
    pub fn of(columns: &[PrinterColumn]) -> Self {
        let all = if columns.is_empty() { vec![age()] } else { columns.to_vec() };
        let read = all.into_iter().map_while(|spec| {
            let path = Path::parse(&spec.json_path)?;
            Some(Column { spec, path })
        });
        Self(read.collect())
    }

    pub fn definitions(&self) -> Value {
        let name = json!({ "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name of the object, unique within its namespace" });
        let own = self.0.iter().map(|Column { spec, .. }| {
            let description = match spec.description.as_str() {
                "" => format!("Custom resource definition column (in JSONPath format): {}", spec.json_path),
                text => text.to_owned(),
            };
            json!({ "name": spec.name, "type": spec.kind, "format": spec.format, "description": description,
                "priority": spec.priority })
        });
        std::iter::once(name).chain(own).collect()
    }

    pub fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let own = self.0.iter().map(|column| column.cell(object, now));
        std::iter::once(object["metadata"]["name"].clone()).chain(own).collect()
    }
}

impl Column {
    /// Only the first of several values is shown; a value of another type than the column's is not.
    fn cell(&self, object: &Object, now: Timestamp) -> Value {
        let Some(value) = self.path.first(object) else { return Value::Null };
        match self.spec.kind.as_str() {
            "string" => text(value).into(),
            "integer" => match value.as_i64() {
                Some(integer) => integer.into(),
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "what Go's conversion does, but for the range"
                )]
                None => value.as_f64().map_or(Value::Null, |float| (float as i64).into()),
            },
            "number" => value.as_number().map_or(Value::Null, |number| number.clone().into()),
            "boolean" => value.as_bool().map_or(Value::Null, Value::Bool),
            "date" => match value.as_str() {
                Some("" | "null") => "<unknown>".into(),
                Some(_) if duration::timestamp(value).is_some() => duration::age(value, now).into(),
                Some(_) => "<invalid>".into(),
                None => Value::Null,
            },
            _ => Value::Null,
        }
    }
}

/// As Go prints it: lists and objects as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".to_owned(),
        other => other.to_string(),
    }
}
