//! The `scale` subresource: `autoscaling/v1` Scale as a view of the object's replicas.

use super::decode::Expected;
use super::metadata::{of, text, time_text};
use super::ownership::Owners;
use super::patch::Patch;
use super::update::{How, Part};
use super::{Scope, WriteOptions};
use coracle_api::managed::{self, Request, Set, SingleVersion};
use coracle_api::{ApiError, FieldError, LabelSelector, Object, schema};
use coracle_resources::custom::ScalePaths;
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

/// The Scale of a custom resource, whose definition says where its parts are.
fn custom_scale(object: &Object, paths: &ScalePaths) -> Object {
    let at = |path: &[String]| path.iter().try_fold(object, |value, field| value.get(field));
    let replicas = |path: &[String]| at(path).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = scale_of(object);
    scale["spec"] = match replicas(&paths.spec_replicas) {
        0 => json!({}),
        count => json!({ "replicas": count }),
    };
    scale["status"] = json!({ "replicas": replicas(&paths.status_replicas) });
    let selector = paths.label_selector.as_deref().and_then(at).and_then(Value::as_str);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

impl Scope<'_> {
    fn scale_paths(&self) -> Option<&ScalePaths> {
        self.strategy.custom()?.scale()
    }

    /// The Scale that stands for an object of this resource.
    pub(super) fn scale_of(&self, object: &Object) -> Object {
        match self.scale_paths() {
            None => scale_of(object),
            Some(paths) => custom_scale(object, paths),
        }
    }

    fn replicas_path(&self) -> Vec<&str> {
        match self.scale_paths() {
            None => REPLICAS.to_vec(),
            Some(paths) => paths.spec_replicas.iter().map(String::as_str).collect(),
        }
    }

    pub async fn get_scale(&self) -> Result<Object, ApiError> {
        let object = self.working(&*self.get()?).await?;
        if let Some(paths) = self.scale_paths() {
            let found = paths.spec_replicas.iter().try_fold(&*object, |value, field| value.get(field));
            if found.is_none_or(Value::is_null) {
                let path = format!(".{}", paths.spec_replicas.join("."));
                return Err(ApiError::internal(format!("the spec replicas field {path:?} does not exist")));
            }
        }
        Ok(self.scale_of(&object))
    }

    /// Puts the number of replicas to where the resource has it.
    pub(super) fn set_replicas(&self, object: &mut Object, replicas: i64) {
        let mut slot = object;
        for field in self.replicas_path() {
            if !slot.is_object() {
                *slot = json!({});
            }
            slot = &mut slot[field];
        }
        *slot = replicas.into();
    }

    /// Replaces the scale by what `transform` makes of the present one. Its owners are followed, unless it is `applied`
    /// and brings them along.
    pub async fn update_scale<F>(
        &self,
        options: &WriteOptions,
        applied: bool,
        mut transform: F,
    ) -> Result<Object, ApiError>
    where
        F: FnMut(&Object) -> Result<Object, ApiError> + Send,
    {
        let apply = |current: Option<&Object>| {
            let Some(current) = current else { return Err(self.not_found(self.name)) };
            let before = self.scale_with_owners(current);
            let mut scale = transform(&before)?;
            self.check_scale(&scale)?;
            if !applied {
                let followed = self
                    .managing_scale(&options.field_manager, |r| managed::update(r, Some(&before), &scale));
                set_owners(&mut scale, followed.flatten());
            }
            Ok(self.with_scale(current, &scale))
        };
        let part = if self.strategy.custom().is_some() { Part::Main } else { Part::Internal };
        let how = How { part, owners: Owners::Given, creates: false };
        let (written, _) = self.update_as(how, options, apply).await?;
        Ok(self.scale_of(&written.object))
    }

    fn check_scale(&self, scale: &Object) -> Result<(), ApiError> {
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas >= 0 || self.strategy.custom().is_some() {
            return Ok(());
        }
        let error =
            FieldError::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        Err(ApiError::invalid("autoscaling", "Scale", self.name, &[error]))
    }

    /// The scale as writers see it: with the owners of the replicas.
    fn scale_with_owners(&self, object: &Object) -> Object {
        let mut scale = self.scale_of(object);
        let (versions, path) = (self.all_versions(), self.replicas_path());
        let list = managed::scale_from_parent(&object["metadata"]["managedFields"], &path, &versions);
        set_owners(&mut scale, list);
        scale
    }

    /// The object with the replicas and owners that the scale says.
    fn with_scale(&self, object: &Object, scale: &Object) -> Object {
        let mut object = object.clone();
        let (versions, path) = (self.all_versions(), self.replicas_path());
        let owners = managed::scale_to_parent(
            &object["metadata"]["managedFields"],
            &scale["metadata"]["managedFields"],
            &path,
            &versions,
            &self.resource.api_version(),
        );
        set_owners(&mut object, owners);
        self.set_replicas(&mut object, scale["spec"]["replicas"].as_i64().unwrap_or(0));
        for field in ["resourceVersion", "uid"] {
            of(&mut object).insert(field.into(), text(scale, field).into());
        }
        object
    }

    /// What a patch or an apply makes of the present scale.
    pub fn patched_scale(
        &self,
        patch: &Patch,
        expected: &Expected<'_>,
        scale: &Object,
        options: &WriteOptions,
    ) -> Result<Object, ApiError> {
        let (scale, warnings) = match patch.configuration() {
            None => patch.apply(expected, scale, options.field_validation)?,
            Some(configuration) => self
                .managing_scale(&options.field_manager, |request| {
                    configuration.apply(request, expected, Some(scale), options)
                })
                .ok_or_else(|| ApiError::internal("no schema for Scale"))??,
        };
        self.warn_once(warnings);
        self.check_patched(&scale, None)?;
        Ok(scale)
    }

    fn managing_scale<T>(&self, manager: &str, work: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
        let request = Request {
            manager,
            subresource: self.subresource,
            api_version: "autoscaling/v1",
            ty: schema::root("autoscaling", "v1", "Scale")?,
            versions: &SingleVersion,
            reset: &Set::new(),
            now: &time_text(self.now),
        };
        Some(work(&request))
    }
}

/// Where the replicas of every built-in scalable resource are.
const REPLICAS: &[&str] = &["spec", "replicas"];

fn set_owners(object: &mut Object, list: Option<Value>) {
    match list {
        Some(list) => of(object).insert("managedFields".into(), list),
        None => of(object).remove("managedFields"),
    };
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
