//! Pods as policies see them, and what selectors say of them.

use super::World;
use crate::family::Family;
use coracle_api::selector::LabelSelector;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A pod as policies see it.
pub(super) struct Target<'a> {
    pub pod: &'a Pod,
    pub namespace: &'a str,
    pub ips: Vec<IpAddr>,
    pub local: bool,
}

/// An address belongs to the pod that was made last: an earlier one that has it has ended, and says so later.
pub(super) fn targets<'a>(world: World<'a>, family: Family) -> Vec<Target<'a>> {
    let mut newest: BTreeMap<IpAddr, &Pod> = BTreeMap::new();
    let mut pods: Vec<&Pod> = world.pods.iter().map(Arc::as_ref).filter(|pod| has_own_network(pod)).collect();
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|at| at.0));
    for pod in &pods {
        newest.extend(addresses(pod, family).into_iter().map(|ip| (ip, *pod)));
    }
    let target = |pod: &'a Pod| Target {
        pod,
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        ips: addresses(pod, family)
            .into_iter()
            .filter(|ip| newest.get(ip).is_some_and(|owner| std::ptr::eq(*owner, pod)))
            .collect(),
        local: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(world.node),
    };
    pods.into_iter().map(target).filter(|target| !target.ips.is_empty()).collect()
}

fn has_own_network(pod: &Pod) -> bool {
    let on_node = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !on_node && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn addresses(pod: &Pod, family: Family) -> Vec<IpAddr> {
    let ips = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    let ips = ips.filter_map(|ip| ip.ip.parse::<IpAddr>().ok());
    ips.filter(|ip| Family::of(*ip) == family).collect()
}

pub(super) fn labelled(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    selector.matches_with(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}

/// The API server has judged selectors; one that cannot be read all the same selects nothing.
pub(super) fn selector(of: &meta::LabelSelector) -> LabelSelector {
    let object = serde_json::to_value(of).unwrap_or_default();
    LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing())
}
