//! What nodes may.

use super::*;

fn kubelet(node: &str) -> UserInfo {
    UserInfo::authenticated(&format!("system:node:{node}"), &["system:nodes"])
}

fn node_world() -> Arc<World> {
    let world = World::new();
    world.put(
        "pods.",
        json!({
            "metadata": { "name": "web", "namespace": "a" },
            "spec": {
                "nodeName": "n1", "serviceAccountName": "bot", "imagePullSecrets": [{ "name": "pull" }],
                "volumes": [
                    { "name": "s", "secret": { "secretName": "vol" } },
                    { "name": "p", "projected": { "sources": [
                        { "configMap": { "name": "root" } }, { "secret": { "name": "proj" } } ] } },
                    { "name": "c", "persistentVolumeClaim": { "claimName": "data" } } ],
                "resourceClaims": [{ "name": "g", "resourceClaimName": "gpu" }],
                "containers": [{ "envFrom": [{ "configMapRef": { "name": "env" } }] }],
                "initContainers": [{ "env": [{ "valueFrom": { "secretKeyRef": { "name": "key" } } }] }],
            },
            "status": { "resourceClaimStatuses": [{ "name": "t", "resourceClaimName": "made-up" }] },
        }),
    );
    world.put(
        "persistentvolumes.",
        json!({
            "metadata": { "name": "pv" },
            "spec": {
                "claimRef": { "namespace": "a", "name": "data" },
                "csi": {
                    "nodeStageSecretRef": { "name": "stage", "namespace": "b" },
                    "controllerPublishSecretRef": { "name": "control", "namespace": "b" },
                },
                "flexVolume": { "secretRef": { "name": "flex" } },
            }
        }),
    );
    let of_node =
        |name: &str, node: &str| json!({ "metadata": { "name": name }, "spec": { "nodeName": node } });
    world.put("resourceslices.resource.k8s.io", of_node("mine", "n1"));
    world.put("resourceslices.resource.k8s.io", of_node("theirs", "n2"));
    world.put("volumeattachments.storage.k8s.io", of_node("va", "n1"));
    world.put(
        "pods.",
        json!({
            "metadata": { "name": "mirror", "namespace": "a", "annotations": { "kubernetes.io/config.mirror": "x" } },
            "spec": { "nodeName": "n1", "volumes": [{ "name": "s", "secret": { "secretName": "wanted" } }] },
        }),
    );
    world
}

#[test]
fn nodes_reach_what_their_pods_need_and_nothing_else() {
    let world = node_world();
    let chain = chain(&world);
    let (n1, n2) = (kubelet("n1"), kubelet("n2"));
    let related = [
        ("secrets", "a", "vol"),
        ("secrets", "a", "proj"),
        ("secrets", "a", "pull"),
        ("secrets", "a", "key"),
        ("secrets", "b", "stage"),
        ("secrets", "a", "flex"),
        ("configmaps", "a", "root"),
        ("configmaps", "a", "env"),
        ("persistentvolumeclaims", "a", "data"),
        ("persistentvolumes", "", "pv"),
        ("pods", "a", "web"),
    ];
    for (resource, namespace, name) in related {
        let get = |user| Attributes { name, ..Attributes::resource(user, "get", "", resource, namespace) };
        assert!(may(&chain, get(&n1)), "n1 {resource} {name}");
        assert!(!may(&chain, get(&n2)), "n2 {resource} {name}");
    }
    for (resource, namespace, name) in [
        ("secrets", "a", "other"),
        ("secrets", "b", "vol"),
        ("configmaps", "a", "vol"),
        ("secrets", "b", "control"),
        ("secrets", "a", "wanted"),
    ] {
        let asked = Attributes { name, ..Attributes::resource(&n1, "get", "", resource, namespace) };
        assert!(!may(&chain, asked), "{resource} {namespace} {name}");
    }
    let asked = Attributes { name: "other", ..Attributes::resource(&n1, "get", "", "secrets", "a") };
    let message = require(&chain, &asked).unwrap_err().message;
    assert!(message.ends_with(": no relationship found between node 'n1' and this object"), "{message}");
}

/// Verb, group, resource, subresource, namespace, name and field selector, and whether the node `n1` may.
type Case = (bool, [&'static str; 7]);

fn ask_as_node(cases: &[Case]) {
    let world = node_world();
    let chain = chain(&world);
    let n1 = kubelet("n1");
    for (allowed, [verb, group, resource, subresource, namespace, name, field_selector]) in cases {
        let asked = Attributes {
            name,
            subresource,
            field_selector,
            ..Attributes::resource(&n1, verb, group, resource, namespace)
        };
        let got = may(&chain, asked);
        assert_eq!(got, *allowed, "{verb} {resource}/{subresource} {namespace}/{name} {field_selector}");
    }
}

#[test]
fn nodes_write_only_their_own() {
    ask_as_node(&[
        (true, ["create", "", "nodes", "", "", "", ""]),
        (true, ["patch", "", "nodes", "status", "", "n1", ""]),
        // Which node it is, NodeRestriction sees.
        (true, ["patch", "", "nodes", "status", "", "n2", ""]),
        (false, ["get", "", "nodes", "", "", "n2", ""]),
        (false, ["get", "", "nodes", "proxy", "", "n1", ""]),
        (false, ["delete", "", "nodes", "", "", "n1", ""]),
        (true, ["list", "", "nodes", "", "", "", "metadata.name=n1"]),
        (false, ["list", "", "nodes", "", "", "", ""]),
        (true, ["watch", "", "pods", "", "", "", "spec.nodeName=n1"]),
        (false, ["watch", "", "pods", "", "", "", "spec.nodeName=n2"]),
        (false, ["watch", "", "pods", "", "", "", "spec.nodeName!=n1"]),
        (true, ["patch", "", "pods", "status", "a", "web", ""]),
        (false, ["get", "", "pods", "log", "a", "web", ""]),
        (true, ["list", "", "pods", "", "a", "web", ""]),
        (true, ["update", "", "persistentvolumeclaims", "status", "a", "data", ""]),
        (false, ["get", "", "persistentvolumeclaims", "status", "a", "data", ""]),
        (false, ["list", "", "persistentvolumeclaims", "", "a", "data", ""]),
    ]);
    let (world, impostor) = (node_world(), user("system:node:n1"));
    assert!(!may(&chain(&world), Attributes::resource(&impostor, "create", "", "nodes", "")));
}

#[test]
fn nodes_use_what_their_pods_do() {
    ask_as_node(&[
        (true, ["get", "", "serviceaccounts", "", "a", "bot", ""]),
        (false, ["delete", "", "serviceaccounts", "", "a", "bot", ""]),
        (true, ["get", "resource.k8s.io", "resourceclaims", "", "a", "gpu", ""]),
        (true, ["get", "resource.k8s.io", "resourceclaims", "", "a", "made-up", ""]),
        (false, ["get", "resource.k8s.io", "resourceclaims", "", "a", "other", ""]),
        (true, ["create", "resource.k8s.io", "resourceslices", "", "", "", ""]),
        (true, ["update", "resource.k8s.io", "resourceslices", "", "", "mine", ""]),
        (false, ["update", "resource.k8s.io", "resourceslices", "", "", "theirs", ""]),
        (true, ["list", "resource.k8s.io", "resourceslices", "", "", "", "spec.nodeName=n1"]),
        (false, ["list", "resource.k8s.io", "resourceslices", "", "", "", ""]),
        (true, ["get", "storage.k8s.io", "volumeattachments", "", "", "va", ""]),
        (true, ["get", "storage.k8s.io", "csinodes", "", "", "n1", ""]),
        (false, ["get", "storage.k8s.io", "csinodes", "", "", "n2", ""]),
        (false, ["list", "storage.k8s.io", "csinodes", "", "", "", ""]),
        (true, ["create", "", "events", "", "a", "", ""]),
        (true, ["list", "", "services", "", "", "", ""]),
        (false, ["create", "", "services", "", "a", "", ""]),
        (false, ["list", "", "secrets", "", "a", "", ""]),
        (true, ["watch", "", "secrets", "", "a", "", "metadata.name=vol"]),
        (true, ["create", "", "serviceaccounts", "token", "a", "bot", ""]),
        (false, ["create", "", "serviceaccounts", "token", "a", "other", ""]),
        (true, ["update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n1", ""]),
        (false, ["update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n2", ""]),
        (false, ["update", "coordination.k8s.io", "leases", "", "kube-system", "n1", ""]),
    ]);
}
