//! Claims and volumes against an API server in memory, with the rights that upstream's roles give the controllers.

#[cfg(test)]
#[path = "../../controllers/tests/cluster/support.rs"]
#[allow(dead_code, reason = "shared with the controllers' tests, which use all of it")]
mod support;

#[cfg(test)]
mod claims {
    use crate::support::{World, until_gone, until_object};
    use coracle_client::Context;
    use coracle_storage::{Config, LocalPathConfig, run_controllers, run_local_path};
    use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
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
        let world = World::start().await;
        tokio::spawn(run_controllers(world.context(), Config { client_for: Some(world.client_for()) }));
        let root = TempDir::new().unwrap();
        let binder = world.client_for()("persistent-volume-binder");
        let context = Context { client: binder, ..world.context() };
        let local = LocalPathConfig { node_name: "n".into(), root: root.path().join("volumes") };
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
}
