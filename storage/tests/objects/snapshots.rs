//! Snapshots as a client makes and reads them.

use coracle_storage::SNAPSHOT_DEFINITIONS;
use serde_json::{Value, json};

/// A request for a resource of the snapshots' group.
pub async fn custom(client: &kube::Client, method: &str, path: &str, body: Value) -> Value {
    tried(client, method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

pub async fn tried(
    client: &kube::Client,
    method: &str,
    path: &str,
    body: Value,
) -> Result<Value, kube::Error> {
    let path = format!("/apis/snapshot.storage.k8s.io/v1/{path}");
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request(request.body(body).unwrap()).await
}

/// Installs the definitions, and waits until they are served.
pub async fn install_snapshots(client: &kube::Client) {
    for definition in SNAPSHOT_DEFINITIONS.split("---\n") {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = http::Request::post(path).header("content-type", "application/yaml");
        client.request_text(request.body(definition.as_bytes().to_vec()).unwrap()).await.unwrap();
    }
    for plural in ["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"] {
        let list = || async {
            let path = format!("/apis/snapshot.storage.k8s.io/v1/{plural}");
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            client.request::<Value>(request).await.map_err(|error| error.to_string())
        };
        let served = || async { list().await.ok().map(drop) };
        crate::support::until("served", served, || async { format!("{:?}", list().await) }).await;
    }
}

pub async fn snapshot_class(client: &kube::Client, name: &str, driver: &str, more: Value) {
    let mut class = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": name }, "driver": driver, "deletionPolicy": "Delete" });
    class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    custom(client, "POST", "volumesnapshotclasses", class).await;
}

/// A snapshot in `default` of this source.
pub async fn snapshot(client: &kube::Client, name: &str, class: &str, source: Value) {
    let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "name": name }, "spec": { "volumeSnapshotClassName": class, "source": source } });
    custom(client, "POST", "namespaces/default/volumesnapshots", snapshot).await;
}

/// Waits until the object is as wanted, and returns it.
pub async fn until_custom(
    client: &kube::Client,
    what: &str,
    path: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let read = || async { tried(client, "GET", path, Value::Null).await.unwrap_or_default() };
    let found = || async { Some(read().await).filter(|object| wanted(object)) };
    crate::support::until(what, found, || async { read().await.to_string() }).await
}

pub async fn until_no_custom(client: &kube::Client, path: &str) {
    let gone = || async {
        let read = tried(client, "GET", path, Value::Null).await;
        matches!(read, Err(kube::Error::Api(status)) if status.code == 404).then_some(())
    };
    let shown = || async { format!("{:?}", tried(client, "GET", path, Value::Null).await) };
    crate::support::until(&format!("no {path}"), gone, shown).await;
}
