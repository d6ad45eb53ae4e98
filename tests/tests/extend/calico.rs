//! Calico as its makers publish it, with the Network Policy group's ClusterNetworkPolicy: 23 definitions with 46 places
//! that have rules, and all that stands beside them in the manifest (tests/clients/definitions.txt).

use coracle_tests::rest::Rest;
use coracle_tests::{Cluster, clients, custom};
use serde_json::{Value, json};

const MANIFEST: &str = "magnum-cluster-api/v3.32.1.yaml";
const NAME: &str = "made";

/// An object of each kind: its spec.
fn specs() -> Value {
    let rules = json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [80, "90:99"]}}]);
    let policy = json!({"selector": "all()", "types": ["Ingress"], "ingress": rules});
    let staged = json!({"stagedAction": "Set", "selector": "all()"});
    let nets = json!({"nets": ["10.0.0.0/8"]});
    let accept = json!({"action": "Accept", "from": [{"namespaces": {}}],
        "protocols": [{"tcp": {"destinationPort": {"range": {"start": 80, "end": 90}}}}]});
    json!({
        "BGPConfiguration": {"nodeToNodeMeshEnabled": true, "asNumber": 64512},
        "BGPFilter": {"exportV4": [{"action": "Accept", "matchOperator": "In", "cidr": "10.0.0.0/8"}]},
        "BGPPeer": {"peerIP": "192.0.2.1", "asNumber": 64512, "nodeSelector": "all()"},
        "BlockAffinity": {"cidr": "10.0.0.0/26", "deleted": "false", "node": "n", "state": "confirmed"},
        "CalicoNodeStatus": {"node": "n", "classes": ["Agent"], "updatePeriodSeconds": 10},
        "ClusterInformation": {"clusterGUID": "x", "datastoreReady": true},
        "ClusterNetworkPolicy": {"tier": "Admin", "priority": 10, "subject": {"namespaces": {}}, "ingress": [accept]},
        "FelixConfiguration": {"logSeverityScreen": "Info"},
        "GlobalNetworkPolicy": policy,
        "GlobalNetworkSet": nets,
        "HostEndpoint": {"node": "n", "interfaceName": "eth0"},
        "IPAMBlock": {"allocations": [null, 1], "attributes": [], "cidr": "10.0.0.0/26", "strictAffinity": false,
            "unallocated": [0]},
        "IPAMConfig": {"autoAllocateBlocks": true, "strictAffinity": false},
        "IPAMHandle": {"block": {"10.0.0.0/26": 1}, "handleID": "h"},
        "IPPool": {"cidr": "10.0.0.0/16", "ipipMode": "Always"},
        "IPReservation": {"reservedCIDRs": ["10.0.0.0/30"]},
        "KubeControllersConfiguration": {"controllers": {}},
        "NetworkPolicy": policy,
        "NetworkSet": nets,
        "StagedGlobalNetworkPolicy": staged,
        "StagedKubernetesNetworkPolicy": {"stagedAction": "Set", "podSelector": {}, "policyTypes": ["Ingress"]},
        "StagedNetworkPolicy": staged,
        "Tier": {"order": 100, "defaultAction": "Pass"},
    })
}

/// Merge patches of a spec that rules refuse, and what the refusal says.
const BROKEN: &[(&str, &str, &str)] = &[
    (
        "BGPConfiguration",
        r#"{"nodeToNodeMeshEnabled":false,"nodeMeshMaxRestartTime":"9s"}"#,
        "spec: Forbidden: nodeMeshMaxRestartTime cannot be set when nodeToNodeMeshEnabled is false",
    ),
    (
        "BGPFilter",
        r#"{"exportV4":[{"action":"Accept","cidr":"10.0.0.0/8"}]}"#,
        "spec.exportV4[0]: Invalid value: cidr and matchOperator must both be set or both be empty",
    ),
    ("BGPPeer", r#"{"node":"n"}"#, "spec: Forbidden: node and nodeSelector cannot both be set"),
    (
        "ClusterNetworkPolicy",
        r#"{"ingress":[{"action":"Accept","from":[{"namespaces":{}}],"protocols":[{"tcp":{"destinationPort":{"range":{"start":9,"end":8}}}}]}]}"#,
        "spec.ingress[0].protocols[0].tcp.destinationPort.range: Invalid value: Start port must be less than End port",
    ),
    (
        "ClusterNetworkPolicy",
        r#"{"egress":[{"action":"Accept","to":[{"networks":["10.0.0.0/33"]}]}]}"#,
        "spec.egress[0].to[0].networks[0]: Invalid value: \"10.0.0.0/33\": Invalid CIDR format provided",
    ),
    ("HostEndpoint", r#"{"node":""}"#, "spec: Invalid value: node must be specified"),
    (
        "IPPool",
        r#"{"cidr":"10.1.0.0/16"}"#,
        "spec.cidr: Invalid value: \"10.1.0.0/16\": CIDR cannot be changed; follow IP pool migration guide to avoid corruption.",
    ),
    ("IPPool", r#"{"vxlanMode":"Always"}"#, "spec: Forbidden: ipipMode and vxlanMode cannot both be enabled"),
    (
        "NetworkPolicy",
        r#"{"ingress":[{"action":"Deny","http":{"methods":["GET"]}}]}"#,
        "spec.ingress[0]: Forbidden: HTTP match is only valid on Allow rules",
    ),
    (
        "NetworkPolicy",
        r#"{"ingress":[{"action":"Allow","icmp":{"code":1}}]}"#,
        "spec.ingress[0].icmp: Invalid value: ICMP code specified without an ICMP type",
    ),
];

/// The definitions in the manifest.
fn definitions() -> Vec<Value> {
    let text = std::fs::read_to_string(clients::definitions().join(MANIFEST)).expect("the manifest");
    let documents =
        text.split("\n---").map(|document| serde_saphyr::from_str::<Value>(document).unwrap_or_default());
    documents.filter(|object| object["kind"] == "CustomResourceDefinition").collect()
}

/// Where the objects of a definition are.
fn place(definition: &Value) -> String {
    let version = definition["spec"]["versions"][0]["name"].as_str().expect("a version");
    let namespace = if definition["spec"]["scope"] == "Cluster" { "" } else { "default" };
    custom::path(definition, version, namespace)
}

/// Created, read, shown as a table, and applied by somebody else.
#[track_caller]
fn used(rest: &Rest, definition: &Value, spec: &Value) {
    let (kind, path) = (&definition["spec"]["names"]["kind"], place(definition));
    let version = path.trim_start_matches("/apis/").split('/').take(2).collect::<Vec<_>>().join("/");
    let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "spec": spec});
    let strict = rest.call("POST", &format!("{path}?fieldValidation=Strict"), &[], &object.to_string());
    assert_eq!(strict.code, 201, "{kind}: {}", strict.body);
    let one = format!("{path}/{NAME}");
    let read = rest.get(&one);
    for (field, value) in spec.as_object().expect("a spec") {
        assert_eq!(read["spec"][field], *value, "{kind}.{field}: {read}");
    }
    let table = rest.call("GET", &path, &["Accept: application/json;as=Table;g=meta.k8s.io;v=v1"], "").ok();
    assert_eq!(table["rows"][0]["cells"][0], NAME, "{kind}: {table}");
    let apply = ["Content-Type: application/apply-patch+yaml"];
    let applied = rest.call("PATCH", &format!("{one}?fieldManager=other"), &apply, &object.to_string()).ok();
    assert_eq!(applied["spec"], read["spec"], "{kind}");
    assert_eq!(applied["metadata"]["managedFields"].as_array().map(Vec::len), Some(2), "{kind}: {applied}");
}

#[test]
fn calico_is_installed_and_its_rules_hold() {
    let cluster = Cluster::simulated();
    let rest = Rest::new(cluster.kubeconfig());
    let manifest = clients::definitions().join(MANIFEST);
    cluster.ok(&format!("kubectl apply --server-side -f '{}' >/dev/null", manifest.display()));
    let (definitions, specs) = (definitions(), specs());
    assert_eq!(definitions.len(), 23);
    for definition in &definitions {
        custom::served(&rest, definition);
        let kind = definition["spec"]["names"]["kind"].as_str().expect("a kind");
        used(&rest, definition, &specs[kind]);
    }
    for (kind, patch, wanted) in BROKEN {
        let of_kind = |definition: &&Value| definition["spec"]["names"]["kind"] == *kind;
        let path = place(definitions.iter().find(of_kind).expect("a definition"));
        let merge = ["Content-Type: application/merge-patch+json"];
        let reply = rest.call("PATCH", &format!("{path}/{NAME}"), &merge, &format!("{{\"spec\":{patch}}}"));
        let message = reply.body["message"].as_str().unwrap_or_default();
        assert!(reply.code == 422 && message.ends_with(wanted), "{kind} {patch}: {} {message}", reply.code);
    }
    let tiers = "/apis/crd.projectcalico.org/v1/tiers";
    let tier = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "Tier", "metadata": {"name": "default"},
        "spec": {"defaultAction": "Pass"}});
    let refused = rest.call("POST", tiers, &[], &tier.to_string());
    assert_eq!(
        refused.body["message"],
        "Tier.crd.projectcalico.org \"default\" is invalid: <nil>: Invalid value: The 'default' tier must have default \
         action 'Deny'"
    );
    cluster.shows("kubectl get clusternetworkpolicies", &["NAME   TIER    PRIORITY", "made   Admin   10"]);
    cluster.shows("kubectl explain ippools.spec.cidr", &["crd.projectcalico.org", "FIELD: cidr <string>"]);
    let unknown = "{\"apiVersion\":\"crd.projectcalico.org/v1\",\"kind\":\"IPPool\",\"metadata\":{\"name\":\"x\"},\
                   \"spec\":{\"cidr\":\"10.9.0.0/16\",\"cird\":1}}";
    let refused = cluster.run_with("kubectl create --validate=strict -f -", unknown);
    assert!(refused.code != 0 && refused.stderr.contains("unknown field \"spec.cird\""), "{refused}");
    cluster.assert_alive();
}
