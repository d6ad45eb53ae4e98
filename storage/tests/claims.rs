//! Claims and volumes against an API server in memory, with the rights that upstream's roles give the controllers.

#[cfg(test)]
#[path = "../../controllers/tests/cluster/support.rs"]
#[allow(dead_code, reason = "shared with the controllers' tests, which use all of it")]
mod support;

#[cfg(test)]
#[path = "objects/snapshots.rs"]
#[allow(dead_code, reason = "shared with the tests of CSI, which use all of it")]
mod snapshots;

#[cfg(test)]
mod claims {
    use crate::snapshots::{custom, install_snapshots, snapshot, snapshot_class};
    use crate::support::{World, until_gone, until_object};
    use coracle_client::Context;
    use coracle_storage::quota::{LinuxProjects, can_hold};
    use coracle_storage::volumes::{LinuxMounter, MountTable, Mounter, NfsMount, Tmpfs, VolumeError};
    use coracle_storage::{
        Config, Here, LocalPathConfig, NfsConfig, run_controllers, run_local_path, run_nfs, serve_local_path,
    };
    use k8s_openapi::api::core::v1::{
        Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
    };
    use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
    use kube::api::{DeleteParams, Patch};
    use kube::{Api, ResourceExt};
    use serde_json::{Value, json};
    use tempfile::TempDir;

    struct Cluster {
        world: World,
        claims: Api<PersistentVolumeClaim>,
        volumes: Api<PersistentVolume>,
        root: TempDir,
    }

    async fn cluster() -> Cluster {
        cluster_with(|_| None).await
    }

    /// With this as the machine that the controllers run on; it is told where there is place.
    async fn cluster_with(here: impl FnOnce(&std::path::Path) -> Option<Here>) -> Cluster {
        let world = World::start().await;
        let root = TempDir::new().unwrap();
        let config = Config { client_for: Some(world.client_for()), here: here(root.path()) };
        tokio::spawn(run_controllers(world.context(), config));
        let context = Context { client: world.admin(), ..world.context() };
        let local = LocalPathConfig {
            node_name: "n".into(),
            root: root.path().join("volumes"),
            mounter: std::sync::Arc::new(LinuxMounter),
        };
        tokio::spawn(run_local_path(context, local));
        let nodes: Api<Node> = Api::all(world.admin());
        world
            .create(
                &nodes,
                json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/hostname": "n" } } }),
            )
            .await;
        let accounts = world.in_namespace::<ServiceAccount>("default");
        world.create(&accounts, json!({ "metadata": { "name": "default" } })).await;
        let claims = world.in_namespace("default");
        let volumes = Api::all(world.admin());
        Cluster { world, claims, volumes, root }
    }

    fn claim(class: &str, size: &str) -> Value {
        json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": class,
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } } })
    }

    fn is_bound(claim: &PersistentVolumeClaim) -> bool {
        claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
    }

    fn phase<'a>(phase: &'a str) -> impl Fn(&PersistentVolume) -> bool + 'a {
        move |volume| volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(phase)
    }

    #[tokio::test]
    async fn a_local_path_claim_waits_is_provisioned_protected_and_removed() {
        let Cluster { world, claims, volumes, root } = cluster().await;
        world.create(&claims, claim("local-path", "1Gi")).await;
        until_object("pending", &claims, "data", |c| {
            c.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending")
        })
        .await;
        let selected =
            json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n" } } });
        claims.patch("data", &Default::default(), &Patch::Merge(selected)).await.unwrap();
        let bound = until_object("bound", &claims, "data", is_bound).await;
        let name = bound.spec.as_ref().unwrap().volume_name.clone().unwrap();
        assert_eq!(name, format!("pvc-{}", bound.uid().unwrap()));
        let volume = until_object("the volume", &volumes, &name, phase("Bound")).await;
        let path = volume.spec.unwrap().host_path.unwrap().path;
        assert!(
            path.starts_with(root.path().to_str().unwrap()) && std::fs::metadata(&path).unwrap().is_dir()
        );

        let pods = world.in_namespace::<Pod>("default");
        let spec = json!({ "nodeName": "n", "containers": [{ "name": "c", "image": "a" }],
            "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }] });
        world.create(&pods, json!({ "metadata": { "name": "user" }, "spec": spec })).await;
        claims.delete("data", &DeleteParams::default()).await.unwrap();
        let kept =
            until_object("protected", &claims, "data", |c| c.metadata.deletion_timestamp.is_some()).await;
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
        wanted["spec"]["dataSourceRef"] =
            json!({ "apiGroup": "example.com", "kind": "Image", "name": "debian" });
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

    fn volume(name: &str, spec: Value) -> Value {
        let mut whole = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/nowhere" } });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({ "metadata": { "name": name }, "spec": whole })
    }

    fn is_pending(claim: &PersistentVolumeClaim) -> bool {
        claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending")
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

    /// A released volume with a policy.
    async fn released(cluster: &Cluster, name: &str, spec: Value) {
        let Cluster { world, claims, volumes, .. } = cluster;
        let mut whole = json!({ "storageClassName": "manual" });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        world.create(volumes, volume(name, whole)).await;
        until_object("available", volumes, name, phase("Available")).await;
        world.create(claims, claim("manual", "1Gi")).await;
        until_object("bound", claims, "data", is_bound).await;
        claims.delete("data", &DeleteParams::default()).await.unwrap();
        until_gone("the claim", claims, "data").await;
    }

    async fn end(pods: &Api<Pod>, status: Value) {
        until_object("the recycler", pods, "recycler-for-used", |_| true).await;
        let status = Patch::Merge(json!({ "status": status }));
        pods.patch_status("recycler-for-used", &Default::default(), &status).await.unwrap();
    }

    #[tokio::test]
    async fn a_local_path_claim_grows_by_word() {
        let Cluster { world, claims, volumes, root: _root } = cluster().await;
        let classes: Api<StorageClass> = Api::all(world.admin());
        let class = json!({ "metadata": { "name": "grows" }, "provisioner": "coracle.io/local-path",
            "allowVolumeExpansion": true });
        world.create(&classes, class).await;
        world.create(&claims, claim("grows", "1Gi")).await;
        let selected =
            json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n" } } });
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

    /// Another node, with the part of its kubelet that serves volumes.
    async fn far_node(world: &World, root: std::path::PathBuf) {
        let nodes: Api<Node> = Api::all(world.admin());
        let (sender, own) = tokio::sync::watch::channel(None);
        world.informers.of::<Node>().on_change(move |delta| {
            if let Some(node) = delta.new.as_ref().filter(|node| node.name_any() == "far") {
                sender.send_replace(Some(node.clone()));
            }
        });
        let host = std::sync::Arc::new(LinuxMounter);
        let client = world.user("system:node:far", &["system:nodes"]);
        tokio::spawn(serve_local_path(client, own, root, host));
        let labels = json!({ "kubernetes.io/hostname": "far.example" });
        world.create(&nodes, json!({ "metadata": { "name": "far", "labels": labels } })).await;
        until_object("says where", &nodes, "far", |node| {
            node.annotations().contains_key("coracle.io/local-path-root")
        })
        .await;
    }

    /// Nothing is asked of the node, or answered.
    fn nothing_is_open(node: &Node) -> bool {
        node.annotations().keys().all(|key| key.starts_with("coracle.io/"))
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

    fn selected(node: &str) -> Patch<Value> {
        Patch::Merge(json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": node } } }))
    }

    #[tokio::test]
    async fn another_node_makes_and_removes_its_volumes_itself() {
        let Cluster { world, claims, volumes, root } = cluster().await;
        let far = root.path().join("far");
        far_node(&world, far.clone()).await;
        world.create(&claims, claim("local-path", "1Gi")).await;
        claims.patch("data", &Default::default(), &selected("far")).await.unwrap();
        let bound = until_object("bound", &claims, "data", is_bound).await;
        let name = bound.spec.unwrap().volume_name.unwrap();
        let volume = volumes.get(&name).await.unwrap().spec.unwrap();
        let path = std::path::PathBuf::from(volume.host_path.unwrap().path);
        assert_eq!(path, far.join(format!("{name}_default_data")));
        let terms = volume.node_affinity.unwrap().required.unwrap().node_selector_terms;
        assert_eq!(
            terms[0].match_expressions.as_ref().unwrap()[0].values.as_ref().unwrap(),
            &["far.example"]
        );
        std::fs::write(path.join("file"), "gold").unwrap();

        let mut copy = claim("local-path", "1Gi");
        copy["metadata"]["name"] = "copy".into();
        copy["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": "data" });
        world.create(&claims, copy).await;
        claims.patch("copy", &Default::default(), &selected("far")).await.unwrap();
        let copied =
            until_object("bound", &claims, "copy", is_bound).await.spec.unwrap().volume_name.unwrap();
        let file = far.join(format!("{copied}_default_copy/file"));
        assert_eq!(std::fs::read_to_string(file).unwrap(), "gold");

        for claim in ["data", "copy"] {
            claims.delete(claim, &DeleteParams::default()).await.unwrap();
        }
        for volume in [&name, &copied] {
            until_gone("the volume", &volumes, volume).await;
        }
        assert_eq!(std::fs::read_dir(&far).unwrap().count(), 0);
        // What was said between the two is taken away.
        let nodes: Api<Node> = Api::all(world.admin());
        until_object("clean", &nodes, "far", nothing_is_open).await;
    }

    #[tokio::test]
    async fn a_claim_that_goes_before_its_node_answers_leaves_nothing_there() {
        let Cluster { world, claims, root, .. } = cluster().await;
        let (nodes, far) = (Api::<Node>::all(world.admin()), root.path().join("far"));
        let annotations = json!({ "coracle.io/local-path-root": far });
        world.create(&nodes, json!({ "metadata": { "name": "far", "annotations": annotations } })).await;
        world.create(&claims, claim("local-path", "1Gi")).await;
        claims.patch("data", &Default::default(), &selected("far")).await.unwrap();
        until_object("asked", &nodes, "far", |node| node.annotations().len() == 2).await;
        claims.delete("data", &DeleteParams::default()).await.unwrap();
        until_gone("the claim", &claims, "data").await;
        let (sender, own) = tokio::sync::watch::channel(None);
        world.informers.of::<Node>().on_change(move |delta| {
            if let Some(node) = delta.new.as_ref().filter(|node| node.name_any() == "far") {
                sender.send_replace(Some(node.clone()));
            }
        });
        tokio::spawn(serve_local_path(world.admin(), own, far.clone(), std::sync::Arc::new(LinuxMounter)));
        // The node hears of it at its next change.
        let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
        nodes.patch("far", &Default::default(), &label).await.unwrap();
        until_object("clean", &nodes, "far", nothing_is_open).await;
        assert_eq!(std::fs::read_dir(&far).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_snapshot_is_taken_where_its_volume_lies_and_claims_are_made_of_it() {
        let Cluster { world, claims, volumes, root } = cluster().await;
        let (client, far) = (world.admin(), root.path().join("far"));
        install_snapshots(&client).await;
        far_node(&world, far.clone()).await;
        world.create(&claims, claim("local-path", "1Gi")).await;
        claims.patch("data", &Default::default(), &selected("far")).await.unwrap();
        let bound = until_object("bound", &claims, "data", is_bound).await.spec.unwrap().volume_name.unwrap();
        std::fs::write(far.join(format!("{bound}_default_data/file")), "gold").unwrap();
        snapshot_class(&client, "copies", "coracle.io/local-path", json!({})).await;
        snapshot(&client, "then", "copies", json!({ "persistentVolumeClaimName": "data" })).await;
        let read = || custom(&client, "GET", "namespaces/default/volumesnapshots/then", Value::Null);
        let ready =
            || async { Some(read().await).filter(|snapshot| snapshot["status"]["readyToUse"] == true) };
        let taken = crate::support::until("ready", ready, || async { read().await.to_string() }).await;
        assert_eq!(taken["status"]["restoreSize"], "1Gi", "{taken}");
        std::fs::write(far.join(format!("{bound}_default_data/file")), "silver").unwrap();

        let mut restored = claim("local-path", "1Gi");
        restored["metadata"]["name"] = "restored".into();
        restored["spec"]["dataSource"] =
            json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "then" });
        world.create(&claims, restored).await;
        claims.patch("restored", &Default::default(), &selected("far")).await.unwrap();
        let copy =
            until_object("bound", &claims, "restored", is_bound).await.spec.unwrap().volume_name.unwrap();
        let file = far.join(format!("{copy}_default_restored/file"));
        assert_eq!(std::fs::read_to_string(file).unwrap(), "gold");

        custom(&client, "DELETE", "namespaces/default/volumesnapshots/then", Value::Null).await;
        for claim in ["data", "restored"] {
            claims.delete(claim, &DeleteParams::default()).await.unwrap();
        }
        for volume in [&bound, &copy] {
            until_gone("the volume", &volumes, volume).await;
        }
        let contents = || custom(&client, "GET", "volumesnapshotcontents", Value::Null);
        let none = || async { contents().await["items"].as_array().unwrap().is_empty().then_some(()) };
        crate::support::until("no content", none, || async { contents().await.to_string() }).await;
        assert_eq!(std::fs::read_dir(&far).unwrap().count(), 0);
    }

    /// A share that is a directory of this machine.
    #[derive(Default)]
    struct Share(std::sync::Mutex<Vec<(std::path::PathBuf, NfsMount)>>);

    impl Mounter for Share {
        fn mounts(&self) -> Result<MountTable, VolumeError> {
            Ok(MountTable(self.0.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()))
        }
        fn mount_tmpfs(&self, _: &std::path::Path, _: &Tmpfs) -> Result<(), VolumeError> {
            panic!("nothing of the provisioner's")
        }
        fn bind(&self, _: &std::path::Path, _: &std::path::Path) -> Result<(), VolumeError> {
            panic!("nothing of the provisioner's")
        }
        fn mount_nfs(&self, mount: &NfsMount, target: &std::path::Path) -> Result<(), VolumeError> {
            self.0.lock().unwrap().push((target.to_owned(), mount.clone()));
            Ok(())
        }
        fn unmount(&self, path: &std::path::Path) -> Result<(), VolumeError> {
            self.0.lock().unwrap().retain(|(mounted, _)| mounted != path);
            Ok(())
        }
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
        let why = all.into_iter().find_map(|event| {
            event.message.filter(|_| event.reason.as_deref() == Some("ProvisioningFailed"))
        });
        let wanted = "failed to provision volume with StorageClass \"held\": the file system of node n has no project quotas, which the class asks for";
        assert_eq!(why.as_deref(), Some(wanted));
        // The scheduler chooses anew.
        until_object("let go", &claims, "data", |claim| {
            !claim.annotations().contains_key("volume.kubernetes.io/selected-node")
        })
        .await;
        assert_eq!(volumes.list(&Default::default()).await.unwrap().items.len(), 0);
    }

    #[tokio::test]
    async fn a_scrubbing_ends_with_its_volume_or_its_policy() {
        let cluster = cluster().await;
        let pods = cluster.world.in_namespace::<Pod>("default");
        let policy =
            || json!({ "persistentVolumeReclaimPolicy": "Recycle", "hostPath": { "path": "/data" } });
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
}
