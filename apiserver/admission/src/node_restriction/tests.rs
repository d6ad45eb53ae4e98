use super::*;
use crate::testing::*;
use coracle_api::UserInfo;
use serde_json::json;

fn check(
    operation: Operation,
    resource: &'static str,
    new: &Object,
    old: Option<&Object>,
) -> Result<(), String> {
    let world = World::new();
    world.put("nodes.", json!({ "metadata": { "name": "n1", "uid": "u1" } }));
    let user = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let request = Try { user, operation, ..Try::create(&world, resource) };
    request.validate(&NodeRestriction, new, old).map_err(|e| e.message)
}

#[test]
fn pods() {
    let mirror = |node: &str, volumes: Value| {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        pod["spec"]["nodeName"] = node.into();
        pod["spec"]["volumes"] = volumes;
        let owner =
            json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true });
        pod["metadata"]["ownerReferences"] = json!([owner]);
        pod
    };
    let (here, there) = (mirror("n1", json!([])), mirror("n2", json!([])));
    check(Operation::Create, "pods.", &here, None).unwrap();
    assert!(
        check(Operation::Create, "pods.", &pod(), None).unwrap_err().contains("can only create mirror pods")
    );
    assert!(check(Operation::Create, "pods.", &there, None).is_err());
    let secret = mirror("n1", json!([{ "name": "v", "secret": { "secretName": "s" } }]));
    assert!(check(Operation::Create, "pods.", &secret, None).is_err());
    check(Operation::Update, "pods./status", &here, Some(&here)).unwrap();
    assert!(check(Operation::Update, "pods./status", &there, Some(&there)).is_err());
    check(Operation::Delete, "pods.", &here, Some(&here)).unwrap();
    assert!(check(Operation::Delete, "pods.", &there, Some(&there)).is_err());
    assert!(check(Operation::Update, "pods.", &here, Some(&here)).is_err());
}

#[test]
fn mirror_pods_belong_to_their_node_and_lead_nowhere() {
    let told = |path: &str, value: Value| {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        pod["spec"]["nodeName"] = "n1".into();
        let owner =
            json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true });
        pod["metadata"]["ownerReferences"] = json!([owner]);
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        match key.parse::<usize>() {
            Ok(index) => parent[index] = value,
            Err(_) => parent[key] = value,
        }
        check(Operation::Create, "pods.", &pod, None).unwrap_err()
    };
    for (path, value, why) in [
        ("/metadata/ownerReferences", json!([]), "with an owner reference set to itself"),
        ("/metadata/ownerReferences/0/controller", json!(false), "with a controller owner reference"),
        ("/metadata/ownerReferences/0/blockOwnerDeletion", json!(true), "must not set blockOwnerDeletion"),
        ("/metadata/ownerReferences/0/uid", json!("u2"), "node n1 UID mismatch: expected u2 got u1"),
        ("/spec/serviceAccountName", json!("bot"), "that reference a service account"),
        ("/spec/imagePullSecrets", json!([{ "name": "s" }]), "that reference secrets"),
        (
            "/spec/containers/0/envFrom",
            json!([{ "configMapRef": { "name": "c" } }]),
            "that reference configmaps",
        ),
        (
            "/spec/volumes",
            json!([{ "projected": { "sources": [{ "clusterTrustBundle": { "path": "p" } }] } }]),
            "that reference clustertrustbundles",
        ),
        (
            "/spec/volumes",
            json!([{ "persistentVolumeClaim": { "claimName": "c" } }]),
            "that reference persistentvolumeclaims",
        ),
        (
            "/spec/volumes",
            json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }]),
            "that reference persistentvolumeclaims",
        ),
        (
            "/spec/resourceClaims",
            json!([{ "name": "gpu", "resourceClaimName": "others" }]),
            "that reference resourceclaims",
        ),
    ] {
        let found = told(path, value);
        assert!(found.contains(why), "{path}: {found}");
    }
}

#[test]
fn claims_slices_and_pod_status() {
    let claim = |status: Value| json!({ "metadata": { "name": "c", "namespace": "a" }, "spec": {}, "status": status });
    let claims = "persistentvolumeclaims./status";
    let plain = claim(json!({ "phase": "Bound" }));
    let grown = claim(json!({ "phase": "Bound", "capacity": { "storage": "1Gi" }, "conditions": [] }));
    check(Operation::Update, claims, &grown, Some(&plain)).unwrap();
    let lost = claim(json!({ "phase": "Lost" }));
    assert!(check(Operation::Update, claims, &lost, Some(&plain)).is_err());
    assert!(check(Operation::Update, "persistentvolumeclaims.", &grown, Some(&plain)).is_err());
    let slice = |node: &str| json!({ "metadata": { "name": "s" }, "spec": { "nodeName": node } });
    let slices = "resourceslices.resource.k8s.io";
    check(Operation::Create, slices, &slice("n1"), None).unwrap();
    assert!(check(Operation::Create, slices, &slice("n2"), None).is_err());
    assert!(check(Operation::Update, slices, &slice("n1"), Some(&slice("n2"))).is_err());
    let pod = |claim: &str| {
        json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n1" },
        "status": { "resourceClaimStatuses": [{ "name": "g", "resourceClaimName": claim }] } })
    };
    assert!(check(Operation::Update, "pods./status", &pod("a"), Some(&pod("b"))).is_err());
    check(Operation::Update, "pods./status", &pod("a"), Some(&pod("a"))).unwrap();
    let extended = |claim: &str| {
        json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n1" },
            "status": { "extendedResourceClaimStatus": { "resourceClaimName": claim } } })
    };
    let told = check(Operation::Update, "pods./status", &extended("a"), Some(&extended("b"))).unwrap_err();
    assert!(told.ends_with("cannot update extended resource claim status"), "{told}");
    check(Operation::Update, "pods./status", &extended("a"), Some(&extended("a"))).unwrap();
}

#[test]
fn nodes_labels_and_taints() {
    let node = |name: &str, label: &str, taints: Value| json!({ "metadata": { "name": name, "labels": { label: "x" } }, "spec": { "taints": taints } });
    let plain = |label: &str| node("n1", label, json!([]));
    for label in
        ["kubernetes.io/hostname", "mine", "example.org/a", "node.kubernetes.io/b", "kubelet.kubernetes.io/c"]
    {
        check(Operation::Create, "nodes.", &plain(label), None).unwrap();
    }
    for label in ["node-restriction.kubernetes.io/a", "node-role.kubernetes.io/master", "x.k8s.io/a"] {
        assert!(check(Operation::Create, "nodes.", &plain(label), None).is_err(), "{label}");
        check(Operation::Update, "nodes.", &plain(label), Some(&plain(label))).unwrap();
    }
    let other = node("n2", "mine", json!([]));
    let denied = check(Operation::Update, "nodes./status", &other, Some(&other)).unwrap_err();
    assert_eq!(denied, "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"");
    let tainted = node("n1", "mine", json!([{ "key": "k", "effect": "NoSchedule" }]));
    check(Operation::Create, "nodes.", &tainted, None).unwrap();
    assert!(check(Operation::Update, "nodes.", &plain("mine"), Some(&tainted)).is_err());
}

/// What a node would say of itself, and why it may not; `None`: it may.
const CLAIMS: &[(&str, &str, Option<&str>)] = &[
    ("/spec/podCIDR", r#""10.42.0.0/24""#, Some("podCIDR or podCIDRs")),
    ("/spec/podCIDRs", r#"["0.0.0.0/1"]"#, Some("podCIDR or podCIDRs")),
    (
        "/metadata/ownerReferences",
        r#"[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]"#,
        Some("ownerReferences"),
    ),
    ("/status/addresses", r#"[{"type":"InternalIP","address":"192.0.2.9"}]"#, None),
    ("/status/addresses", r#"[{"type":"Hostname","address":"n1"}]"#, None),
    (
        "/status/addresses",
        r#"[{"type":"InternalIP","address":"10.43.0.10"}]"#,
        Some("10.43.0.0/16 is of Services"),
    ),
    (
        "/status/addresses",
        r#"[{"type":"InternalIP","address":"10.42.1.7"}]"#,
        Some("10.42.1.0/24 is of pods"),
    ),
    (
        "/status/addresses",
        r#"[{"type":"ExternalIP","address":"198.51.100.1"}]"#,
        Some("nodes may set InternalIP and Hostname"),
    ),
    (
        "/status/addresses",
        r#"[{"type":"ExternalDNS","address":"bank.example"}]"#,
        Some("nodes may set InternalIP and Hostname"),
    ),
    ("/status/addresses", r#"[{"type":"InternalIP","address":"::ffff:10.43.0.10"}]"#, Some("of Services")),
    (
        "/status/addresses",
        r#"[{"type":"InternalIP","address":"0.0.0.0"}]"#,
        Some("no machine is reached there"),
    ),
    (
        "/status/addresses",
        r#"[{"type":"InternalIP","address":"169.254.169.254"}]"#,
        Some("no machine is reached there"),
    ),
    (
        "/status/addresses",
        r#"[{"type":"InternalIP","address":"metadata.internal"}]"#,
        Some("it is no IP address"),
    ),
    (
        "/status/addresses",
        r#"[{"type":"InternalIP","address":"192.0.2.2"}]"#,
        Some("node \"n2\" was met there"),
    ),
    // n3 was there once, and n4 says so without having been met.
    ("/status/addresses", r#"[{"type":"InternalIP","address":"192.0.2.3"}]"#, None),
    ("/status/addresses", r#"[{"type":"InternalIP","address":"192.0.2.4"}]"#, None),
    (
        "/metadata/annotations",
        r#"{"coracle.io/checked-addresses":"198.51.100.7"}"#,
        Some("the annotation coracle.io/checked-addresses"),
    ),
    ("/metadata/annotations", r#"{"a":"b"}"#, None),
];

fn other_node(name: &str, address: &str, met: &str, ready: &str) -> Value {
    json!({
        "metadata": { "name": name, "annotations": { "coracle.io/checked-addresses": met } },
        "spec": { "podCIDRs": ["10.42.1.0/24"] },
        "status": { "addresses": [{ "type": "InternalIP", "address": address }],
            "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

#[test]
fn a_node_gives_itself_neither_ranges_nor_owners_nor_others_addresses() {
    let world = World::new();
    world.put("nodes.", other_node("n2", "192.0.2.2", "192.0.2.2", "True"));
    world.put("nodes.", other_node("n3", "192.0.2.3", "192.0.2.3", "Unknown"));
    world.put("nodes.", other_node("n4", "192.0.2.4", "", "True"));
    world.put(
        "servicecidrs.networking.k8s.io",
        json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": ["10.43.0.0/16"] } }),
    );
    let user = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let plain = json!({ "metadata": { "name": "n1" }, "spec": {}, "status": {} });
    for (path, value, why) in CLAIMS {
        let (parent, field) = path.rsplit_once('/').unwrap();
        let mut said = plain.clone();
        said.pointer_mut(parent).unwrap()[field] = serde_json::from_str(value).unwrap();
        for (operation, old) in [(Operation::Create, None), (Operation::Update, Some(&plain))] {
            let request = Try { user: user.clone(), operation, ..Try::create(&world, "nodes.") };
            let told = request.validate(&NodeRestriction, &said, old).map_err(|e| e.message);
            match why {
                None => assert_eq!(told, Ok(()), "{path} {value}"),
                Some(why) => {
                    let told = told.expect_err(value);
                    assert!(told.contains(why), "{value}: {told}");
                }
            }
        }
        // What the cluster has given it, a kubelet sends back with every write.
        let request =
            Try { user: user.clone(), operation: Operation::Update, ..Try::create(&world, "nodes.") };
        request.validate(&NodeRestriction, &said, Some(&said)).unwrap();
    }
}

/// Services lead their traffic to whatever address a pod's status has.
#[test]
fn a_nodes_pods_are_at_its_own_addresses_or_the_pod_networks() {
    let world = World::new();
    world.put("nodes.", other_node("n1", "192.0.2.1", "", "True"));
    world.put(
        "servicecidrs.networking.k8s.io",
        json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": ["10.43.0.0/16"] } }),
    );
    let pod = |host_network: bool, status: Value| {
        json!({ "metadata": { "name": "p", "namespace": "a" },
            "spec": { "nodeName": "n1", "hostNetwork": host_network }, "status": status })
    };
    let user = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
    let update = |old: &Object, new: &Object| {
        let operation = Operation::Update;
        let request = Try { user: user.clone(), operation, ..Try::create(&world, "pods./status") };
        request.validate(&NodeRestriction, new, Some(old)).map_err(|e| e.message)
    };
    let (own, other) = ("it is not the node's", "it is of Services");
    for (host_network, status, why) in [
        (
            true,
            json!({ "hostIP": "192.0.2.1", "podIP": "192.0.2.1", "podIPs": [{ "ip": "192.0.2.1" }] }),
            None,
        ),
        (true, json!({ "podIP": "::ffff:192.0.2.1" }), None),
        (true, json!({ "podIP": "198.51.100.7" }), Some(own)),
        (true, json!({ "podIPs": [{ "ip": "192.0.2.1" }, { "ip": "198.51.100.7" }] }), Some(own)),
        (false, json!({ "hostIPs": [{ "ip": "198.51.100.7" }] }), Some(own)),
        (false, json!({ "hostIP": "192.0.2.1", "podIP": "10.42.7.7" }), None),
        (false, json!({ "podIP": "10.43.0.1" }), Some(other)),
        (false, json!({ "podIPs": [{ "ip": "::ffff:10.43.0.1" }] }), Some(other)),
    ] {
        let (empty, new) = (pod(host_network, json!({})), pod(host_network, status.clone()));
        match (update(&empty, &new), why) {
            (told, None) => assert_eq!(told, Ok(()), "{status}"),
            (told, Some(why)) => {
                assert!(told.as_ref().is_err_and(|told| told.ends_with(why)), "{status}: {told:?}")
            }
        }
        // What is there already, the node's own address may have changed since.
        assert_eq!(update(&new, &new), Ok(()), "{status}");
    }
}

#[test]
fn a_node_asks_for_certificates_of_its_own_name_alone() {
    let ask = |signer: &str, names: &[&str]| {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            parameters.distinguished_name.push(rcgen::DnType::CommonName, *name);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        let request = json!({ "metadata": { "name": "c" },
            "spec": { "signerName": signer, "request": STANDARD.encode(pem) } });
        check(Operation::Create, "certificatesigningrequests.certificates.k8s.io", &request, None)
    };
    ask("kubernetes.io/kubelet-serving", &["system:node:n1"]).unwrap();
    ask("example.org/other", &["anybody"]).unwrap();
    for names in [&["system:node:n2"][..], &["n1"], &[]] {
        let told = ask("kubernetes.io/kube-apiserver-client-kubelet", names).unwrap_err();
        assert!(told.ends_with("can only create a node CSR with CN=system:node:n1"), "{names:?}: {told}");
    }
}

#[test]
fn leases() {
    let lease = |namespace: &str, name: &str| json!({ "metadata": { "name": name, "namespace": namespace } });
    let create = |o: Object| check(Operation::Create, "leases.coordination.k8s.io", &o, None);
    create(lease("kube-node-lease", "n1")).unwrap();
    assert!(create(lease("kube-node-lease", "n2")).is_err());
    assert!(create(lease("kube-system", "n1")).is_err());
}

#[test]
fn others_are_not_its_business() {
    let world = World::new();
    Try::create(&world, "pods.").validate(&NodeRestriction, &pod(), None).unwrap();
}
