use crate::support::{until_gone, until_list, until_object};
use crate::{cluster, deployment};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn an_emptied_namespace_that_somebody_keeps_says_that_it_is_empty() {
    let world = cluster().await;
    let namespaces: Api<Namespace> = Api::all(world.admin());
    let kept = json!({ "metadata": { "name": "kept", "finalizers": ["example.com/hold"] } });
    world.create(&namespaces, kept).await;
    namespaces.delete("kept", &DeleteParams::default()).await.unwrap();
    let empty = until_object("emptied", &namespaces, "kept", |ns| {
        ns.spec.as_ref().is_none_or(|s| s.finalizers.as_ref().is_none_or(Vec::is_empty))
    })
    .await;
    let conditions = empty.status.and_then(|s| s.conditions).unwrap_or_default();
    assert_eq!(conditions.len(), 5);
    assert!(conditions.iter().all(|c| c.status == "False"), "{conditions:?}");
}

#[tokio::test]
async fn a_namespace_gets_its_account_and_ca_and_is_emptied_on_deletion() {
    let world = cluster().await;
    let namespaces: Api<Namespace> = Api::all(world.admin());
    world.create(&namespaces, json!({ "metadata": { "name": "x" } })).await;
    until_object("the account", &world.in_namespace::<ServiceAccount>("x"), "default", |_| true).await;
    let maps = world.in_namespace::<ConfigMap>("x");
    until_object("the CA", &maps, "kube-root-ca.crt", |m| m.data.is_some()).await;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
    until_object("the CA again", &maps, "kube-root-ca.crt", |m| m.data.is_some()).await;
    let bare = Patch::Merge(json!({ "metadata": { "annotations": null } }));
    maps.patch("kube-root-ca.crt", &Default::default(), &bare).await.unwrap();
    let described = |m: &ConfigMap| m.annotations().contains_key("kubernetes.io/description");
    until_object("what it is for", &maps, "kube-root-ca.crt", described).await;

    world.create(&world.in_namespace::<Deployment>("x"), deployment("web", 2, "a")).await;
    until_list("two pods", &world.in_namespace::<Pod>("x"), "app=web", |p| p.len() == 2).await;
    world.create(&maps, json!({ "metadata": { "name": "held", "finalizers": ["example.com/hold"] } })).await;
    namespaces.delete("x", &DeleteParams::default()).await.unwrap();
    let stuck = until_object("what remains is told", &namespaces, "x", |ns| {
        let conditions = ns.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "NamespaceFinalizersRemaining" && c.status == "True")
    })
    .await;
    let conditions = stuck.status.unwrap().conditions.unwrap();
    let message = conditions.iter().find(|c| c.type_ == "NamespaceContentRemaining").unwrap();
    assert_eq!(
        message.message.as_deref(),
        Some("Some resources are remaining: configmaps. has 1 resource instances")
    );
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("held", &Default::default(), &free).await.unwrap();
    until_gone("the namespace", &namespaces, "x").await;
}
