//! The question and the answer: SubjectAccessReview of authorization.k8s.io.

use crate::authz::{Attributes, Decision, Verdict};
use bytes::Bytes;
use coracle_api::selector::{FieldSelector, LabelSelector, Operator};
use serde_json::{Map, Value, json};

/// Bytes of what a requester may choose at will, beyond which an answer is not kept: upstream's, against requests that
/// are made to fill the memory.
const MOST_CHOSEN_BYTES: usize = 10_000;

/// The version of the reviews that a webhook speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V1beta1,
}

impl Version {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authorization.k8s.io/v1",
            Self::V1beta1 => "authorization.k8s.io/v1beta1",
        }
    }
}

/// A question.
pub struct Review {
    /// `spec` of version v1.
    spec: Value,
    key: String,
    chosen_bytes: usize,
}

impl Review {
    pub fn of(attributes: &Attributes<'_>) -> Self {
        let user = attributes.user;
        let mut spec =
            json!({ "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra });
        if let Some(path) = attributes.path {
            spec["nonResourceAttributes"] = json!({ "path": path, "verb": attributes.verb });
        } else {
            spec["resourceAttributes"] = resource(attributes);
        }
        let key = spec.to_string();
        Self { spec, key, chosen_bytes: chosen(attributes) }
    }

    pub fn spec(&self) -> &Value {
        &self.spec
    }

    /// Equal for equal questions only.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn may_be_remembered(&self) -> bool {
        self.chosen_bytes < MOST_CHOSEN_BYTES
    }

    pub fn body(&self, version: Version) -> Bytes {
        let mut spec = self.spec.clone();
        if let (Version::V1beta1, Some(fields)) = (version, spec.as_object_mut())
            && let Some(groups) = fields.remove("groups")
        {
            fields.insert("group".to_owned(), groups);
        }
        json!({
            "kind": "SubjectAccessReview",
            "apiVersion": version.api_version(),
            "metadata": { "creationTimestamp": null },
            "spec": without_empty(spec),
            "status": { "allowed": false },
        })
        .to_string()
        .into()
    }
}

fn chosen(attributes: &Attributes<'_>) -> usize {
    let Attributes { verb, group, version, resource, subresource, namespace, name, .. } = attributes;
    let path = attributes.path.unwrap_or_default();
    let (fields, labels) = (attributes.field_selector, attributes.label_selector);
    let texts = [verb, group, version, resource, subresource, namespace, name, path, fields, labels];
    texts.iter().map(|text| text.len()).sum::<usize>()
}

fn resource(attributes: &Attributes<'_>) -> Value {
    let mut resource = json!({
        "namespace": attributes.namespace,
        "verb": attributes.verb,
        "group": attributes.group,
        "version": attributes.version,
        "resource": attributes.resource,
        "subresource": attributes.subresource,
        "name": attributes.name,
    });
    let fields = fields(attributes.field_selector);
    if !fields.is_empty() {
        resource["fieldSelector"] = json!({ "requirements": fields });
    }
    let labels = labels(attributes.label_selector);
    if !labels.is_empty() {
        resource["labelSelector"] = json!({ "requirements": labels });
    }
    resource
}

fn fields(selector: &str) -> Vec<Value> {
    let selector = FieldSelector::parse(selector).unwrap_or_default();
    let requirement = |r: &coracle_api::selector::FieldRequirement| {
        let operator = if r.negated { "NotIn" } else { "In" };
        json!({ "key": r.field, "operator": operator, "values": [r.value] })
    };
    selector.requirements.iter().map(requirement).collect()
}

/// Without comparisons of numbers, for which the review has no operator: the question is wider then, never narrower.
fn labels(selector: &str) -> Vec<Value> {
    let Ok(selector) = LabelSelector::parse(selector) else { return Vec::new() };
    let requirement = |r: &coracle_api::selector::Requirement| {
        let (operator, values) = match r.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => ("In", Some(r.values())),
            Operator::NotIn | Operator::NotEquals => ("NotIn", Some(r.values())),
            Operator::Exists => ("Exists", None),
            Operator::DoesNotExist => ("DoesNotExist", None),
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut shown = json!({ "key": r.key(), "operator": operator });
        if let Some(values) = values {
            shown["values"] = json!(values);
        }
        Some(shown)
    };
    selector.requirements().iter().filter_map(requirement).collect()
}

/// As Go's `omitempty` leaves them out, at every depth.
fn without_empty(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let kept = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect::<Map<_, _>>())
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub allowed: bool,
    pub denied: bool,
    pub reason: String,
}

impl Status {
    /// # Errors
    /// What is no review in the version that was asked for, or says what is neither true nor false.
    pub fn read(answer: &Value, version: Version) -> Result<Self, String> {
        let (kind, api_version) = (&answer["kind"], &answer["apiVersion"]);
        if kind != "SubjectAccessReview" || *api_version != version.api_version() {
            return Err(format!(
                "the webhook answered with {api_version} {kind} instead of a SubjectAccessReview in {}",
                version.api_version()
            ));
        }
        let status = &answer["status"];
        if !(status.is_object() || status.is_null()) {
            return Err("status is not an object".to_owned());
        }
        let flag = |field: &str| match &status[field] {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            other => Err(format!("status.{field} is {other}, neither true nor false")),
        };
        let reason = match &status["reason"] {
            Value::Null => String::new(),
            Value::String(reason) => reason.clone(),
            other => return Err(format!("status.reason is {other}, which is no text")),
        };
        Ok(Self { allowed: flag("allowed")?, denied: flag("denied")?, reason })
    }

    pub fn verdict(&self) -> Verdict {
        let reason = self.reason.clone();
        match (self.allowed, self.denied) {
            (true, true) => {
                let why = "webhook subject access review returned both allow and deny response";
                Verdict { decision: Decision::Deny(reason), error: Some(why.to_owned()) }
            }
            (_, true) => Decision::Deny(reason).into(),
            (true, _) => Decision::Allow(reason).into(),
            (false, false) => Decision::NoOpinion(reason).into(),
        }
    }
}
