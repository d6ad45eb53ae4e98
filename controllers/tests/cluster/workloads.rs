use crate::support::{until_gone, until_list, until_object};
use crate::{cluster, deployment};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod, ReplicationController};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

fn condition(deployment: &Deployment, type_: &str) -> (String, String) {
    let all = deployment.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let found = all.into_iter().find(|c| c.type_ == type_);
    found.map(|c| (c.status, c.reason.unwrap_or_default())).unwrap_or_default()
}

fn is_rolled_out(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == replicas
        && status.replicas.unwrap_or(0) == replicas
        && status.available_replicas.unwrap_or(0) == replicas
        && condition(deployment, "Progressing") == ("True".into(), "NewReplicaSetAvailable".into())
}

fn merge(value: Value) -> Patch<Value> {
    Patch::Merge(value)
}

fn with_image(image: &str) -> Patch<Value> {
    Patch::Strategic(
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } }),
    )
}

#[tokio::test]
async fn a_deployment_scales_rolls_out_and_rolls_back() {
    let world = cluster().await;
    let deployments = world.in_namespace::<Deployment>("default");
    let (sets, pods) = (world.in_namespace::<ReplicaSet>("default"), world.in_namespace::<Pod>("default"));
    let patch = PatchParams::default();
    world.create(&deployments, deployment("web", 3, "a")).await;
    let first = until_object("three replicas", &deployments, "web", |d| is_rolled_out(d, 3)).await;
    assert_eq!(first.annotations()["deployment.kubernetes.io/revision"], "1");
    assert_eq!(condition(&first, "Available"), ("True".into(), "MinimumReplicasAvailable".into()));

    deployments.patch("web", &patch, &merge(json!({ "spec": { "replicas": 5 } }))).await.unwrap();
    until_object("five replicas", &deployments, "web", |d| is_rolled_out(d, 5)).await;
    until_list("five pods", &pods, "app=web", |p| p.len() == 5).await;
    deployments.patch("web", &patch, &merge(json!({ "spec": { "replicas": 2 } }))).await.unwrap();
    until_object("two replicas", &deployments, "web", |d| is_rolled_out(d, 2)).await;

    deployments.patch("web", &patch, &with_image("b")).await.unwrap();
    let second = until_object("image b", &deployments, "web", |d| {
        is_rolled_out(d, 2) && d.annotations()["deployment.kubernetes.io/revision"] == "2"
    });
    second.await;
    until_list("only pods of b", &pods, "app=web", |p| p.len() == 2 && p.iter().all(|p| image(p) == "b"))
        .await;
    assert_eq!(sets.list(&Default::default()).await.unwrap().items.len(), 2);

    // What `kubectl rollout undo` sends: the old template again.
    deployments.patch("web", &patch, &with_image("a")).await.unwrap();
    until_object("revision 3", &deployments, "web", |d| {
        is_rolled_out(d, 2) && d.annotations()["deployment.kubernetes.io/revision"] == "3"
    })
    .await;
    let sets = sets.list(&Default::default()).await.unwrap().items;
    assert_eq!(sets.len(), 2, "the old set took over again");
    let history = sets.iter().find_map(|s| s.annotations().get("deployment.kubernetes.io/revision-history"));
    assert_eq!(history.map(String::as_str), Some("1"));

    let events = world.in_namespace::<Event>("default");
    let scaled = until_list("scaling events", &events, "", |all| {
        let of = |e: &&Event| e.reason.as_deref() == Some("ScalingReplicaSet");
        all.iter().filter(of).count() >= 4
    })
    .await;
    let first = scaled.iter().any(|e| e.message.as_deref().is_some_and(|m| m.ends_with("from 0 to 3")));
    assert!(first, "{scaled:?}");
}

/// What `spec.rollbackTo` of old became: 0 is the last revision.
#[tokio::test]
async fn an_annotation_rolls_a_deployment_back() {
    let world = cluster().await;
    let deployments = world.in_namespace::<Deployment>("default");
    let patch = PatchParams::default();
    let at = |d: &Deployment, revision: &str| {
        is_rolled_out(d, 2) && d.annotations()["deployment.kubernetes.io/revision"] == revision
    };
    world.create(&deployments, deployment("web", 2, "a")).await;
    until_object("image a", &deployments, "web", |d| at(d, "1")).await;
    deployments.patch("web", &patch, &with_image("b")).await.unwrap();
    until_object("image b", &deployments, "web", |d| at(d, "2")).await;

    let back = json!({ "metadata": { "annotations": { "deprecated.deployment.rollback.to": "0" } } });
    deployments.patch("web", &patch, &merge(back)).await.unwrap();
    let done =
        |d: &Deployment| at(d, "3") && !d.annotations().contains_key("deprecated.deployment.rollback.to");
    until_object("revision 3", &deployments, "web", done).await;
    let pods = world.in_namespace::<Pod>("default");
    until_list("pods of a again", &pods, "app=web", |p| p.len() == 2 && p.iter().all(|p| image(p) == "a"))
        .await;
    let events = world.in_namespace::<Event>("default");
    until_list("told of the rollback", &events, "", |all| {
        let message = "Rolled back deployment \"web\" to revision 1";
        all.iter().any(|e| {
            e.reason.as_deref() == Some("DeploymentRollback") && e.message.as_deref() == Some(message)
        })
    })
    .await;
}

#[tokio::test]
async fn a_paused_deployment_waits_and_recreate_leaves_no_overlap() {
    let world = cluster().await;
    let deployments = world.in_namespace::<Deployment>("default");
    let pods = world.in_namespace::<Pod>("default");
    let patch = PatchParams::default();
    let mut value = deployment("db", 2, "a");
    value["spec"]["strategy"] = json!({ "type": "Recreate" });
    world.create(&deployments, value).await;
    until_object("two replicas", &deployments, "db", |d| is_rolled_out(d, 2)).await;
    deployments.patch("db", &patch, &merge(json!({ "spec": { "paused": true } }))).await.unwrap();
    deployments.patch("db", &patch, &with_image("b")).await.unwrap();
    until_object("paused", &deployments, "db", |d| {
        condition(d, "Progressing").1 == "DeploymentPaused"
            && d.status.as_ref().and_then(|s| s.observed_generation) == d.metadata.generation
    })
    .await;
    assert!(pods.list(&Default::default()).await.unwrap().items.iter().all(|p| image(p) == "a"));
    deployments.patch("db", &patch, &merge(json!({ "spec": { "paused": null } }))).await.unwrap();
    until_object("rolled out", &deployments, "db", |d| is_rolled_out(d, 2)).await;
    assert!(pods.list(&Default::default()).await.unwrap().items.iter().all(|p| image(p) == "b"));
}

#[tokio::test]
async fn a_replication_controller_adopts_replaces_and_releases() {
    let world = cluster().await;
    let controllers = world.in_namespace::<ReplicationController>("default");
    let pods = world.in_namespace::<Pod>("default");
    let template = json!({ "metadata": { "labels": { "app": "rc" } }, "spec": { "containers": [{ "name": "c", "image": "a" }] } });
    let mut orphan = template.clone();
    orphan["metadata"]["name"] = json!("orphan");
    world.create(&pods, orphan).await;
    let spec = json!({ "replicas": 2, "selector": { "app": "rc" }, "template": template });
    world.create(&controllers, json!({ "metadata": { "name": "rc" }, "spec": spec })).await;
    until_object("two available", &controllers, "rc", |rc| {
        rc.status.as_ref().and_then(|s| s.available_replicas) == Some(2)
    })
    .await;
    let adopted = until_list("two pods", &pods, "app=rc", |p| p.len() == 2).await;
    assert!(adopted.iter().any(|p| p.name_any() == "orphan"));
    assert!(adopted.iter().all(|p| p.owner_references()[0].name == "rc"));
    let relabel = merge(json!({ "metadata": { "labels": { "app": "free" } } }));
    pods.patch("orphan", &PatchParams::default(), &relabel).await.unwrap();
    until_object("released", &pods, "orphan", |p| p.owner_references().is_empty()).await;
    until_list("replaced", &pods, "app=rc", |p| p.len() == 2).await;
    let other = until_list("replaced", &pods, "app=rc", |p| p.len() == 2).await[0].name_any();
    pods.delete(&other, &Default::default()).await.unwrap();
    until_gone("the deleted pod", &pods, &other).await;
    until_list("replaced again", &pods, "app=rc", |p| p.len() == 2).await;
}

#[tokio::test]
async fn pods_that_are_refused_make_a_failure_condition() {
    let world = cluster().await;
    let sets = world.in_namespace::<ReplicaSet>("default");
    let template = json!({ "metadata": { "labels": { "app": "x" } },
        "spec": { "serviceAccountName": "nobody", "containers": [{ "name": "c", "image": "a" }] } });
    let spec = json!({ "replicas": 4, "selector": { "matchLabels": { "app": "x" } }, "template": template });
    world.create(&sets, json!({ "metadata": { "name": "refused" }, "spec": spec })).await;
    let failed = until_object("ReplicaFailure", &sets, "refused", |set| {
        set.status.as_ref().is_some_and(|s| s.conditions.is_some())
    })
    .await;
    let condition = failed.status.unwrap().conditions.unwrap().remove(0);
    assert_eq!(
        (condition.type_.as_str(), condition.reason.as_deref()),
        ("ReplicaFailure", Some("FailedCreate"))
    );
    assert!(condition.message.unwrap().contains("nobody"));
}

#[tokio::test]
async fn a_budget_counts_what_may_go() {
    let world = cluster().await;
    let deployments = world.in_namespace::<Deployment>("default");
    let (budgets, pods) = (
        world.in_namespace::<k8s_openapi::api::policy::v1::PodDisruptionBudget>("default"),
        world.in_namespace::<Pod>("default"),
    );
    world.create(&deployments, deployment("web", 3, "a")).await;
    let budget = json!({ "metadata": { "name": "pdb" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    world.create(&budgets, budget).await;
    let allows = |count: i32| {
        move |b: &k8s_openapi::api::policy::v1::PodDisruptionBudget| {
            let status = b.status.clone().unwrap_or_default();
            status.disruptions_allowed == Some(count)
                && status.expected_pods == Some(3)
                && status.desired_healthy == Some(2)
                && status.observed_generation == b.metadata.generation
        }
    };
    until_object("one may go", &budgets, "pdb", allows(1)).await;
    let all = until_list("three pods", &pods, "app=web", |p| p.len() == 3).await;
    let down =
        Patch::Strategic(json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }));
    pods.patch_status(&all[0].name_any(), &PatchParams::default(), &down).await.unwrap();
    let none = until_object("none may go", &budgets, "pdb", allows(0)).await;
    assert_eq!(none.status.unwrap().conditions.unwrap()[0].reason, "InsufficientPods");
    let refused = pods.evict(&all[1].name_any(), &kube::api::EvictParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused:?}");
    let up = Patch::Strategic(json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }));
    pods.patch_status(&all[0].name_any(), &PatchParams::default(), &up).await.unwrap();
    until_object("one may go again", &budgets, "pdb", allows(1)).await;
    pods.evict(&all[1].name_any(), &kube::api::EvictParams::default()).await.unwrap();
    until_gone("the evicted pod", &pods, &all[1].name_any()).await;
    until_object("its successor counts", &budgets, "pdb", allows(1)).await;
}

#[tokio::test]
async fn an_autoscaler_says_what_it_lacks_and_keeps_to_its_bounds() {
    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
    let world = cluster().await;
    let deployments = world.in_namespace::<Deployment>("default");
    let autoscalers = world.in_namespace::<HorizontalPodAutoscaler>("default");
    world.create(&deployments, deployment("web", 2, "a")).await;
    let metric = json!({ "type": "Resource",
        "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } });
    let hpa = |name: &str, target: &str| {
        json!({ "metadata": { "name": name }, "spec": { "minReplicas": 3, "maxReplicas": 5, "metrics": [metric],
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": target } } })
    };
    let condition = |h: &HorizontalPodAutoscaler, type_: &str| {
        let all = h.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        all.into_iter().find(|c| c.type_ == type_).map(|c| (c.status, c.reason.unwrap_or_default()))
    };
    world.create(&autoscalers, hpa("lost", "nobody")).await;
    let no_scale = Some(("False".to_owned(), "FailedGetScale".to_owned()));
    until_object("no target", &autoscalers, "lost", |h| condition(h, "AbleToScale") == no_scale).await;
    world.create(&autoscalers, hpa("web", "web")).await;
    let grown = Some(("True".to_owned(), "SucceededRescale".to_owned()));
    until_object("three at the least", &autoscalers, "web", |h| condition(h, "AbleToScale") == grown).await;
    until_object("three replicas", &deployments, "web", |d| is_rolled_out(d, 3)).await;
    // Asked anew: nobody serves metrics here.
    let patch = merge(json!({ "spec": { "maxReplicas": 6 } }));
    autoscalers.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let no_metrics = Some(("False".to_owned(), "FailedGetResourceMetric".to_owned()));
    let blind =
        until_object("no metrics", &autoscalers, "web", |h| condition(h, "ScalingActive") == no_metrics)
            .await;
    let seen = serde_json::to_value(blind.status.unwrap().current_metrics).unwrap();
    assert_eq!(seen, json!([{ "type": "" }]), "an empty place for what is not known");
}
