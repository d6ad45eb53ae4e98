//! Writes whose answer nobody reads. The server sends the whole object back; to decode it would cost the component as
//! much as its own copy of the change does, and fail where a condition has no time ([`crate::condition_times`]).

use crate::informer::ObjectKey;
use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Serialize;

fn collection<K: Resource<DynamicType = ()>>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty())))
}

async fn send(
    client: &kube::Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(), kube::Error> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await.map(|_| ())
}

/// Creates an object in a namespace; the empty one is none.
pub async fn create<K>(client: &kube::Client, namespace: &str, object: &K) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    send(client, collection::<K>(namespace).create(&PostParams::default(), body)).await
}

/// Patches the status of an object.
pub async fn patch_status<K>(
    client: &kube::Client,
    key: &ObjectKey,
    patch: &Patch<impl Serialize>,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    patch_part::<K>(client, key, Some("status"), &PatchParams::default(), patch).await
}

/// Patches an object, or a subresource of it.
pub async fn patch_part<K>(
    client: &kube::Client,
    key: &ObjectKey,
    subresource: Option<&str>,
    params: &PatchParams,
    patch: &Patch<impl Serialize>,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    let request = collection::<K>(&key.namespace);
    let request = match subresource {
        Some(part) => request.patch_subresource(part, &key.name, params, patch),
        None => request.patch(&key.name, params, patch),
    };
    send(client, request).await
}

/// Replaces the status of an object as an informer showed it. A condition of somebody else's that has no time keeps
/// none.
pub async fn replace_status<K>(client: &kube::Client, key: &ObjectKey, object: &K) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let body = serde_json::to_vec(object)
        .and_then(crate::condition_times::emptied)
        .map_err(kube::Error::SerdeError)?;
    let request = collection::<K>(&key.namespace);
    send(client, request.replace_subresource("status", &key.name, &PostParams::default(), body)).await
}

/// Deletes an object.
pub async fn delete<K>(
    client: &kube::Client,
    key: &ObjectKey,
    parameters: &DeleteParams,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    send(client, collection::<K>(&key.namespace).delete(&key.name, parameters)).await
}

/// Posts to a subresource of an object.
pub async fn create_subresource<K>(
    client: &kube::Client,
    subresource: &str,
    key: &ObjectKey,
    body: &impl Serialize,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
    let request = collection::<K>(&key.namespace);
    send(client, request.create_subresource(subresource, &key.name, &PostParams::default(), body)).await
}
