//! The node authorizer, <https://kubernetes.io/docs/reference/access-authn-authz/node/>: a kubelet reads only what the
//! pods bound to its node need, and writes only what is its own.

use super::rules::Resolved;
use super::{Attributes, Authorizer, Decision};
use crate::strategy::Reader;
use coracle_api::{Object, UserInfo};
use serde_json::Value;
use std::sync::Arc;

pub(super) struct NodeAuthorizer {
    read: Arc<dyn Reader>,
}

/// The node whose kubelet this user is.
pub fn node_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|n| !n.is_empty() && user.in_group("system:nodes"))
}

/// What any node may do, by `verbs resource` with the group behind a slash; the body of upstream's node rules that
/// needs no look at relations.
const ALWAYS: &[(&[&str], &str, &str)] = &[
    (&["create"], "authentication.k8s.io", "tokenreviews"),
    (&["create"], "authorization.k8s.io", "subjectaccessreviews"),
    (&["create"], "authorization.k8s.io", "localsubjectaccessreviews"),
    (&["get", "list", "watch"], "", "services"),
    (&["create"], "", "nodes"),
    (&["create", "update", "patch"], "", "events"),
    (&["create", "update", "patch"], "events.k8s.io", "events"),
    (&["create", "delete"], "", "pods"),
    (&["update", "patch"], "", "pods/status"),
    (&["create"], "", "pods/eviction"),
    (&["create", "get", "list", "watch"], "certificates.k8s.io", "certificatesigningrequests"),
    (&["get", "list", "watch"], "storage.k8s.io", "csidrivers"),
    (&["get", "list", "watch"], "node.k8s.io", "runtimeclasses"),
    (&["get", "list", "watch"], "certificates.k8s.io", "clustertrustbundles"),
];

impl NodeAuthorizer {
    pub fn new(read: Arc<dyn Reader>) -> Self {
        Self { read }
    }

    fn decide(&self, node: &str, asked: &Attributes<'_>) -> Result<(), String> {
        if allowed_always(asked) {
            return Ok(());
        }
        match (asked.group, asked.resource, asked.subresource) {
            ("", "nodes", sub) => own_node(node, asked, sub),
            ("", "pods", "") => self.pods(node, asked),
            ("", "secrets" | "configmaps", "") => self.named(node, asked, &["get", "list", "watch"]),
            ("", "persistentvolumeclaims" | "persistentvolumes", "") => self.named(node, asked, &["get"]),
            ("", "persistentvolumeclaims", "status") => self.named(node, asked, &["get", "update", "patch"]),
            ("storage.k8s.io", "volumeattachments", "") => self.named(node, asked, &["get"]),
            ("", "serviceaccounts", "token") => self.named(node, asked, &["create"]),
            ("", "serviceaccounts", "") => self.named(node, asked, &["get"]),
            ("coordination.k8s.io", "leases", "") => own_lease(node, asked),
            ("storage.k8s.io", "csinodes", "") => own(node, asked, "CSINode"),
            _ => Err(String::new()),
        }
    }

    fn pods(&self, node: &str, asked: &Attributes<'_>) -> Result<(), String> {
        match asked.verb {
            "get" => self.named(node, asked, &["get"]),
            "list" | "watch" if asked.selects("spec.nodeName", node) => Ok(()),
            "list" | "watch" => Err("can only list/watch pods with spec.nodeName field selector".to_owned()),
            _ => Err(String::new()),
        }
    }

    /// One object, by its name or a selector for its name, that a pod of the node refers to.
    fn named(&self, node: &str, asked: &Attributes<'_>, verbs: &[&str]) -> Result<(), String> {
        if !verbs.contains(&asked.verb) {
            let verbs = verbs.join(", ");
            return Err(format!("can only {verbs} individual resources of this type"));
        }
        let name = if asked.name.is_empty() {
            asked.selected("metadata.name").unwrap_or_default()
        } else {
            asked.name
        };
        if name.is_empty() {
            return Err("No Object name found".to_owned());
        }
        let related = match asked.resource {
            "persistentvolumes" => self.volume_is_used(node, name),
            "volumeattachments" => self
                .read
                .get("volumeattachments.storage.k8s.io", "", name)
                .is_some_and(|va| va["spec"]["nodeName"] == node),
            resource => self.a_pod_uses(node, resource, asked.namespace, name),
        };
        if related {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }

    fn a_pod_uses(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        if namespace.is_empty() {
            return false;
        }
        if resource == "pods" {
            return self
                .read
                .get("pods.", namespace, name)
                .is_some_and(|pod| pod["spec"]["nodeName"] == node);
        }
        let pods = self.read.list("pods.", namespace);
        pods.iter().any(|pod| pod["spec"]["nodeName"] == node && refers(pod, resource, name))
    }

    fn volume_is_used(&self, node: &str, name: &str) -> bool {
        let Some(volume) = self.read.get("persistentvolumes.", "", name) else { return false };
        let claim = &volume["spec"]["claimRef"];
        let (Some(namespace), Some(claim)) = (claim["namespace"].as_str(), claim["name"].as_str()) else {
            return false;
        };
        self.a_pod_uses(node, "persistentvolumeclaims", namespace, claim)
    }
}

fn allowed_always(asked: &Attributes<'_>) -> bool {
    let full = asked.full_resource();
    ALWAYS.iter().any(|(verbs, group, resource)| {
        *group == asked.group && *resource == full && verbs.contains(&asked.verb)
    })
}

fn own_node(node: &str, asked: &Attributes<'_>, subresource: &str) -> Result<(), String> {
    let own = asked.name == node;
    match (asked.verb, subresource) {
        ("get" | "update" | "patch", "") | ("update" | "patch", "status") if own => Ok(()),
        ("list" | "watch", "") if asked.selects("metadata.name", node) => Ok(()),
        ("get" | "update" | "patch" | "list" | "watch", _) => {
            Err(format!("node '{node}' cannot read '{}', only its own Node object", asked.name))
        }
        _ => Err(String::new()),
    }
}

fn own_lease(node: &str, asked: &Attributes<'_>) -> Result<(), String> {
    if asked.namespace != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned());
    }
    own(node, asked, "node lease")
}

fn own(node: &str, asked: &Attributes<'_>, what: &str) -> Result<(), String> {
    match asked.verb {
        "create" => Ok(()),
        "get" | "update" | "patch" | "delete" if asked.name == node => Ok(()),
        "get" | "update" | "patch" | "delete" => {
            Err(format!("can only access {what} with the same name as the requesting node"))
        }
        _ => Err(format!("can only get, create, update, patch, or delete a {what}")),
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether the pod's spec names the object, as upstream's `podutil.VisitPodSecretNames` and its siblings look.
fn refers(pod: &Object, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    let volumes = || items(&spec["volumes"]).iter();
    match resource {
        "serviceaccounts" => spec["serviceAccountName"] == name,
        "persistentvolumeclaims" => volumes().any(|v| {
            v["persistentVolumeClaim"]["claimName"] == name
                || (v["ephemeral"].is_object() && Some(name) == ephemeral_claim(pod, &v["name"]).as_deref())
        }),
        "secrets" => {
            items(&spec["imagePullSecrets"]).iter().any(|s| s["name"] == name)
                || volumes().any(|v| volume_secret(v, name))
                || containers(spec).any(|c| environment(c, "secretRef", "secretKeyRef", name))
        }
        "configmaps" => {
            volumes().any(|v| {
                v["configMap"]["name"] == name
                    || items(&v["projected"]["sources"]).iter().any(|s| s["configMap"]["name"] == name)
            }) || containers(spec).any(|c| environment(c, "configMapRef", "configMapKeyRef", name))
        }
        _ => false,
    }
}

fn ephemeral_claim(pod: &Object, volume: &Value) -> Option<String> {
    Some(format!("{}-{}", pod["metadata"]["name"].as_str()?, volume.as_str()?))
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(|list| items(&spec[list]))
}

fn environment(container: &Value, from: &str, key: &str, name: &str) -> bool {
    items(&container["envFrom"]).iter().any(|e| e[from]["name"] == name)
        || items(&container["env"]).iter().any(|e| e["valueFrom"][key]["name"] == name)
}

/// Secrets of volume plugins stand in `secret.secretName`, `<plugin>.secretRef.name` and projected sources.
fn volume_secret(volume: &Value, name: &str) -> bool {
    let plugins = volume.as_object().into_iter().flat_map(|v| v.values());
    let mut direct = plugins.filter(|p| p.is_object());
    volume["secret"]["secretName"] == name
        || volume["azureFile"]["secretName"] == name
        || volume["csi"]["nodePublishSecretRef"]["name"] == name
        || items(&volume["projected"]["sources"]).iter().any(|s| s["secret"]["name"] == name)
        || direct.any(|p| p["secretRef"]["name"] == name)
}

impl Authorizer for NodeAuthorizer {
    fn authorize(&self, asked: &Attributes<'_>) -> Decision {
        let Some(node) = node_of(asked.user) else { return Decision::NoOpinion(String::new()) };
        if !asked.is_resource() {
            return Decision::NoOpinion(String::new());
        }
        match self.decide(node, asked) {
            Ok(()) => Decision::Allow(String::new()),
            Err(reason) => Decision::NoOpinion(reason),
        }
    }

    fn rules_for(&self, _user: &UserInfo, _namespace: &str) -> Resolved {
        Resolved::default()
    }
}
