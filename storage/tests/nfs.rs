//! NFS against a server: mounts by the helper and by the kernel alone, and the provisioner's directories.
//!
//! `CORACLE_NFS_SHARE` names the share (`127.0.0.1:/srv/share`), which this machine exports itself, writable for root; without it, nothing is
//! tried. `scripts/storage-test` is where it is.

#[cfg(test)]
#[path = "driver/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of CSI, which use all of it")]
mod driver;

#[cfg(test)]
#[path = "volumes/node.rs"]
#[allow(dead_code, reason = "shared with the tests of all volumes, which use all of it")]
mod node;

#[cfg(test)]
#[path = "../../controllers/tests/cluster/support.rs"]
#[allow(dead_code, reason = "shared with the controllers' tests, which use all of it")]
mod support;

#[cfg(test)]
mod nfs {
    use crate::node::{NODE, Table, of_claim, pod};
    use crate::support::{World, until_gone, until_object};
    use coracle_client::Context;
    use coracle_storage::csi::Drivers;
    use coracle_storage::volumes::{LinuxMounter, Mounter, Volumes, VolumesConfig};
    use coracle_storage::{Config, NfsConfig, run_controllers, run_nfs};
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
    use k8s_openapi::api::storage::v1::StorageClass;
    use kube::Api;
    use kube::api::DeleteParams;
    use serde_json::{Value, json};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Arc;
    use std::time::Duration;
    use tempfile::TempDir;

    /// The server and the directory.
    fn share() -> Option<(String, String)> {
        let Ok(share) = std::env::var("CORACLE_NFS_SHARE") else {
            println!("skipped: CORACLE_NFS_SHARE names no share");
            return None;
        };
        let (server, path) = share.split_once(':').unwrap();
        Some((server.to_owned(), path.to_owned()))
    }

    struct Node {
        root: TempDir,
        table: Arc<Table>,
    }

    impl Node {
        fn new() -> Self {
            Self { root: TempDir::new().unwrap(), table: Arc::default() }
        }

        /// A kubelet that knows nothing of the last one.
        fn kubelet(&self) -> Volumes {
            let config = VolumesConfig {
                root: self.root.path().join("kubelet"),
                node_name: NODE.to_owned(),
                local_path: self.root.path().join("local-path"),
                machine: "/".into(),
            };
            Volumes::new(config, Arc::new(LinuxMounter), self.table.clone(), Drivers::default())
        }

        fn claim(&self, spec: Value) {
            let mut whole = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"],
                "claimRef": { "namespace": "d", "name": "c", "uid": "c" } });
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            self.table.put("persistentvolume", "pv", json!({ "metadata": { "name": "pv" }, "spec": whole }));
            let claim = json!({ "metadata": { "name": "c", "namespace": "d", "uid": "c" }, "spec": { "volumeName": "pv" },
                "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
            self.table.put("persistentvolumeclaim", "c", claim);
        }

        /// The mounts of this node, as the kernel has them.
        fn mounts(&self) -> Vec<PathBuf> {
            LinuxMounter.mounts().unwrap().below(self.root.path())
        }
    }

    async fn mount(kubelet: &Volumes, pod: &Pod) -> Result<PathBuf, String> {
        let done = kubelet.set_up(pod, &Default::default(), true, Timestamp::now()).await;
        match done.failed.first() {
            Some(error) => Err(coracle_api::error::chain(error)),
            None => Ok(done.mounted["v"].path.clone()),
        }
    }

    /// The options of a mount, as the kernel shows them.
    fn options(at: &Path) -> String {
        let all = std::fs::read_to_string("/proc/mounts").unwrap();
        let at = at.to_str().unwrap();
        let line = all.lines().find(|line| line.split(' ').nth(1) == Some(at));
        line.unwrap_or_else(|| panic!("{at} is not mounted: {all}")).to_owned()
    }

    fn has_helper() -> bool {
        ["/sbin/mount.nfs", "/usr/sbin/mount.nfs"].iter().any(|helper| Path::new(helper).exists())
    }

    #[tokio::test]
    async fn a_pods_share_is_mounted_once_found_again_and_taken_away_with_its_data_left() {
        let Some((server, path)) = share() else { return };
        let (node, file) = (Node::new(), Path::new(&path).join("of-a-pod"));
        let pod = pod("u1", &json!({ "nfs": { "server": server, "path": path } }));
        let at = mount(&node.kubelet(), &pod).await.unwrap();
        std::fs::write(at.join("of-a-pod"), "precious").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
        // Another process, as after a SIGKILL.
        let next = node.kubelet();
        assert_eq!(mount(&next, &pod).await.unwrap(), at);
        assert_eq!(node.mounts(), [at.as_path()], "mounted once");
        assert!(options(&at).contains(" nfs4 "), "{}", options(&at));
        for _ in 0..2 {
            next.tear_down("u1").await.unwrap();
        }
        assert_eq!(node.mounts(), [""; 0].map(PathBuf::from));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious", "nothing is deleted through a mount");
    }

    #[tokio::test]
    async fn a_share_that_is_only_read_cannot_be_written() {
        let Some((server, path)) = share() else { return };
        let node = Node::new();
        std::fs::write(Path::new(&path).join("to-read"), "text").unwrap();
        let pod = pod("u1", &json!({ "nfs": { "server": server, "path": path, "readOnly": true } }));
        let kubelet = node.kubelet();
        let at = mount(&kubelet, &pod).await.unwrap();
        assert_eq!(std::fs::read_to_string(at.join("to-read")).unwrap(), "text");
        let refused = std::fs::write(at.join("more"), "").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        kubelet.tear_down("u1").await.unwrap();
        assert_eq!(node.mounts(), [""; 0].map(PathBuf::from));
    }

    #[tokio::test]
    async fn a_volume_is_mounted_with_its_options() {
        let Some((server, path)) = share() else { return };
        let mut kinds =
            vec![(json!(["nfsvers=4.1", "hard", "noatime"]), "vers=4.1"), (json!(null), "vers=4.2")];
        if has_helper() {
            kinds.push((json!(["nfsvers=3,nolock"]), "vers=3"));
        }
        for (wanted, shown) in kinds {
            let node = Node::new();
            node.claim(json!({ "nfs": { "server": server, "path": path }, "mountOptions": wanted }));
            let kubelet = node.kubelet();
            let at =
                mount(&kubelet, &pod("u1", &of_claim())).await.unwrap_or_else(|e| panic!("{wanted}: {e}"));
            assert!(options(&at).contains(shown), "{wanted}: {}", options(&at));
            let noatime = wanted.to_string().contains("noatime");
            assert_eq!(options(&at).contains("noatime"), noatime, "{wanted}: {}", options(&at));
            std::fs::write(at.join(shown), shown).unwrap();
            assert_eq!(std::fs::read_to_string(Path::new(&path).join(shown)).unwrap(), shown);
            kubelet.tear_down("u1").await.unwrap();
            assert_eq!(node.mounts(), [""; 0].map(PathBuf::from), "{wanted}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_mounted_is_said() {
        let Some((server, path)) = share() else { return };
        let node = Node::new();
        let kubelet = node.kubelet();
        let gone = json!({ "nfs": { "server": server, "path": format!("{path}/nowhere") } });
        let why = mount(&kubelet, &pod("u1", &gone)).await.unwrap_err();
        assert!(why.contains("No such file") || why.contains("os error 2"), "{why}");
        if !has_helper() {
            node.claim(json!({ "nfs": { "server": server, "path": path }, "mountOptions": ["vers=3"] }));
            let why = mount(&kubelet, &pod("u2", &of_claim())).await.unwrap_err();
            assert!(why.contains("mount.nfs is not installed"), "{why}");
        }
        for uid in ["u1", "u2"] {
            kubelet.tear_down(uid).await.unwrap();
        }
        assert_eq!(node.mounts(), [""; 0].map(PathBuf::from));
    }

    /// Stops the kernel's server, or starts it again.
    fn server_threads(count: &str) {
        let done = Command::new("rpc.nfsd").arg(count).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    #[tokio::test]
    async fn a_pod_goes_although_its_server_is_away() {
        let Some((server, path)) = share() else { return };
        let node = Node::new();
        let kubelet = node.kubelet();
        let pod = pod("u1", &json!({ "nfs": { "server": server, "path": path } }));
        let at = mount(&kubelet, &pod).await.unwrap();
        std::fs::write(at.join("before"), "it went").unwrap();
        server_threads("0");
        let gone = tokio::time::timeout(Duration::from_secs(60), kubelet.tear_down("u1")).await;
        server_threads("2");
        gone.expect("the pod's end waits for a server that is away").unwrap();
        assert_eq!(node.mounts(), [""; 0].map(PathBuf::from));
        assert_eq!(std::fs::read_to_string(Path::new(&path).join("before")).unwrap(), "it went");
    }

    struct Cluster {
        world: World,
        claims: Api<PersistentVolumeClaim>,
        volumes: Api<PersistentVolume>,
        root: TempDir,
    }

    async fn cluster() -> Cluster {
        let world = World::start().await;
        tokio::spawn(run_controllers(
            world.context(),
            Config { client_for: Some(world.client_for()), ..Config::default() },
        ));
        let root = TempDir::new().unwrap();
        let binder = world.client_for()("persistent-volume-binder");
        let config = NfsConfig { root: root.path().join("nfs"), mounter: Arc::new(LinuxMounter) };
        tokio::spawn(run_nfs(Context { client: binder, ..world.context() }, config));
        let accounts = world.in_namespace::<ServiceAccount>("default");
        world.create(&accounts, json!({ "metadata": { "name": "default" } })).await;
        let (claims, volumes) = (world.in_namespace("default"), Api::all(world.admin()));
        Cluster { world, claims, volumes, root }
    }

    #[tokio::test]
    async fn directories_of_a_share_end_as_their_class_says() {
        let Some((server, path)) = share() else { return };
        let Cluster { world, claims, volumes, root } = cluster().await;
        let classes: Api<StorageClass> = Api::all(world.admin());
        let share = Path::new(&path);
        // What the class says, the directory's name, and what is left of it.
        let kinds = [
            ("archives", json!({ "archiveOnDelete": "true" }), "Delete", "archived-default-archives-NAME"),
            ("deletes", json!({ "archiveOnDelete": "false" }), "Delete", ""),
            (
                "named",
                json!({ "pathPattern": "of/${.PVC.namespace}/${.PVC.name}" }),
                "Retain",
                "of/default/named",
            ),
        ];
        for (name, parameters, policy, left) in kinds {
            let mut parameters = parameters;
            parameters["server"] = server.clone().into();
            parameters["path"] = path.clone().into();
            let class = json!({ "metadata": { "name": name }, "provisioner": "nfs-subdir-external-provisioner",
                "reclaimPolicy": policy, "parameters": parameters });
            world.create(&classes, class).await;
            let spec = json!({ "storageClassName": name, "accessModes": ["ReadWriteMany"],
                "resources": { "requests": { "storage": "1Gi" } } });
            world.create(&claims, json!({ "metadata": { "name": name }, "spec": spec })).await;
            let bound = until_object("bound", &claims, name, |claim| {
                claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
            });
            let volume = bound.await.spec.unwrap().volume_name.unwrap();
            let spec = volumes.get(&volume).await.unwrap().spec.unwrap();
            let directory = PathBuf::from(spec.nfs.unwrap().path);
            assert!(directory.starts_with(share) && directory.is_dir(), "{directory:?}");
            std::fs::write(directory.join("file"), "kept").unwrap();
            claims.delete(name, &DeleteParams::default()).await.unwrap();
            match policy {
                "Delete" => until_gone("the volume", &volumes, &volume).await,
                _ => {
                    let released = |volume: &PersistentVolume| {
                        volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released")
                    };
                    until_object("released", &volumes, &volume, released).await;
                }
            }
            if left.is_empty() {
                assert!(!directory.exists(), "{directory:?}");
                continue;
            }
            let file = share.join(left.replace("NAME", &volume)).join("file");
            assert_eq!(std::fs::read_to_string(file).unwrap(), "kept");
        }
        // The provisioner's own mount is nobody else's to take away.
        for mounted in LinuxMounter.mounts().unwrap().below(root.path()) {
            LinuxMounter.unmount(&mounted).unwrap();
        }
    }
}
