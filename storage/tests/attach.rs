//! Attaching and growing, against an API server in memory with the rights of the controllers' roles.

#[cfg(test)]
#[path = "../../controllers/tests/cluster/support.rs"]
#[allow(dead_code, reason = "shared with the controllers' tests, which use all of it")]
mod support;

#[cfg(test)]
mod attach {
    use crate::support::{World, until_gone, until_object};
    use coracle_storage::csi::{attachment_name, unique_name};
    use coracle_storage::{Config, run_controllers};
    use k8s_openapi::api::core::v1::{
        Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
    };
    use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
    use kube::api::{DeleteParams, Patch, PatchParams};
    use kube::{Api, ResourceExt};
    use serde_json::{Value, json};

    const DRIVER: &str = "csi.example";

    struct Cluster {
        world: World,
        pods: Api<Pod>,
        nodes: Api<Node>,
        attachments: Api<VolumeAttachment>,
    }

    /// Two nodes, and a claim `data` that is bound to the driver's volume.
    async fn cluster() -> Cluster {
        let world = World::start().await;
        tokio::spawn(run_controllers(
            world.context(),
            Config { client_for: Some(world.client_for()), ..Config::default() },
        ));
        let nodes: Api<Node> = Api::all(world.admin());
        for name in ["n1", "n2"] {
            world.create(&nodes, json!({ "metadata": { "name": name } })).await;
            status(&nodes, name, json!({ "conditions": [{ "type": "Ready", "status": "True" }] })).await;
        }
        let accounts = world.in_namespace::<ServiceAccount>("default");
        world.create(&accounts, json!({ "metadata": { "name": "default" } })).await;
        let volumes: Api<PersistentVolume> = Api::all(world.admin());
        world
            .create(
                &volumes,
                json!({ "metadata": { "name": "pv" }, "spec": { "capacity": { "storage": "1Gi" },
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
                    "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } } }),
            )
            .await;
        let claims = world.in_namespace::<PersistentVolumeClaim>("default");
        world
            .create(
                &claims,
                json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": "", "volumeName": "pv",
                    "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }),
            )
            .await;
        let (pods, attachments) = (world.in_namespace("default"), Api::all(world.admin()));
        Cluster { world, pods, nodes, attachments }
    }

    async fn status<K>(api: &Api<K>, name: &str, status: Value)
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    impl Cluster {
        async fn pod(&self, name: &str, node: &str) {
            let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
            let spec = json!({ "nodeName": node, "volumes": [volume], "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": "i" }] });
            self.world.create(&self.pods, json!({ "metadata": { "name": name }, "spec": spec })).await;
        }

        /// As the driver's attacher.
        async fn attach(&self, node: &str) -> String {
            let name = name(node);
            let made = until_object("an attachment", &self.attachments, &name, |_| true).await;
            assert_eq!(made.spec.attacher, DRIVER);
            assert_eq!(made.spec.source.persistent_volume_name.as_deref(), Some("pv"));
            status(&self.attachments, &name, json!({ "attached": true })).await;
            until_object("told to the node", &self.nodes, node, |node| attached(node) == [unique()]).await;
            name
        }

        async fn event(&self, reason: &str) -> String {
            let events: Api<Event> = self.world.in_namespace("default");
            for _ in 0..500 {
                let all = events.list(&Default::default()).await.unwrap();
                if let Some(event) = all.items.into_iter().find(|e| e.reason.as_deref() == Some(reason)) {
                    return event.message.unwrap();
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            panic!("no event {reason}");
        }
    }

    fn name(node: &str) -> String {
        attachment_name(DRIVER, "vol-1", node)
    }

    fn unique() -> String {
        unique_name(DRIVER, "vol-1")
    }

    fn attached(node: &Node) -> Vec<String> {
        let volumes = node.status.as_ref().and_then(|status| status.volumes_attached.clone());
        volumes.unwrap_or_default().into_iter().map(|volume| volume.name).collect()
    }

    fn now() -> DeleteParams {
        DeleteParams::default().grace_period(0)
    }

    #[tokio::test]
    async fn a_volume_is_attached_for_a_pod_and_detached_when_the_node_lets_it_go() {
        let cluster = cluster().await;
        cluster.pod("p", "n1").await;
        let name = cluster.attach("n1").await;
        assert_eq!(
            cluster.event("SuccessfulAttachVolume").await,
            "AttachVolume.Attach succeeded for volume \"pv\" "
        );
        status(&cluster.nodes, "n1", json!({ "volumesInUse": [unique()] })).await;
        // An attachment that somebody else made stays somebody else's.
        let foreign = json!({ "metadata": { "name": "foreign" }, "spec": { "attacher": DRIVER, "nodeName": "n1",
            "source": { "persistentVolumeName": "pv" } } });
        cluster.world.create(&cluster.attachments, foreign).await;
        cluster.pods.delete("p", &now()).await.unwrap();
        until_gone("the pod", &cluster.pods, "p").await;
        // Another pod's coming shows that the controller has been past it.
        cluster.pod("q", "n2").await;
        let refused = cluster.event("FailedAttachVolume").await;
        let why = "Volume is already exclusively attached to one node and can't be attached to another";
        assert_eq!(refused, format!("Multi-Attach error for volume \"pv\" {why}"));
        assert!(cluster.attachments.get(&name).await.unwrap().metadata.deletion_timestamp.is_none());
        cluster.attachments.delete("foreign", &DeleteParams::default()).await.unwrap();
        status(&cluster.nodes, "n1", json!({ "volumesInUse": [] })).await;
        until_gone("the attachment", &cluster.attachments, &name).await;
        until_object("the node is told", &cluster.nodes, "n1", |node| attached(node).is_empty()).await;
        cluster.attach("n2").await;
    }

    #[tokio::test]
    async fn a_node_that_is_out_of_service_is_not_waited_for() {
        let cluster = cluster().await;
        cluster.pod("p", "n1").await;
        let name = cluster.attach("n1").await;
        let lost =
            json!({ "volumesInUse": [unique()], "conditions": [{ "type": "Ready", "status": "Unknown" }] });
        status(&cluster.nodes, "n1", lost).await;
        cluster.pods.delete("p", &now()).await.unwrap();
        until_gone("the pod", &cluster.pods, "p").await;
        assert!(cluster.attachments.get_opt(&name).await.unwrap().is_some());
        let taint = json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }] } });
        cluster.nodes.patch("n1", &PatchParams::default(), &Patch::Merge(taint)).await.unwrap();
        until_gone("the attachment", &cluster.attachments, &name).await;
    }

    #[tokio::test]
    async fn pods_are_told_why_a_volume_is_not_attached() {
        let cluster = cluster().await;
        cluster.pod("p", "n1").await;
        until_object("an attachment", &cluster.attachments, &name("n1"), |_| true).await;
        let error = json!({ "attached": false, "attachError": { "message": "no such disk", "time": "2026-01-01T00:00:00Z" } });
        status(&cluster.attachments, &name("n1"), error).await;
        let told = cluster.event("FailedAttachVolume").await;
        assert_eq!(told, "AttachVolume.Attach failed for volume \"pv\" : no such disk");
        cluster.pod("q", "n2").await;
        let events: Api<Event> = cluster.world.in_namespace("default");
        let multi = "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) p";
        for _ in 0..500 {
            let all = events.list(&Default::default()).await.unwrap();
            if all.items.iter().any(|event| event.message.as_deref() == Some(multi)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("never told of the other pod");
    }

    #[tokio::test]
    async fn a_driver_that_attaches_nothing_gets_no_attachments() {
        let cluster = cluster().await;
        let drivers: Api<CSIDriver> = Api::all(cluster.world.admin());
        let driver = json!({ "metadata": { "name": DRIVER }, "spec": { "attachRequired": false } });
        cluster.pod("p", "n1").await;
        until_object("an attachment", &cluster.attachments, &name("n1"), |_| true).await;
        // Said late, it is believed all the same.
        cluster.world.create(&drivers, driver).await;
        until_gone("the attachment", &cluster.attachments, &name("n1")).await;
    }

    #[tokio::test]
    async fn a_claim_that_grows_says_whom_it_waits_for() {
        let cluster = cluster().await;
        let classes: Api<StorageClass> = Api::all(cluster.world.admin());
        let class =
            json!({ "metadata": { "name": "large" }, "provisioner": DRIVER, "allowVolumeExpansion": true });
        cluster.world.create(&classes, class).await;
        let volumes: Api<PersistentVolume> = Api::all(cluster.world.admin());
        let volume = json!({ "metadata": { "name": "grows" }, "spec": { "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"], "storageClassName": "large", "csi": { "driver": DRIVER, "volumeHandle": "h" } } });
        cluster.world.create(&volumes, volume).await;
        let claims = cluster.world.in_namespace::<PersistentVolumeClaim>("default");
        let claim = json!({ "metadata": { "name": "grows" }, "spec": { "storageClassName": "large",
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        cluster.world.create(&claims, claim).await;
        let bound = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
        };
        let claim = until_object("bound", &claims, "grows", bound).await;
        assert_eq!(claim.name_any(), "grows");
        let larger = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
        claims.patch("grows", &PatchParams::default(), &larger).await.unwrap();
        assert_eq!(
            cluster.event("ExternalExpanding").await,
            "waiting for an external controller to expand this PVC"
        );
    }
}
