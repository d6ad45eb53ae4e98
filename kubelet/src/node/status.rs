//! The Node's status: a pure function of facts, of the runtime's answer and of what was reported before.

use crate::configuration::config::Config;
use crate::cri::api;
use crate::facts::Facts;
use crate::pod_facts::features::declared;
use crate::signal::Pressure;
use coracle_api::condition::with_transition_time;
use coracle_api::validation::is_extended_resource;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What the runtime said when it was asked.
#[derive(Clone, Debug, Default)]
pub struct RuntimeFacts {
    /// Why it is not ready; `None` when it is.
    pub trouble: Option<String>,
    /// `containerd://1.7.2`
    pub version: String,
    pub images: Vec<api::Image>,
    pub handlers: Vec<api::RuntimeHandler>,
    pub features: Option<api::RuntimeFeatures>,
}

/// Why the runtime is not ready, from its Status call, in upstream's words.
pub fn trouble(answer: &Result<api::StatusResponse, crate::cri::RuntimeError>) -> Option<String> {
    let conditions = match answer {
        Ok(answer) => answer.status.as_ref().map_or(&[][..], |s| &s.conditions),
        Err(error) => return Some(format!("container runtime is down: {error}")),
    };
    let mut troubles = Vec::new();
    for (kind, what) in [("RuntimeReady", "container runtime"), ("NetworkReady", "container runtime network")]
    {
        match conditions.iter().find(|c| c.r#type == kind) {
            Some(condition) if condition.status => {}
            Some(c) => troubles
                .push(format!("{what} not ready: {kind}=false reason:{} message:{}", c.reason, c.message)),
            None => troubles.push(format!("{what} status unknown: the runtime reports no {kind}")),
        }
    }
    (!troubles.is_empty()).then(|| troubles.join(", "))
}

/// Capacity of devices, and how many can be given, by resource.
pub type Devices = BTreeMap<String, (usize, usize)>;

/// What the machine has; whatever else the node shows is somebody else's to count.
pub fn resources(config: &Config, facts: &Facts, devices: &Devices) -> BTreeMap<String, Quantity> {
    let mut all = BTreeMap::from([
        ("cpu".to_owned(), facts.cpus.to_string()),
        ("memory".to_owned(), format!("{}Ki", facts.memory_bytes / 1024)),
        ("ephemeral-storage".to_owned(), format!("{}Ki", facts.ephemeral_storage_bytes / 1024)),
        ("pods".to_owned(), config.node.pods(facts.cpus).to_string()),
    ]);
    for (size, bytes) in &facts.hugepages {
        all.insert(format!("hugepages-{size}"), bytes.to_string());
    }
    all.extend(devices.iter().map(|(name, (capacity, _))| (name.clone(), capacity.to_string())));
    all.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect()
}

/// What pods can have of CPU, memory and disk: not what is reserved for others, nor what eviction keeps free, or who takes
/// all that was given would be evicted.
fn given(config: &Config, facts: &Facts) -> [(String, Quantity); 3] {
    let given = facts.allocatable(config);
    let cpu = coracle_api::Quantity::from_milli(given.cpu_millis).to_string();
    let bytes = |bytes: i64| format!("{}Ki", bytes / 1024);
    [
        ("cpu", cpu),
        ("memory", bytes(given.memory_bytes)),
        ("ephemeral-storage", bytes(given.ephemeral_storage_bytes)),
    ]
    .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
}

fn condition(
    old: &NodeStatus,
    kind: &str,
    word: &str,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> NodeCondition {
    let new = NodeCondition {
        type_: kind.to_owned(),
        status: word.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    with_transition_time(old.conditions.as_deref().unwrap_or_default(), new)
}

fn conditions(
    old: &NodeStatus,
    runtime: &RuntimeFacts,
    pressures: &BTreeSet<Pressure>,
    now: Timestamp,
) -> Vec<NodeCondition> {
    let two = |kind, short: bool, yes: (&str, &str), no: (&str, &str)| {
        let (word, text) = if short { ("True", yes) } else { ("False", no) };
        condition(old, kind, word, text, now)
    };
    let ready = match &runtime.trouble {
        None => condition(old, "Ready", "True", ("KubeletReady", "kubelet is posting ready status"), now),
        Some(trouble) => condition(old, "Ready", "False", ("KubeletNotReady", trouble), now),
    };
    vec![
        two(
            "MemoryPressure",
            pressures.contains(&Pressure::Memory),
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        two(
            "DiskPressure",
            pressures.contains(&Pressure::Disk),
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        two(
            "PIDPressure",
            pressures.contains(&Pressure::Pid),
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        ready,
    ]
}

fn features(runtime: &RuntimeFacts) -> Option<NodeFeatures> {
    let policy = runtime.features.as_ref()?.supplemental_groups_policy;
    Some(NodeFeatures { supplemental_groups_policy: Some(policy) })
}

/// Runtimes before containerd 2 name none.
fn handlers(runtime: &RuntimeFacts) -> Option<Vec<NodeRuntimeHandler>> {
    let report = |handler: &api::RuntimeHandler| NodeRuntimeHandler {
        name: Some(handler.name.clone()),
        features: handler.features.as_ref().map(|f| NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(f.recursive_read_only_mounts),
            user_namespaces: Some(f.user_namespaces),
        }),
    };
    (!runtime.handlers.is_empty()).then(|| runtime.handlers.iter().map(report).collect())
}

fn images(images: &[api::Image], most: Option<usize>) -> Vec<ContainerImage> {
    let mut images: Vec<&api::Image> = images.iter().collect();
    // The same order every time: a runtime may list them in any.
    images.sort_by(|a, b| (b.size, &b.id).cmp(&(a.size, &a.id)));
    let report = |i: &&api::Image| ContainerImage {
        names: Some(i.repo_digests.iter().chain(&i.repo_tags).take(5).cloned().collect()),
        size_bytes: i64::try_from(i.size).ok(),
    };
    images.iter().take(most.unwrap_or(usize::MAX)).map(report).collect()
}

/// The whole status; what others own (attached volumes, foreign conditions) is kept.
pub fn status(
    config: &Config,
    facts: &Facts,
    (runtime, devices): (&RuntimeFacts, &Devices),
    pressures: &BTreeSet<Pressure>,
    old: &NodeStatus,
    now: Timestamp,
) -> NodeStatus {
    let ours = conditions(old, runtime, pressures, now);
    let foreign =
        old.conditions.iter().flatten().filter(|c| ours.iter().all(|o| o.type_ != c.type_)).cloned();
    let foreign: Vec<_> = foreign.collect();
    let capacity: BTreeMap<String, Quantity> = old
        .capacity
        .iter()
        .flatten()
        .filter(|(name, _)| is_extended_resource(name))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .chain(resources(config, facts, devices))
        .collect();
    let usable = devices.iter().map(|(name, (_, usable))| (name.clone(), Quantity(usable.to_string())));
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    NodeStatus {
        // Extended resources that others write into the capacity are all given to pods.
        allocatable: Some(capacity.clone().into_iter().chain(given(config, facts)).chain(usable).collect()),
        capacity: Some(capacity),
        // A runtime that is down says nothing of them, and a patch cannot take them away.
        features: features(runtime).or_else(|| old.features.clone()),
        runtime_handlers: handlers(runtime).or_else(|| old.runtime_handlers.clone()),
        declared_features: Some(
            declared(config.placement.cpus.is_some()).into_iter().map(str::to_owned).collect(),
        ),
        conditions: Some(ours.into_iter().chain(foreign).collect()),
        addresses: Some(
            config
                .node_ips()
                .map(|ip| address("InternalIP", ip.to_string()))
                .chain([address("Hostname", config.node_name.clone())])
                .collect(),
        ),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(config.port.port) }),
        }),
        images: Some(images(&runtime.images, config.images.shown)),
        node_info: Some(NodeSystemInfo {
            machine_id: facts.machine_id.clone(),
            system_uuid: facts.system_uuid.clone(),
            boot_id: facts.boot_id.clone(),
            kernel_version: facts.kernel_version.clone(),
            os_image: facts.os_image.clone(),
            container_runtime_version: runtime.version.clone(),
            kubelet_version: "v1.36.0".to_owned(),
            kube_proxy_version: String::new(),
            operating_system: "linux".to_owned(),
            architecture: crate::facts::go_arch().to_owned(),
            swap: Some(NodeSwapStatus { capacity: i64::try_from(facts.swap_bytes).ok() }),
        }),
        ..old.clone()
    }
}

/// Whether two statuses say the same but for the time they were said.
pub fn same(one: &NodeStatus, other: &NodeStatus) -> bool {
    let timeless = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status
    };
    timeless(one) == timeless(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::RuntimeError;

    fn make(trouble: Option<&str>, old: &NodeStatus, at: i64) -> NodeStatus {
        let config = Config::new("n", "192.0.2.1".parse().unwrap());
        let facts = Facts { cpus: 2, memory_bytes: 1 << 30, ..Facts::default() };
        let runtime = RuntimeFacts { trouble: trouble.map(str::to_owned), ..RuntimeFacts::default() };
        let pressures = BTreeSet::from([Pressure::Disk]);
        status(
            &config,
            &facts,
            (&runtime, &Devices::from([("example.com/r".to_owned(), (3, 2))])),
            &pressures,
            old,
            Timestamp::from_second(at).unwrap(),
        )
    }

    fn get<'a>(status: &'a NodeStatus, kind: &str) -> &'a NodeCondition {
        status.conditions.iter().flatten().find(|c| c.type_ == kind).unwrap()
    }

    #[test]
    fn readiness_follows_the_runtime_and_remembers_when() {
        let down = RuntimeError::Unreachable {
            endpoint: "unix:///x".to_owned(),
            message: "no such file".to_owned(),
        };
        let text = trouble(&Err(down)).unwrap();
        assert_eq!(
            text,
            "container runtime is down: container runtime is not reachable at unix:///x: no such file"
        );
        let first = make(Some(&text), &NodeStatus::default(), 1);
        assert_eq!(get(&first, "Ready").reason.as_deref(), Some("KubeletNotReady"));
        let second = make(Some(&text), &first, 2);
        assert!(same(&first, &second) && first != second);
        let third = make(None, &second, 3);
        assert_eq!(get(&third, "Ready").last_transition_time.as_ref().unwrap().0.as_second(), 3);
        assert_eq!(get(&third, "DiskPressure").status, "True");
        assert_eq!(get(&third, "MemoryPressure").status, "False");
        assert_eq!(get(&third, "DiskPressure").last_transition_time.as_ref().unwrap().0.as_second(), 1);
        let device =
            |all: &Option<BTreeMap<String, Quantity>>| all.as_ref().unwrap()["example.com/r"].0.clone();
        assert_eq!((device(&third.capacity).as_str(), device(&third.allocatable).as_str()), ("3", "2"));
        assert_eq!(third.capacity.unwrap()["memory"].0, "1048576Ki");
        let declared = third.declared_features.unwrap();
        assert!(declared.iter().any(|feature| feature == "RestartAllContainersOnContainerExits"));
    }

    #[test]
    fn what_is_reserved_is_not_given_to_pods() {
        let mut config = Config::new("n", "192.0.2.1".parse().unwrap());
        let reserved = serde_json::json!({ "cpu": "100m", "memory": "206Mi" });
        let written =
            serde_json::json!({ "systemReserved": reserved, "kubeReserved": reserved, "podsPerCore": 5 });
        config.apply(written.as_object().unwrap()).unwrap();
        let facts = Facts { cpus: 4, memory_bytes: 8 << 30, ..Facts::default() };
        let (runtime, now) = (RuntimeFacts::default(), Timestamp::UNIX_EPOCH);
        let status = status(
            &config,
            &facts,
            (&runtime, &Devices::new()),
            &BTreeSet::new(),
            &NodeStatus::default(),
            now,
        );
        let amounts = |all: Option<BTreeMap<String, Quantity>>| {
            let all = all.unwrap();
            ["cpu", "memory", "pods"].map(|name| all[name].0.clone())
        };
        assert_eq!(amounts(status.capacity), ["4", "8388608Ki", "20"]);
        // 3800m and 7.5Gi: 412Mi are reserved, and eviction keeps 100Mi free.
        assert_eq!(amounts(status.allocatable), ["3800m", "7864320Ki", "20"]);
        assert_eq!(facts.cannot_reserve(&config), None);
        let small = Facts { cpus: 4, memory_bytes: 400 << 20, ..Facts::default() };
        assert!(small.cannot_reserve(&config).unwrap().contains("memory"));
    }

    #[test]
    fn a_runtime_without_network_is_not_ready() {
        let condition = |kind: &str, status| api::RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: "NetworkPluginNotReady".to_owned(),
            message: "cni plugin not initialized".to_owned(),
        };
        let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", false)];
        let status = Some(api::RuntimeStatus { conditions });
        let answer = Ok(api::StatusResponse { status, ..api::StatusResponse::default() });
        assert_eq!(
            trouble(&answer).unwrap(),
            "container runtime network not ready: NetworkReady=false \
             reason:NetworkPluginNotReady message:cni plugin not initialized"
        );
    }
}
