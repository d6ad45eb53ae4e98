//! Volumes that are emptied and offered again.

use crate::cluster::{Share, claim, cluster, cluster_with, end, is_bound, phase, released};
use crate::support::{until_gone, until_object};
use coracle_storage::{Here, NfsConfig};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, Patch};
use serde_json::json;
use tempfile::TempDir;

#[tokio::test]
async fn a_recycled_volume_is_scrubbed_by_a_pod_and_offered_again() {
    let cluster = cluster().await;
    let pods = cluster.world.in_namespace::<Pod>("default");
    let policy = json!({ "persistentVolumeReclaimPolicy": "Recycle", "hostPath": { "path": "/data" } });
    released(&cluster, "used", policy).await;
    let pod = until_object("the recycler", &pods, "recycler-for-used", |_| true).await;
    let spec = json!(pod.spec.unwrap());
    assert_eq!(spec["volumes"][0]["hostPath"]["path"], "/data");
    assert_eq!((&spec["activeDeadlineSeconds"], &spec["restartPolicy"]), (&json!(60), &json!("Never")));
    end(&pods, json!({ "phase": "Failed", "message": "late" })).await;
    let failed = until_object("failed", &cluster.volumes, "used", phase("Failed")).await;
    let why = "Recycle failed: failed to recycle volume: late";
    assert_eq!(failed.status.unwrap().message.as_deref(), Some(why));
    // It is tried again, by a pod that nobody has ended yet.
    until_object("another", &pods, "recycler-for-used", |p| p.metadata.uid != pod.metadata.uid).await;
    end(&pods, json!({ "phase": "Succeeded" })).await;
    let free = until_object("free again", &cluster.volumes, "used", phase("Available")).await;
    assert_eq!((free.spec.unwrap().claim_ref, free.status.unwrap().message), (None, None));
    // What is free is not scrubbed once more, whatever an informer shows for a moment.
    // A claim that takes it is seen by whoever would do so.
    cluster.world.create(&cluster.claims, claim("manual", "1Gi")).await;
    until_object("bound", &cluster.claims, "data", is_bound).await;
    assert!(pods.get_opt("recycler-for-used").await.unwrap().is_none());
}

#[tokio::test]
async fn what_this_machine_reaches_it_empties_without_a_pod() {
    let share = std::sync::Arc::<Share>::default();
    let mounter = share.clone();
    let cluster = cluster_with(|root| {
        let nfs = NfsConfig { root: root.join("nfs"), mounter };
        Some(Here { node_name: "n".to_owned(), nfs })
    })
    .await;
    let directory = cluster.root.path().join("used");
    std::fs::create_dir_all(directory.join("below")).unwrap();
    std::fs::write(directory.join("below/file"), "old").unwrap();
    let policy = json!({ "persistentVolumeReclaimPolicy": "Recycle", "hostPath": { "path": directory } });
    released(&cluster, "used", policy).await;
    let free = until_object("free again", &cluster.volumes, "used", phase("Available")).await;
    assert_eq!(free.spec.unwrap().claim_ref, None);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    cluster.volumes.delete("used", &DeleteParams::default()).await.unwrap();
    until_gone("the volume", &cluster.volumes, "used").await;

    let policy = json!({ "persistentVolumeReclaimPolicy": "Recycle", "mountOptions": ["hard"], "hostPath": null,
        "nfs": { "server": "s", "path": "/x" } });
    released(&cluster, "shared", policy).await;
    until_object("free again", &cluster.volumes, "shared", phase("Available")).await;
    assert_eq!(std::fs::read_dir(cluster.root.path().join("nfs")).unwrap().count(), 0);
    let pods = cluster.world.in_namespace::<Pod>("default");
    let events = cluster.world.in_namespace::<Event>("default");
    crate::support::until_list("told", &events, "", |all| {
        all.iter().filter(|event| event.reason.as_deref() == Some("VolumeRecycled")).count() == 2
    })
    .await;
    assert_eq!(pods.list(&Default::default()).await.unwrap().items.len(), 0, "no pod was needed");
}

#[tokio::test]
async fn a_scrubbing_ends_with_its_volume_or_its_policy() {
    let cluster = cluster().await;
    let pods = cluster.world.in_namespace::<Pod>("default");
    let policy = || json!({ "persistentVolumeReclaimPolicy": "Recycle", "hostPath": { "path": "/data" } });
    released(&cluster, "used", policy()).await;
    let first = until_object("the recycler", &pods, "recycler-for-used", |_| true).await;
    cluster.volumes.delete("used", &DeleteParams::default()).await.unwrap();
    let unprotected = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let _ = cluster.volumes.patch("used", &Default::default(), &unprotected).await;
    until_gone("the volume", &cluster.volumes, "used").await;
    until_gone("its recycler", &pods, "recycler-for-used").await;
    // What was done for the first says nothing of its namesake's data.
    released(&cluster, "used", policy()).await;
    let second = until_object("its own", &pods, "recycler-for-used", |_| true).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    let kept = Patch::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    cluster.volumes.patch("used", &Default::default(), &kept).await.unwrap();
    until_gone("nobody's recycler", &pods, "recycler-for-used").await;
    let left = cluster.volumes.get("used").await.unwrap();
    assert_eq!(left.status.unwrap().phase.as_deref(), Some("Released"));
}

#[tokio::test]
async fn a_pod_that_somebody_else_named_so_scrubs_nothing() {
    let cluster = cluster().await;
    let pods = cluster.world.in_namespace::<Pod>("default");
    let forged = json!({ "metadata": { "name": "recycler-for-used" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let forged = cluster.world.create(&pods, forged).await;
    end(&pods, json!({ "phase": "Succeeded" })).await;
    let policy = json!({ "persistentVolumeReclaimPolicy": "Recycle", "hostPath": { "path": "/data" } });
    released(&cluster, "used", policy).await;
    let failed = until_object("failed", &cluster.volumes, "used", phase("Failed")).await;
    let why = "Recycle failed: old recycler pod found, will retry later";
    assert_eq!(failed.status.unwrap().message.as_deref(), Some(why));
    until_object("our own", &pods, "recycler-for-used", |p| p.metadata.uid != forged.metadata.uid).await;
}

#[tokio::test]
async fn a_directory_below_tmp_goes_with_its_volume() {
    let cluster = cluster().await;
    let directory = TempDir::new_in("/tmp").unwrap();
    let inside = directory.path().join("volume");
    std::fs::create_dir_all(inside.join("a")).unwrap();
    let policy = json!({ "persistentVolumeReclaimPolicy": "Delete", "hostPath": { "path": inside } });
    released(&cluster, "scratch", policy).await;
    until_gone("the volume", &cluster.volumes, "scratch").await;
    assert!(!inside.exists() && directory.path().exists());
}
