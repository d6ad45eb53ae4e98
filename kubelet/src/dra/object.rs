//! What the node reads of a ResourceClaim, and whether a pod may have it here.

use super::DraError;
use super::references::Reference;
use super::state::{ClaimState, DriverState};
use coracle_client::placement::any_term_matches;
use k8s_openapi::api::core::v1::{Node, NodeSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub struct Claim {
    pub metadata: ObjectMeta,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    allocation: Option<Allocation>,
    #[serde(default)]
    reserved_for: Vec<Consumer>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocation {
    #[serde(default)]
    devices: Devices,
    node_selector: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Devices {
    #[serde(default)]
    results: Vec<Allocated>,
}

#[derive(Clone, Debug, Deserialize)]
struct Allocated {
    driver: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Consumer {
    uid: String,
}

/// The claim as it is to be prepared, if the pod may have it on this node. `node` is `None` where it is not known.
pub fn for_pod(
    claim: &Claim,
    reference: &Reference,
    pod: &Pod,
    node: Option<&Node>,
) -> Result<ClaimState, DraError> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (name, uid) = (text(&claim.metadata.name), text(&claim.metadata.uid));
    let (namespace, pod_uid) = (text(&claim.metadata.namespace), text(&pod.metadata.uid));
    let pod_name = text(&pod.metadata.name);
    let mut owners = claim.metadata.owner_references.iter().flatten();
    if reference.made_for && !owners.any(|o| o.controller == Some(true) && o.uid == pod_uid) {
        let pod = format!("{namespace}/{pod_name}");
        return Err(DraError::NotOwner { claim: format!("{namespace}/{name}"), pod });
    }
    let status = claim.status.as_ref();
    if !status.is_some_and(|s| s.reserved_for.iter().any(|consumer| consumer.uid == pod_uid)) {
        return Err(DraError::NotReserved { pod: pod_name, pod_uid, claim: name, uid });
    }
    let Some(allocation) = status.and_then(|s| s.allocation.as_ref()) else {
        return Err(DraError::NotAllocated(name));
    };
    let elsewhere = allocation
        .node_selector
        .as_ref()
        .zip(node)
        .is_some_and(|(selector, node)| !any_term_matches(&selector.node_selector_terms, node));
    if elsewhere {
        return Err(DraError::Elsewhere(name));
    }
    let drivers = allocation.devices.results.iter();
    let drivers = drivers.map(|result| (result.driver.clone(), DriverState::default())).collect();
    Ok(ClaimState { uid, name, namespace, drivers, ..ClaimState::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn judge(made_for: bool, change: impl Fn(&mut Value)) -> Result<ClaimState, String> {
        let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] });
        let mut claim = json!({
            "metadata": { "name": "c", "namespace": "n", "uid": "cu",
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pu", "controller": true }] },
            "status": { "reservedFor": [{ "resource": "pods", "name": "p", "uid": "pu" }], "allocation": {
                "devices": { "results": [{ "driver": "d" }, { "driver": "d" }, { "driver": "e" }] },
                "nodeSelector": { "nodeSelectorTerms": [term] } } } });
        change(&mut claim);
        let claim: Claim = serde_json::from_value(claim).unwrap();
        let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": "pu" } });
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
        let reference = Reference { name: "c".to_owned(), made_for };
        let pod = serde_json::from_value(pod).unwrap();
        for_pod(&claim, &reference, &pod, Some(&node)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pod_has_what_is_reserved_for_it_here() {
        let state = judge(true, |_| {}).unwrap();
        assert_eq!(state.drivers.keys().collect::<Vec<_>>(), ["d", "e"]);
        let other = |claim: &mut Value| claim["metadata"]["ownerReferences"][0]["uid"] = json!("x");
        assert_eq!(
            judge(true, other).unwrap_err(),
            "ResourceClaim n/c was not created for pod n/p (pod is not owner)"
        );
        assert!(judge(false, other).is_ok());
        let unreserved = |claim: &mut Value| claim["status"]["reservedFor"][0]["uid"] = json!("x");
        assert_eq!(
            judge(true, unreserved).unwrap_err(),
            "pod p (pu) is not allowed to use ResourceClaim c (cu)"
        );
        let unallocated = |claim: &mut Value| claim["status"]["allocation"] = Value::Null;
        assert_eq!(judge(true, unallocated).unwrap_err(), "ResourceClaim c: not allocated");
        let elsewhere = |claim: &mut Value| {
            let terms = &mut claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"];
            terms[0]["matchFields"][0]["values"] = json!(["n2"]);
        };
        assert_eq!(judge(true, elsewhere).unwrap_err(), "ResourceClaim c: not allocated for this node");
    }
}
