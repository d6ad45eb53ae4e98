//! StatefulSets and DaemonSets.

use crate::cluster;
use crate::support::{World, until_gone, until_list, until_object};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

fn names(pods: &[Pod]) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}

fn set(name: &str, spec: Value) -> Value {
    let mut set = json!({ "metadata": { "name": name }, "spec": { "replicas": 3, "serviceName": "s",
        "selector": { "matchLabels": { "app": name } },
        "template": { "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "c", "image": "a" }] } } } });
    for (field, value) in spec.as_object().unwrap() {
        set["spec"][field] = value.clone();
    }
    set
}

fn with_image(image: &str) -> Patch<Value> {
    Patch::Strategic(
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } }),
    )
}

fn settled(set: &StatefulSet, replicas: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && (status.replicas, status.ready_replicas.unwrap_or(0)) == (replicas, replicas)
        && status.current_revision == status.update_revision
        && status.updated_replicas.unwrap_or(0) == replicas
}

#[tokio::test]
async fn a_stateful_set_scales_and_rolls_in_order() {
    let world = cluster().await;
    let (sets, pods) = (world.in_namespace::<StatefulSet>("default"), world.in_namespace::<Pod>("default"));
    let claims = json!([{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } }]);
    world.create(&sets, set("web", json!({ "volumeClaimTemplates": claims }))).await;
    let first = until_object("three replicas", &sets, "web", |s| settled(s, 3)).await;
    let made = until_list("three pods", &pods, "app=web", |p| p.len() == 3).await;
    assert_eq!(names(&made), ["web-0", "web-1", "web-2"]);
    let pod = made.iter().find(|p| p.name_any() == "web-1").unwrap();
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-1"), Some("s")));
    assert_eq!(pod.labels()["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(
        Some(&pod.labels()["controller-revision-hash"]),
        first.status.unwrap().update_revision.as_ref()
    );
    let claim = spec.volumes.as_ref().unwrap()[0].persistent_volume_claim.as_ref().unwrap();
    assert_eq!(claim.claim_name, "data-web-1");
    let all: Api<PersistentVolumeClaim> = world.in_namespace("default");
    until_list("three claims", &all, "app=web", |c| c.len() == 3).await;

    let partition = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 2 } } } });
    sets.patch("web", &PatchParams::default(), &Patch::Merge(partition)).await.unwrap();
    sets.patch("web", &PatchParams::default(), &with_image("b")).await.unwrap();
    let canary = |p: &[Pod]| p.len() == 3 && p.iter().all(|p| (image(p) == "b") == (p.name_any() == "web-2"));
    until_list("one canary", &pods, "app=web", canary).await;
    let partition = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } } });
    sets.patch("web", &PatchParams::default(), &Patch::Merge(partition)).await.unwrap();
    until_object("all of image b", &sets, "web", |s| settled(s, 3)).await;
    until_list("pods of b", &pods, "app=web", |p| p.len() == 3 && p.iter().all(|p| image(p) == "b")).await;
    let revisions: Api<ControllerRevision> = world.in_namespace("default");
    until_list("two revisions", &revisions, "app=web", |r| r.len() == 2).await;

    let scale = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
    sets.patch("web", &PatchParams::default(), &scale).await.unwrap();
    until_object("one replica", &sets, "web", |s| settled(s, 1)).await;
    until_list("the first pod", &pods, "app=web", |p| names(p) == ["web-0"]).await;
    until_list("all claims stay", &all, "app=web", |c| c.len() == 3).await;
    let events: Api<Event> = world.in_namespace("default");
    until_list("events", &events, "", |events| {
        let said = |reason: &str, text: &str| {
            events.iter().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref() == Some(text))
        };
        said("SuccessfulCreate", "create Claim data-web-0 Pod web-0 in StatefulSet web success")
            && said("SuccessfulCreate", "create Pod web-2 in StatefulSet web successful")
            && said("SuccessfulDelete", "delete Pod web-2 in StatefulSet web successful")
    })
    .await;
}

#[tokio::test]
async fn claims_go_when_they_shall_and_orphans_are_taken_in() {
    let world = cluster().await;
    let (sets, pods) = (world.in_namespace::<StatefulSet>("default"), world.in_namespace::<Pod>("default"));
    let claims = json!([{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } }]);
    let retention = json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
    let spec = json!({ "replicas": 2, "volumeClaimTemplates": claims, "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": retention });
    world.create(&sets, set("db", spec)).await;
    until_object("two replicas", &sets, "db", |s| settled(s, 2)).await;
    let all: Api<PersistentVolumeClaim> = world.in_namespace("default");
    until_object("owned by the set", &all, "data-db-0", |c| {
        let owner = c.owner_references().first();
        owner.is_some_and(|o| (o.kind.as_str(), o.controller) == ("StatefulSet", Some(true)))
    })
    .await;
    let scale = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
    sets.patch("db", &PatchParams::default(), &scale).await.unwrap();
    until_gone("the second claim", &all, "data-db-1").await;
    sets.delete("db", &DeleteParams::background()).await.unwrap();
    until_gone("the first claim", &all, "data-db-0").await;

    let orphan = json!({ "metadata": { "name": "late-0", "labels": { "app": "late" } },
        "spec": { "containers": [{ "name": "c", "image": "a" }] } });
    world.create(&pods, orphan).await;
    world.create(&sets, set("late", json!({ "replicas": 1 }))).await;
    let owned = |p: &Pod| p.owner_references().iter().any(|o| o.name == "late");
    until_object("adopted or replaced", &pods, "late-0", owned).await;
}

#[tokio::test]
async fn a_set_that_leaves_its_pods_behind_begins_no_other_history() {
    let world = cluster().await;
    let (sets, pods) = (world.in_namespace::<StatefulSet>("default"), world.in_namespace::<Pod>("default"));
    let mut left = set("left", json!({ "replicas": 1 }));
    left["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(&sets, left).await;
    until_object("its replica", &sets, "left", |s| settled(s, 1)).await;
    let revisions: Api<ControllerRevision> = world.in_namespace("default");
    let history =
        until_list("its revision", &revisions, "app=left", |all: &[ControllerRevision]| all.len() == 1).await;
    sets.delete("left", &DeleteParams::orphan()).await.unwrap();
    until_object("freed", &pods, "left-0", |p| p.owner_references().is_empty()).await;
    let freed = |all: &[ControllerRevision]| all.iter().all(|r| r.owner_references().is_empty());
    until_list("the revision is freed", &revisions, "app=left", freed).await;
    let scale = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
    sets.patch("left", &PatchParams::default(), &scale).await.unwrap();
    let seen = |s: &StatefulSet| {
        s.status.as_ref().and_then(|status| status.observed_generation) == s.metadata.generation
    };
    until_object("looked at once more", &sets, "left", seen).await;
    let now = until_list("revisions", &revisions, "app=left", |_| true).await;
    assert_eq!(names_of(&now), names_of(&history));
}

fn names_of(revisions: &[ControllerRevision]) -> Vec<String> {
    revisions.iter().map(ResourceExt::name_any).collect()
}

async fn node(world: &World, name: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(world.admin());
    world.create(&nodes, json!({ "metadata": { "name": name, "labels": labels } })).await;
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": jiff::Timestamp::now(), "lastTransitionTime": jiff::Timestamp::now() });
    let status = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
    nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn a_daemon_set_covers_the_nodes_that_want_it() {
    let world = cluster().await;
    let (sets, pods) = (world.in_namespace::<DaemonSet>("default"), world.in_namespace::<Pod>("default"));
    for name in ["n1", "n2", "n3"] {
        node(&world, name, json!({ "disk": if name == "n3" { "hdd" } else { "ssd" } })).await;
    }
    let mut daemon = set("log", json!({}));
    let spec = daemon["spec"].as_object_mut().unwrap();
    spec.remove("replicas");
    spec.remove("serviceName");
    spec["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd" });
    world.create(&sets, daemon).await;
    let covers = |count: i32| {
        move |s: &DaemonSet| {
            s.status.as_ref().is_some_and(|status| {
                status.desired_number_scheduled == count
                    && status.number_available.unwrap_or(0) == count
                    && status.updated_number_scheduled.unwrap_or(0) == count
                    && status.observed_generation == s.metadata.generation
            })
        }
    };
    until_object("two daemons", &sets, "log", covers(2)).await;

    let nodes: Api<Node> = Api::all(world.admin());
    let label = |value: &str| Patch::Merge(json!({ "metadata": { "labels": { "disk": value } } }));
    nodes.patch("n3", &PatchParams::default(), &label("ssd")).await.unwrap();
    until_object("three daemons", &sets, "log", covers(3)).await;
    nodes.patch("n1", &PatchParams::default(), &label("hdd")).await.unwrap();
    until_object("two daemons again", &sets, "log", covers(2)).await;

    sets.patch("log", &PatchParams::default(), &with_image("b")).await.unwrap();
    until_object("two new daemons", &sets, "log", covers(2)).await;
    until_list("of image b", &pods, "app=log", |p| p.len() == 2 && p.iter().all(|p| image(p) == "b")).await;

    let victim = until_list("pods", &pods, "app=log", |p| p.len() == 2).await.remove(0);
    let failed = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    pods.patch_status(&victim.name_any(), &PatchParams::default(), &failed).await.unwrap();
    until_gone("the failed daemon", &pods, &victim.name_any()).await;
    until_object("its successor", &sets, "log", covers(2)).await;
}

#[tokio::test]
async fn an_ephemeral_volume_gets_a_claim_of_its_pods() {
    let world = cluster().await;
    let pods = world.in_namespace::<Pod>("default");
    let claims: Api<PersistentVolumeClaim> = world.in_namespace("default");
    let claim = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let volume = json!({ "name": "scratch", "ephemeral": { "volumeClaimTemplate": claim } });
    let spec = json!({ "containers": [{ "name": "c", "image": "a" }], "volumes": [volume] });
    let pod = world.create(&pods, json!({ "metadata": { "name": "p" }, "spec": spec })).await;
    let owned = |c: &PersistentVolumeClaim| {
        c.owner_references().iter().any(|o| Some(&o.uid) == pod.metadata.uid.as_ref())
    };
    until_object("its claim", &claims, "p-scratch", owned).await;
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    until_gone("the claim", &claims, "p-scratch").await;
}
