use crate::cluster;
use crate::raw::{Kind, Raw, condition};
use crate::support::{until_gone, until_list, until_object};
use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

fn ready(range: &ServiceCIDR) -> Option<&str> {
    let mut conditions = range.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.find(|c| c.type_ == "Ready").map(|c| c.status.as_str())
}

fn service(name: &str, ip: &str) -> Service {
    let spec: Value = json!({ "clusterIP": ip, "ports": [{ "port": 80 }] });
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
}

#[tokio::test]
async fn ranges_widen_allocation_and_stay_while_their_addresses_are_in_use() {
    let world = cluster().await;
    let ranges: Api<ServiceCIDR> = Api::all(world.admin());
    let services = world.in_namespace::<Service>("default");
    let post = PostParams::default();
    let own =
        until_object("the server's own is protected", &ranges, "kubernetes", |r| !r.finalizers().is_empty());
    assert_eq!(ready(&own.await), Some("True"));

    let refused = services.create(&post, &service("a", "10.200.0.3")).await.unwrap_err().to_string();
    assert!(
        refused.contains("(10.200.0.3) is not in the valid range. The range of valid IPs is 10.43.0.0/16"),
        "{refused}"
    );
    world
        .create(&ranges, json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["10.200.0.0/24"] } }))
        .await;
    until_object("ready", &ranges, "more", |r| ready(r) == Some("True") && !r.finalizers().is_empty()).await;
    services.create(&post, &service("a", "10.200.0.3")).await.unwrap();
    let addresses: Api<IPAddress> = Api::all(world.admin());
    let parent = addresses.get("10.200.0.3").await.unwrap().spec.parent_ref;
    assert_eq!((parent.resource.as_str(), parent.name.as_str()), ("services", "a"));

    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    until_object("in use", &ranges, "more", |r| ready(r) == Some("False")).await;
    let refused = services.create(&post, &service("b", "10.200.0.4")).await.unwrap_err().to_string();
    assert!(refused.contains("(10.200.0.4) is not in the valid range"), "gives no more: {refused}");
    services.delete("a", &DeleteParams::default()).await.unwrap();
    until_gone("the range", &ranges, "more").await;
    assert!(addresses.get_opt("10.200.0.3").await.unwrap().is_none());
}

#[tokio::test]
async fn a_condition_without_a_time_is_no_hindrance_and_stays_so() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    let path = "/apis/networking.k8s.io/v1/servicecidrs/more";
    let ready = |range: &Value| condition(range, "Ready")["status"] == "True";
    raw.post(
        "/apis/networking.k8s.io/v1/servicecidrs",
        json!({ "metadata": { "name": "more" },
        "spec": { "cidrs": ["10.200.0.0/24"] } }),
    )
    .await;
    raw.until("ready", path, ready).await;
    let timeless = json!({ "type": "E2E", "status": "True", "reason": "R", "message": "m" });
    let unready = json!({ "type": "Ready", "status": "False", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "status": { "conditions": [timeless, unready] } });
    raw.patch(Kind::Strategic, &format!("{path}/status"), status).await;
    let got = raw.until("ready again", path, ready).await;
    let told = condition(&got, "E2E");
    assert_eq!((told["reason"].as_str(), told["lastTransitionTime"].is_null()), (Some("R"), true), "{got}");
}

#[tokio::test]
async fn addresses_that_somebody_deletes_or_gives_away_come_back() {
    let world = cluster().await;
    let context = coracle_client::Context { client: world.admin(), ..world.context() };
    tokio::spawn(coracle_controllers::clusterip::run(context));
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    let addresses: Api<IPAddress> = Api::all(world.admin());
    let services = world.in_namespace::<Service>("default");
    services.create(&post, &service("a", "10.43.7.7")).await.unwrap();
    let own = addresses.get("10.43.7.7").await.unwrap();
    addresses.delete("10.43.7.7", &delete).await.unwrap();
    let refused = services.create(&post, &service("b", "10.43.7.7")).await.unwrap_err().to_string();
    assert!(refused.contains("provided IP is already allocated"), "{refused}");
    let back = until_object("made again", &addresses, "10.43.7.7", |ip| ip.uid() != own.uid()).await;
    assert_eq!((&back.spec, back.labels()), (&own.spec, own.labels()));
    let events = world.in_namespace::<Event>("default");
    let told = |all: &[Event], message: &str| all.iter().any(|e| e.message.as_deref() == Some(message));
    let gone = "Cluster IP [IPv4]: 10.43.7.7 is not allocated; repairing";
    until_list("the event", &events, "", |all| told(all, gone)).await;

    let raw = Raw::of(&world);
    let path = "/apis/networking.k8s.io/v1/ipaddresses/10.43.7.7";
    raw.patch(Kind::Merge, path, json!({ "metadata": { "labels": null } })).await;
    let labelled = |ip: &IPAddress| ip.labels() == own.labels();
    until_object("labelled again", &addresses, "10.43.7.7", labelled).await;

    let stray = json!({ "metadata": { "name": "10.43.7.8", "labels": own.labels() },
        "spec": { "parentRef": { "resource": "services", "namespace": "default", "name": "a" } } });
    world.create(&addresses, stray).await;
    until_gone("nobody's address", &addresses, "10.43.7.8").await;
    let wrong = "IPAddress: 10.43.7.8 for Service default/a has a wrong reference; cleaning up";
    until_list("the event", &world.in_namespace::<Event>("default"), "", |all| told(all, wrong)).await;
}

#[tokio::test]
async fn a_service_whose_range_is_gone_is_told_and_keeps_its_address() {
    let world = cluster().await;
    let context = coracle_client::Context { client: world.admin(), ..world.context() };
    tokio::spawn(coracle_controllers::clusterip::run(context));
    let ranges: Api<ServiceCIDR> = Api::all(world.admin());
    world
        .create(&ranges, json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["10.200.0.0/24"] } }))
        .await;
    until_object("ready", &ranges, "more", |r| ready(r) == Some("True") && !r.finalizers().is_empty()).await;
    let services = world.in_namespace::<Service>("default");
    services.create(&PostParams::default(), &service("a", "10.200.0.3")).await.unwrap();
    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    let raw = Raw::of(&world);
    let path = "/apis/networking.k8s.io/v1/servicecidrs/more";
    raw.patch(Kind::Merge, path, json!({ "metadata": { "finalizers": null } })).await;
    until_gone("the range", &ranges, "more").await;
    let words =
        "Cluster IP [IPv4]: 10.200.0.3 is not within any configured Service CIDR; please recreate service";
    let told = |all: &[Event]| {
        let reason = Some("ClusterIPOutOfRange");
        all.iter().any(|e| e.reason.as_deref() == reason && e.message.as_deref() == Some(words))
    };
    until_list("the event", &world.in_namespace::<Event>("default"), "", told).await;
    let addresses: Api<IPAddress> = Api::all(world.admin());
    assert_eq!(addresses.get("10.200.0.3").await.unwrap().spec.parent_ref.name, "a");
}
