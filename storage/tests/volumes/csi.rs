//! What CSI drivers are told, by what their CSIDriver, the volume and the pod say; and what is particular to other kinds.

use crate::node::{DRIVER, Node, PATIENCE, of_claim, of_driver, pod};
use coracle_storage::csi::messages::{Mode, NodeRpcType};
use coracle_storage::csi::{Driver as Registered, unique_name};
use serde_json::json;

const STAGE: NodeRpcType = NodeRpcType::StageUnstageVolume;

#[tokio::test]
async fn an_unknown_driver_is_named_and_keeps_no_pod() {
    let node = Node::start(&[]).await;
    let unknown = pod("u1", &json!({ "csi": { "driver": "secrets-store.csi.k8s.io" } }));
    let error = node.mount(&unknown).await.unwrap_err();
    assert!(
        error
            .contains("driver name secrets-store.csi.k8s.io not found in the list of registered CSI drivers"),
        "{error}"
    );
    node.volumes.tear_down("u1").await.unwrap();
    assert_eq!(node.volumes.pods_on_disk(), [""; 0]);
}

#[tokio::test]
async fn an_inline_volume_is_told_whose_it_is_and_gets_the_tokens_it_asks_for() {
    let node = Node::start(&[STAGE]).await;
    node.csi_driver(
        json!({ "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"], "requiresRepublish": true,
        "tokenRequests": [{ "audience": "vault", "expirationSeconds": 3600 }] }),
    );
    node.table.put("secret", "creds", json!({ "metadata": { "name": "creds" }, "data": { "user": "bWU=" } }));
    let pod = pod(
        "u1",
        &json!({ "csi": { "driver": DRIVER, "readOnly": true,
        "volumeAttributes": { "secretProviderClass": "aws-secrets" }, "nodePublishSecretRef": { "name": "creds" } } }),
    );
    let done = node.set_up(&pod).await;
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    let mounted = &done.mounted["v"];
    assert!(
        mounted.read_only && mounted.path.ends_with("u1/volumes/kubernetes.io~csi/v/mount"),
        "{mounted:?}"
    );
    assert!(mounted.refresh_after.is_some(), "it wants to be published again");
    let published = &node.driver.calls("NodePublishVolume")[0];
    let told = |key: &str| published.context.get(key).map(String::as_str);
    assert_eq!(told("secretProviderClass"), Some("aws-secrets"));
    assert_eq!(told("csi.storage.k8s.io/pod.name"), Some("pod-u1"));
    assert_eq!(told("csi.storage.k8s.io/pod.namespace"), Some("d"));
    assert_eq!(told("csi.storage.k8s.io/serviceAccount.name"), Some("sa"));
    assert_eq!(told("csi.storage.k8s.io/ephemeral"), Some("true"));
    assert!(told("csi.storage.k8s.io/serviceAccount.tokens").unwrap().contains(r#""vault":{"#));
    assert_eq!(published.secrets["user"], "me");
    assert!(published.read_only && published.volume.starts_with("csi-") && published.volume.len() == 68);
    // Again when it is due; a driver that did not ask for it is left alone.
    node.set_up(&pod).await;
    assert_eq!(node.driver.calls("NodePublishVolume").len(), 2);
}

#[tokio::test]
async fn a_driver_of_persistent_volumes_alone_refuses_inline_ones() {
    let node = Node::start(&[]).await;
    let error = node.mount(&pod("u1", &json!({ "csi": { "driver": DRIVER } }))).await.unwrap_err();
    let why = r#"volume mode "Ephemeral" not supported by driver csi.example (only supports ["Persistent"])"#;
    assert!(error.ends_with(why), "{error}");
    assert!(node.driver.order().is_empty());
}

#[tokio::test]
async fn a_volume_is_staged_when_it_is_attached_and_in_use_until_it_is_unstaged() {
    let node = Node::start(&[STAGE]).await;
    let mut source = of_driver();
    source["mountOptions"] = json!(["noatime"]);
    source["csi"]["nodeStageSecretRef"] = json!({ "name": "key", "namespace": "kube-system" });
    node.claim(source);
    node.table.put("secret", "key", json!({ "metadata": { "name": "key" }, "data": { "k": "dg==" } }));
    node.attach("vol-1", false);
    let controllers = async {
        // Nobody asks the driver before the volume is there, and the node has said that it uses it.
        node.table.looked.notified().await;
        node.attach("vol-1", true);
        let said = std::time::Instant::now();
        node.volumes.note_attached([unique_name(DRIVER, "vol-1")].iter());
        node.volumes.in_use_changed().await;
        assert!(said.elapsed().as_secs() < 4, "nobody waits for the next look, which is every five seconds");
        assert_eq!(node.driver.order(), [""; 0]);
        node.volumes.note_reported(&node.volumes.in_use());
    };
    let pod = pod("u1", &of_claim());
    let (mounted, ()) = tokio::join!(node.mount(&pod), controllers);
    mounted.unwrap();
    assert_eq!(node.volumes.in_use(), [unique_name(DRIVER, "vol-1")]);
    for call in ["NodeStageVolume", "NodePublishVolume"] {
        let call = &node.driver.calls(call)[0];
        assert_eq!(call.publish_context["device"], "sdx");
        assert_eq!(call.context["size"], "small");
        assert_eq!(
            (call.mode, &call.mount_flags[..]),
            (Mode::SingleNodeWriter as i32, &["noatime".to_owned()][..])
        );
    }
    assert_eq!(node.driver.calls("NodeStageVolume")[0].secrets["k"], "v");
    node.volumes.tear_down("u1").await.unwrap();
    assert_eq!(node.volumes.in_use(), [""; 0]);
}

#[tokio::test]
async fn a_device_is_published_as_one() {
    let node = Node::start(&[STAGE]).await;
    node.csi_driver(json!({ "attachRequired": false }));
    let mut source = of_driver();
    source["volumeMode"] = "Block".into();
    node.claim(source);
    let done = node.set_up(&pod("u1", &of_claim())).await;
    let mounted = &done.mounted["v"];
    assert!(mounted.block && mounted.path.ends_with("volumeDevices/publish/pv/u1"), "{mounted:?}");
    assert!(node.driver.calls("NodePublishVolume")[0].block);
    let mut wrong = pod("u2", &of_claim());
    let container = &mut wrong.spec.as_mut().unwrap().containers[0];
    container.volume_mounts =
        Some(serde_json::from_value(json!([{ "name": "v", "mountPath": "/x" }])).unwrap());
    let error = node.mount(&wrong).await.unwrap_err();
    assert!(error.ends_with("volume v has volumeMode Block, but is specified in volumeMounts"), "{error}");
}

#[tokio::test]
async fn the_pods_group_is_the_drivers_to_apply_where_it_can() {
    for (capabilities, delegated) in [(&[][..], false), (&[NodeRpcType::VolumeMountGroup][..], true)] {
        let node = Node::start(capabilities).await;
        node.csi_driver(json!({ "attachRequired": false, "fsGroupPolicy": "File" }));
        node.claim(of_driver());
        let mut pod = pod("u1", &of_claim());
        let group = nix::unistd::getegid().as_raw();
        pod.spec.as_mut().unwrap().security_context =
            Some(serde_json::from_value(json!({ "fsGroup": group })).unwrap());
        let path = node.mount(&pod).await.unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
        assert_eq!(mode & 0o2000 != 0, !delegated, "{capabilities:?}: {mode:o}");
        let told = node.driver.calls("NodePublishVolume")[0].mount_group.clone();
        assert_eq!(told, if delegated { group.to_string() } else { String::new() });
    }
}

#[tokio::test]
async fn a_volume_that_grew_is_expanded_where_it_is_mounted() {
    let node = Node::start(&[STAGE, NodeRpcType::ExpandVolume]).await;
    node.csi_driver(json!({ "attachRequired": false }));
    node.claim(of_driver());
    let pod = pod("u1", &of_claim());
    let done = node.set_up(&pod).await;
    assert!(done.mounted["v"].refresh_after.is_some(), "it is looked at again");
    assert!(done.notes.is_empty());
    let mut larger = of_driver();
    larger["capacity"] = json!({ "storage": "2Gi" });
    node.claim(larger);
    node.driver.told("NodeExpandVolume", crate::driver::Behaviour::Fail(13));
    let failed = node.set_up(&pod).await;
    assert!(failed.failed.is_empty(), "it can be used as it is");
    assert_eq!((failed.notes[0].reason, failed.notes[0].warning), ("VolumeResizeFailed", true));
    assert!(node.table.expanded.lock().unwrap().is_empty());
    assert!(node.table.refused.lock().unwrap().is_empty(), "it may go well the next time");
    node.driver.told("NodeExpandVolume", crate::driver::Behaviour::Fail(11));
    assert_eq!(node.set_up(&pod).await.notes[0].reason, "VolumeResizeFailed");
    assert_eq!(*node.table.refused.lock().unwrap(), ["c"]);
    node.driver.heal();
    node.driver.state.lock().unwrap().controller.claimed_bytes = Some(1 << 30);
    let lied = node.set_up(&pod).await;
    assert!(
        lied.notes[0].message.contains("less than the 2147483648 that it was asked for"),
        "{:?}",
        lied.notes
    );
    assert!(node.table.expanded.lock().unwrap().is_empty());
    node.driver.state.lock().unwrap().controller.claimed_bytes = None;
    let done = node.set_up(&pod).await;
    assert_eq!(done.notes[0].reason, "FileSystemResizeSuccessful");
    assert_eq!(*node.table.expanded.lock().unwrap(), ["c"]);
    assert_eq!(node.driver.calls("NodeExpandVolume").last().unwrap().bytes, 2 << 30);
    assert_eq!(node.driver.calls("NodePublishVolume").len(), 1, "nothing else is done again");
}

#[tokio::test]
async fn a_driver_measures_its_volumes() {
    let node = Node::start(&[NodeRpcType::GetVolumeStats]).await;
    node.csi_driver(json!({ "attachRequired": false }));
    node.claim(of_driver());
    node.mount(&pod("u1", &of_claim())).await.unwrap();
    let usage = node.volumes.usage("u1").await["v"];
    assert_eq!((usage.capacity_bytes, usage.used_bytes, usage.inodes_free), (Some(1000), Some(400), Some(7)));
    assert_eq!(usage.abnormal, Some(false));
}

#[tokio::test]
async fn a_driver_that_comes_back_on_another_socket_takes_its_volumes_back() {
    let node = Node::start(&[STAGE]).await;
    node.csi_driver(json!({ "attachRequired": false }));
    node.claim(of_driver());
    node.mount(&pod("u1", &of_claim())).await.unwrap();
    let old = node.dir.path().join("csi.sock");
    node.driver.kill();
    assert!(node.volumes.tear_down("u1").await.is_err(), "nobody answers");
    let new = node.driver.serve(node.dir.path().join("other.sock"));
    node.drivers.insert(Registered::connect(DRIVER, &new, PATIENCE, None).await.unwrap());
    assert!(!node.drivers.remove(DRIVER, &old), "it is the new one's by now");
    node.volumes.tear_down("u1").await.unwrap();
    assert!(node.driver.is_clean());
}

#[tokio::test]
async fn nfs_is_mounted_as_the_volume_says_and_other_kinds_are_refused_by_name() {
    let node = Node::start(&[]).await;
    node.claim(json!({ "nfs": { "server": "10.1.1.5", "path": "/exports", "readOnly": true }, "mountOptions": ["hard"] }));
    let done = node.set_up(&pod("u1", &of_claim())).await;
    assert!(done.mounted["v"].read_only);
    assert!(done.mounted["v"].path.ends_with("u1/volumes/kubernetes.io~nfs/pv"));
    let mount = node.host.nfs.lock().unwrap()[0].clone();
    assert_eq!(
        (mount.share().as_str(), mount.options, mount.read_only),
        ("10.1.1.5:/exports", vec!["hard".to_owned()], true)
    );
    node.claim(json!({ "iscsi": { "targetPortal": "p", "iqn": "i", "lun": 0 } }));
    let error = node.mount(&pod("u2", &of_claim())).await.unwrap_err();
    assert!(
        error.ends_with(r#"no volume plugin matched: this node cannot mount volumes of kind "iscsi""#),
        "{error}"
    );
}

#[tokio::test]
async fn a_local_volume_is_a_directory_or_a_device_as_its_mode_says() {
    let node = Node::start(&[]).await;
    let place = node.dir.path().join("device");
    std::fs::write(&place, "").unwrap();
    for (mode, kind) in [("Block", "block device"), ("Filesystem", "directory")] {
        node.claim(json!({ "volumeMode": mode, "local": { "path": place } }));
        let error = node.mount(&pod("u1", &of_claim())).await.unwrap_err();
        assert!(error.ends_with(&format!("local volume {} is not a {kind}", place.display())), "{error}");
    }
    std::fs::remove_file(&place).unwrap();
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a device needs root");
        return;
    }
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    mknod(&place, SFlag::S_IFBLK, Mode::S_IRUSR, makedev(7, 0)).unwrap();
    node.claim(json!({ "volumeMode": "Block", "local": { "path": place } }));
    let done = node.set_up(&pod("u1", &of_claim())).await;
    assert!(done.mounted["v"].block && done.mounted["v"].path == place, "{done:?}");
    node.volumes.tear_down("u1").await.unwrap();
    assert!(place.exists(), "the device is the machine's");
}

#[tokio::test]
async fn a_volume_of_one_pod_is_mounted_with_the_pods_selinux_label_where_there_is_selinux() {
    for (selinux, modes, takes, expected) in [
        (true, json!(["ReadWriteOncePod"]), true, true),
        (true, json!(["ReadWriteOncePod"]), false, false),
        (true, json!(["ReadWriteOnce"]), true, false),
        (true, json!(["ReadWriteOncePod", "ReadWriteOnce"]), true, false),
        (false, json!(["ReadWriteOncePod"]), true, false),
    ] {
        let mut node = Node::start(&[STAGE]).await;
        let machine = node.dir.path().join("machine");
        let policy = machine.join("etc/selinux/targeted/contexts");
        std::fs::create_dir_all(&policy).unwrap();
        std::fs::write(policy.join("lxc_contexts"), "file = \"system_u:object_r:container_file_t:s0\"\n")
            .unwrap();
        if selinux {
            std::fs::create_dir_all(machine.join("sys/fs/selinux")).unwrap();
            std::fs::write(machine.join("sys/fs/selinux/enforce"), "0").unwrap();
        }
        node.kill_kubelet();
        node.csi_driver(json!({ "attachRequired": false, "seLinuxMount": takes }));
        let mut source = of_driver();
        source["mountOptions"] = json!(["noatime"]);
        source["accessModes"] = modes.clone();
        node.claim(source);
        let mut pod = pod("u1", &of_claim());
        let spec = pod.spec.as_mut().unwrap();
        spec.security_context =
            serde_json::from_value(json!({ "seLinuxOptions": { "level": "s0:c1,c2" } })).unwrap();
        spec.containers[0].volume_mounts =
            Some(serde_json::from_value(json!([{ "name": "v", "mountPath": "/v" }])).unwrap());
        node.mount(&pod).await.unwrap();
        let label = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
        let flags = if expected { vec!["noatime", label] } else { vec!["noatime"] };
        for call in ["NodeStageVolume", "NodePublishVolume"] {
            assert_eq!(node.driver.calls(call)[0].mount_flags, flags, "{call}: {selinux} {modes} {takes}");
        }
    }
}

#[tokio::test]
async fn a_volume_of_another_node_and_one_that_is_moved_are_not_mounted() {
    let node = Node::start(&[]).await;
    let place = node.dir.path().join("place");
    let source = json!({ "hostPath": { "path": place, "type": "DirectoryOrCreate" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions":
            [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["here"] }] }] } } });
    node.claim(source);
    let own = |host: &str| {
        let labels = json!({ "kubernetes.io/hostname": host });
        let object = serde_json::from_value(json!({ "metadata": { "name": host, "labels": labels } }));
        Some(std::sync::Arc::new(object.unwrap()))
    };
    node.volumes.note_node(own("there"));
    let error = node.mount(&pod("u1", &of_claim())).await.unwrap_err();
    assert!(error.ends_with("NodeAffinity check failed: no matching NodeSelectorTerms"), "{error}");
    assert!(!place.exists(), "nothing is made where the volume is not");
    node.volumes.note_node(own("here"));
    let volume = node.table.find::<serde_json::Value>("persistentvolume", "pv").unwrap();
    let moving = json!({ "coracle.io/move": json!({ "step": "copying" }).to_string() });
    let mut held = volume.clone();
    held["metadata"]["annotations"] = moving;
    node.table.put("persistentvolume", "pv", held);
    let error = node.mount(&pod("u1", &of_claim())).await.unwrap_err();
    assert!(error.ends_with("its volume is being moved"), "{error}");
    node.table.put("persistentvolume", "pv", volume);
    node.mount(&pod("u1", &of_claim())).await.unwrap();
    assert!(place.is_dir());
}
