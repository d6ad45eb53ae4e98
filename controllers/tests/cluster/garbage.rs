use crate::support::{until_gone, until_list, until_object};
use crate::{cluster, deployment};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

fn owned(name: &str, owner: &ConfigMap, blocks: bool) -> Value {
    json!({ "metadata": { "name": name, "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap",
        "name": owner.name_any(), "uid": owner.uid(), "blockOwnerDeletion": blocks }] } })
}

#[tokio::test]
async fn background_deletion_takes_the_whole_tree() {
    let world = cluster().await;
    let deployments = world.in_namespace::<Deployment>("default");
    let (sets, pods) = (world.in_namespace::<ReplicaSet>("default"), world.in_namespace::<Pod>("default"));
    world.create(&deployments, deployment("web", 2, "a")).await;
    until_list("two pods", &pods, "app=web", |p| p.len() == 2).await;
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    until_list("no sets", &sets, "app=web", <[_]>::is_empty).await;
    until_list("no pods", &pods, "app=web", <[_]>::is_empty).await;
}

#[tokio::test]
async fn foreground_deletion_ends_with_the_owner() {
    let world = cluster().await;
    let maps = world.in_namespace::<ConfigMap>("default");
    let owner = world.create(&maps, json!({ "metadata": { "name": "owner" } })).await;
    let mut held = owned("held", &owner, true);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(&maps, held).await;
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    until_object("the dependent goes first", &maps, "held", |m| m.metadata.deletion_timestamp.is_some())
        .await;
    assert!(maps.get("owner").await.unwrap().finalizers().contains(&"foregroundDeletion".to_owned()));
    let free = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
    maps.patch("held", &Default::default(), &free).await.unwrap();
    until_gone("the dependent", &maps, "held").await;
    until_gone("the owner", &maps, "owner").await;
}

#[tokio::test]
async fn orphaning_deletion_frees_the_dependents() {
    let world = cluster().await;
    let maps = world.in_namespace::<ConfigMap>("default");
    let owner = world.create(&maps, json!({ "metadata": { "name": "owner" } })).await;
    world.create(&maps, owned("child", &owner, true)).await;
    maps.delete("owner", &DeleteParams::orphan()).await.unwrap();
    until_gone("the owner", &maps, "owner").await;
    let child = until_object("freed", &maps, "child", |m| m.owner_references().is_empty()).await;
    assert!(child.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn an_absent_owner_and_one_of_another_namespace_are_no_owners() {
    let world = cluster().await;
    let maps = world.in_namespace::<ConfigMap>("default");
    let mut elsewhere = ConfigMap::default();
    elsewhere.metadata.name = Some("elsewhere".into());
    elsewhere.metadata.uid = Some("01234567-89ab-cdef-0123-456789abcdef".into());
    world.create(&maps, owned("absent", &elsewhere, false)).await;
    until_gone("the child of nobody", &maps, "absent").await;

    let system = world.in_namespace::<ConfigMap>("kube-system");
    let owner = world.create(&system, json!({ "metadata": { "name": "there" } })).await;
    world.create(&maps, owned("stray", &owner, false)).await;
    until_gone("the child of another namespace", &maps, "stray").await;
    let events = world.in_namespace::<Event>("default");
    until_list("the event", &events, "", |all| {
        all.iter().any(|e| e.reason.as_deref() == Some("OwnerRefInvalidNamespace"))
    })
    .await;
}
