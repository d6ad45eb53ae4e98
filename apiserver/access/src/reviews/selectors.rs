//! Field and label selectors of access reviews
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-field-and-label-selectors>).

use super::{strings, text};
use coracle_api::FieldError;
use coracle_api::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

/// What the authorizers get to see: the conditions that could be read, as a query would carry them. What could not be
/// read makes the question wider, never narrower, and is told.
#[derive(Default)]
pub(super) struct ReviewSelectors {
    pub field: String,
    pub label: String,
    pub errors: Vec<String>,
}

impl ReviewSelectors {
    pub fn of(resource: &Value) -> Self {
        let mut found = Self::default();
        found.field(&resource["fieldSelector"]);
        found.label(&resource["labelSelector"]);
        found
    }

    fn field(&mut self, selector: &Value) {
        let raw = text(selector, "rawSelector");
        if !raw.is_empty() {
            match FieldSelector::parse(raw) {
                Ok(selector) => self.field = selector.to_string(),
                Err(error) => self.errors.push(format!(
                    "spec.resourceAttributes.fieldSelector ignored due to parse error: {error}"
                )),
            }
            return;
        }
        let mut terms = Vec::new();
        for requirement in items(selector) {
            let (key, values) = (text(requirement, "key"), strings(&requirement["values"]));
            match (text(requirement, "operator"), values.as_slice()) {
                ("In", [value]) => terms.push(format!("{key}={}", escaped(value))),
                ("NotIn", [value]) => terms.push(format!("{key}!={}", escaped(value))),
                (operator, _) => {
                    let (count, key) = (values.len(), key.to_owned());
                    self.errors.push(format!(
                        "fieldSelector: operator {operator:?} of {key:?} with {count} values is not supported"
                    ));
                }
            }
        }
        self.field = terms.join(",");
    }

    fn label(&mut self, selector: &Value) {
        let raw = text(selector, "rawSelector");
        if !raw.is_empty() {
            match LabelSelector::parse(raw) {
                Ok(selector) => self.label = selector.to_string(),
                Err(error) => self.errors.push(format!(
                    "spec.resourceAttributes.labelSelector ignored due to parse error: {error}"
                )),
            }
            return;
        }
        let mut terms = Vec::new();
        for requirement in items(selector) {
            let (key, values) = (text(requirement, "key"), strings(&requirement["values"]).join(","));
            let term = match text(requirement, "operator") {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                _ => format!("!{key}"),
            };
            match LabelSelector::parse(&term) {
                Ok(read) => terms.push(read.to_string()),
                Err(error) => self.errors.push(format!("labelSelector: {error}")),
            }
        }
        self.label = terms.join(",");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

fn items(selector: &Value) -> &[Value] {
    selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The mistakes that a review is refused for.
pub(super) fn check(resource: &Value, errors: &mut Vec<FieldError>) {
    for kind in ["fieldSelector", "labelSelector"] {
        let (selector, path) = (&resource[kind], format!("spec.resourceAttributes.{kind}"));
        if !selector.is_object() {
            continue;
        }
        let raw = text(selector, "rawSelector");
        if !raw.is_empty() && !items(selector).is_empty() {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), &raw.into(), why));
        }
        if raw.is_empty() && items(selector).is_empty() {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), &why));
        }
        for (i, requirement) in items(selector).iter().enumerate() {
            check_requirement(requirement, &format!("{path}.requirements[{i}]"), errors);
        }
    }
}

fn check_requirement(requirement: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let values = strings(&requirement["values"]);
    if text(requirement, "key").is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
    }
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{path}.values"), why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{path}.values"), why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let why = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &other.into(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requirements_read_as_a_query_would_carry_them() {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({ "key": key, "operator": operator, "values": values });
        let labels = [
            requirement("a", "In", &["x", "y"]),
            requirement("b", "NotIn", &["z"]),
            requirement("c", "Exists", &[]),
            requirement("d", "DoesNotExist", &[]),
        ];
        let fields =
            [requirement("spec.nodeName", "In", &["n"]), requirement("metadata.name", "In", &["a", "b"])];
        let found = ReviewSelectors::of(&json!({
            "labelSelector": { "requirements": labels }, "fieldSelector": { "requirements": fields },
        }));
        assert_eq!(found.label, "a in (x,y),b notin (z),c,!d");
        assert_eq!(found.field, "spec.nodeName=n");
        assert_eq!(found.errors.len(), 1, "{:?}", found.errors);
        let raw = ReviewSelectors::of(&json!({
            "labelSelector": { "rawSelector": "a==x" }, "fieldSelector": { "rawSelector": "x" },
        }));
        assert_eq!((raw.label.as_str(), raw.field.as_str(), raw.errors.len()), ("a==x", "", 1));
    }
}
