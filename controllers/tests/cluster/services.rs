use crate::support::{until_gone, until_list, until_object};
use crate::{cluster, deployment};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch};
use serde_json::json;

fn endpoints_of(slices: &[EndpointSlice]) -> usize {
    slices.iter().map(|s| s.endpoints.as_ref().map_or(0, Vec::len)).sum()
}

#[tokio::test]
async fn a_service_follows_its_pods() {
    let world = cluster().await;
    let (services, pods) = (world.in_namespace::<Service>("default"), world.in_namespace::<Pod>("default"));
    let endpoints = world.in_namespace::<Endpoints>("default");
    let slices = world.in_namespace::<EndpointSlice>("default");
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
    world.create(&services, json!({ "metadata": { "name": "web" }, "spec": spec })).await;
    until_list("a placeholder", &slices, "kubernetes.io/service-name=web", |s| s.len() == 1).await;
    world.create(&world.in_namespace::<Deployment>("default"), deployment("web", 3, "a")).await;
    let found = until_list("three endpoints", &slices, "kubernetes.io/service-name=web", |s| {
        endpoints_of(s) == 3
            && s.iter()
                .flat_map(|s| s.endpoints.iter().flatten())
                .all(|e| e.conditions.as_ref().and_then(|c| c.ready) == Some(true))
    })
    .await;
    assert_eq!(found[0].ports.as_ref().unwrap()[0].port, Some(8080));
    let whole = until_object("three addresses", &endpoints, "web", |e| {
        e.subsets.iter().flatten().flat_map(|s| s.addresses.iter().flatten()).count() == 3
    })
    .await;
    assert_eq!(whole.subsets.unwrap()[0].ports.as_ref().unwrap()[0].name.as_deref(), Some("http"));

    let pod = pods.list(&Default::default()).await.unwrap().items.remove(0);
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let name = pod.metadata.name.unwrap();
    pods.patch_status(&name, &Default::default(), &Patch::Merge(unready)).await.unwrap();
    until_object("one not ready", &endpoints, "web", |e| {
        e.subsets.iter().flatten().any(|s| s.not_ready_addresses.as_ref().is_some_and(|a| a.len() == 1))
    })
    .await;
    services.delete("web", &DeleteParams::default()).await.unwrap();
    until_gone("the endpoints", &endpoints, "web").await;
    until_list("no slices", &slices, "kubernetes.io/service-name=web", <[_]>::is_empty).await;
}

#[tokio::test]
async fn endpoints_written_by_hand_are_mirrored() {
    let world = cluster().await;
    let (services, endpoints) =
        (world.in_namespace::<Service>("default"), world.in_namespace::<Endpoints>("default"));
    world
        .create(&services, json!({ "metadata": { "name": "db" }, "spec": { "ports": [{ "port": 5432 }] } }))
        .await;
    let subsets = json!([{ "addresses": [{ "ip": "192.0.2.7" }], "ports": [{ "port": 5432 }] }]);
    world.create(&endpoints, json!({ "metadata": { "name": "db" }, "subsets": subsets })).await;
    let slices = world.in_namespace::<EndpointSlice>("default");
    let selector = "kubernetes.io/service-name=db";
    let mirrored = until_list("mirrored", &slices, selector, |s| endpoints_of(s) == 1).await;
    let by = &mirrored[0].metadata.labels.as_ref().unwrap()["endpointslice.kubernetes.io/managed-by"];
    assert_eq!(by, "endpointslicemirroring-controller.k8s.io");
    endpoints.delete("db", &DeleteParams::default()).await.unwrap();
    until_list("gone with them", &slices, selector, <[_]>::is_empty).await;
}
