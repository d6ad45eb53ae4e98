//! Pods with devices of plugins, and with CPUs and memory of their own.

use crate::device_plugin::DevicePlugin;
use crate::support::{World, condition, until};
use coracle_kubelet::cri::api::LinuxContainerResources;
use coracle_kubelet::devices::messages::{Empty, RegisterRequest};
use coracle_kubelet::pod_resources::messages as api;
use coracle_storage::csi::PluginClient;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const R: &str = "example.com/r";

fn container(name: &str, devices: u32) -> Value {
    json!({ "name": name, "image": "i:1", "resources": { "limits": { R: devices.to_string() } } })
}

fn spec(containers: &[Value]) -> Value {
    json!({ "terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": containers })
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

async fn amounts_until(world: &World, capacity: &str, allocatable: &str) {
    let status = |node: &Value, field: &str| node["status"][field][R].clone();
    world
        .node_until(|node| status(node, "capacity") == capacity && status(node, "allocatable") == allocatable)
        .await;
}

fn pod_resources(world: &World) -> PluginClient {
    PluginClient::new(&world.root().join("pod-resources/kubelet.sock"), Duration::from_secs(10))
}

async fn containers(world: &World, pod: &str) -> Vec<api::ContainerResources> {
    let request =
        api::GetPodResourcesRequest { pod_name: pod.to_owned(), pod_namespace: "default".to_owned() };
    let answer: api::GetPodResourcesResponse = pod_resources(world).call(api::GET, request).await.unwrap();
    answer.pod_resources.unwrap().containers
}

fn env(world: &World, container: &str) -> String {
    let envs = world.runtime.config(container).envs;
    envs.into_iter().find(|env| env.key == "DEVICES").map(|env| env.value).unwrap_or_default()
}

fn linux(world: &World, container: &str) -> LinuxContainerResources {
    world.runtime.config(container).linux.unwrap().resources.unwrap()
}

#[tokio::test]
async fn containers_get_what_their_plugin_says_and_give_it_back() {
    let world = World::start().await;
    let plugin = DevicePlugin::new(R, &[("a", Some(0)), ("b", None), ("c", None)]);
    plugin.register(&world.root()).await;
    amounts_until(&world, "3", "3").await;
    plugin.say("c", "Unhealthy");
    amounts_until(&world, "3", "2").await;

    let mut with_init = spec(&[container("one", 1)]);
    with_init["initContainers"] = json!([container("init", 1)]);
    world.create("p", with_init).await;
    let running = async || json!(world.runtime.running("init").len());
    until(running, |count| *count == 1).await;
    world.runtime.exit("init", 0);
    let pod = world.pod_until("p", is_ready).await;
    assert_eq!(
        pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"],
        json!([{ "name": R, "resources": [{ "resourceID": "b", "health": "Healthy" }] }])
    );
    // What it likes best of those that are well; the container has the one that its init container had.
    assert_eq!(plugin.calls(), ["Allocate b", "Allocate b", "PreStartContainer b", "PreStartContainer b"]);
    let config = world.runtime.config("one");
    assert_eq!((env(&world, "one").as_str(), config.annotations["example.com/devices"].as_str()), ("b", "b"));
    assert_eq!(
        (config.devices[0].container_path.as_str(), config.devices[0].permissions.as_str()),
        ("/dev/given", "rw")
    );
    assert!(config.mounts.iter().any(|mount| mount.container_path == "/given" && mount.readonly));

    let found = containers(&world, "p").await;
    assert_eq!((found[0].name.as_str(), &found[0].devices[0].device_ids), ("one", &vec!["b".to_owned()]));
    let all: api::AllocatableResourcesResponse =
        pod_resources(&world).call(api::GET_ALLOCATABLE, api::Empty {}).await.unwrap();
    let shown: Vec<_> = all.devices.iter().map(|d| (d.device_ids.join(","), d.topology.is_some())).collect();
    assert_eq!(shown, [("b".to_owned(), false), ("a".to_owned(), true)]);
    let list: api::ListPodResourcesResponse =
        pod_resources(&world).call(api::LIST, api::Empty {}).await.unwrap();
    assert_eq!(list.pod_resources.len(), 1);
    let missing =
        api::GetPodResourcesRequest { pod_name: "x".to_owned(), pod_namespace: "default".to_owned() };
    let error =
        pod_resources(&world).call::<_, api::GetPodResourcesResponse>(api::GET, missing).await.unwrap_err();
    assert_eq!(error.code(), Some(tonic::Code::NotFound));

    plugin.say("b", "Unhealthy");
    let health = "/status/containerStatuses/0/allocatedResourcesStatus/0/resources/0/health";
    world.pod_until("p", |pod| pod.pointer(health) == Some(&json!("Unhealthy"))).await;
    plugin.say("b", "Healthy");
    amounts_until(&world, "3", "2").await;

    plugin.refuse(true);
    world.create("refused", spec(&[container("two", 1)])).await;
    let pod = world.pod_until("refused", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(pod["status"]["reason"], "UnexpectedAdmissionError");
    let message = pod["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("Pod was rejected: Allocate failed due to "), "{message}");
    assert!(message.ends_with(", which is unexpected"), "{message}");
    plugin.refuse(false);

    // Both are free again as soon as the pod has ended, before it is deleted.
    world.runtime.exit("one", 0);
    world.pod_until("p", |pod| pod["status"]["phase"] == "Succeeded").await;
    world.create("q", spec(&[container("three", 2)])).await;
    world.pod_until("q", is_ready).await;
    assert_eq!(env(&world, "three"), "a,b");
}

#[tokio::test]
async fn devices_stay_whoever_starts_anew() {
    let mut world = World::start().await;
    let plugin = DevicePlugin::new(R, &[("a", None), ("b", None)]);
    plugin.register(&world.root()).await;
    amounts_until(&world, "2", "2").await;
    world.create("p", spec(&[container("one", 1)])).await;
    let before = world.pod_until("p", is_ready).await;

    plugin.kill();
    amounts_until(&world, "2", "0").await;
    plugin.register(&world.root()).await;
    amounts_until(&world, "2", "2").await;

    world.stop_kubelet().await;
    plugin.kill();
    world.start_kubelet();
    amounts_until(&world, "0", "0").await;
    plugin.register(&world.root()).await;
    amounts_until(&world, "2", "2").await;
    world.create("q", spec(&[container("two", 1)])).await;
    world.pod_until("q", is_ready).await;
    assert_eq!((env(&world, "one").as_str(), env(&world, "two").as_str()), ("b", "a"));
    let after = world.pod_until("p", is_ready).await;
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(id(&before), id(&after));
    assert_eq!(plugin.calls().iter().filter(|call| call.starts_with("Allocate")).count(), 2);

    // Devices of a pod that nobody has seen off are given back.
    world.stop_kubelet().await;
    world.pods().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    world.start_kubelet();
    plugin.register(&world.root()).await;
    amounts_until(&world, "2", "2").await;
    let free = async || {
        let path = world.root().join("device-plugins/kubelet_internal_checkpoint");
        let kept: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        json!(kept["Data"]["PodDeviceEntries"].as_array().unwrap().len())
    };
    until(free, |count| *count == 1).await;
}

#[tokio::test]
async fn strangers_are_told_why_they_are_not_taken() {
    let world = World::start().await;
    let plugin = DevicePlugin::new(R, &[("a", None)]);
    let socket = plugin.offer(&world.root());
    amounts_until(&world, "1", "1").await;
    until(async || json!(plugin.state.lock().registered), |all| *all == json!([[true, ""]])).await;
    std::fs::remove_file(socket).unwrap();
    amounts_until(&world, "1", "0").await;
    let client =
        PluginClient::new(&world.root().join("device-plugins/kubelet.sock"), Duration::from_secs(10));
    for (version, resource, endpoint, expected) in [
        (
            "v2",
            R,
            "a.sock",
            "requested API version \"v2\" is not supported by kubelet. Supported version is \"v1beta1\"",
        ),
        ("v1beta1", "cpu", "a.sock", "the ResourceName \"cpu\" is invalid"),
        ("v1beta1", R, "../a.sock", "is not the name of a socket"),
    ] {
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: endpoint.to_owned(),
            resource_name: resource.to_owned(),
            options: None,
        };
        let error = client.call::<_, Empty>("/v1beta1.Registration/Register", request).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = client.call::<_, Empty>("/v1beta1.Registration/Other", Empty {}).await.unwrap_err();
    assert_eq!(error.code(), Some(tonic::Code::Unimplemented));
}

/// Two nodes with four cores of two threads each and 4 GiB.
fn two_nodes(sys: &Path) {
    let write = |path: &str, text: &str| {
        let path = sys.join("devices/system").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("cpu/online", "0-15");
    write("node/online", "0-1");
    for (node, cpus) in [(0, "0-3,8-11"), (1, "4-7,12-15")] {
        write(&format!("node/node{node}/cpulist"), cpus);
        write(&format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: 4194304 kB"));
        write(&format!("node/node{node}/distance"), if node == 0 { "10 20" } else { "20 10" });
    }
    for cpu in 0..16u32 {
        let core = cpu % 8;
        write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &format!("{core},{}", core + 8));
        write(&format!("cpu/cpu{cpu}/topology/physical_package_id"), &(core / 4).to_string());
    }
}

fn guaranteed(name: &str, cpu: &str, memory: &str, devices: u32) -> Value {
    let mut limits = json!({ "cpu": cpu, "memory": memory });
    if devices > 0 {
        limits[R] = json!(devices.to_string());
    }
    json!({ "name": name, "image": "i:1", "resources": { "limits": limits } })
}

#[tokio::test]
async fn cpus_memory_and_devices_are_of_one_node() {
    let mut world = World::start().await;
    world.stop_kubelet().await;
    two_nodes(&world.sys());
    for state in ["cpu_manager_state", "memory_manager_state"] {
        std::fs::remove_file(world.root().join(state)).unwrap();
    }
    world.written = json!({ "cpuManagerPolicy": "static", "memoryManagerPolicy": "Static",
        "cpuManagerPolicyOptions": { "full-pcpus-only": "true" },
        "topologyManagerPolicy": "single-numa-node", "systemReserved": { "cpu": "1", "memory": "100Mi" },
        "reservedMemory": [{ "numaNode": 0, "limits": { "memory": "100Mi" } }] });
    world.start_kubelet();
    let plugin = DevicePlugin::new(R, &[("far", Some(0)), ("near", Some(1))]);
    plugin.register(&world.root()).await;
    amounts_until(&world, "2", "2").await;
    world.node_until(|node| node["status"]["capacity"]["cpu"] == "16").await;
    world.create("shares", spec(&[json!({ "name": "shared", "image": "i:1" })])).await;
    world.pod_until("shares", is_ready).await;
    assert_eq!(linux(&world, "shared").cpuset_cpus, "0-15");

    // Only the second node has so much memory.
    world.create("p", spec(&[guaranteed("own", "4", "4000Mi", 1)])).await;
    let pod = world.pod_until("p", is_ready).await;
    assert_eq!(env(&world, "own"), "near");
    assert_eq!(
        (linux(&world, "own").cpuset_cpus.as_str(), env(&world, "own").as_str()),
        ("4-5,12-13", "near")
    );
    assert_eq!(linux(&world, "own").cpu_quota, 0, "its CPUs' time is all its own");
    let told = async || json!(linux(&world, "shared").cpuset_cpus);
    until(told, |cpus| *cpus == "0-3,6-11,14-15").await;
    let found = containers(&world, "p").await;
    assert_eq!((&found[0].cpu_ids, found[0].memory[0].size), (&vec![4, 5, 12, 13], 4000 << 20));
    let all: api::AllocatableResourcesResponse =
        pod_resources(&world).call(api::GET_ALLOCATABLE, api::Empty {}).await.unwrap();
    assert_eq!((all.cpu_ids.len(), all.memory.len()), (15, 2));

    let failed = async |name: &str, reason: &str, container: Value| {
        world.create(name, spec(&[container])).await;
        let pod = world.pod_until(name, |pod| pod["status"]["phase"] == "Failed").await;
        assert_eq!(pod["status"]["reason"], reason, "{pod:#}");
    };
    failed("apart", "TopologyAffinityError", guaranteed("x", "2", "4000Mi", 0)).await;
    failed("half", "SMTAlignmentError", guaranteed("x", "1", "1Mi", 0)).await;

    what_is_its_own_is_not_resized(&mut world, &plugin, &pod).await;
    until(async || json!(linux(&world, "shared").cpuset_cpus), |cpus| *cpus == "0-3,6-11,14-15").await;
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", Value::is_null).await;
    until(async || json!(linux(&world, "shared").cpuset_cpus), |cpus| *cpus == "0-15").await;
}

/// While it runs, over a restart too. `pod` is as it was seen before.
async fn what_is_its_own_is_not_resized(world: &mut World, plugin: &Arc<DevicePlugin>, pod: &Value) {
    let resized = async |cpu: &str, memory: &str| {
        let amounts = json!({ "cpu": cpu, "memory": memory, R: "1" });
        let resources = json!({ "limits": amounts, "requests": amounts });
        let patch = Patch::Strategic(
            json!({ "spec": { "containers": [{ "name": "own", "resources": resources }] } }),
        );
        world.pods().patch_subresource("resize", "p", &PatchParams::default(), &patch).await
    };
    // The node does not declare that it could change such CPUs; of memory the kubelet says so itself.
    let refused = resized("2", "4000Mi").await.unwrap_err().to_string();
    assert!(refused.contains("requires features GuaranteedQoSPodCPUResize"), "{refused}");
    resized("4", "3000Mi").await.unwrap();
    let pending = |pod: &Value| {
        let mut all = pod["status"]["conditions"].as_array().into_iter().flatten();
        all.any(|c| {
            c["type"] == "PodResizePending"
                && c["message"].as_str().unwrap_or_default().contains("Memory Manager policy \"Static\"")
        })
    };
    world.pod_until("p", pending).await;

    world.stop_kubelet().await;
    world.start_kubelet();
    plugin.register(&world.root()).await;
    let after = world.pod_until("p", |pod| pending(pod) && is_ready(pod)).await;
    assert_eq!(
        pod["status"]["containerStatuses"][0]["containerID"],
        after["status"]["containerStatuses"][0]["containerID"]
    );
}
