use crate::raw::{Kind, Raw};
use crate::support::{until_gone, until_list, until_object};
use crate::{cluster, deployment};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Endpoints, Event, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn endpoints_of(slices: &[EndpointSlice]) -> usize {
    slices.iter().map(|s| s.endpoints.as_ref().map_or(0, Vec::len)).sum()
}

fn ready_since(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|c| c.type_ == "Ready")?.last_transition_time.as_ref()?.0)
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
    let filled = found.iter().find(|s| endpoints_of(std::slice::from_ref(*s)) > 0).unwrap();
    assert_eq!(filled.ports.as_ref().unwrap()[0].port, Some(8080));
    let whole = until_object("three addresses", &endpoints, "web", |e| {
        e.subsets.iter().flatten().flat_map(|s| s.addresses.iter().flatten()).count() == 3
    })
    .await;
    let trigger = "endpoints.kubernetes.io/last-change-trigger-time";
    let last_ready = pods.list(&Default::default()).await.unwrap().items.iter().filter_map(ready_since).max();
    for annotations in [&whole.metadata.annotations, &filled.metadata.annotations] {
        let told: jiff::Timestamp = annotations.as_ref().unwrap()[trigger].parse().unwrap();
        assert!(Some(told) <= last_ready, "{told} {last_ready:?}");
    }
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
    let metadata = json!({ "name": "db", "annotations": { "note": "by hand" } });
    world.create(&endpoints, json!({ "metadata": metadata, "subsets": subsets })).await;
    let slices = world.in_namespace::<EndpointSlice>("default");
    let selector = "kubernetes.io/service-name=db";
    let mirrored = until_list("mirrored", &slices, selector, |s| endpoints_of(s) == 1).await;
    let by = &mirrored[0].metadata.labels.as_ref().unwrap()["endpointslice.kubernetes.io/managed-by"];
    assert_eq!(by, "endpointslicemirroring-controller.k8s.io");
    assert_eq!(mirrored[0].metadata.annotations.as_ref().unwrap()["note"], "by hand");
    let two = ["read", "write"].map(|name| {
        let port = if name == "read" { 5432 } else { 5433 };
        json!({ "addresses": [{ "ip": "192.0.2.7" }], "ports": [{ "name": name, "port": port }] })
    });
    let patch = Patch::Merge(json!({ "subsets": two }));
    endpoints.patch("db", &PatchParams::default(), &patch).await.unwrap();
    // Both ports have the same address, so one slice does.
    let ports =
        |s: &[EndpointSlice]| s.iter().map(|s| s.ports.as_ref().map_or(0, Vec::len)).collect::<Vec<_>>();
    until_list("both ports", &slices, selector, |s| ports(s) == [2] && endpoints_of(s) == 1).await;
    endpoints.delete("db", &DeleteParams::default()).await.unwrap();
    until_list("gone with them", &slices, selector, <[_]>::is_empty).await;
}

#[tokio::test]
async fn traffic_that_shall_stay_near_is_told_so() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        let labels = json!({ "topology.kubernetes.io/zone": zone });
        raw.post("/api/v1/nodes", json!({ "metadata": { "name": name, "labels": labels } })).await;
        let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now() });
        let status = json!({ "status": { "conditions": [ready], "allocatable": { "cpu": "1" } } });
        raw.patch(Kind::Strategic, &format!("/api/v1/nodes/{name}/status"), status).await;
        let spec = json!({ "nodeName": name, "containers": [{ "name": "c", "image": "a" }] });
        let pod =
            json!({ "metadata": { "name": format!("p-{name}"), "labels": { "app": "web" } }, "spec": spec });
        raw.post("/api/v1/namespaces/default/pods", pod).await;
    }
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }], "trafficDistribution": "PreferSameNode" });
    let path = "/api/v1/namespaces/default/services/web";
    raw.post("/api/v1/namespaces/default/services", json!({ "metadata": { "name": "web" }, "spec": spec }))
        .await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb";
    // Of each endpoint: its node, and the zone and node that it is for.
    let hints = |list: &Value| -> Vec<String> {
        let endpoints = list["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        let name = |v: &Value| v[0]["name"].as_str().unwrap_or("-").to_owned();
        let show = |e: &Value| {
            let (zones, nodes) = (&e["hints"]["forZones"], &e["hints"]["forNodes"]);
            format!("{} {} {}", e["nodeName"].as_str().unwrap_or_default(), name(zones), name(nodes))
        };
        let mut all: Vec<String> = endpoints.iter().map(show).collect();
        all.sort();
        all
    };
    raw.until("hints for nodes", slices, |l| hints(l) == ["n1 a n1", "n2 b n2"]).await;
    raw.patch(Kind::Merge, path, json!({ "spec": { "trafficDistribution": "PreferClose" } })).await;
    raw.until("hints for zones", slices, |l| hints(l) == ["n1 a -", "n2 b -"]).await;
    raw.patch(Kind::Merge, path, json!({ "spec": { "trafficDistribution": null } })).await;
    raw.until("no hints", slices, |l| hints(l) == ["n1 - -", "n2 - -"]).await;
    let auto = json!({ "metadata": { "annotations": { "service.kubernetes.io/topology-mode": "Auto" } } });
    raw.patch(Kind::Merge, path, auto).await;
    raw.until("hints by weight", slices, |l| hints(l) == ["n1 a -", "n2 b -"]).await;
    let events = world.in_namespace::<Event>("default");
    let told = |reason: &'static str, text: &'static str| {
        move |all: &[Event]| {
            all.iter().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref() == Some(text))
        }
    };
    let enabled = "Topology Aware Hints has been enabled, addressType: IPv4";
    until_list("said so", &events, "", told("TopologyAwareHintsEnabled", enabled)).await;
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    raw.patch(Kind::Strategic, "/api/v1/nodes/n2/status", unready).await;
    raw.until("one zone is left", slices, |l| hints(l) == ["n1 - -", "n2 - -"]).await;
    let lacks = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes, addressType: IPv4";
    until_list("said why", &events, "", told("TopologyAwareHintsDisabled", lacks)).await;
}
