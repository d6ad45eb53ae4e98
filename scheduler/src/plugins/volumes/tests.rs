use super::super::limits::NodeVolumeLimits;
use super::super::restrictions::VolumeRestrictions;
use super::super::zone::VolumeZone;
use super::*;
use crate::plugins::testing::{node, pod, snapshot};

#[derive(Clone, Default)]
struct Fake {
    claims: Vec<Value>,
    volumes: Vec<Value>,
    classes: Vec<Value>,
    drivers: Vec<Value>,
    capacities: Vec<Value>,
    csi_nodes: Vec<Value>,
}

fn find<T: serde::de::DeserializeOwned>(list: &[Value], name: &str) -> Option<Arc<T>> {
    let found = list.iter().find(|o| o["metadata"]["name"] == name)?;
    Some(Arc::new(serde_json::from_value(found.clone()).expect("an object of its kind")))
}

impl Cluster for Fake {
    fn claim(&self, _namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        find(&self.claims, name)
    }
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        find(&self.volumes, name)
    }
    fn volumes(&self) -> Vec<Arc<PersistentVolume>> {
        let names = self.volumes.iter().filter_map(|v| v["metadata"]["name"].as_str());
        names.filter_map(|name| self.volume(name)).collect()
    }
    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        find(&self.classes, name)
    }
    fn csi_node(&self, name: &str) -> Option<Arc<Value>> {
        find(&self.csi_nodes, name)
    }
    fn csi_driver(&self, name: &str) -> Option<Arc<Value>> {
        find(&self.drivers, name)
    }
    fn csi_storage_capacities(&self) -> Vec<Arc<Value>> {
        self.capacities.iter().cloned().map(Arc::new).collect()
    }
}

fn using(claim: &str) -> PodInfo {
    pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"containers": [],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}}))
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}}}})
}

fn bound(name: &str, volume: &str) -> Value {
    let mut claim = claim(name, "slow", "1Gi");
    claim["spec"]["volumeName"] = json!(volume);
    claim["status"] = json!({"phase": "Bound"});
    claim
}

fn volume(name: &str, size: &str, host: Option<&str>) -> Value {
    let affinity = host.map(|h| {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "host", "operator": "In", "values": [h]}]}]}})
    });
    json!({"metadata": {"name": name}, "spec": {"storageClassName": "local", "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity}, "status": {"phase": "Available"}})
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode})
}

fn host(name: &str) -> NodeInfo {
    node(json!({"metadata": {"name": name, "labels": {"host": name}}}))
}

fn plugin(fake: &Fake) -> VolumeBinding {
    VolumeBinding::new(&Handle::with(Arc::new(fake.clone())), &json!({})).expect("arguments")
}

/// What PreFilter and then Filter say.
fn verdict(fake: &Fake, pod: &PodInfo, node: &NodeInfo) -> String {
    let (plugin, mut state) = (plugin(fake), CycleState::default());
    match plugin.pre_filter(&mut state, pod, &Snapshot::default()) {
        Status::Success => plugin.filter(&state, pod, node).message(),
        Status::Skip => "skip".to_owned(),
        refused => refused.message(),
    }
}

fn waiting() -> Fake {
    Fake {
        claims: vec![claim("data", "local", "2Gi")],
        classes: vec![class("local", NO_PROVISIONER, "WaitForFirstConsumer")],
        ..Fake::default()
    }
}

#[test]
fn claims_that_stand_in_the_way_are_named() {
    let slow = class("slow", "x", "Immediate");
    let fake = |claims: Vec<Value>| Fake { claims, classes: vec![slow.clone()], ..Fake::default() };
    let mut leaving = claim("data", "slow", "1Gi");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut lost = bound("data", "v");
    lost["status"]["phase"] = json!("Lost");
    for (claims, words) in [
        (vec![], "persistentvolumeclaim \"data\" not found"),
        (vec![claim("data", "slow", "1Gi")], "pod has unbound immediate PersistentVolumeClaims"),
        (vec![leaving], "persistentvolumeclaim \"data\" is being deleted"),
        (vec![lost], "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"v\""),
        (
            vec![bound("data", "v")],
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
    ] {
        assert_eq!(verdict(&fake(claims), &using("data"), &host("a")), words);
    }
    assert_eq!(verdict(&fake(vec![]), &pod(json!({"spec": {"containers": []}})), &host("a")), "skip");
}

#[test]
fn a_bound_volume_decides_the_node() {
    let mut fake = Fake { claims: vec![bound("data", "v")], ..Fake::default() };
    fake.volumes = vec![volume("v", "1Gi", Some("a"))];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), "");
    assert_eq!(verdict(&fake, &using("data"), &host("b")), CONFLICT);
    // One that is moved is nobody's meanwhile.
    let moving = json!({ "step": "copying" }).to_string();
    fake.volumes[0]["metadata"]["annotations"] = json!({ coracle_api::storage::MOVE: moving });
    let words = "the volume of persistentvolumeclaim \"data\" is being moved";
    assert_eq!(verdict(&fake, &using("data"), &host("a")), words);
}

#[test]
fn a_waiting_claim_takes_the_smallest_volume_that_suits() {
    let mut fake = waiting();
    fake.volumes = vec![volume("small", "1Gi", Some("a")), volume("large", "9Gi", Some("a"))];
    fake.volumes.push(volume("right", "2Gi", Some("a")));
    assert_eq!(verdict(&fake, &using("data"), &host("a")), "");
    assert_eq!(verdict(&fake, &using("data"), &host("b")), NOTHING_TO_BIND);
    let plugin = plugin(&fake);
    let claims = look_up(&fake, &using("data")).unwrap_or(Claims { bound: vec![], waiting: vec![] });
    let decisions = plugin.decide(&using("data"), &claims, &host("a")).expect("a volume");
    let [Decision::Take(volume, _)] = decisions.as_slice() else { panic!("a volume is taken") };
    assert_eq!(volume.metadata.name.as_deref(), Some("right"));
}

#[test]
fn a_volume_is_not_promised_twice() {
    let mut fake = waiting();
    fake.volumes = vec![volume("only", "2Gi", None)];
    let (plugin, mut state) = (plugin(&fake), CycleState::default());
    let (first, mut second) = (using("data"), using("data"));
    second.uid = "q".to_owned();
    plugin.pre_filter(&mut state, &first, &Snapshot::default());
    assert!(plugin.reserve(&mut state, &first, &host("a")).is_success());
    assert_eq!(plugin.filter(&state, &second, &host("a")).message(), NOTHING_TO_BIND);
    plugin.unreserve(&first, "a");
    assert!(plugin.filter(&state, &second, &host("a")).is_success());
}

#[test]
fn a_class_provisions_where_it_may_and_where_there_is_room() {
    let mut fake = waiting();
    fake.classes = vec![class("local", "driver", "WaitForFirstConsumer")];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), "");
    fake.classes[0]["allowedTopologies"] =
        json!([{"matchLabelExpressions": [{"key": "host", "values": ["a"]}]}]);
    assert_eq!(verdict(&fake, &using("data"), &host("b")), NOTHING_TO_BIND);
    fake.drivers = vec![json!({"metadata": {"name": "driver"}, "spec": {"storageCapacity": true}})];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), NO_ROOM);
    let room = |size: &str| {
        json!({"metadata": {"name": "c"}, "storageClassName": "local", "capacity": size,
        "nodeTopology": {"matchLabels": {"host": "a"}}})
    };
    fake.capacities = vec![room("1Gi")];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), NO_ROOM);
    fake.capacities = vec![room("2Gi")];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), "");
}

#[test]
fn local_path_tells_its_room_where_sizes_hold() {
    let mut fake = waiting();
    fake.classes = vec![class("local", "coracle.io/local-path", "WaitForFirstConsumer")];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), "", "a wish needs no room");
    fake.classes[0]["parameters"] = json!({"sizeLimit": "file"});
    assert_eq!(verdict(&fake, &using("data"), &host("a")), NO_ROOM);
    fake.capacities = vec![json!({"metadata": {"name": "c"}, "storageClassName": "local", "capacity": "2Gi",
        "nodeTopology": {"matchLabels": {"host": "a"}}})];
    assert_eq!(verdict(&fake, &using("data"), &host("a")), "");
    assert_eq!(verdict(&fake, &using("data"), &host("b")), NO_ROOM);
}

#[test]
fn zones_of_volumes_bind_pods() {
    let mut labelled = volume("v", "1Gi", None);
    labelled["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "a__b"});
    let fake = Fake { claims: vec![bound("data", "v")], volumes: vec![labelled], ..Fake::default() };
    let (zone, mut state) = (VolumeZone::new(Arc::new(fake)), CycleState::default());
    assert_eq!(zone.pre_filter(&mut state, &using("data"), &Snapshot::default()), Status::Success);
    let fits = |labels: Value| {
        let node = node(json!({"metadata": {"name": "n", "labels": labels}}));
        zone.filter(&state, &using("data"), &node).is_success()
    };
    assert!(fits(json!({"topology.kubernetes.io/zone": "b"})));
    assert!(!fits(json!({"topology.kubernetes.io/zone": "c"})));
    assert!(!fits(json!({"topology.kubernetes.io/region": "r"})));
    assert!(fits(json!({})));
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_left_to_volume_binding() {
    let ephemeral =
        pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"containers": [],
        "volumes": [{"name": "data", "ephemeral": {}}]}}));
    let restrictions = VolumeRestrictions::new(Arc::new(Fake::default()));
    assert_eq!(
        restrictions.pre_filter(&mut CycleState::default(), &ephemeral, &Snapshot::default()),
        Status::Skip
    );
    assert_eq!(
        verdict(&Fake::default(), &ephemeral, &host("a")),
        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-data\""
    );
}

#[test]
fn a_claim_for_one_pod_has_one_pod() {
    let mut exclusive = bound("data", "v");
    exclusive["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let fake = Fake { claims: vec![exclusive], ..Fake::default() };
    let (plugin, mut state) = (VolumeRestrictions::new(Arc::new(fake)), CycleState::default());
    let user = json!({"metadata": {"name": "u", "namespace": "default", "uid": "u"}, "spec": {"nodeName": "a",
        "containers": [], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}});
    let nodes = [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}})];
    let snapshot = snapshot(&nodes, std::slice::from_ref(&user));
    assert_eq!(plugin.pre_filter(&mut state, &using("data"), &snapshot), Status::Success);
    let b = snapshot.node_named("b").expect("a node");
    assert!(plugin.filter(&state, &using("data"), b).message().contains("ReadWriteOncePod"));
    plugin.remove_pod(&mut state, &using("data"), &pod(user), b);
    assert!(plugin.filter(&state, &using("data"), b).is_success());
}

#[test]
fn a_node_attaches_so_many_volumes_of_a_driver() {
    let csi = |name: &str| {
        let mut volume = volume(name, "1Gi", None);
        volume["spec"]["csi"] = json!({"driver": "d", "volumeHandle": name});
        volume
    };
    let fake = Fake {
        claims: vec![bound("data", "v1"), bound("other", "v2")],
        volumes: vec![csi("v1"), csi("v2")],
        csi_nodes: vec![json!({"metadata": {"name": "a"}, "spec": {"drivers":
            [{"name": "d", "nodeID": "a", "allocatable": {"count": 1}}]}})],
        ..Fake::default()
    };
    let plugin = NodeVolumeLimits::new(Arc::new(fake));
    let mut busy = host("a");
    assert!(plugin.filter(&CycleState::default(), &using("data"), &busy).is_success());
    busy.add(Arc::new(using("other")));
    let status = plugin.filter(&CycleState::default(), &using("data"), &busy);
    assert_eq!(status.message(), "node(s) exceed max volume count");
    // The same volume again needs no second place.
    assert!(plugin.filter(&CycleState::default(), &using("other"), &busy).is_success());
}

#[test]
fn a_node_is_believed_about_the_kinds_that_it_can_mount() {
    let disk = json!({"name": "d", "iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0}});
    let inline = pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [], "volumes": [disk]}}));
    let channel = json!({"metadata": {"name": "pv"}, "spec": {"fc": {"lun": 0, "targetWWNs": ["w"]}}});
    let fake = Fake { claims: vec![bound("c", "pv")], volumes: vec![channel], ..Fake::default() };
    let says = |kinds: &str| {
        node(json!({"metadata": {"name": "a", "annotations": {"coracle.io/volume-kinds": kinds}}}))
    };
    for (pod, kind) in [(&inline, "iscsi"), (&using("c"), "fc")] {
        let (plugin, mut state) = (VolumeRestrictions::new(Arc::new(fake.clone())), CycleState::default());
        assert!(plugin.pre_filter(&mut state, pod, &snapshot(&[], &[])).is_success(), "{kind}");
        let refused = plugin.filter(&state, pod, &says("nfs,csi"));
        let why = format!("node(s) cannot mount volumes of kind {kind:?}");
        assert_eq!(refused, Status::unresolvable(why));
        for node in [says("nfs,iscsi,fc"), host("b")] {
            assert!(plugin.filter(&state, pod, &node).is_success(), "{kind}");
        }
    }
}
