//! What the containers of a pod want of what is placed.

use crate::placement::Want;
use crate::placement::settings::Settings;
use coracle_api::Quantity;
use coracle_api::pod::{QosClass, qos_class, restarts_as_sidecar};
use coracle_api::validation::is_extended_resource;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// In the order in which they begin.
pub fn wants(pod: &Pod, settings: &Settings) -> Vec<Want> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    // As with upstream, who shares what the pod has as a whole has nothing of his own.
    let alone = qos_class(pod) == QosClass::Guaranteed && spec.resources.is_none();
    let want = |container: &Container, init: bool| Want {
        pod: pod.metadata.uid.clone().unwrap_or_default(),
        container: container.name.clone(),
        passes: init && !restarts_as_sidecar(container.restart_policy.as_deref()),
        cpus: if alone && settings.cpus.is_some() { whole_cpus(container) } else { 0 },
        memory: if alone && settings.memory { memory(container) } else { BTreeMap::new() },
        devices: devices(pod, container),
    };
    let init = spec.init_containers.iter().flatten().map(|container| want(container, true));
    init.chain(spec.containers.iter().map(|container| want(container, false))).collect()
}

fn amounts(container: &Container, limits: bool) -> impl Iterator<Item = (&String, Quantity)> {
    let all = container
        .resources
        .as_ref()
        .and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
    all.into_iter().flatten().filter_map(|(name, amount)| Some((name, amount.0.parse().ok()?)))
}

/// All that is asked for, if that is a whole number.
fn whole_cpus(container: &Container) -> usize {
    let millis =
        amounts(container, false).find(|(name, _)| *name == "cpu").map_or(0, |(_, amount)| amount.milli());
    if millis % 1000 == 0 { usize::try_from(millis / 1000).unwrap_or(0) } else { 0 }
}

fn memory(container: &Container) -> BTreeMap<String, u64> {
    let placed = |name: &str| name == "memory" || name.starts_with("hugepages-");
    let all = amounts(container, false).filter(|(name, _)| placed(name));
    let all = all.filter_map(|(name, amount)| Some((name.clone(), u64::try_from(amount.units()).ok()?)));
    all.filter(|(_, bytes)| *bytes > 0).collect()
}

/// Extended resources; those that devices of a claim stand in for are not given here.
fn devices(pod: &Pod, container: &Container) -> BTreeMap<String, usize> {
    let claim = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    let claimed = |name: &str| {
        claim.is_some_and(|claim| {
            let mut all = claim.request_mappings.iter();
            all.any(|mapping| mapping.container_name == container.name && mapping.resource_name == name)
        })
    };
    let all = amounts(container, true).filter(|(name, _)| is_extended_resource(name) && !claimed(name));
    let all = all.filter_map(|(name, amount)| Some((name.clone(), usize::try_from(amount.units()).ok()?)));
    all.filter(|(_, count)| *count > 0).collect()
}

/// What the pod as a whole needs at the time when it needs most.
pub fn together(pod: &Pod, wants: &[Want]) -> Want {
    let memory: BTreeMap<String, u64> = names(wants, |want| &want.memory)
        .map(|name| (name.clone(), most(wants, |want| want.memory.get(name).copied().unwrap_or(0))))
        .collect();
    let count = |of: &dyn Fn(&Want) -> usize| {
        usize::try_from(most(wants, |want| of(want) as u64)).unwrap_or(usize::MAX)
    };
    let devices = names(wants, |want| &want.devices)
        .map(|name| (name.clone(), count(&|want| want.devices.get(name).copied().unwrap_or(0))))
        .collect();
    let pod = pod.metadata.uid.clone().unwrap_or_default();
    Want { pod, cpus: count(&|want| want.cpus), memory, devices, ..Want::default() }
}

fn names<'a, T: 'a>(
    wants: &'a [Want],
    of: impl Fn(&'a Want) -> &'a BTreeMap<String, T>,
) -> impl Iterator<Item = &'a String> {
    wants.iter().flat_map(move |want| of(want).keys())
}

/// Who passes has his share beside those that stay and began before him; in the end all that stay have theirs.
fn most(wants: &[Want], of: impl Fn(&Want) -> u64) -> u64 {
    let (mut staying, mut most) = (0, 0);
    for want in wants {
        let own = of(want);
        most = most.max(staying + own);
        staying += if want.passes { 0 } else { own };
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::cpus::Options;
    use serde_json::{Value, json};

    fn container(name: &str, cpu: &str, devices: u32, policy: Value) -> Value {
        let amounts = json!({ "cpu": cpu, "memory": "1Gi", "example.com/r": devices, "hugepages-2Mi": "0" });
        json!({ "name": name, "restartPolicy": policy, "resources": { "limits": amounts, "requests": amounts } })
    }

    fn pod() -> Pod {
        let always = json!("Always");
        serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": {
            "initContainers": [container("init", "3", 1, Value::Null), container("side", "1", 0, always)],
            "containers": [container("a", "2", 2, Value::Null), container("b", "500m", 0, Value::Null)] } }))
        .unwrap()
    }

    #[test]
    fn only_whole_cpus_of_guaranteed_pods_are_their_own() {
        let settings = Settings { cpus: Some(Options::default()), memory: true, ..Settings::default() };
        let all = wants(&pod(), &settings);
        let cpus: Vec<_> = all.iter().map(|want| (want.container.as_str(), want.cpus, want.passes)).collect();
        assert_eq!(cpus, [("init", 3, true), ("side", 1, false), ("a", 2, false), ("b", 0, false)]);
        assert_eq!(all[2].devices, BTreeMap::from([("example.com/r".to_owned(), 2)]));
        assert_eq!(all[3].memory, BTreeMap::from([("memory".to_owned(), 1 << 30)]));
        let whole = together(&pod(), &all);
        assert_eq!((whole.cpus, whole.memory["memory"], whole.devices["example.com/r"]), (3, 3 << 30, 2));
        let mut burstable = pod();
        burstable.spec.as_mut().unwrap().containers[1].resources = None;
        let all = wants(&burstable, &settings);
        assert!(
            all.iter().all(|want| want.cpus == 0 && want.memory.is_empty()) && !all[0].devices.is_empty()
        );
    }
}
