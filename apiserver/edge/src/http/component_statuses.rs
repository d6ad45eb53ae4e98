//! `componentstatuses`, which are stored nowhere: how the parts of the control plane are at this moment.

use super::list_body::ListHead;
use super::resources::Call;
use super::table::metadata_list;
use crate::wire::negotiation::Shape;
use crate::wire::respond::Reply;
use coracle_api::selector::{FieldSelector, LabelSelector};
use coracle_api::{ApiError, Object};
use coracle_component_base::health::Health;
use coracle_registry::{Scope, Selectors};
use coracle_store::Store;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// Upstream's names, and ours of the same.
const COMPONENTS: [(&str, &str); 2] = [("controller-manager", "controllers"), ("scheduler", "scheduler")];
const STORE: &str = "etcd-0";

fn all(health: &Health, store: &dyn Store) -> Vec<Object> {
    let absent = || Err("it does not run in this process".to_owned());
    let states = COMPONENTS.map(|(name, own)| (name, health.state(own).unwrap_or_else(absent)));
    let stored = store.read_only().map_or(Ok(()), Err);
    states.into_iter().chain([(STORE, stored)]).map(|(name, state)| status(name, state)).collect()
}

fn status(name: &str, state: Result<(), String>) -> Object {
    let condition = match state {
        Ok(()) => json!({ "type": "Healthy", "status": "True", "message": "ok" }),
        Err(why) => json!({ "type": "Healthy", "status": "False", "error": why }),
    };
    json!({ "kind": "ComponentStatus", "apiVersion": "v1", "metadata": { "name": name }, "conditions": [condition] })
}

/// Whether the object is one of those that the selectors mean.
fn selected(object: &Object, labels: &LabelSelector, fields: &FieldSelector) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    labels.matches(&Value::Null) && fields.matches(|field| (field == "metadata.name").then_some(name))
}

impl Call<'_> {
    pub(super) fn is_component_statuses(&self) -> bool {
        &*self.route.resource().storage.key == "componentstatuses."
    }

    pub(super) fn component_statuses(&self, scope: &Scope<'_>) -> Result<Reply, ApiError> {
        let all = all(&self.server.health, &*self.server.registry.store);
        if self.info.verb == "get" {
            let found = all.into_iter().find(|object| object["metadata"]["name"] == scope.name);
            let found = found.ok_or_else(|| ApiError::not_found("", "componentstatuses", scope.name))?;
            return self.shown(scope, StatusCode::OK, found);
        }
        let options = self.info.list_options()?;
        let Selectors { labels, fields, .. } = options.selectors.as_deref().cloned().unwrap_or_default();
        fields.check_fields(&["metadata.name"]).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let objects: Vec<Object> = all.into_iter().filter(|o| selected(o, &labels, &fields)).collect();
        let wanted = self.wanted.listed(&scope.resource.list_kind)?;
        let head = ListHead {
            kind: "ComponentStatusList",
            api_version: "v1",
            revision: 0,
            next: None,
            remaining: None,
            custom: false,
        };
        let mut value = match wanted.shape {
            Shape::Table => self.tables(scope)?.table(&objects, json!({}), true),
            Shape::Metadata => metadata_list(&objects, &head, wanted.meta_version()),
            Shape::Object => {
                json!({ "kind": head.kind, "apiVersion": head.api_version, "items": head.items(objects) })
            }
        };
        // Nothing here has a version.
        value["metadata"] = Value::Object(Map::new());
        Ok(Reply::ok(value))
    }
}
