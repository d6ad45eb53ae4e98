//! Writes whose answer nobody reads. The server sends the whole object back; to decode it would cost the component as
//! much as its own copy of the change does.

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
    let request = collection::<K>(&key.namespace);
    send(client, request.patch_subresource("status", &key.name, &PatchParams::default(), patch)).await
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
