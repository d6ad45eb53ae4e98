//! Sizes that hold by quotas of projects, against the kernel.
//!
//! `CORACLE_QUOTA_PLACES` names directories of file systems that have them (`/srv/ext4:/srv/xfs`); without it, nothing is
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
mod quota {
    use crate::node::{NODE, Table, pod};
    use crate::support::{World, until_gone, until_object};
    use coracle_client::Context;
    use coracle_storage::beneath::Dir;
    use coracle_storage::csi::Drivers;
    use coracle_storage::quota::{LinuxProjects, Projects, Quota, can_hold, held, hold, marks};
    use coracle_storage::volumes::{LinuxMounter, Volumes, VolumesConfig};
    use coracle_storage::{Config, LocalPathConfig, run_controllers, run_local_path};
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
    use k8s_openapi::api::storage::v1::StorageClass;
    use kube::api::{DeleteParams, Patch};
    use kube::{Api, ResourceExt};
    use serde_json::{Value, json};
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::Arc;
    use tempfile::TempDir;

    const MIB: u64 = 1 << 20;

    /// A directory of each file system, for one test.
    fn places() -> Vec<TempDir> {
        let Ok(named) = std::env::var("CORACLE_QUOTA_PLACES") else {
            println!("skipped: CORACLE_QUOTA_PLACES names no directories");
            return Vec::new();
        };
        let made: Vec<TempDir> = named.split(':').map(|place| TempDir::new_in(place).unwrap()).collect();
        for place in &made {
            assert!(can_hold(&LinuxProjects, place.path()), "{place:?} has no quotas");
        }
        made
    }

    /// As a container writes: root, but without the right to ignore quotas, which ext4 honours.
    fn write(path: &Path, mib: u64) -> Result<(), String> {
        let without = ["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"];
        let done = Command::new("setpriv")
            .args(without)
            .args(["dd", "if=/dev/zero", "bs=1M"])
            .args([format!("count={mib}"), format!("of={}", path.display())])
            .output()
            .unwrap();
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
    }

    /// What a file system says when a quota is reached; xfs says of projects that there is no room.
    fn is_full(written: Result<(), String>) -> bool {
        let said = written.unwrap_err();
        said.contains("quota exceeded") || said.contains("No space left")
    }

    fn quota_of(place: &Path, id: u32) -> Quota {
        LinuxProjects.quota(&Dir::open(place).unwrap(), id).unwrap()
    }

    /// What a container sees of the size: bytes of the whole, as df has them.
    fn shown(path: &Path) -> u64 {
        let shown = nix::sys::statvfs::statvfs(path).unwrap();
        shown.blocks() * shown.fragment_size()
    }

    fn kubelet(place: &Path) -> Volumes {
        let config = VolumesConfig {
            root: place.join("kubelet"),
            node_name: NODE.to_owned(),
            local_path: place.to_owned(),
            machine: "/".into(),
        };
        Volumes::new(config, Arc::new(LinuxMounter), Arc::<Table>::default(), Drivers::default())
    }

    async fn mount(kubelet: &Volumes, pod: &Pod, first: bool) -> PathBuf {
        let done = kubelet.set_up(pod, &Default::default(), first, Timestamp::now()).await;
        assert!(done.failed.is_empty(), "{:?}", done.failed);
        done.mounted["v"].path.clone()
    }

    #[tokio::test]
    async fn an_empty_dir_takes_no_more_than_its_size_and_gives_its_quota_back() {
        for place in places() {
            let place = place.path();
            let pod = pod("u1", &json!({ "emptyDir": { "sizeLimit": "8Mi" } }));
            let path = mount(&kubelet(place), &pod, true).await;
            assert!(is_full(write(&path.join("file"), 16)), "{place:?}");
            assert_eq!(shown(&path), 8 * MIB);
            // Another process, whose pod has run already.
            let next = kubelet(place);
            assert_eq!(mount(&next, &pod, false).await, path);
            let has = held(&LinuxProjects, &path).unwrap();
            assert_eq!(has.limit_bytes, 8 * MIB);
            assert!(has.used_bytes > 7 * MIB && has.used_bytes <= 8 * MIB, "{has:?}");
            let ids = marks(&LinuxProjects, [path.as_path()]);
            for _ in 0..2 {
                next.tear_down("u1").await.unwrap();
            }
            assert_eq!(quota_of(place, ids[0]), Quota::default(), "{place:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_held_open_keeps_its_number_from_others() {
        for place in places() {
            let place = place.path();
            let volume = |name: &str| Dir::open(place).unwrap().make_dir(name, 0o777).unwrap();
            hold(&LinuxProjects, &volume("one"), 8 * MIB).unwrap();
            let file = std::fs::File::create(place.join("one/file")).unwrap();
            let id = marks(&LinuxProjects, [place.join("one").as_path()])[0];
            std::fs::remove_dir_all(place.join("one")).unwrap();
            // The directory, too: an open file holds the one that it was in.
            assert!(quota_of(place, id).inodes > 0, "{place:?}");
            hold(&LinuxProjects, &volume("two"), 8 * MIB).unwrap();
            assert_ne!(marks(&LinuxProjects, [place.join("two").as_path()]), [id]);
            drop(file);
        }
    }

    #[test]
    fn many_at_once_share_no_number() {
        for place in places() {
            let place = place.path();
            std::thread::scope(|scope| {
                for thread in 0..8 {
                    scope.spawn(move || {
                        for volume in 0..25 {
                            let name = format!("{thread}-{volume}");
                            let dir = Dir::open(place).unwrap().make_dir(name, 0o777).unwrap();
                            hold(&LinuxProjects, &dir, MIB).unwrap();
                        }
                    });
                }
            });
            let paths: Vec<PathBuf> =
                std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
            let ids: BTreeSet<u32> =
                marks(&LinuxProjects, paths.iter().map(PathBuf::as_path)).into_iter().collect();
            assert_eq!((paths.len(), ids.len()), (200, 200), "{place:?}");
            assert!(ids.iter().all(|id| quota_of(place, *id).inodes == 1), "{place:?}");
        }
    }

    struct Cluster {
        world: World,
        claims: Api<PersistentVolumeClaim>,
        volumes: Api<PersistentVolume>,
    }

    async fn cluster(root: PathBuf) -> Cluster {
        let world = World::start().await;
        tokio::spawn(run_controllers(
            world.context(),
            Config { client_for: Some(world.client_for()), ..Config::default() },
        ));
        let context = Context { client: world.admin(), ..world.context() };
        let mounter = Arc::new(LinuxMounter);
        let local = LocalPathConfig { node_name: NODE.into(), root, mounter, carrier: None };
        tokio::spawn(run_local_path(context, local));
        let labels = json!({ "kubernetes.io/hostname": NODE });
        let node = json!({ "metadata": { "name": NODE, "labels": labels } });
        world.create(&Api::<Node>::all(world.admin()), node).await;
        let accounts = world.in_namespace::<ServiceAccount>("default");
        world.create(&accounts, json!({ "metadata": { "name": "default" } })).await;
        let class = json!({ "metadata": { "name": "held" }, "provisioner": "coracle.io/local-path",
            "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer" });
        world.create(&Api::<StorageClass>::all(world.admin()), class).await;
        let (claims, volumes) = (world.in_namespace("default"), Api::all(world.admin()));
        Cluster { world, claims, volumes }
    }

    impl Cluster {
        /// Makes a claim and waits for its volume; where it lies.
        async fn claim(&self, name: &str, size: &str, source: Value) -> (PersistentVolume, PathBuf) {
            let selected = json!({ "volume.kubernetes.io/selected-node": NODE });
            let spec = json!({ "storageClassName": "held", "accessModes": ["ReadWriteOnce"], "dataSource": source,
                "resources": { "requests": { "storage": size } } });
            let claim = json!({ "metadata": { "name": name, "annotations": selected }, "spec": spec });
            self.world.create(&self.claims, claim).await;
            let bound = until_object("bound", &self.claims, name, |claim| {
                claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
            });
            let volume = self.volumes.get(&bound.await.spec.unwrap().volume_name.unwrap()).await.unwrap();
            let path = volume.spec.as_ref().unwrap().host_path.as_ref().unwrap().path.clone();
            (volume, path.into())
        }
    }

    #[tokio::test]
    async fn a_claims_size_holds_grows_is_copied_and_given_back() {
        for place in places() {
            let place = place.path();
            let cluster = cluster(place.join("volumes")).await;
            let (volume, path) = cluster.claim("data", "16Mi", Value::Null).await;
            assert_eq!(volume.annotations()["coracle.io/size-limit"], "quota");
            assert!(is_full(write(&path.join("file"), 32)), "{place:?}");
            assert_eq!(shown(&path), 16 * MIB);

            let larger = json!({ "spec": { "resources": { "requests": { "storage": "64Mi" } } } });
            cluster.claims.patch("data", &Default::default(), &Patch::Merge(larger)).await.unwrap();
            until_object("grown", &cluster.claims, "data", |claim| {
                let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
                capacity.is_some_and(|capacity| capacity["storage"].0 == "64Mi")
            })
            .await;
            write(&path.join("file"), 32).unwrap();
            assert!(is_full(write(&path.join("more"), 40)), "{place:?}");
            std::fs::remove_file(path.join("more")).unwrap();

            let source = json!({ "kind": "PersistentVolumeClaim", "name": "data" });
            let (copied, copy) = cluster.claim("copy", "64Mi", source).await;
            assert_eq!(std::fs::metadata(copy.join("file")).unwrap().len(), 32 * MIB);
            assert!(is_full(write(&copy.join("more"), 40)), "{place:?}: the copy has a quota of its own");
            let ids = marks(&LinuxProjects, [path.as_path(), copy.as_path()]);
            assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");

            for (claim, volume) in [("data", &volume), ("copy", &copied)] {
                cluster.claims.delete(claim, &DeleteParams::default()).await.unwrap();
                until_gone("the volume", &cluster.volumes, &volume.name_any()).await;
            }
            for id in ids {
                assert_eq!(quota_of(place, id), Quota::default(), "{place:?}");
            }
            assert_eq!(std::fs::read_dir(place.join("volumes")).unwrap().count(), 0);
        }
    }
}
