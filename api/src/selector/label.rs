//! Selectors over labels, from the query string or from a LabelSelector object.

use super::{SelectorError, parse};
use crate::{FieldError, validation};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label. Built only through [`Requirement::new`], so it is always well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without duplicates.
    values: Vec<String>,
}

impl Requirement {
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        let key_errors = validation::qualified_name(key);
        if !key_errors.is_empty() {
            return Err(FieldError::invalid("key", &key.into(), &key_errors.join("; ")).into());
        }
        check_count(operator, &values)?;
        for (i, value) in values.iter().enumerate() {
            let errors = validation::label_value(value);
            if !errors.is_empty() {
                let path = format!("values[{i}][{key}]");
                return Err(FieldError::invalid(path, &value.as_str().into(), &errors.join("; ")).into());
            }
        }
        values.sort();
        values.dedup();
        Ok(Self { key: key.to_owned(), operator, values })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |v: &str| self.values.iter().any(|x| x == v);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label).is_some_and(|(have, bound)| have > bound),
            Operator::LessThan => self.compare(label).is_some_and(|(have, bound)| have < bound),
        }
    }

    fn compare(&self, label: Option<&str>) -> Option<(i64, i64)> {
        Some((label?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

fn check_count(operator: Operator, values: &[String]) -> Result<(), SelectorError> {
    let shown = Value::from(values.to_vec());
    let wrong = match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            "for 'in', 'notin' operators, values set can't be empty"
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
            "exact-match compatibility requires one single value"
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
            "for 'Gt', 'Lt' operators, exactly one value is required"
        }
        Operator::GreaterThan | Operator::LessThan if values[0].parse::<i64>().is_err() => {
            let path = "values[0]";
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            return Err(FieldError::invalid(path, &values[0].as_str().into(), detail).into());
        }
        _ => return Ok(()),
    };
    Err(FieldError::invalid("values", &shown, wrong).into())
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let sole = self.values.first().map_or("", String::as_str);
        match self.operator {
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={sole}"),
            Operator::DoubleEquals => write!(f, "{key}=={sole}"),
            Operator::NotEquals => write!(f, "{key}!={sole}"),
            Operator::GreaterThan => write!(f, "{key}>{sole}"),
            Operator::LessThan => write!(f, "{key}<{sole}"),
            Operator::In => write!(f, "{key} in ({})", self.values.join(",")),
            Operator::NotIn => write!(f, "{key} notin ({})", self.values.join(",")),
        }
    }
}

/// A conjunction of requirements. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Whether it matches nothing at all, as an absent LabelSelector object does.
    nothing: bool,
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { nothing: true, requirements: Vec::new() }
    }

    /// Requirements are kept in the order of their keys.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { nothing: false, requirements }
    }

    /// From the query parameter `labelSelector`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::label_selector(text).map(Self::new)
    }

    /// From a LabelSelector object (`matchLabels`, `matchExpressions`); null matches nothing, `{}` everything.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        let Some(fields) = selector.as_object() else { return Ok(Self::nothing()) };
        let mut requirements = match_labels(fields.get("matchLabels"))?;
        for expression in fields.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(match_expression(expression)?);
        }
        Ok(Self::new(requirements))
    }

    /// From a plain map of labels, such as the selector of a Service or a ReplicationController; null or empty
    /// matches everything.
    pub fn from_map(labels: &Value) -> Result<Self, SelectorError> {
        match_labels(Some(labels)).map(Self::new)
    }

    /// `labels` is `metadata.labels`, null where there are none.
    pub fn matches(&self, labels: &Value) -> bool {
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// As [`matches`](Self::matches), over labels in any form: `label` looks one up.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(&object["metadata"]["labels"])
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

fn match_labels(labels: Option<&Value>) -> Result<Vec<Requirement>, SelectorError> {
    let empty = Map::new();
    let labels = labels.and_then(Value::as_object).unwrap_or(&empty);
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    labels.iter().map(|(k, v)| Requirement::new(k, Operator::Equals, vec![text(v)])).collect()
}

fn match_expression(expression: &Value) -> Result<Requirement, SelectorError> {
    let name = expression["operator"].as_str().unwrap_or_default();
    let operator = match name {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
    };
    let values = expression["values"].as_array().into_iter().flatten();
    let values = values.map(|v| v.as_str().unwrap_or_default().to_owned()).collect();
    Requirement::new(expression["key"].as_str().unwrap_or_default(), operator, values)
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn matching() {
        let labels = json!({ "app": "web", "tier": "", "n": "7" });
        for yes in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "!x",
            "x!=y",
            "app in (web,db)",
            "app notin (db)",
            "x notin (y)",
            "tier=",
            "tier",
            "n>6",
            "n<8",
            "app=web,n>6",
            " app = web , !x ",
            "tier in (,a)",
        ] {
            assert!(LabelSelector::parse(yes).unwrap().matches(&labels), "{yes:?}");
        }
        for no in ["x", "app=db", "!app", "app!=web", "x=y", "app in (db)", "x in (y)", "n>7", "app>1"] {
            assert!(!LabelSelector::parse(no).unwrap().matches(&labels), "{no:?}");
        }
    }

    #[test]
    fn objects() {
        let labels = json!({ "app": "web" });
        let selects = |selector: Value| LabelSelector::from_object(&selector).unwrap().matches(&labels);
        assert!(!selects(Value::Null));
        assert!(selects(json!({})));
        assert!(selects(json!({ "matchLabels": { "app": "web" } })));
        assert!(!selects(json!({ "matchLabels": { "app": "web", "x": "y" } })));
        assert!(selects(json!({ "matchExpressions": [{ "key": "x", "operator": "DoesNotExist" }] })));
        assert!(selects(json!({ "matchExpressions":
            [{ "key": "app", "operator": "In", "values": ["web", "db"] }] })));
        let bad = json!({ "matchExpressions": [{ "key": "x", "operator": "Like" }] });
        let error = LabelSelector::from_object(&bad).unwrap_err();
        assert_eq!(error.to_string(), "\"Like\" is not a valid label selector operator");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_agree(
            keys in prop::collection::vec("[a-z][a-z0-9]{0,5}", 0..4),
            values in prop::collection::btree_set("[a-z0-9]{0,4}", 1..3),
            operator in 0..6,
        ) {
            let values: Vec<String> = values.into_iter().collect();
            let requirement = |key: &String| match operator {
                0 => Requirement::new(key, Operator::In, values.clone()),
                1 => Requirement::new(key, Operator::NotIn, values.clone()),
                2 => Requirement::new(key, Operator::Exists, vec![]),
                3 => Requirement::new(key, Operator::DoesNotExist, vec![]),
                4 => Requirement::new(key, Operator::Equals, values[..1].to_vec()),
                _ => Requirement::new(key, Operator::NotEquals, values[..1].to_vec()),
            };
            // `in` and `notin` as keys are read as operators, by upstream too.
            prop_assume!(!keys.iter().any(|k| k == "in" || k == "notin"));
            let list: Result<Vec<_>, _> = keys.iter().map(requirement).collect();
            let selector = LabelSelector::new(list.unwrap());
            prop_assume!(!values.iter().any(|v| v == "in" || v == "notin"));
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn any_text_parses_or_fails(text in ".*") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
            }
        }
    }
}
