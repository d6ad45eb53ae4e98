//! What a machine may say of itself once it has joined: whoever took it over has its credentials.

use super::fails;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_tests::http::Caller;
use coracle_tests::{Cluster, wait_for};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use std::time::Duration;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A request for a certificate of this name, and its key.
fn request(name: &str, signer: &str, common_name: &str) -> (Value, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let key = KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).and_then(|r| r.pem()).expect("a request");
    let object = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": name }, "spec": { "request": STANDARD.encode(pem), "signerName": signer,
        "usages": ["digital signature", "client auth"] } });
    (object, key.serialize_pem())
}

/// Joins as a machine does, by a token, and returns the node's credentials.
fn join(cluster: &Cluster, node: &str) -> Caller {
    let token = cluster.ok("coracle token create").trim().to_owned();
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let (object, key) = request(node, signer, &format!("system:node:{node}"));
    let made = cluster.http(&Caller::Token(token), "POST", REQUESTS, &object.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    let mut chain = String::new();
    wait_for("the node's certificate", Duration::from_secs(60), || {
        let answer = cluster.raw("GET", &format!("{REQUESTS}/{node}"), "").json();
        chain = answer["status"]["certificate"].as_str().unwrap_or_default().to_owned();
        if chain.is_empty() { Err(answer.to_string()) } else { Ok(()) }
    });
    let pem = String::from_utf8(STANDARD.decode(chain).expect("base64")).expect("PEM");
    let file = cluster.home().join(format!("{node}.pem"));
    std::fs::write(&file, pem + &key).expect("written");
    Caller::Certificate(file)
}

fn node(name: &str, spec: Value, address: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": spec,
        "status": { "addresses": [{ "type": "InternalIP", "address": address }] } })
}

#[test]
fn a_joined_node_takes_nothing_that_was_not_given_to_it() {
    let cluster = Cluster::start(&[]);
    let two = join(&cluster, "two");
    let range = json!({ "podCIDR": "0.0.0.0/1", "podCIDRs": ["0.0.0.0/1"] });
    let create = |object: Value| cluster.http(&two, "POST", "/api/v1/nodes", &object.to_string());
    let told = create(node("two", range.clone(), "192.0.2.2")).status(403, "Forbidden");
    assert!(told.ends_with("is not allowed to set podCIDR or podCIDRs"), "{told}");
    let told = create(node("two", json!({}), "10.43.0.1")).status(403, "Forbidden");
    assert!(told.ends_with("the InternalIP 10.43.0.1: 10.43.0.0/16 is of Services"), "{told}");
    let mut owned = node("two", json!({}), "192.0.2.2");
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "never-was", "uid": "0" }]);
    owned["metadata"]["ownerReferences"] = owner.clone();
    let told = create(owned).status(403, "Forbidden");
    assert!(told.ends_with("is not allowed to set ownerReferences"), "{told}");
    let made = create(node("two", json!({}), "192.0.2.2"));
    assert_eq!(made.code, 201, "{made:?}");
    // The controller gives it a range, which it neither changes nor gives away.
    let given = "kubectl get node two -o jsonpath='{.spec.podCIDR}'";
    let given = cluster.until_that(given, |range| range.starts_with("10.42."));
    for patch in [json!({ "spec": range }), json!({ "spec": { "podCIDR": null, "podCIDRs": null } })] {
        let answer =
            cluster.http(&two, "PATCH", "/api/v1/nodes/two application/merge-patch+json", &patch.to_string());
        assert!(matches!(answer.code, 403 | 422), "{answer:?}");
    }
    let patch = json!({ "metadata": { "ownerReferences": owner } }).to_string();
    for path in ["/api/v1/nodes/two", "/api/v1/nodes/two/status"] {
        let answer = cluster.http(&two, "PATCH", &format!("{path} application/merge-patch+json"), &patch);
        let told = answer.status(403, "Forbidden");
        assert!(told.ends_with("is not allowed to modify ownerReferences"), "{told}");
    }
    for (address, why) in [("10.43.0.10", "is of Services"), (&*given.replace("0/24", "9"), "is of pods")] {
        let addresses = json!([{ "type": "InternalIP", "address": address }]);
        let patch = json!({ "status": { "addresses": addresses } }).to_string();
        let path = "/api/v1/nodes/two/status application/merge-patch+json";
        let told = cluster.http(&two, "PATCH", path, &patch).status(403, "Forbidden");
        assert!(told.contains(address) && told.ends_with(why), "{told}");
    }
    let kept = cluster.ok("kubectl get node two -o jsonpath='{.spec.podCIDR} {.metadata.ownerReferences} {.status.addresses[0].address}'");
    assert_eq!(kept, format!("{given}  192.0.2.2"));
    // Nor does it ask for another node's certificate.
    for signer in ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"] {
        let (object, _) = request("of-three", signer, "system:node:three");
        let told = cluster.http(&two, "POST", REQUESTS, &object.to_string()).status(403, "Forbidden");
        assert!(told.ends_with("can only create a node CSR with CN=system:node:two"), "{told}");
    }
}

/// What the cluster sends to an address outside of it would go to the pods of whoever claims it.
#[test]
fn an_address_that_a_node_only_claims_is_no_load_balancers() {
    let cluster = Cluster::start(&[]);
    let two = join(&cluster, "two");
    let mut claim = node("two", json!({}), "198.51.100.7");
    claim["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    claim["status"]["daemonEndpoints"] = json!({ "kubeletEndpoint": { "Port": 10_250 } });
    let note = json!({ "coracle.io/checked-addresses": "198.51.100.7" });
    let mut noted = claim.clone();
    noted["metadata"]["annotations"] = note.clone();
    let told = cluster.http(&two, "POST", "/api/v1/nodes", &noted.to_string()).status(403, "Forbidden");
    assert!(told.ends_with("is not allowed to set the annotation coracle.io/checked-addresses"), "{told}");
    let made = cluster.http(&two, "POST", "/api/v1/nodes", &claim.to_string());
    assert_eq!(made.code, 201, "{made:?}");
    let patch = json!({ "metadata": { "annotations": note } }).to_string();
    for path in ["/api/v1/nodes/two", "/api/v1/nodes/two/status"] {
        let told = cluster.http(&two, "PATCH", &format!("{path} application/merge-patch+json"), &patch);
        let told = told.status(403, "Forbidden");
        assert!(
            told.ends_with("is not allowed to modify the annotation coracle.io/checked-addresses"),
            "{told}"
        );
    }
    cluster.ok("kubectl create service loadbalancer web --tcp=443:8443");
    let events = "kubectl get events -o jsonpath='{.items[?(@.involvedObject.name==\"web\")].message}'";
    cluster.until_that(events, |text| text.contains("not met by the API server: two at 198.51.100.7"));
    cluster.says("kubectl get service web -o jsonpath='{.status.loadBalancer}'", "{}");
}

/// Whoever may write EndpointSlices, the administrator too: proxies would lead packets from outside to what listens on
/// their machine's loopback.
#[test]
fn no_endpoint_is_a_machines_own_loopback() {
    let cluster = Cluster::start(&[]);
    for (kind, address, why) in [
        ("IPv4", "127.0.0.1", "may not be in the loopback range"),
        ("IPv4", "169.254.169.254", "may not be in the link-local range"),
        ("IPv6", "::1", "may not be in the loopback range"),
        ("IPv6", "::ffff:127.0.0.1", "may not be in the loopback range"),
    ] {
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": "s", "labels": { "kubernetes.io/service-name": "s" } }, "addressType": kind,
            "endpoints": [{ "addresses": [address] }], "ports": [{ "name": "", "port": 10_250, "protocol": "TCP" }] });
        let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let told = cluster.raw("POST", path, &slice.to_string()).status(422, "Invalid");
        assert!(told.contains(why), "{told}");
        let endpoints = json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "s" },
            "subsets": [{ "addresses": [{ "ip": address }], "ports": [{ "port": 10_250 }] }] });
        let path = "/api/v1/namespaces/default/endpoints";
        let told = cluster.raw("POST", path, &endpoints.to_string()).status(422, "Invalid");
        assert!(told.contains(why), "{told}");
    }
}

/// Who may label and drain machines has a right to patch Nodes, and none to the volumes that lie there.
#[test]
fn nodes_are_asked_for_volumes_by_the_provisioner_alone() {
    let cluster = Cluster::start(&["--simulate-nodes", "1"]);
    let node = cluster.until_that("kubectl get nodes -o name", |found| found.starts_with("node/"));
    let name = node.trim().trim_start_matches("node/");
    cluster.ok("kubectl create clusterrole labels --verb=get,patch,update,create --resource=nodes,nodes/status && kubectl create clusterrolebinding labels --clusterrole=labels --user=jane");
    cluster.ok(&format!(
        "kubectl label node {name} a=b --as jane && kubectl annotate node {name} a=b --as jane"
    ));
    let job = "local-path.coracle.io/pvc-1='{\"do\":\"remove\",\"directory\":\"pvc-1_shop_db\"}'";
    let asked =
        "the annotation local-path.coracle.io/pvc-1 is written by the provisioner of local-path alone";
    let root = "the annotation coracle.io/local-path-root is written by the node itself alone";
    let object = format!(
        "'{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"{name}\",\"annotations\":{{\"coracle.io/local-path-root\":\"/\"}}}}}}'"
    );
    for (command, why) in [
        (format!("kubectl annotate node {name} {job} --as jane"), asked),
        // An administrator, too: nothing that people do needs it.
        (format!("kubectl annotate node {name} {job}"), asked),
        (format!("kubectl annotate node {name} coracle.io/local-path-root=/ --as jane"), root),
        (format!("echo {object} | kubectl apply --server-side -f - --as jane"), root),
        (
            format!(
                "echo {object} | kubectl patch node {name} --subresource=status --type=merge --patch-file=/dev/stdin --as jane"
            ),
            root,
        ),
        (format!("echo {object} | sed s/{name}/new/ | kubectl create -f - --as jane"), root),
    ] {
        fails(&cluster, &command, why);
    }
    cluster.says(&format!("kubectl get node {name} -o jsonpath='{{.metadata.annotations.a}}'"), "b");
}
