//! What holds for a volume of every kind.

use crate::driver::Behaviour;
use crate::node::{Node, of_claim, of_driver, pod};
use coracle_storage::csi::messages::NodeRpcType;
use serde_json::{Value, json};
use std::path::Path;

/// A kind of volume: what the pod says, and the source of the claim's volume where it has a claim.
struct Kind {
    name: &'static str,
    volume: Value,
    source: Option<Value>,
    capabilities: &'static [NodeRpcType],
    /// What a driver is called for it, from its first call to its last.
    calls: &'static [&'static str],
}

const STAGES: &[NodeRpcType] = &[NodeRpcType::StageUnstageVolume];

fn kinds(place: &Path) -> Vec<Kind> {
    let simple = |name, volume| Kind { name, volume, source: None, capabilities: &[], calls: &[] };
    let claimed =
        |name, source| Kind { name, volume: of_claim(), source: Some(source), capabilities: &[], calls: &[] };
    let mut block = of_driver();
    block["volumeMode"] = "Block".into();
    let staged = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
    let staged: &'static [&'static str] = Box::leak(Box::new(staged));
    vec![
        simple("emptyDir", json!({ "emptyDir": {} })),
        simple("emptyDir in memory", json!({ "emptyDir": { "medium": "Memory" } })),
        simple("secret", json!({ "secret": { "secretName": "s" } })),
        simple("configMap", json!({ "configMap": { "name": "m" } })),
        simple(
            "projected",
            json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } }),
        ),
        simple("downwardAPI", json!({ "downwardAPI": { "items": [] } })),
        simple("hostPath", json!({ "hostPath": { "path": place, "type": "Directory" } })),
        simple("nfs", json!({ "nfs": { "server": "s", "path": "/x" } })),
        claimed("claimed hostPath", json!({ "hostPath": { "path": place } })),
        claimed("claimed local", json!({ "local": { "path": place } })),
        claimed("claimed nfs", json!({ "nfs": { "server": "s", "path": "/x" } })),
        Kind {
            name: "csi",
            volume: of_claim(),
            source: Some(of_driver()),
            capabilities: &[],
            calls: &["NodePublishVolume", "NodeUnpublishVolume"],
        },
        Kind {
            name: "csi that stages",
            volume: of_claim(),
            source: Some(of_driver()),
            capabilities: STAGES,
            calls: staged,
        },
        Kind {
            name: "csi block",
            volume: of_claim(),
            source: Some(block),
            capabilities: STAGES,
            calls: staged,
        },
        Kind {
            name: "csi inline",
            volume: json!({ "csi": { "driver": crate::node::DRIVER } }),
            source: None,
            capabilities: STAGES,
            calls: &["NodePublishVolume", "NodeUnpublishVolume"],
        },
    ]
}

async fn node(kind: &Kind) -> Node {
    let node = Node::start(kind.capabilities).await;
    node.csi_driver(json!({ "attachRequired": false, "podInfoOnMount": true,
        "volumeLifecycleModes": ["Persistent", "Ephemeral"] }));
    node.table.put("secret", "s", json!({ "metadata": { "name": "s" }, "data": { "k": "dg==" } }));
    node.table.put("configmap", "m", json!({ "metadata": { "name": "m" }, "data": { "k": "v" } }));
    if let Some(source) = &kind.source {
        node.claim(source.clone());
    }
    node
}

/// Nothing of the pod is left: no directory, no mount, no record, nothing at the driver.
fn assert_gone(node: &Node, kind: &str) {
    assert_eq!(node.volumes.pods_on_disk(), [""; 0], "{kind}");
    assert_eq!(*node.host.mounts.lock().unwrap(), [""; 0].map(std::path::PathBuf::from), "{kind}");
    let staged = node.root().join("staged-volumes");
    let left = std::fs::read_dir(staged).map(|entries| entries.count()).unwrap_or(0);
    assert_eq!(left, 0, "{kind}: records of staged volumes");
    assert!(node.driver.is_clean(), "{kind}: {:?}", node.driver.order());
    assert_eq!(node.volumes.in_use(), [""; 0], "{kind}");
}

#[tokio::test]
async fn set_up_and_tear_down_can_be_repeated() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("data"), "precious").unwrap();
    for kind in kinds(place.path()) {
        let node = node(&kind).await;
        let pod = pod("u1", &kind.volume);
        let first = node.mount(&pod).await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        let mounts = node.host.mounts.lock().unwrap().clone();
        assert_eq!(node.mount(&pod).await.unwrap(), first, "{}", kind.name);
        assert_eq!(*node.host.mounts.lock().unwrap(), mounts, "{}: nothing is mounted twice", kind.name);
        for _ in 0..2 {
            node.volumes.tear_down("u1").await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        }
        assert_gone(&node, kind.name);
        assert_eq!(node.driver.order(), kind.calls, "{}", kind.name);
        assert_eq!(std::fs::read_to_string(place.path().join("data")).unwrap(), "precious", "{}", kind.name);
    }
}

#[tokio::test]
async fn what_a_killed_kubelet_has_set_up_is_found_and_taken_away_by_the_next() {
    let place = tempfile::tempdir().unwrap();
    for kind in kinds(place.path()) {
        let mut node = node(&kind).await;
        let pod = pod("u1", &kind.volume);
        let first = node.mount(&pod).await.unwrap();
        let mounts = node.host.mounts.lock().unwrap().clone();
        node.kill_kubelet();
        assert_eq!(node.mount(&pod).await.unwrap(), first, "{}", kind.name);
        assert_eq!(*node.host.mounts.lock().unwrap(), mounts, "{}: nothing is mounted twice", kind.name);
        node.kill_kubelet();
        node.volumes.tear_down("u1").await.unwrap();
        assert_gone(&node, kind.name);
    }
}

#[tokio::test]
async fn a_set_up_that_failed_half_way_is_torn_down_and_can_be_tried_again() {
    let place = tempfile::tempdir().unwrap();
    for kind in kinds(place.path()) {
        let node = node(&kind).await;
        let pod = pod("u1", &kind.volume);
        // The kernel refuses every mount: kinds that mount fail, the others do not care.
        *node.host.fails.lock().unwrap() = true;
        let refused = node.mount(&pod).await;
        node.volumes.tear_down("u1").await.unwrap();
        assert_gone(&node, kind.name);
        *node.host.fails.lock().unwrap() = false;
        let again = node.mount(&pod).await;
        assert!(again.is_ok(), "{}: {refused:?} {again:?}", kind.name);
        node.volumes.tear_down("u1").await.unwrap();
        assert_gone(&node, kind.name);
    }
}

/// Every call that a kind makes, ended in every way that a driver can end it, with a kubelet that dies right after.
#[tokio::test]
async fn whatever_a_driver_does_at_a_call_the_volume_is_gone_in_the_end() {
    const INTERNAL: i32 = 13;
    let place = tempfile::tempdir().unwrap();
    let ways = [
        Behaviour::Fail(INTERNAL),
        Behaviour::DoneButFailed(INTERNAL),
        Behaviour::Hang,
        Behaviour::Die,
        Behaviour::DoneAndDie,
    ];
    let all = kinds(place.path());
    for kind in all.iter().filter(|kind| !kind.calls.is_empty()) {
        for call in kind.calls {
            for way in ways {
                let what = format!("{}, {call}: {way:?}", kind.name);
                let mut node = node(kind).await;
                let pod = pod("u1", &kind.volume);
                node.driver.told(call, way);
                let up = node.mount(&pod).await;
                let sets_up = matches!(*call, "NodeStageVolume" | "NodePublishVolume");
                assert_eq!(up.is_err(), sets_up, "{what}: {up:?}");
                let down = node.volumes.tear_down("u1").await;
                // One that died while the volume was set up is dead still.
                let unanswered = *call == "NodeUnpublishVolume" || sets_up && node.driver.is_dead();
                assert_eq!(down.is_err(), unanswered, "{what}: {down:?}");
                node.kill_kubelet();
                node.driver.heal();
                if node.driver.is_dead() {
                    node.driver.serve(node.dir.path().join("csi.sock"));
                }
                node.volumes.tear_down("u1").await.unwrap();
                let left: Vec<String> =
                    node.volumes.unstage_unused().await.iter().map(ToString::to_string).collect();
                assert_eq!(left, [""; 0], "{what}");
                assert_gone(&node, &what);
            }
        }
    }
}

/// One that was started anew and knows nothing any more, or that lied when it was asked.
#[tokio::test]
async fn a_driver_that_has_nothing_staged_is_asked_to_stage_again() {
    let place = tempfile::tempdir().unwrap();
    let kind = kinds(place.path()).into_iter().find(|kind| kind.name == "csi that stages").unwrap();
    let node = node(&kind).await;
    let (one, other) = (pod("u1", &kind.volume), pod("u2", &kind.volume));
    node.driver.told("NodeStageVolume", Behaviour::Lie);
    let refused = node.mount(&one).await.unwrap_err();
    assert!(refused.contains("NodePublishVolume: not staged"), "{refused}");
    node.driver.heal();
    node.mount(&one).await.unwrap();
    node.driver.state.lock().unwrap().staged.clear();
    assert!(node.mount(&other).await.is_err());
    node.mount(&other).await.unwrap();
    assert_eq!(node.driver.calls("NodeStageVolume").len(), 3);
    for uid in ["u1", "u2"] {
        node.volumes.tear_down(uid).await.unwrap();
    }
    assert_gone(&node, kind.name);
}

#[tokio::test]
async fn a_volume_stays_on_the_node_for_as_long_as_a_pod_has_it() {
    let place = tempfile::tempdir().unwrap();
    let kind = kinds(place.path()).into_iter().find(|kind| kind.name == "csi that stages").unwrap();
    let node = node(&kind).await;
    let (one, other) = (pod("u1", &kind.volume), pod("u2", &kind.volume));
    node.mount(&one).await.unwrap();
    node.mount(&other).await.unwrap();
    node.volumes.tear_down("u1").await.unwrap();
    assert_eq!(node.driver.calls("NodeUnstageVolume"), []);
    node.volumes.tear_down("u2").await.unwrap();
    assert_eq!(node.driver.calls("NodeStageVolume").len(), 1);
    assert_eq!(node.driver.calls("NodeUnstageVolume").len(), 1);
    assert_gone(&node, kind.name);
}

/// The scheduler keeps the second away; a pod that was placed by hand, or by a scheduler that knew less, it does not.
#[tokio::test]
async fn a_volume_of_one_pod_is_no_other_ones_until_it_was_taken_away() {
    let place = tempfile::tempdir().unwrap();
    for mut kind in kinds(place.path()) {
        let Some(source) = &mut kind.source else { continue };
        source["accessModes"] = json!(["ReadWriteOncePod"]);
        let mut node = node(&kind).await;
        let (one, other) = (pod("u1", &kind.volume), pod("u2", &kind.volume));
        node.mount(&one).await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        for kubelet in ["the same", "the next"] {
            let refused = node.mount(&other).await.unwrap_err();
            let why = "uses the ReadWriteOncePod access mode and is already in use by another pod";
            assert!(refused.contains(why), "{}, {kubelet}: {refused}", kind.name);
            node.mount(&one).await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            node.kill_kubelet();
        }
        node.volumes.tear_down("u1").await.unwrap();
        node.mount(&other).await.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        node.volumes.tear_down("u2").await.unwrap();
        assert_gone(&node, kind.name);
    }
}

#[tokio::test]
async fn what_a_driver_leaves_mounted_is_unmounted_and_not_emptied() {
    let place = tempfile::tempdir().unwrap();
    let kind = kinds(place.path()).into_iter().find(|kind| kind.name == "csi").unwrap();
    let node = node(&kind).await;
    let path = node.mount(&pod("u1", &kind.volume)).await.unwrap();
    node.host.mounts.lock().unwrap().push(path);
    node.driver.told("NodeUnpublishVolume", Behaviour::Lie);
    node.volumes.tear_down("u1").await.unwrap();
    assert_eq!(node.volumes.pods_on_disk(), [""; 0]);
    assert!(node.host.mounts.lock().unwrap().is_empty());
}
