//! Tables over built-in and run-time schemas, and the laws of sets.

mod applies;
mod laws;
mod shapes;
mod updates;

use super::*;
use crate::schema::{self, TypeRef};
use serde_json::{Value, json};

fn deployment_type() -> TypeRef<'static> {
    schema::root("apps", "v1", "Deployment").unwrap()
}

fn pod_type() -> TypeRef<'static> {
    schema::root("", "v1", "Pod").unwrap()
}

/// One manager writing one kind of object, over and over.
struct Fixture {
    ty: TypeRef<'static>,
    api_version: &'static str,
    subresource: &'static str,
    reset: Set<'static>,
    now: String,
}

impl Fixture {
    fn deployments() -> Self {
        Self {
            ty: deployment_type(),
            api_version: "apps/v1",
            subresource: "",
            reset: Set::of_fields(&[&["status"]]),
            now: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    fn pods() -> Self {
        Self { ty: pod_type(), api_version: "v1", ..Self::deployments() }
    }

    fn at(mut self, now: &str) -> Self {
        self.now = now.to_owned();
        self
    }

    fn request<'r>(&'r self, manager: &'r str) -> Request<'r> {
        Request {
            manager,
            subresource: self.subresource,
            api_version: self.api_version,
            ty: self.ty,
            versions: &SingleVersion,
            reset: &self.reset,
            now: &self.now,
        }
    }

    /// `new` with the owners that an update by `manager` leaves.
    fn write(&self, manager: &str, live: Option<&Value>, new: Value) -> Value {
        let list = update(&self.request(manager), live, &new);
        let mut new = new;
        match list {
            Some(list) => new["metadata"]["managedFields"] = list,
            None => {
                new["metadata"].as_object_mut().unwrap().remove("managedFields");
            }
        }
        new
    }

    fn apply(&self, manager: &str, live: Option<&Value>, config: &Value) -> Result<Value, ApplyError> {
        apply(&self.request(manager), live, config, false)
    }

    fn force(&self, manager: &str, live: Option<&Value>, config: &Value) -> Value {
        apply(&self.request(manager), live, config, true).unwrap()
    }
}

/// The FieldsV1 of one manager; null if it owns nothing.
fn owned<'v>(object: &'v Value, manager: &str) -> &'v Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let found = entries.and_then(|list| list.iter().find(|e| e["manager"] == manager));
    found.map_or(&Value::Null, |entry| &entry["fieldsV1"])
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn fields(set: &Set<'_>) -> Value {
    write_fields(set)
}
