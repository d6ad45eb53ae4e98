//! Claims and volumes as anybody has them: bound, released, lost.

use crate::cluster::{Cluster, Share, claim, cluster, is_bound, is_pending, phase, released, volume};
use crate::support::{until, until_gone, until_object};
use coracle_client::Context;

use coracle_storage::{NfsConfig, run_nfs};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn a_retained_volume_is_bound_released_and_kept() {
    let Cluster { world, claims, volumes, .. } = cluster().await;
    let spec = |size: &str| {
        json!({ "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual", "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/nowhere" } })
    };
    for (name, size) in [("large", "9Gi"), ("small", "2Gi")] {
        world.create(&volumes, json!({ "metadata": { "name": name }, "spec": spec(size) })).await;
        until_object("available", &volumes, name, phase("Available")).await;
    }
    world.create(&claims, claim("manual", "1Gi")).await;
    let bound = until_object("bound", &claims, "data", is_bound).await;
    assert_eq!(bound.spec.unwrap().volume_name.as_deref(), Some("small"));
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "2Gi");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the claim", &claims, "data").await;
    until_object("released", &volumes, "small", phase("Released")).await;
}

#[tokio::test]
async fn a_claim_without_a_class_gets_the_default_that_comes_later() {
    let Cluster { world, claims, .. } = cluster().await;
    let mut wanted = claim("", "1Gi");
    wanted["spec"].as_object_mut().unwrap().remove("storageClassName");
    let classes: Api<StorageClass> = Api::all(world.admin());
    // The cluster starts with a default class of its own.
    for class in classes.list(&Default::default()).await.unwrap() {
        classes.delete(&class.name_any(), &DeleteParams::default()).await.unwrap();
        until_gone("the class", &classes, &class.name_any()).await;
    }
    world.create(&claims, wanted).await;
    let pending = until_object("pending", &claims, "data", is_pending).await;
    assert_eq!(pending.spec.unwrap().storage_class_name, None);
    let annotations = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    let class = json!({ "metadata": { "name": "late", "annotations": annotations },
        "provisioner": "example.com/disks", "volumeBindingMode": "Immediate" });
    world.create(&classes, class).await;
    let told = until_object("told to the provisioner", &claims, "data", |c| {
        c.annotations().contains_key("volume.kubernetes.io/storage-provisioner")
    })
    .await;
    assert_eq!(told.spec.unwrap().storage_class_name.as_deref(), Some("late"));
    let waits = "pv_collector_unbound_pvc_count{namespace=\"default\",storage_class=\"late\",volume_attributes_class=\"\"} 1";
    for sample in ["retroactive_storageclass_total 1", waits] {
        let lines = || world.counted.get().unwrap()();
        let counted = || async { lines().iter().any(|line| line == sample).then_some(()) };
        until(sample, counted, || async { lines().join("\n") }).await;
    }
}

#[tokio::test]
async fn a_volume_kept_for_a_claim_by_name_is_bound_and_its_loss_is_told() {
    let Cluster { world, claims, volumes, .. } = cluster().await;
    let reference = json!({ "namespace": "default", "name": "data" });
    let kept = volume("kept", json!({ "claimRef": reference, "storageClassName": "other" }));
    world.create(&volumes, kept).await;
    until_object("available", &volumes, "kept", phase("Available")).await;
    world.create(&claims, claim("manual", "1Gi")).await;
    let bound = until_object("bound", &claims, "data", is_bound).await;
    let volume = until_object("bound", &volumes, "kept", phase("Bound")).await;
    let reference = volume.spec.as_ref().unwrap().claim_ref.as_ref().unwrap();
    assert_eq!(reference.uid, bound.uid());
    assert!(!volume.annotations().contains_key("pv.kubernetes.io/bound-by-controller"));
    assert_eq!(bound.annotations()["pv.kubernetes.io/bound-by-controller"], "yes");
    let no_finalizers = json!({ "metadata": { "finalizers": null } });
    volumes.delete("kept", &DeleteParams::default()).await.unwrap();
    volumes.patch("kept", &Default::default(), &Patch::Merge(no_finalizers)).await.unwrap();
    let lost = until_object("lost", &claims, "data", |c| {
        c.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost")
    })
    .await;
    let status = lost.status.unwrap();
    assert_eq!((status.capacity, status.access_modes), (None, None));
}

#[tokio::test]
async fn what_nobody_can_reclaim_has_failed() {
    let cluster = cluster().await;
    released(&cluster, "kept", json!({ "persistentVolumeReclaimPolicy": "Delete" })).await;
    let failed = until_object("failed", &cluster.volumes, "kept", phase("Failed")).await;
    let why = "host_path deleter only supports /tmp/.+ but received provided /nowhere";
    assert_eq!(failed.status.unwrap().message.as_deref(), Some(why));
}

#[tokio::test]
async fn directories_of_a_share_are_made_and_archived() {
    let Cluster { world, claims, volumes, root } = cluster().await;
    let share = std::sync::Arc::new(Share::default());
    let binder = world.client_for()("persistent-volume-binder");
    let context = Context { client: binder, ..world.context() };
    let config = NfsConfig { root: root.path().join("nfs"), mounter: share.clone() };
    tokio::spawn(run_nfs(context, config));
    let classes: Api<StorageClass> = Api::all(world.admin());
    let class = json!({ "metadata": { "name": "nfs-client" }, "provisioner": "nfs-subdir-external-provisioner",
        "mountOptions": ["nfsvers=4.1"],
        "parameters": { "server": "10.1.1.5", "path": "/exports", "archiveOnDelete": "true" } });
    world.create(&classes, class).await;
    let mut claim = claim("nfs-client", "5Gi");
    claim["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    world.create(&claims, claim).await;
    let bound = until_object("bound", &claims, "data", is_bound).await;
    let name = bound.spec.unwrap().volume_name.unwrap();
    let volume = until_object("the volume", &volumes, &name, phase("Bound")).await.spec.unwrap();
    let directory = format!("default-data-{name}");
    let nfs = volume.nfs.unwrap();
    assert_eq!((nfs.server.as_str(), nfs.path), ("10.1.1.5", format!("/exports/{directory}")));
    assert_eq!(volume.mount_options, Some(vec!["nfsvers=4.1".to_owned()]));
    let (place, mount) = share.0.lock().unwrap()[0].clone();
    assert_eq!(mount.share(), "10.1.1.5:/exports");
    std::fs::write(place.join(&directory).join("file"), "kept").unwrap();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the volume", &volumes, &name).await;
    let archived = place.join(format!("archived-{directory}")).join("file");
    assert_eq!(std::fs::read_to_string(archived).unwrap(), "kept");
    assert!(!place.join(directory).exists());
    assert_eq!(share.0.lock().unwrap().len(), 1, "mounted once");
}
