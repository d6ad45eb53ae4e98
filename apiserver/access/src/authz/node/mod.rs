//! The node authorizer, <https://kubernetes.io/docs/reference/access-authn-authz/node/>: a kubelet reads only what the
//! pods bound to its node need, and writes only what is its own. NodeRestriction checks contents, this checks names.
//!
//! Relations are looked up in the watch cache when they are asked for, so they are as new as the objects themselves. Only
//! the pods of the asking node are decoded.

mod related;
mod token;

pub use token::check_token;

use super::rules::Resolved;
use super::{Attributes, Authorizer, Decision};
use coracle_api::UserInfo;
use coracle_requests::ObjectReader;
use related::Relations;
use std::sync::Arc;

pub(super) struct NodeAuthorizer {
    read: Arc<dyn ObjectReader>,
}

/// The node whose kubelet this user is.
pub fn node_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|n| !n.is_empty() && user.in_group("system:nodes"))
}

/// Verbs, group and resource.
type Grant = (&'static [&'static str], &'static str, &'static str);

/// What any node may do: upstream's node rules for what is not looked at more closely below.
const ALWAYS: &[Grant] = &[
    (&["create"], "authentication.k8s.io", "tokenreviews"),
    (&["create"], "authorization.k8s.io", "subjectaccessreviews"),
    (&["create"], "authorization.k8s.io", "localsubjectaccessreviews"),
    (&["get", "list", "watch"], "", "services"),
    (&["get"], "", "endpoints"),
    (&["create", "update", "patch"], "", "events"),
    (&["create", "update", "patch"], "events.k8s.io", "events"),
    (&["create", "get", "list", "watch"], "certificates.k8s.io", "certificatesigningrequests"),
    (&["get", "list", "watch"], "storage.k8s.io", "csidrivers"),
    (&["get", "list", "watch"], "node.k8s.io", "runtimeclasses"),
];

type Verdict = Result<(), String>;

fn no(why: &str) -> Verdict {
    Err(why.to_owned())
}

impl NodeAuthorizer {
    pub fn new(read: Arc<dyn ObjectReader>) -> Self {
        Self { read }
    }

    fn decide(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        match (asked.group, asked.resource) {
            ("", "nodes") => own_node(node, asked),
            ("", "pods") => self.pods(node, asked),
            ("", "secrets" | "configmaps") => self.readable(node, asked),
            ("", "persistentvolumeclaims") if asked.subresource == "status" => self.claim_status(node, asked),
            ("", "persistentvolumeclaims" | "persistentvolumes")
            | ("storage.k8s.io", "volumeattachments")
            | ("resource.k8s.io", "resourceclaims") => self.one(node, asked),
            ("", "serviceaccounts") => self.service_account(node, asked),
            ("coordination.k8s.io", "leases") => own_lease(node, asked),
            ("storage.k8s.io", "csinodes") => own_csi_node(node, asked),
            ("resource.k8s.io", "resourceslices") => self.slices(node, asked),
            _ if always(asked) => Ok(()),
            _ => no(""),
        }
    }

    fn pods(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        match (asked.subresource, asked.verb) {
            ("", "get") => self.related(node, asked),
            ("", "list" | "watch") if asked.selects("spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !asked.name.is_empty() => self.related(node, asked),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }

    /// Secrets and ConfigMaps: single ones, which a kubelet also watches.
    fn readable(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if !matches!(asked.verb, "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if !asked.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if asked.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, asked)
    }

    fn one(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if asked.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !asked.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(node, asked)
    }

    fn claim_status(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        match asked.verb {
            "update" | "patch" => self.related(node, asked),
            _ => no("can only get/update/patch this type"),
        }
    }

    /// A kubelet makes tokens for the accounts of its pods, and reads the accounts for image credentials.
    fn service_account(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        match (asked.subresource, asked.verb) {
            ("", "get") => self.related(node, asked),
            ("token", "create") if !asked.name.is_empty() => self.related(node, asked),
            (_, "create") if asked.subresource != "token" => {
                no("can only create token subresource of serviceaccount")
            }
            _ => no("can only create tokens for individual service accounts"),
        }
    }

    fn slices(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if !asked.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match asked.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, asked),
            "watch" | "list" | "deletecollection" if asked.selects("spec.nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" if asked.selects("nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    /// One object that something on the node leads to. Its name is the request's, or that of a selector for one name.
    fn related(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        let selected = || asked.selected("metadata.name").unwrap_or_default();
        let name = if asked.name.is_empty() { selected() } else { asked.name.to_owned() };
        if name.is_empty() {
            return no("No Object name found");
        }
        let relations = Relations { read: &*self.read, node };
        if relations.has(asked.resource, asked.namespace, &name) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }
}

fn always(asked: &Attributes<'_>) -> bool {
    let full = asked.full_resource();
    ALWAYS.iter().any(|(verbs, group, resource)| {
        *group == asked.group && *resource == full && verbs.contains(&asked.verb)
    })
}

fn own_node(node: &str, asked: &Attributes<'_>) -> Verdict {
    match (asked.subresource, asked.verb) {
        // Which node it is, NodeRestriction sees.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => {
            let selected = || asked.selected("metadata.name").unwrap_or_default();
            match &*if asked.name.is_empty() { selected() } else { asked.name.to_owned() } {
                name if name == node => Ok(()),
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                other => Err(format!("node '{node}' cannot read '{other}', only its own Node object")),
            }
        }
        _ => no(""),
    }
}

fn own_lease(node: &str, asked: &Attributes<'_>) -> Verdict {
    let other = asked.verb != "create" && asked.name != node;
    match asked.verb {
        "get" | "create" | "update" | "patch" | "delete" if asked.namespace != "kube-node-lease" => {
            no("can only access leases in the \"kube-node-lease\" system namespace")
        }
        "get" | "create" | "update" | "patch" | "delete" if other => {
            no("can only access node lease with the same name as the requesting node")
        }
        "get" | "create" | "update" | "patch" | "delete" => Ok(()),
        _ => no("can only get, create, update, patch, or delete a node lease"),
    }
}

fn own_csi_node(node: &str, asked: &Attributes<'_>) -> Verdict {
    let other = asked.verb != "create" && asked.name != node;
    match asked.verb {
        "get" | "create" | "update" | "patch" | "delete" if !asked.subresource.is_empty() => {
            no("cannot authorize CSINode subresources")
        }
        "get" | "create" | "update" | "patch" | "delete" if other => {
            no("can only access CSINode with the same name as the requesting node")
        }
        "get" | "create" | "update" | "patch" | "delete" => Ok(()),
        _ => no("can only get, create, update, patch, or delete a CSINode"),
    }
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

    /// What nodes may do hangs on objects, so no list of rules says it.
    fn rules_for(&self, user: &UserInfo, _namespace: &str) -> Resolved {
        let mut resolved = Resolved::default();
        if node_of(user).is_some() {
            resolved.errors.push("node authorizer does not support user rule resolution".to_owned());
        }
        resolved
    }
}
