//! Volumes of local-path on this node.

use crate::cluster::{
    Cluster, claim, cluster, cluster_without_provisioner, far_node, is_bound, is_pending, local_path, phase,
    selected,
};
use crate::support::{until_gone, until_object};
use coracle_client::Context;
use coracle_storage::quota::{LinuxProjects, can_hold};
use coracle_storage::run_local_path;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube::api::{DeleteParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn a_local_path_claim_waits_is_provisioned_protected_and_removed() {
    let Cluster { world, claims, volumes, root } = cluster().await;
    world.create(&claims, claim("local-path", "1Gi")).await;
    until_object("pending", &claims, "data", |c| {
        c.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending")
    })
    .await;
    let selected = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n" } } });
    claims.patch("data", &Default::default(), &Patch::Merge(selected)).await.unwrap();
    let bound = until_object("bound", &claims, "data", is_bound).await;
    let name = bound.spec.as_ref().unwrap().volume_name.clone().unwrap();
    assert_eq!(name, format!("pvc-{}", bound.uid().unwrap()));
    let volume = until_object("the volume", &volumes, &name, phase("Bound")).await;
    let path = volume.spec.unwrap().host_path.unwrap().path;
    assert!(path.starts_with(root.path().to_str().unwrap()) && std::fs::metadata(&path).unwrap().is_dir());

    let pods = world.in_namespace::<Pod>("default");
    let spec = json!({ "nodeName": "n", "containers": [{ "name": "c", "image": "a" }],
        "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }] });
    world.create(&pods, json!({ "metadata": { "name": "user" }, "spec": spec })).await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    let kept = until_object("protected", &claims, "data", |c| c.metadata.deletion_timestamp.is_some()).await;
    assert!(kept.finalizers().contains(&"kubernetes.io/pvc-protection".to_owned()));
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone("the claim", &claims, "data").await;
    until_gone("the volume", &volumes, &name).await;
    assert!(!std::fs::exists(&path).unwrap());
}

/// By the contract of upstream's lib-volume-populator: it has a volume made for a claim of its own, fills it, and hands
/// it over.
#[tokio::test]
async fn a_populator_fills_a_volume_and_hands_it_over() {
    let Cluster { world, claims, volumes, .. } = cluster().await;
    let mut wanted = claim("local-path", "1Gi");
    wanted["spec"]["dataSourceRef"] = json!({ "apiGroup": "example.com", "kind": "Image", "name": "debian" });
    world.create(&claims, wanted).await;
    claims.patch("data", &Default::default(), &selected("n")).await.unwrap();
    let events = world.in_namespace::<Event>("default");
    let said = |all: &[Event]| {
        let words = Some("Assuming an external populator will provision the volume");
        all.iter().any(|event| event.message.as_deref() == words)
    };
    crate::support::until_list("told", &events, "", said).await;
    let mut own = claim("local-path", "1Gi");
    own["metadata"]["name"] = "prime".into();
    world.create(&claims, own).await;
    claims.patch("prime", &Default::default(), &selected("n")).await.unwrap();
    let name = until_object("bound", &claims, "prime", is_bound).await.spec.unwrap().volume_name.unwrap();
    let made = volumes.get(&name).await.unwrap();
    let path = std::path::PathBuf::from(made.spec.unwrap().host_path.unwrap().path);
    std::fs::write(path.join("file"), "filled").unwrap();
    let data = claims.get("data").await.unwrap();
    assert!(is_pending(&data) && data.spec.as_ref().unwrap().volume_name.is_none());
    let reference = json!({ "namespace": "default", "name": "data", "uid": data.uid(),
        "resourceVersion": data.resource_version() });
    let patch = Patch::Merge(json!({ "spec": { "claimRef": reference } }));
    volumes.patch(&name, &Default::default(), &patch).await.unwrap();
    let bound = until_object("bound", &claims, "data", is_bound).await;
    assert_eq!(bound.spec.unwrap().volume_name.as_deref(), Some(name.as_str()));
    let is_lost = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost")
    };
    until_object("lost", &claims, "prime", is_lost).await;
    claims.delete("prime", &DeleteParams::default()).await.unwrap();
    until_gone("the populator's claim", &claims, "prime").await;
    until_object("still bound", &volumes, &name, phase("Bound")).await;
    assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "filled");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the volume", &volumes, &name).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_local_path_claim_grows_by_word() {
    let Cluster { world, claims, volumes, root: _root } = cluster().await;
    let classes: Api<StorageClass> = Api::all(world.admin());
    let class = json!({ "metadata": { "name": "grows" }, "provisioner": "coracle.io/local-path",
        "allowVolumeExpansion": true });
    world.create(&classes, class).await;
    world.create(&claims, claim("grows", "1Gi")).await;
    let selected = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n" } } });
    claims.patch("data", &Default::default(), &Patch::Merge(selected)).await.unwrap();
    let bound = until_object("bound", &claims, "data", is_bound).await;
    let larger = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "3Gi" } } } }));
    claims.patch("data", &Default::default(), &larger).await.unwrap();
    let size = |claim: &PersistentVolumeClaim| {
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.clone());
        capacity.and_then(|capacity| capacity.get("storage").cloned()).map(|size| size.0)
    };
    let grown = until_object("grown", &claims, "data", |c| size(c).as_deref() == Some("3Gi")).await;
    assert!(grown.status.unwrap().conditions.unwrap_or_default().is_empty());
    let volume = volumes.get(&bound.spec.unwrap().volume_name.unwrap()).await.unwrap();
    assert_eq!(volume.spec.unwrap().capacity.unwrap()["storage"].0, "3Gi");
}

#[tokio::test]
async fn the_room_for_volumes_whose_size_holds_is_told() {
    let Cluster { world, root, .. } = cluster().await;
    let far = root.path().join("far");
    far_node(&world, far.clone()).await;
    let classes: Api<StorageClass> = Api::all(world.admin());
    for (name, limit) in [("limited", "file"), ("loose", "none")] {
        let class = json!({ "metadata": { "name": name }, "provisioner": "coracle.io/local-path",
            "volumeBindingMode": "WaitForFirstConsumer", "parameters": { "sizeLimit": limit } });
        world.create(&classes, class).await;
    }
    let all: Api<CSIStorageCapacity> = Api::namespaced(world.admin(), "kube-system");
    let told = crate::support::until_list("one", &all, "", |all| !all.is_empty()).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].storage_class_name, "limited");
    let place = told[0].node_topology.clone().unwrap().match_labels.unwrap();
    assert_eq!(place, [("kubernetes.io/hostname".to_owned(), "far.example".to_owned())].into());
    let free = nix::sys::statvfs::statvfs(root.path()).unwrap();
    let free = u128::from(free.blocks_available()) * u128::from(free.fragment_size());
    let bytes: coracle_api::Quantity = told[0].capacity.as_ref().unwrap().0.parse().unwrap();
    let bytes = u128::try_from(bytes.units()).unwrap();
    assert!(bytes.abs_diff(free) < free / 2 + (1 << 30), "{bytes} of {free}");
    classes.delete("limited", &DeleteParams::default()).await.unwrap();
    crate::support::until_list("none", &all, "", |all| all.is_empty()).await;
}

#[tokio::test]
async fn a_class_of_quotas_is_served_where_there_are_some() {
    let Cluster { world, claims, volumes, root } = cluster().await;
    if can_hold(&LinuxProjects, root.path()) {
        eprintln!("skipped: the directory for temporary files has quotas of projects");
        return;
    }
    let classes: Api<StorageClass> = Api::all(world.admin());
    let class = json!({ "metadata": { "name": "held" }, "provisioner": "coracle.io/local-path",
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": { "sizeLimit": "quota" } });
    world.create(&classes, class).await;
    world.create(&claims, claim("held", "1Gi")).await;
    claims.patch("data", &Default::default(), &selected("n")).await.unwrap();
    let events = world.in_namespace::<Event>("default");
    let all = crate::support::until_list("refused", &events, "", |all| {
        all.iter().any(|event| event.reason.as_deref() == Some("ProvisioningFailed"))
    })
    .await;
    let why = all
        .into_iter()
        .find_map(|event| event.message.filter(|_| event.reason.as_deref() == Some("ProvisioningFailed")));
    let wanted = "failed to provision volume with StorageClass \"held\": the file system of node n has no project quotas, which the class asks for";
    assert_eq!(why.as_deref(), Some(wanted));
    // The scheduler chooses anew.
    until_object("let go", &claims, "data", |claim| {
        !claim.annotations().contains_key("volume.kubernetes.io/selected-node")
    })
    .await;
    assert_eq!(volumes.list(&Default::default()).await.unwrap().items.len(), 0);
}

/// Taken away with the value.
struct Small(std::path::PathBuf);

impl Small {
    /// A file system that has room for the root and `entries` more.
    fn mount(path: std::path::PathBuf, entries: u32) -> Self {
        std::fs::create_dir(&path).unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("nr_inodes={}", entries + 1), "small"], &path);
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(tool: &str, words: &[&str], path: &std::path::Path) {
    assert!(
        std::process::Command::new(tool).args(words).arg(path).status().unwrap().success(),
        "{tool} {words:?}"
    );
}

/// The scheduler is asked for another node, and may choose the same again once it has room.
#[tokio::test]
async fn a_full_disk_is_told_and_forgotten_when_there_is_room() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: a file system of its own needs root");
        return;
    }
    let cluster = cluster_without_provisioner(|_| None).await;
    let root = cluster.root.path().join("volumes");
    let _small = Small::mount(root.clone(), 1);
    std::fs::write(root.join("in-the-way"), "").unwrap();
    let context = Context { client: cluster.world.admin(), ..cluster.world.context() };
    tokio::spawn(run_local_path(context, local_path(&cluster, None)));
    let Cluster { world, claims, .. } = &cluster;
    world.create(claims, claim("local-path", "1Gi")).await;
    claims.patch("data", &Default::default(), &selected("n")).await.unwrap();
    let events = world.in_namespace::<Event>("default");
    crate::support::until_list("told", &events, "", |all| {
        all.iter().any(|event| {
            event.reason.as_deref() == Some("ProvisioningFailed")
                && event.message.as_deref().is_some_and(|text| text.contains("No space left on device"))
        })
    })
    .await;
    until_object("given back", claims, "data", |claim| {
        !claim.annotations().contains_key("volume.kubernetes.io/selected-node")
    })
    .await;
    assert!(is_pending(&claims.get("data").await.unwrap()));
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1, "nothing half made is left");
    std::fs::remove_file(root.join("in-the-way")).unwrap();
    claims.patch("data", &Default::default(), &selected("n")).await.unwrap();
    until_object("bound", claims, "data", is_bound).await;
}
