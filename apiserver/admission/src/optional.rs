//! Plugins that upstream has and leaves off; `--enable-admission-plugins` turns them on
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>).

use super::{Operation, Plugin, Request, items, items_mut, present_items};
use coracle_access::authz::{Attributes, Decision};
use coracle_api::validation::is_extended_resource;
use coracle_api::well_known;
use coracle_api::{ApiError, Object, catalogue};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }
}

pub(super) struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn handles(&self, _: Operation) -> bool {
        true
    }

    fn validate(&self, request: &Request, _: Option<&Object>, _: Option<&Object>) -> Result<(), ApiError> {
        Err(request.forbidden("admission control is denying all modifications"))
    }
}

pub(super) struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn validate(&self, request: &Request, _: Option<&Object>, _: Option<&Object>) -> Result<(), ApiError> {
        let in_one = !request.namespace.is_empty() && request.resource != "namespaces";
        if in_one && request.read.get("namespaces.", "", request.namespace).is_none() {
            return Err(ApiError::not_found("", "namespaces", request.namespace));
        }
        Ok(())
    }
}

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let sub = matches!(request.subresource, "" | "ephemeralcontainers");
        if !writes || !sub || !request.group.is_empty() || request.resource != "pods" {
            return Ok(());
        }
        for list in CONTAINERS {
            for container in present_items(&mut pod["spec"], list).into_iter().flatten() {
                container["imagePullPolicy"] = "Always".into();
            }
        }
        for volume in present_items(&mut pod["spec"], "volumes").into_iter().flatten() {
            if let Some(image) = volume.get_mut("image").filter(|image| image.is_object()) {
                image["pullPolicy"] = "Always".into();
            }
        }
        Ok(())
    }
}

pub(super) struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(pod) = object.filter(|_| writes && request.is_for("", "pods", "")) else { return Ok(()) };
        let terms =
            &pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        match items(terms).iter().find(|term| term["topologyKey"] != well_known::HOSTNAME) {
            Some(term) => {
                let key = term["topologyKey"].as_str().unwrap_or_default();
                let why = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key \
                     kubernetes.io/hostname is allowed"
                );
                Err(request.forbidden(&why))
            }
            None => Ok(()),
        }
    }
}

pub(super) struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(service) = object.filter(|_| writes && request.is_for("", "services", "")) else {
            return Ok(());
        };
        let known = old.map(|old| items(&old["spec"]["externalIPs"])).unwrap_or_default();
        if items(&service["spec"]["externalIPs"]).iter().all(|ip| known.contains(ip)) {
            return Ok(());
        }
        Err(request.forbidden("spec.externalIPs: Use of external IPs is denied by admission control"))
    }
}

pub(super) struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if !request.is(Operation::Create, "", "pods") {
            return Ok(());
        }
        let mut asked = BTreeSet::new();
        for container in ["containers", "initContainers"].into_iter().flat_map(|l| items(&pod["spec"][l])) {
            let names = container["resources"]["requests"].as_object().into_iter().flat_map(|r| r.keys());
            asked.extend(names.filter(|name| is_extended_resource(name)).cloned());
        }
        for key in asked {
            let toleration = json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" });
            let list = items_mut(&mut pod["spec"], "tolerations");
            if let Some(list) = list.filter(|list| !list.contains(&toleration)) {
                list.push(toleration);
            }
        }
        Ok(())
    }
}

/// Reads the namespace's annotation only: a cluster-wide selector would come from a configuration file.
pub(super) struct PodNodeSelector;

const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";

impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if !request.is(Operation::Create, "", "pods") {
            return Ok(());
        }
        let Some(namespace) = request.read.get("namespaces.", "", request.namespace) else { return Ok(()) };
        let text = namespace["metadata"]["annotations"][NODE_SELECTOR].as_str().unwrap_or_default();
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let Some((key, value)) = term.split_once('=') else {
                let why = format!("the node selector of the namespace is malformed: {term:?}");
                return Err(request.forbidden(&why));
            };
            let (key, value) = (key.trim(), value.trim());
            if !pod["spec"]["nodeSelector"].is_object() {
                pod["spec"]["nodeSelector"] = json!({});
            }
            let own = &pod["spec"]["nodeSelector"][key];
            if !own.is_null() && own != value {
                return Err(request
                    .forbidden("pod node label selector conflicts with its namespace node label selector"));
            }
            pod["spec"]["nodeSelector"][key] = value.into();
        }
        Ok(())
    }
}

pub(super) struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let (Some(new), Some(authorizer)) = (object.filter(|_| writes), request.authorizer) else {
            return Ok(());
        };
        let owners = |object: &Object| items(&object["metadata"]["ownerReferences"]).to_vec();
        let (now, before) = (owners(new), old.map(owners).unwrap_or_default());
        if now == before {
            return Ok(());
        }
        let allows = |attributes: Attributes| matches!(authorizer.authorize(&attributes), Decision::Allow(_));
        let own =
            Attributes::resource(request.user, "delete", request.group, request.resource, request.namespace);
        if old.is_some() && !allows(Attributes { name: request.name, ..own }) {
            return Err(request.forbidden("cannot set an ownerRef on a resource you can't delete"));
        }
        let blocks = |o: &&Value| o["blockOwnerDeletion"] == true;
        let held = |list: &[Value], o: &Value| list.iter().any(|b| b["uid"] == o["uid"] && blocks(&b));
        for owner in now.iter().filter(blocks).filter(|o| !held(&before, o)) {
            let (version, kind) = (owner["apiVersion"].as_str(), owner["kind"].as_str());
            let found = catalogue::catalogue()
                .iter()
                .find(|r| kind == Some(&*r.kind) && Some(r.api_version()).as_deref() == version);
            let Some(found) = found else {
                return Err(request.forbidden("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for its owner"));
            };
            let finalizers = Attributes {
                subresource: "finalizers",
                name: owner["name"].as_str().unwrap_or_default(),
                ..Attributes::resource(
                    request.user,
                    "update",
                    &found.group,
                    &found.plural,
                    if found.namespaced { request.namespace } else { "" },
                )
            };
            if !allows(finalizers) {
                return Err(request.forbidden(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "optional_tests.rs"]
mod tests;
