//! ResourceClaims: made for pods by template, given back, deleted with their pods.

use crate::cluster;
use crate::support::{until, until_gone, until_object};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

fn pod(name: &str, claims: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "resourceClaims": claims,
        "containers": [{ "name": "c", "image": "i" }] } })
}

fn template() -> Value {
    let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu" } });
    json!({ "metadata": { "name": "t" }, "spec": { "metadata": { "labels": { "from": "template" } },
        "spec": { "devices": { "requests": [request] } } } })
}

async fn made_for(pods: &Api<Pod>, claims: &Api<ResourceClaim>, name: &str) -> ResourceClaim {
    let named = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
        statuses.first()?.resource_claim_name.clone()
    };
    let pod = until_object("a claim in the status", pods, name, |pod| named(pod).is_some()).await;
    claims.get(&named(&pod).expect("checked")).await.expect("the claim")
}

/// As the scheduler would.
async fn allocate(claims: &Api<ResourceClaim>, claim: &str, pod: &Pod) {
    let patch = PatchParams::default();
    let finalizer = json!({ "metadata": { "finalizers": ["resource.kubernetes.io/delete-protection"] } });
    claims.patch(claim, &patch, &Patch::Merge(finalizer)).await.expect("protected");
    let result = json!({ "request": "r", "driver": "d.example.com", "pool": "p", "device": "x" });
    let consumer = json!({ "resource": "pods", "name": pod.name_any(), "uid": pod.uid() });
    let status = json!({ "status": { "allocation": { "devices": { "results": [result] } },
        "reservedFor": [consumer] } });
    claims.patch_status(claim, &patch, &Patch::Merge(status)).await.expect("allocated");
}

#[tokio::test]
async fn a_template_makes_a_claim_that_lives_as_long_as_its_pod_runs() {
    let world = cluster().await;
    let (pods, claims) =
        (world.in_namespace::<Pod>("default"), world.in_namespace::<ResourceClaim>("default"));
    let entry = json!([{ "name": "gpu", "resourceClaimTemplateName": "t" }]);
    world.create(&pods, pod("worker", entry)).await;
    let events: Api<k8s_openapi::api::core::v1::Event> = world.in_namespace("default");
    let complaint = || async {
        let list = events.list(&ListParams::default()).await.expect("events");
        let found =
            list.items.into_iter().find(|e| e.reason.as_deref() == Some("FailedResourceClaimCreation"));
        found.and_then(|e| e.message)
    };
    let said = until("the missing template is told", complaint, || async { String::new() }).await;
    assert_eq!(
        said,
        "PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found"
    );
    world.create(&world.in_namespace::<ResourceClaimTemplate>("default"), template()).await;
    let claim = made_for(&pods, &claims, "worker").await;
    let worker = pods.get("worker").await.expect("the pod");
    assert!(claim.name_any().starts_with("worker-gpu-"), "{}", claim.name_any());
    assert_eq!(claim.annotations()["resource.kubernetes.io/pod-claim-name"], "gpu");
    assert_eq!(claim.labels()["from"], "template");
    let owner = &claim.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), Some(&owner.uid)),
        ("Pod", "worker", worker.uid().as_ref())
    );

    allocate(&claims, &claim.name_any(), &worker).await;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status("worker", &PatchParams::default(), &Patch::Merge(ended)).await.expect("ended");
    until_gone("the claim of a pod that ended", &claims, &claim.name_any()).await;
}

#[tokio::test]
async fn a_shared_claim_is_given_back_by_its_last_pod() {
    let world = cluster().await;
    let (pods, claims) =
        (world.in_namespace::<Pod>("default"), world.in_namespace::<ResourceClaim>("default"));
    let spec = template()["spec"]["spec"].clone();
    world.create(&claims, json!({ "metadata": { "name": "shared" }, "spec": spec })).await;
    let entry = json!([{ "name": "gpu", "resourceClaimName": "shared" }]);
    let first = world.create(&pods, pod("first", entry.clone())).await;
    allocate(&claims, "shared", &first).await;
    // Its node is given, so no scheduler reserves the claim for it.
    let mut second = pod("second", entry);
    second["spec"]["nodeName"] = json!("somewhere");
    world.create(&pods, second).await;
    let consumers = |claim: &ResourceClaim| {
        let reserved = claim.status.as_ref().and_then(|s| s.reserved_for.clone()).unwrap_or_default();
        reserved.into_iter().map(|c| c.name).collect::<Vec<_>>()
    };
    until_object("both use it", &claims, "shared", |c| consumers(c) == ["first", "second"]).await;
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("first", &at_once).await.expect("deleted");
    let left = until_object("one is left", &claims, "shared", |c| consumers(c) == ["second"]).await;
    assert!(left.status.is_some_and(|s| s.allocation.is_some()));
    pods.delete("second", &at_once).await.expect("deleted");
    let free = |claim: &ResourceClaim| {
        let allocated = claim.status.as_ref().is_some_and(|s| s.allocation.is_some());
        !allocated && consumers(claim).is_empty() && claim.finalizers().is_empty()
    };
    until_object("its devices are given back", &claims, "shared", free).await;
}
