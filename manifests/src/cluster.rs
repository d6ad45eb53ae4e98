//! Carries a plan out, as a client of the API.

use crate::MANAGER;
use crate::charts::{self, Helm};
use crate::documents::{Body, Document, Id};
use crate::outcome::Outcome;
use coracle_api::error::chain;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The path of the file that an object is of.
const ANNOTATION: &str = "coracle.local/manifest";

pub struct Cluster {
    client: Client,
    helm: Helm,
    /// By group, version and kind; those that were found.
    kinds: HashMap<GroupVersionKind, (ApiResource, Scope)>,
}

impl Cluster {
    pub fn new(client: Client, helm: Helm) -> Self {
        Self { client, helm, kinds: HashMap::new() }
    }

    pub async fn apply(&mut self, file: &str, document: &Document) -> Outcome {
        match &document.body {
            Body::Object(object) => self.apply_object(file, &document.id, object).await,
            Body::Chart(chart) => charts::apply(&self.helm, &self.client, &document.id, chart).await,
        }
    }

    /// Server-side apply. What others set in the fields of the document is set back: the file is what is meant.
    /// An annotation says which file it is of: an object of which nothing is said but its name is ours by that alone.
    async fn apply_object(&mut self, file: &str, id: &Id, object: &Value) -> Outcome {
        let api = match self.api(id).await {
            Ok(api) => api,
            Err(why) => return why,
        };
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // Of an object that was printed by somebody: the server gives them.
            ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"].iter().for_each(
                |field| {
                    metadata.remove(*field);
                },
            );
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if !annotations.is_object() {
                *annotations = json!({});
            }
            annotations[ANNOTATION] = file.into();
        }
        let params = PatchParams::apply(MANAGER).force();
        match api.patch(&id.name, &params, &Patch::Apply(&object)).await {
            Ok(_) => Outcome::Applied,
            Err(error) => {
                // Its definition may have changed, or gone.
                self.kinds.remove(&gvk(id));
                outcome(id, &error)
            }
        }
    }

    /// Deletes an object that is no manifest any more, if it is still ours. True when it has gone, or is somebody else's.
    pub async fn prune(&mut self, id: &Id) -> Result<bool, String> {
        if id.is_release() {
            return charts::remove(&self.helm, &self.client, id).await.map(|()| true);
        }
        let api = match self.api(id).await {
            Ok(api) => api,
            // With its kind it went, too.
            Err(Outcome::Waiting(_)) => return Ok(true),
            Err(Outcome::Failed(why)) => return Err(why),
            Err(Outcome::Applied) => return Ok(true),
        };
        let found = api.get_opt(&id.name).await.map_err(|error| told(&error))?;
        let Some(object) = found.filter(is_ours) else { return Ok(true) };
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let of_this_one = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(of_this_one), ..DeleteParams::background() };
        match api.delete(&id.name, &params).await {
            // Gone at once, or on its way.
            Ok(gone) => Ok(gone.is_right()),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(false),
            // default and the kube- namespaces stay, whoever asks.
            Err(kube::Error::Api(status)) if status.code == 403 && id.kind == "Namespace" => Ok(true),
            Err(error) => Err(told(&error)),
        }
    }

    async fn api(&mut self, id: &Id) -> Result<Api<DynamicObject>, Outcome> {
        let gvk = gvk(id);
        let (resource, scope) = match self.kinds.get(&gvk) {
            Some(known) => known.clone(),
            None => {
                let (resource, capabilities) =
                    pinned_kind(&self.client, &gvk).await.map_err(|error| unknown(id, &error))?;
                let known = (resource, capabilities.scope);
                self.kinds.insert(gvk, known.clone());
                known
            }
        };
        let namespace = id.namespace_or_default();
        Ok(match scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
        })
    }
}

fn gvk(id: &Id) -> GroupVersionKind {
    GroupVersionKind::gvk(id.group(), id.version(), &id.kind)
}

fn is_ours(object: &DynamicObject) -> bool {
    let managers = object.metadata.managed_fields.as_ref();
    managers.is_some_and(|all| all.iter().any(|entry| entry.manager.as_deref() == Some(MANAGER)))
}

/// A kind that is not served may be defined yet.
fn unknown(id: &Id, error: &kube::Error) -> Outcome {
    let undefined = match error {
        kube::Error::Discovery(_) => true,
        kube::Error::Api(status) => status.code == 404,
        _ => false,
    };
    if undefined {
        Outcome::Waiting(format!("{id}: nothing of kind {} is defined in {}", id.kind, id.api_version))
    } else {
        Outcome::Failed(format!("{id}: {}", told(error)))
    }
}

fn outcome(id: &Id, error: &kube::Error) -> Outcome {
    let why = format!("{id}: {}", told(error));
    match error {
        kube::Error::Api(status) if status.code == 404 => Outcome::Waiting(why),
        _ => Outcome::Failed(why),
    }
}

fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => chain(other),
    }
}
