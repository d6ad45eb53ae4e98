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
    let exactly = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
    match remove(api, meta.name.as_deref().unwrap_or_default(), exactly, policy).await {
        Err(error) if code_of(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}

/// Deletes the object, in the background, if it is still as it was at `version`; otherwise nothing happens, and the
/// answer is `false`.
pub async fn delete_unchanged(
    api: &Api<DynamicObject>,
    name: &str,
    version: &str,
) -> Result<bool, kube::Error> {
    let exactly = Preconditions { uid: None, resource_version: Some(version.to_owned()) };
    match remove(api, name, exactly, PropagationPolicy::Background).await {
        Ok(()) => Ok(true),
        Err(error) if matches!(code_of(&error), 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn remove(
    api: &Api<DynamicObject>,
    name: &str,
    exactly: Preconditions,
    policy: PropagationPolicy,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(exactly),
        ..DeleteParams::default()
    };
    api.delete(name, &params).await.map(drop)
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

/// Takes one owner from an object, whatever else it has become: merged by the API where it can, in custom resources by
/// hand. One that is gone needs nothing.
pub async fn release(api: &Api<DynamicObject>, name: &str, owner: &str) -> Result<(), kube::Error> {
    let gone = json!([{ "$patch": "delete", "uid": owner }]);
    let patch = Patch::Strategic(json!({ "metadata": { "ownerReferences": gone } }));
    match api.patch_metadata(name, &PatchParams::default(), &patch).await {
        Err(error) if code_of(&error) == 415 => {}
        Err(error) if code_of(&error) != 404 => return Err(error),
        _ => return Ok(()),
    }
    let Some(meta) = live(api, name, |_| true).await? else { return Ok(()) };
    let mut owners = meta.owner_references.clone().unwrap_or_default();
    owners.retain(|o| o.uid != owner);
    set_owners(api, &meta, &owners).await
}

pub async fn remove_finalizer(
    api: &Api<DynamicObject>,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<(), kube::Error> {
    let left: Vec<&String> = meta.finalizers.iter().flatten().filter(|f| *f != finalizer).collect();
    patch(api, meta, json!({ "finalizers": left })).await
}
