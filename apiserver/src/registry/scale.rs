//! The `scale` subresource: `autoscaling/v1` Scale as a view of the object's replicas.

use super::metadata::text;
use super::update::Part;
use super::{Scope, WriteOptions};
use coracle_api::{ApiError, FieldError, LabelSelector, Object};
use serde_json::{Value, json};

/// The Scale that stands for an object.
fn scale_of(object: &Object) -> Object {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|n| *n != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({ "replicas": object["status"]["replicas"].as_i64().unwrap_or(0) });
    let selector = selector_text(&object["spec"]["selector"]);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

/// A plain map (ReplicationController) or a LabelSelector, as text.
fn selector_text(selector: &Value) -> String {
    let is_object = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    let parsed =
        if is_object { LabelSelector::from_object(selector) } else { LabelSelector::from_map(selector) };
    parsed.map(|s| s.to_string()).unwrap_or_default()
}

impl Scope<'_> {
    pub fn get_scale(&self) -> Result<Object, ApiError> {
        Ok(scale_of(&self.get()?.decode()))
    }

    /// Replaces the scale by what `transform` makes of the present one.
    pub async fn update_scale<F>(&self, options: &WriteOptions, transform: F) -> Result<Object, ApiError>
    where
        F: Fn(&Object) -> Result<Object, ApiError> + Send + Sync,
    {
        let apply = |current: Option<&Object>| {
            let Some(current) = current else { return Err(self.not_found(self.name)) };
            let scale = transform(&scale_of(current))?;
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            if replicas < 0 {
                let error = FieldError::invalid(
                    "spec.replicas",
                    &replicas.into(),
                    "must be greater than or equal to 0",
                );
                return Err(ApiError::invalid("autoscaling", "Scale", self.name, &[error]));
            }
            let mut object = current.clone();
            object["spec"]["replicas"] = replicas.into();
            for field in ["resourceVersion", "uid"] {
                let sent = text(&scale, field);
                super::metadata::of(&mut object).insert(field.into(), sent.into());
            }
            Ok(object)
        };
        let (object, _) = self.update(Part::Internal, options, apply).await?;
        Ok(scale_of(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_replicas_and_selector() {
        let object = json!({"metadata": {"name": "d", "labels": {}}, "status": {"replicas": 2},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}});
        let scale = scale_of(&object);
        assert_eq!(scale["spec"]["replicas"], 3);
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=web"}));
        assert_eq!(selector_text(&json!({"app": "web"})), "app=web");
    }
}
