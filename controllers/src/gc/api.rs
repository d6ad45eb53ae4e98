//! The few calls of the garbage collector on objects of any kind.

use crate::common::code_of;
use crate::discovery::Served;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PropagationPolicy;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Where one object is.
pub fn api(client: &Client, served: &Served, namespace: &str) -> Api<DynamicObject> {
    if served.namespaced && !namespace.is_empty() {
        Api::namespaced_with(client.clone(), namespace, &served.resource)
    } else {
        Api::all_with(client.clone(), &served.resource)
    }
}

/// The object's metadata as stored now; `None` when it is gone or a namesake stands in its place.
pub async fn live(
    api: &Api<DynamicObject>,
    name: &str,
    is_it: impl Fn(&str) -> bool,
) -> Result<Option<ObjectMeta>, kube::Error> {
    let found = api.get_metadata_opt(name).await?.map(|object| object.metadata);
    Ok(found.filter(|meta| is_it(meta.uid.as_deref().unwrap_or_default())))
}

/// Deletes exactly the object that `meta` shows.
pub async fn delete(
    api: &Api<DynamicObject>,
    meta: &ObjectMeta,
    policy: PropagationPolicy,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    match api.delete(meta.name.as_deref().unwrap_or_default(), &params).await {
        Err(error) if code_of(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}

/// Writes part of the metadata, if the object is still as `meta` shows it.
async fn patch(api: &Api<DynamicObject>, meta: &ObjectMeta, mut change: Value) -> Result<(), kube::Error> {
    change["resourceVersion"] = json!(meta.resource_version);
    change["uid"] = json!(meta.uid);
    let body = json!({ "metadata": change });
    let name = meta.name.as_deref().unwrap_or_default();
    match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(body)).await {
        Err(error) if code_of(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}

pub async fn set_owners(
    api: &Api<DynamicObject>,
    meta: &ObjectMeta,
    owners: &[OwnerReference],
) -> Result<(), kube::Error> {
    patch(api, meta, json!({ "ownerReferences": owners })).await
}

pub async fn remove_finalizer(
    api: &Api<DynamicObject>,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<(), kube::Error> {
    let left: Vec<&String> = meta.finalizers.iter().flatten().filter(|f| *f != finalizer).collect();
    patch(api, meta, json!({ "finalizers": left })).await
}
