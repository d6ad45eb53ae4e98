//! NodeRestriction: a kubelet writes its own Node, the status of its own pods, and nothing that would let it gain more
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>).

use super::{Operation, Plugin, Request, is_mirror, items};
use crate::authz::node::node_of;
use coracle_api::{ApiError, Object, UserInfo};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) struct NodeRestriction;

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let Some(node) = node_of(request.user) else { return Ok(()) };
        let verdict = match (request.group, request.resource) {
            ("", "pods") => pods(request, node, object, old),
            ("", "nodes") => nodes(request, node, object, old),
            ("", "persistentvolumeclaims") => claims(request, node, object, old),
            ("coordination.k8s.io", "leases") => leases(request, node),
            ("storage.k8s.io", "csinodes") if request.name != node => {
                Err("can only access CSINode with the same name as the requesting node".to_owned())
            }
            ("resource.k8s.io", "resourceslices") => slices(node, object, old),
            _ => Ok(()),
        };
        verdict.map_err(|why| request.forbidden(&why))
    }
}

/// Why it is refused.
type Verdict = Result<(), String>;

fn pods(request: &Request, node: &str, object: Option<&Object>, old: Option<&Object>) -> Verdict {
    let here = |pod: Option<&Object>| pod.is_some_and(|p| p["spec"]["nodeName"] == node);
    match (request.subresource, request.operation) {
        ("", Operation::Create) => object.map_or(Ok(()), |pod| mirror_pod(request, node, pod)),
        ("", Operation::Delete) if here(old) => Ok(()),
        ("", Operation::Delete) => {
            Err(format!("node \"{node}\" can only delete pods with spec.nodeName set to itself"))
        }
        ("", operation) => Err(format!(
            "unexpected operation \"{}\", node \"{node}\" can only create and delete mirror pods",
            shown(operation)
        )),
        ("status", Operation::Update) if !here(old) => Err(format!(
            "node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"
        )),
        ("status", Operation::Update) => {
            object.zip(old).map_or(Ok(()), |(new, old)| pod_status(node, new, old))
        }
        ("eviction", Operation::Create) => {
            let pod = request.read.get("pods.", request.namespace, request.name);
            if here(old.or(pod.as_deref())) {
                return Ok(());
            }
            Err(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        ("status" | "eviction", operation) => Err(format!("unexpected operation \"{}\"", shown(operation))),
        (subresource, _) => Err(format!(
            "unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed"
        )),
    }
}

/// As upstream names operations.
fn shown(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

fn pod_status(node: &str, new: &Object, old: &Object) -> Verdict {
    let entries = |o: &Object| o["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if entries(new) != entries(old) {
        return Err(format!("node \"{node}\" cannot update labels through pod status"));
    }
    let claims = |o: &Object| -> Vec<(Value, Value)> {
        let list = items(&o["status"]["resourceClaimStatuses"]).iter();
        list.map(|c| (c["name"].clone(), c["resourceClaimName"].clone())).collect()
    };
    if claims(new) != claims(old) {
        return Err(format!("node \"{node}\" cannot update resource claim statues"));
    }
    Ok(())
}

fn mirror_pod(request: &Request, node: &str, pod: &Object) -> Verdict {
    if !is_mirror(pod) {
        let annotation = "kubernetes.io/config.mirror";
        return Err(format!(
            "pod does not have \"{annotation}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return Err(format!("node \"{node}\" can only create pods with spec.nodeName set to itself"));
    }
    owner(request, node, items(&pod["metadata"]["ownerReferences"]))?;
    match reaches(&pod["spec"]) {
        Some(what) => Err(format!("node \"{node}\" can not create pods that reference {what}")),
        None => Ok(()),
    }
}

/// A mirror pod belongs to its node, as it is now, and to nobody else.
fn owner(request: &Request, node: &str, owners: &[Value]) -> Verdict {
    let itself = |what: &str| Err(format!("node \"{node}\" can only create pods with {what} set to itself"));
    let owner = match owners {
        [] => return itself("an owner reference"),
        [one] => one,
        _ => return itself("a single owner reference"),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return itself("an owner reference");
    }
    if owner["controller"] != true {
        return itself("a controller owner reference");
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!("node \"{node}\" must not set blockOwnerDeletion on an owner reference"));
    }
    let known = request.read.get("nodes.", "", node);
    let uid = known.as_deref().map_or(&Value::Null, |n| &n["metadata"]["uid"]);
    if owner["uid"] != *uid {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        return Err(format!("node {node} UID mismatch: expected {} got {}", text(&owner["uid"]), text(uid)));
    }
    Ok(())
}

/// What a mirror pod must not lead to: the authorizer opens for a node whatever its pods name.
fn reaches(spec: &Value) -> Option<&'static str> {
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Some("a service account");
    }
    let volumes = || items(&spec["volumes"]).iter();
    let sources = || volumes().flat_map(|v| items(&v["projected"]["sources"]));
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let containers: Vec<&Value> = lists.iter().flat_map(|list| items(&spec[*list])).collect();
    let environment = |from: &str, key: &str| {
        containers.iter().any(|c| {
            items(&c["envFrom"]).iter().any(|e| e[from].is_object())
                || items(&c["env"]).iter().any(|e| e["valueFrom"][key].is_object())
        })
    };
    let plugin = |name: &str| volumes().any(|v| v[name].is_object());
    let secret_ref = || {
        let plugins = volumes().filter_map(Value::as_object).flat_map(|v| v.values());
        plugins.into_iter().any(|p| p["secretRef"].is_object() || p["nodePublishSecretRef"].is_object())
    };
    let secrets = plugin("secret")
        || plugin("azureFile")
        || secret_ref()
        || !items(&spec["imagePullSecrets"]).is_empty()
        || sources().any(|s| s["secret"].is_object())
        || environment("secretRef", "secretKeyRef");
    if secrets {
        return Some("secrets");
    }
    if plugin("configMap")
        || sources().any(|s| s["configMap"].is_object())
        || environment("configMapRef", "configMapKeyRef")
    {
        return Some("configmaps");
    }
    if sources().any(|s| s["clusterTrustBundle"].is_object()) {
        return Some("clustertrustbundles");
    }
    plugin("persistentVolumeClaim").then_some("persistentvolumeclaims")
}

fn nodes(request: &Request, node: &str, object: Option<&Object>, old: Option<&Object>) -> Verdict {
    if request.name != node {
        return Err(format!("node \"{node}\" is not allowed to modify node \"{}\"", request.name));
    }
    let Some(new) = object else { return Ok(()) };
    let source = &new["spec"]["configSource"];
    if source.is_object() && old.is_none_or(|old| old["spec"]["configSource"] != *source) {
        let what = if old.is_some() { "update configSource to a new" } else { "create pods with a" };
        return Err(format!("node \"{node}\" is not allowed to {what} non-nil configSource"));
    }
    if old.is_some_and(|old| items(&old["spec"]["taints"]) != items(&new["spec"]["taints"])) {
        return Err(format!("node \"{node}\" is not allowed to modify taints"));
    }
    let changed = changed_labels(new, old).join(", ");
    match (changed.is_empty(), old) {
        (true, _) => Ok(()),
        (false, Some(_)) => Err(format!("is not allowed to modify labels: {changed}")),
        (false, None) => {
            Err(format!("node \"{node}\" is not allowed to set the following labels: {changed}"))
        }
    }
}

/// Labels that isolate nodes, which an owned node must not move itself by; and unknown ones of Kubernetes' own.
fn changed_labels(new: &Object, old: Option<&Object>) -> Vec<String> {
    let labels = |o: &Object| o["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (new, old) = (labels(new), old.map(labels).unwrap_or_default());
    let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    let changed = keys.into_iter().filter(|key| new.get(*key) != old.get(*key));
    changed.filter(|key| is_restricted(key)).cloned().collect()
}

fn is_restricted(label: &str) -> bool {
    /// Kubernetes' own labels that a kubelet may set on itself.
    const ALLOWED: [&str; 11] = [
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
    ];
    let Some((domain, _)) = label.split_once('/') else { return false };
    let within = |d: &str| domain == d || domain.ends_with(&format!(".{d}"));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let free = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    (within("kubernetes.io") || within("k8s.io")) && !free && !ALLOWED.contains(&label)
}

/// Of a claim a kubelet says how large it is by now, and what became of its growth.
fn claims(request: &Request, node: &str, object: Option<&Object>, old: Option<&Object>) -> Verdict {
    if request.subresource != "status" {
        return Err("may only update PVC status".to_owned());
    }
    if request.operation != Operation::Update {
        return Err(format!("unexpected operation \"{}\"", shown(request.operation)));
    }
    let (Some(new), Some(old)) = (object, old) else { return Ok(()) };
    if rest_of_claim(new) == rest_of_claim(old) {
        return Ok(());
    }
    Err(format!(
        "node \"{node}\" is not allowed to update fields other than status.capacity and status.conditions"
    ))
}

fn rest_of_claim(claim: &Object) -> Object {
    let mut rest = claim.clone();
    let remove = |value: Option<&mut Value>, fields: &[&str]| {
        if let Some(map) = value.and_then(Value::as_object_mut) {
            fields.iter().for_each(|field| {
                map.remove(*field);
            });
        }
    };
    let own = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
    remove(rest.get_mut("status"), &own);
    remove(rest.get_mut("metadata"), &["resourceVersion", "managedFields"]);
    if rest["status"].as_object().is_some_and(|s| s.is_empty()) {
        remove(Some(&mut rest), &["status"]);
    }
    rest
}

fn leases(request: &Request, node: &str) -> Verdict {
    if request.namespace != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned());
    }
    if request.name != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

fn slices(node: &str, object: Option<&Object>, old: Option<&Object>) -> Verdict {
    let own = |slice: Option<&Object>| slice.is_none_or(|s| s["spec"]["nodeName"] == node);
    if own(object) && own(old) {
        return Ok(());
    }
    Err("can only create, change or delete ResourceSlice with the same NodeName as the requesting node"
        .to_owned())
}

/// A kubelet may ask for the token of a pod that runs on its node, and for no other. `pod` is the one that the token will
/// be bound to, with the uid that the request names.
pub fn check_token(user: &UserInfo, account: &str, pod: Option<(&Object, &str)>) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let deny = |why: &str| Err(ApiError::forbidden("", "serviceaccounts", account, why));
    match pod {
        None => deny("node requested token not bound to a pod"),
        Some((_, "")) => deny("node requested token with a pod binding without a uid"),
        Some((pod, _)) if pod["spec"]["nodeName"] != node => {
            deny("node requested token bound to a pod scheduled on a different node")
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
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
            check(Operation::Create, "pods.", &pod(), None)
                .unwrap_err()
                .contains("can only create mirror pods")
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
            (
                "/metadata/ownerReferences/0/blockOwnerDeletion",
                json!(true),
                "must not set blockOwnerDeletion",
            ),
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
    }

    #[test]
    fn nodes_labels_and_taints() {
        let node = |name: &str, label: &str, taints: Value| json!({ "metadata": { "name": name, "labels": { label: "x" } }, "spec": { "taints": taints } });
        let plain = |label: &str| node("n1", label, json!([]));
        for label in [
            "kubernetes.io/hostname",
            "mine",
            "example.org/a",
            "node.kubernetes.io/b",
            "kubelet.kubernetes.io/c",
        ] {
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

    #[test]
    fn leases_and_tokens() {
        let lease =
            |namespace: &str, name: &str| json!({ "metadata": { "name": name, "namespace": namespace } });
        let create = |o: Object| check(Operation::Create, "leases.coordination.k8s.io", &o, None);
        create(lease("kube-node-lease", "n1")).unwrap();
        assert!(create(lease("kube-node-lease", "n2")).is_err());
        assert!(create(lease("kube-system", "n1")).is_err());
        let n1 = UserInfo::authenticated("system:node:n1", &["system:nodes"]);
        let on = |node: &str| json!({ "spec": { "nodeName": node } });
        check_token(&n1, "bot", Some((&on("n1"), "u"))).unwrap();
        assert!(check_token(&n1, "bot", Some((&on("n1"), ""))).is_err());
        assert!(check_token(&n1, "bot", Some((&on("n2"), "u"))).is_err());
        assert!(check_token(&n1, "bot", None).is_err());
        check_token(&UserInfo::authenticated("jane", &[]), "bot", None).unwrap();
    }

    #[test]
    fn others_are_not_its_business() {
        let world = World::new();
        Try::create(&world, "pods.").validate(&NodeRestriction, &pod(), None).unwrap();
    }
}
