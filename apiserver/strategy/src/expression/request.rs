//! The variables `request` and `namespaceObject`.

use coracle_api::{Object, UserInfo};
use coracle_requests::admission::Operation;
use serde_json::{Map, Value, json};

/// Group, version, and kind or resource.
pub type Triple<'a> = [&'a str; 3];

/// What an AdmissionRequest says beside the objects. `kind` and `resource` are those that the rules matched,
/// `request_kind` and `request_resource` those that the client named.
pub struct RequestFacts<'a> {
    pub kind: Triple<'a>,
    pub resource: Triple<'a>,
    pub request_kind: Triple<'a>,
    pub request_resource: Triple<'a>,
    pub subresource: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    pub operation: Operation,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    /// CreateOptions and the like with their `kind` and `apiVersion`.
    pub options: Option<&'a Value>,
}

fn of_kind([group, version, kind]: Triple<'_>) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

fn of_resource([group, version, resource]: Triple<'_>) -> Value {
    json!({ "group": group, "version": version, "resource": resource })
}

pub fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// As an AdmissionReview shows a user; what is empty is left out.
pub fn user_info(user: &UserInfo) -> Value {
    let mut out = Map::new();
    if !user.name.is_empty() {
        out.insert("username".into(), user.name.as_str().into());
    }
    if !user.uid.is_empty() {
        out.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        out.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), Value::from(values.clone())));
        out.insert("extra".into(), Value::Object(extra.collect()));
    }
    Value::Object(out)
}

impl RequestFacts<'_> {
    /// An AdmissionRequest without `uid`, `object` and `oldObject`.
    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        out.insert("kind".into(), of_kind(self.kind));
        out.insert("resource".into(), of_resource(self.resource));
        out.insert("requestKind".into(), of_kind(self.request_kind));
        out.insert("requestResource".into(), of_resource(self.request_resource));
        let texts = [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            out.insert(field.into(), text.into());
        }
        out.insert("operation".into(), operation_name(self.operation).into());
        out.insert("userInfo".into(), user_info(self.user));
        out.insert("dryRun".into(), self.dry_run.into());
        out.insert("options".into(), self.options.cloned().unwrap_or(Value::Null));
        Value::Object(out)
    }
}

/// The Namespace as expressions may see it: without owners and managers.
pub fn namespace_object(namespace: &Object) -> Object {
    const SHOWN: [&str; 12] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    ];
    let metadata = &namespace["metadata"];
    let shown = SHOWN.iter().filter_map(|field| Some(((*field).to_owned(), metadata.get(field)?.clone())));
    let mut out = Map::new();
    out.insert("metadata".into(), Value::Object(shown.collect()));
    for field in ["spec", "status"] {
        out.insert(field.into(), namespace.get(field).cloned().unwrap_or_else(|| json!({})));
    }
    Value::Object(out)
}
