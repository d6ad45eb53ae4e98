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
        match (request.group, request.resource) {
            ("", "pods") => pods(request, node, object, old),
            ("", "nodes") => nodes(request, node, object, old),
            ("coordination.k8s.io", "leases") => leases(request, node),
            ("storage.k8s.io", "csinodes") if request.name != node => {
                let why = "can only access CSINode with the same name as the requesting node";
                Err(request.forbidden(why))
            }
            _ => Ok(()),
        }
    }
}

fn pods(
    request: &Request,
    node: &str,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let here = |pod: Option<&Object>| pod.is_some_and(|p| p["spec"]["nodeName"] == node);
    let deny = |why: String| Err(request.forbidden(&why));
    match (request.operation, request.subresource) {
        (Operation::Create, "") => match object {
            Some(pod) => mirror_pod(request, node, pod),
            None => Ok(()),
        },
        (Operation::Delete, "") if !here(old) => {
            deny(format!("node \"{node}\" can only delete pods with spec.nodeName set to itself"))
        }
        (Operation::Update, "status") if !here(old) => deny(format!(
            "node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"
        )),
        (Operation::Update, "status") => match (object, old) {
            (Some(new), Some(old)) if new["metadata"]["labels"] != old["metadata"]["labels"] => {
                deny(format!("node \"{node}\" cannot update labels through pod status"))
            }
            _ => Ok(()),
        },
        (Operation::Delete, "") => Ok(()),
        (Operation::Create, "eviction") if here(old) || old.is_none() => Ok(()),
        (operation, subresource) => deny(format!(
            "unexpected operation {operation:?} on pods/{subresource}, node \"{node}\" cannot do it"
        )),
    }
}

fn mirror_pod(request: &Request, node: &str, pod: &Object) -> Result<(), ApiError> {
    if !is_mirror(pod) {
        let annotation = "kubernetes.io/config.mirror";
        let why = format!(
            "pod does not have \"{annotation}\" annotation, node \"{node}\" can only create mirror pods"
        );
        return Err(request.forbidden(&why));
    }
    if pod["spec"]["nodeName"] != node {
        let why = format!("node \"{node}\" can only create pods with spec.nodeName set to itself");
        return Err(request.forbidden(&why));
    }
    let owners = items(&pod["metadata"]["ownerReferences"]);
    let own = |o: &Value| o["apiVersion"] == "v1" && o["kind"] == "Node" && o["name"] == node;
    if owners.len() > 1 || !owners.iter().all(own) {
        let why = format!("node \"{node}\" can only create pods with an owner reference set to itself");
        return Err(request.forbidden(&why));
    }
    let volumes = items(&pod["spec"]["volumes"]);
    let reaches = volumes.iter().find_map(|v| {
        ["secret", "configMap", "persistentVolumeClaim"].into_iter().find(|plugin| v[*plugin].is_object())
    });
    match reaches {
        Some(plugin) => {
            let why = format!("node \"{node}\" can not create pods that reference a {plugin}");
            Err(request.forbidden(&why))
        }
        None => Ok(()),
    }
}

fn nodes(
    request: &Request,
    node: &str,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    if request.name != node {
        let why = format!("node \"{node}\" is not allowed to modify node \"{}\"", request.name);
        return Err(request.forbidden(&why));
    }
    let Some(new) = object else { return Ok(()) };
    let changed = changed_labels(new, old);
    if !changed.is_empty() {
        let verb = if old.is_some() { "modify" } else { "set the following" };
        let why = format!("is not allowed to {verb} labels: {}", changed.join(", "));
        return Err(request.forbidden(&why));
    }
    if old.is_some_and(|old| old["spec"]["taints"] != new["spec"]["taints"]) {
        return Err(request.forbidden(&format!("node \"{node}\" is not allowed to modify taints")));
    }
    Ok(())
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
    const ALLOWED: [&str; 12] = [
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
        "kubernetes.io/config.source",
    ];
    let Some((domain, _)) = label.split_once('/') else { return false };
    let within = |d: &str| domain == d || domain.ends_with(&format!(".{d}"));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let free = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    (within("kubernetes.io") || within("k8s.io")) && !free && !ALLOWED.contains(&label)
}

fn leases(request: &Request, node: &str) -> Result<(), ApiError> {
    if request.namespace != "kube-node-lease" {
        return Err(request.forbidden("can only access leases in the \"kube-node-lease\" system namespace"));
    }
    if request.name != node {
        return Err(request.forbidden("can only access node lease with the same name as the requesting node"));
    }
    Ok(())
}

/// A kubelet may ask for the token of a pod that runs on its node, and for no other. `pod` is the one that the token will
/// be bound to.
pub fn check_token(user: &UserInfo, account: &str, pod: Option<&Object>) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let deny = |why: &str| Err(ApiError::forbidden("", "serviceaccounts", account, why));
    match pod {
        None => deny("node requested token not bound to a pod"),
        Some(pod) if pod["spec"]["nodeName"] != node => {
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
        check_token(&n1, "bot", Some(&on("n1"))).unwrap();
        assert!(check_token(&n1, "bot", Some(&on("n2"))).is_err());
        assert!(check_token(&n1, "bot", None).is_err());
        check_token(&UserInfo::authenticated("jane", &[]), "bot", None).unwrap();
    }

    #[test]
    fn others_are_not_its_business() {
        let world = World::new();
        Try::create(&world, "pods.").validate(&NodeRestriction, &pod(), None).unwrap();
    }
}
