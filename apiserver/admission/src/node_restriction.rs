//! NodeRestriction: a kubelet writes its own Node, the status of its own pods, and nothing that would let it gain more
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>).

mod addresses;
mod own_node;

use super::{Operation, Plugin, Request, is_mirror, items};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_access::authz::node::node_of;
use coracle_api::well_known;
use coracle_api::{ApiError, Object};
use coracle_pki::CertificateRequest;
use serde_json::Value;

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
            ("", "nodes") => own_node::check(request, node, object, old),
            ("", "persistentvolumeclaims") => claims(request, node, object, old),
            ("coordination.k8s.io", "leases") => leases(request, node),
            ("storage.k8s.io", "csinodes") if request.name != node => {
                Err("can only access CSINode with the same name as the requesting node".to_owned())
            }
            ("resource.k8s.io", "resourceslices") => slices(node, object, old),
            ("certificates.k8s.io", "certificatesigningrequests") => certificates(request, node, object),
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
        ("status", Operation::Update) => object.zip(old).map_or(Ok(()), |(new, old)| {
            pod_status(node, new, old)?;
            addresses::check(request, node, new, old)
        }),
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
    let extended = |o: &Object| o["status"]["extendedResourceClaimStatus"].clone();
    if extended(new) != extended(old) {
        return Err(format!("node \"{node}\" cannot update extended resource claim status"));
    }
    Ok(())
}

fn mirror_pod(request: &Request, node: &str, pod: &Object) -> Verdict {
    if !is_mirror(pod) {
        let annotation = well_known::CONFIG_MIRROR;
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
    if plugin("persistentVolumeClaim") || plugin("ephemeral") {
        return Some("persistentvolumeclaims");
    }
    (!items(&spec["resourceClaims"]).is_empty()).then_some("resourceclaims")
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

/// A node asks for certificates of its own name alone: it is the approver who looks at the rest.
fn certificates(request: &Request, node: &str, object: Option<&Object>) -> Verdict {
    const OF_NODES: [&str; 2] = [well_known::SIGNER_KUBELET_SERVING, well_known::SIGNER_KUBELET_CLIENT];
    let Some(asked) = object.filter(|_| request.operation == Operation::Create) else { return Ok(()) };
    if !asked["spec"]["signerName"].as_str().is_some_and(|signer| OF_NODES.contains(&signer)) {
        return Ok(());
    }
    let pem = asked["spec"]["request"].as_str().unwrap_or_default();
    let parsed = STANDARD.decode(pem).map_err(|e| e.to_string());
    let parsed = parsed.and_then(|pem| CertificateRequest::from_pem(&pem).map_err(|e| e.to_string()));
    let holder = parsed.and_then(|request| request.holder().map_err(|e| e.to_string()));
    let holder = holder.map_err(|why| format!("unable to parse csr: {why}"))?;
    if holder.common_name().is_ok_and(|name| name.strip_prefix("system:node:") == Some(node)) {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN=system:node:{node}"))
}

#[cfg(test)]
mod tests;
