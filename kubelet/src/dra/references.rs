//! Which claims a pod has, and which requests of them its containers use.

use super::DraError;
use coracle_api::validation::is_extended_resource;
use k8s_openapi::api::core::v1::{Container, Pod, PodResourceClaim};
use std::collections::BTreeMap;

/// Every device class is an extended resource under this prefix too.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Of the object.
    pub name: String,
    /// It was made for the pod, from a template.
    pub made_for: bool,
}

/// What the entry of the pod's spec leads to; `None` where it was found that no claim is needed.
fn named(pod: &Pod, entry: &PodResourceClaim) -> Result<Option<Reference>, DraError> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(Reference { name: name.clone(), made_for: false }));
    }
    let said = |text: String| {
        let part = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, name) = (part(&pod.metadata.namespace), part(&pod.metadata.name));
        DraError::Reference(format!("pod \"{namespace}/{name}\"{text}"))
    };
    if entry.resource_claim_template_name.is_none() {
        let text = format!(", spec.resourceClaim {:?}: none of the supported fields are set", entry.name);
        return Err(said(text));
    }
    let made = pod.status.iter().flat_map(|s| s.resource_claim_statuses.iter().flatten());
    let made = made.into_iter().find(|made| made.name == entry.name);
    let made = made.ok_or_else(|| said(": ResourceClaim not created yet".to_owned()))?;
    Ok(made.resource_claim_name.clone().map(|name| Reference { name, made_for: true }))
}

/// All claims of the pod, that of its extended resources last.
pub fn references(pod: &Pod) -> Result<Vec<Reference>, DraError> {
    let entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let named: Result<Vec<_>, _> = entries.map(|entry| named(pod, entry)).collect();
    let extended = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
    let extended = extended.map(|e| Reference { name: e.resource_claim_name.clone(), made_for: false });
    Ok(named?.into_iter().flatten().chain(extended).collect())
}

/// Whether the pod has claims at all, or is to have some.
pub fn has_any(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|s| s.resource_claims.iter().flatten().next().is_some())
        || pod.status.as_ref().is_some_and(|s| s.extended_resource_claim_status.is_some())
}

/// By the names of claims, the requests that the container uses; an empty one stands for all.
pub fn used(pod: &Pod, container: &Container) -> Result<BTreeMap<String, Vec<String>>, DraError> {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, request, name) in entries(pod, container)? {
        used.entry(name).or_default().push(request);
    }
    let asked = container.resources.iter().flat_map(|r| r.requests.iter().flatten());
    let asked: Vec<&String> = asked
        .filter(|(name, amount)| {
            (is_extended_resource(name) || name.starts_with(IMPLICIT)) && amount.0.trim() != "0"
        })
        .map(|(name, _)| name)
        .collect();
    let extended = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
    for mapping in extended.iter().flat_map(|e| &e.request_mappings) {
        if mapping.container_name == container.name && asked.contains(&&mapping.resource_name) {
            let claim = extended.map(|e| e.resource_claim_name.clone()).unwrap_or_default();
            used.entry(claim).or_default().push(mapping.request_name.clone());
        }
    }
    Ok(used)
}

/// What the container names: entry of the pod, request, and name of the claim.
pub fn entries(pod: &Pod, container: &Container) -> Result<Vec<(String, String, String)>, DraError> {
    let of_pod = || pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let claims = container.resources.iter().flat_map(|r| r.claims.iter().flatten());
    let mut entries = Vec::new();
    for claim in claims {
        let Some(entry) = of_pod().find(|entry| entry.name == claim.name) else { continue };
        if let Some(reference) = named(pod, entry)? {
            entries.push((claim.name.clone(), claim.request.clone().unwrap_or_default(), reference.name));
        }
    }
    Ok(entries)
}

/// Without the part that names one of several alternatives.
pub fn base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        let claims = json!([{ "name": "a", "request": "r" }, { "name": "b" }, { "name": "c" }]);
        let requests = json!({ "example.com/gpu": 1, "example.com/none": 0, "cpu": 1 });
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": {
            "resourceClaims": [{ "name": "a", "resourceClaimName": "shared" },
                { "name": "b", "resourceClaimTemplateName": "t" }, { "name": "c", "resourceClaimTemplateName": "t" }],
            "containers": [{ "name": "main", "resources": { "claims": claims, "requests": requests } }] }, "status": status }))
        .unwrap()
    }

    #[test]
    fn claims_are_found_where_the_pod_says_them() {
        let made = json!([{ "name": "b", "resourceClaimName": "p-b" }, { "name": "c" }]);
        let mapping = |resource: &str, container: &str| json!({ "resourceName": resource, "containerName": container, "requestName": "container-0-request-0" });
        let extended = json!({ "resourceClaimName": "p-extended", "requestMappings": [
            mapping("example.com/gpu", "main"), mapping("example.com/none", "main"), mapping("example.com/gpu", "other")] });
        let pod = pod(json!({ "resourceClaimStatuses": made, "extendedResourceClaimStatus": extended }));
        let names: Vec<_> = references(&pod).unwrap().into_iter().map(|r| (r.name, r.made_for)).collect();
        let expected = [("shared", false), ("p-b", true), ("p-extended", false)];
        assert_eq!(names, expected.map(|(name, made)| (name.to_owned(), made)));
        let used = used(&pod, &pod.spec.as_ref().unwrap().containers[0]).unwrap();
        let used: Vec<_> = used.iter().map(|(name, requests)| (name.as_str(), requests.join(","))).collect();
        let requests = "container-0-request-0".to_owned();
        assert_eq!(used, [("p-b", String::new()), ("p-extended", requests), ("shared", "r".to_owned())]);
    }

    #[test]
    fn a_claim_that_is_not_made_yet_is_told() {
        let error = references(&pod(json!({}))).unwrap_err();
        assert_eq!(error.to_string(), "pod \"n/p\": ResourceClaim not created yet");
    }
}
