use crate::support::{World, condition, until};
use coracle_kubelet::config::EvictionSettings;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

fn one(container: Value) -> Value {
    json!({ "terminationGracePeriodSeconds": 7, "containers": [container] })
}

fn simple() -> Value {
    one(json!({ "name": "c", "image": "i:1" }))
}

#[tokio::test]
async fn a_pod_runs_and_goes() {
    let world = World::start().await;
    world.create("p", simple()).await;
    let pod = world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["podIP"], "10.42.0.9");
    let page = world.figures();
    assert!(page.contains("\nkubelet_node_startup_duration_seconds "), "the node is new: {page}");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!((&status["restartCount"], &status["started"]), (&json!(0), &json!(true)));
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", Value::is_null).await;
    assert_eq!(world.runtime.count(), (0, 0));
    assert_eq!(world.runtime.stops(), [("c".to_owned(), Duration::from_secs(7))]);
    assert_eq!(world.pods_on_disk(), 0);
}

#[tokio::test]
async fn exits_are_restarted_then_backed_off() {
    let world = World::start().await;
    world.create("p", simple()).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.runtime.exit("c", 3);
    world.pod_until("p", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.runtime.exit("c", 4);
    let waiting = |pod: &Value| {
        &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let pod = world.pod_until("p", waiting).await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 4);
    assert_eq!(pod["status"]["phase"], "Running");
    let latency = "\nkubelet_evented_pleg_connection_latency_seconds_count ";
    until(async || json!(world.figures().contains(latency)), |heard| *heard == json!(true)).await;
    let page = world.figures();
    let at_once = "\nkubelet_evented_pleg_connection_latency_seconds_bucket{le=\"10\"} 0\n";
    assert!(!page.contains(at_once), "{page}");
}

#[tokio::test]
async fn a_restart_of_the_kubelet_touches_nothing() {
    let mut world = World::start().await;
    world.create("p", simple()).await;
    let before = world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.stop_kubelet().await;
    world.create("q", simple()).await;
    world.start_kubelet();
    world.pod_until("q", |pod| condition(pod, "Ready") == "True").await;
    let after = world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    assert_eq!(before["status"]["containerStatuses"], after["status"]["containerStatuses"]);
    assert_eq!(world.runtime.count(), (2, 2));
    assert!(world.runtime.stops().is_empty());
}

#[tokio::test]
async fn a_job_pod_succeeds_and_stays() {
    let world = World::start().await;
    let mut spec = simple();
    spec["restartPolicy"] = json!("OnFailure");
    world.create("p", spec).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.runtime.exit("c", 0);
    let pod = world.pod_until("p", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(condition(&pod, "Ready"), "False");
}

#[tokio::test]
async fn what_a_container_needs_is_waited_for() {
    let world = World::start().await;
    let container = json!({ "name": "c", "image": "i:1", "env": [{ "name": "A", "valueFrom": {
        "configMapKeyRef": { "name": "cm", "key": "k" } } }],
        "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let mut spec = one(container);
    spec["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);
    world.create("p", spec).await;
    let reason = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    world.pod_until("p", reason).await;
    let maps: Api<ConfigMap> = Api::namespaced(world.admin(), "default");
    let map = json!({ "metadata": { "name": "cm" }, "data": { "k": "v" } });
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    let config = world.runtime.config("c");
    assert!(config.envs.iter().any(|e| e.key == "A" && e.value == "v"));
    assert!(config.mounts.iter().any(|m| m.container_path == "/v" && m.host_path.ends_with("empty-dir/v")));
}

#[tokio::test]
async fn what_a_pod_reads_is_watched_until_it_ends() {
    let world = World::start().await;
    for (plural, kind) in [("configmaps", "ConfigMap"), ("secrets", "Secret")] {
        let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "read" } });
        world.create_at(&format!("/api/v1/namespaces/default/{plural}"), object).await;
    }
    let reads = json!([{ "configMapRef": { "name": "read" } }, { "secretRef": { "name": "read" } }]);
    let of = |name: &str| one(json!({ "name": name, "image": "i:1", "envFrom": reads }));
    world.create("runs", of("r")).await;
    let mut spec = of("e");
    spec["restartPolicy"] = json!("Never");
    world.create("ends", spec).await;
    for name in ["runs", "ends"] {
        world.pod_until(name, |pod| condition(pod, "Ready") == "True").await;
    }
    for resource in ["configmaps.", "secrets."] {
        world.watches_until(resource, 1).await;
    }
    world.pods().delete("runs", &DeleteParams::default()).await.unwrap();
    world.pod_until("runs", Value::is_null).await;
    world.runtime.exit("e", 0);
    world.pod_until("ends", |pod| pod["status"]["phase"] == "Succeeded").await;
    for resource in ["configmaps.", "secrets."] {
        world.watches_until(resource, 0).await;
    }
    // Whatever becomes of an object that has ended is no reason to read again.
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    world.pods().patch("ends", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    world.pods().delete("ends", &DeleteParams::default()).await.unwrap();
    world.pod_until("ends", Value::is_null).await;
    for resource in ["configmaps.", "secrets."] {
        world.watches_until(resource, 0).await;
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_backs_off() {
    let world = World::start().await;
    world.runtime.lose_image("gone:1");
    world.create("p", one(json!({ "name": "c", "image": "gone:1" }))).await;
    let reason = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
    world.pod_until("p", |pod| reason(pod) == "ErrImagePull").await;
    world.pod_until("p", |pod| reason(pod) == "ImagePullBackOff").await;
    assert_eq!(world.runtime.pulls(), 1);
    world.shows("kubelet_imagemanager_ondisk_pulledrecords 0");
    world.shows("kubelet_imagemanager_ondisk_pullintents 0");
}

#[tokio::test]
async fn images_that_containers_mount_are_counted() {
    let world = World::start().await;
    let mut spec = simple();
    spec["volumes"] = json!([{ "name": "v", "image": { "reference": "data:1" } }]);
    spec["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    world.create("p", spec).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.shows("kubelet_image_volume_requested_total 1");
    world.shows("kubelet_image_volume_mounted_succeed_total 1");
    assert!(!world.figures().contains("\nkubelet_image_volume_mounted_errors_total "));
}

#[tokio::test]
async fn pods_get_users_of_their_own_or_do_not_run() {
    let world = World::start().await;
    let spec = |name: &str| {
        let mut spec = one(json!({ "name": name, "image": "i:1" }));
        spec["hostUsers"] = json!(false);
        spec["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);
        spec["containers"][0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
        spec
    };
    world.create("a", spec("a")).await;
    let text = world.event("FailedCreatePodSandBox").await;
    assert_eq!(text, "Failed to create pod sandbox: runtime handler \"\" does not support user namespaces");
    world.runtime.know_user_namespaces();
    world.create("b", spec("b")).await;
    let users = |name: &str| {
        let config = world.runtime.config(name);
        let security = config.linux.unwrap().security_context.unwrap();
        let uids = security.namespace_options.unwrap().userns_options.unwrap().uids;
        let mount = config.mounts.iter().find(|mount| mount.container_path == "/v").unwrap();
        assert_eq!(mount.uid_mappings, uids, "the volume is shown with these users");
        (uids[0].host_id, uids[0].container_id, uids[0].length)
    };
    for name in ["a", "b"] {
        world.pod_until(name, |pod| pod["status"]["phase"] == "Running").await;
    }
    assert_eq!((users("a"), users("b")), ((65_536, 0, 65_536), (131_072, 0, 65_536)));
}

/// A Secret with a login for one registry.
async fn login(world: &World, name: &str, user: &str) {
    let config = json!({ "auths": { "r.example": { "username": user, "password": "sesame" } } });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": config.to_string() } });
    let api: kube::Api<k8s_openapi::api::core::v1::Secret> = kube::Api::namespaced(world.admin(), "default");
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_private_image_on_the_node_is_not_for_pods_that_cannot_pull_it() {
    let mut world = World::start().await;
    let image = "r.example/crew/app:1";
    world.runtime.make_private(image, "crew");
    login(&world, "crew", "crew").await;
    login(&world, "stranger", "stranger").await;
    let spec = |policy: &str, secrets: &[&str]| {
        let mut spec = one(json!({ "name": "c", "image": image, "imagePullPolicy": policy }));
        spec["imagePullSecrets"] = secrets.iter().map(|name| json!({ "name": name })).collect();
        spec
    };
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    let refused = |pod: &Value| {
        let reason = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        reason == "ErrImagePull" || reason == "ImagePullBackOff"
    };
    world.create("owner", spec("Always", &["crew"])).await;
    world.pod_until("owner", runs).await;
    world.create("anonymous", spec("IfNotPresent", &[])).await;
    world.pod_until("anonymous", refused).await;
    world.stop_kubelet().await;
    world.start_kubelet();
    world.create("stranger", spec("IfNotPresent", &["stranger"])).await;
    world.pod_until("stranger", refused).await;
    world.create("never", spec("Never", &[])).await;
    let never = world
        .pod_until("never", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImageNeverPull"
        })
        .await;
    let message = never["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.contains("does not have the proper credentials"), "{message}");
    let pulls = world.runtime.pulls_of("crew");
    world.create("mate", spec("IfNotPresent", &["crew"])).await;
    world.pod_until("mate", runs).await;
    assert_eq!(world.runtime.pulls_of("crew"), pulls, "known credentials need no pull");
    let asked = |policy: &str, present: &str, required: &str| {
        format!(
            "kubelet_image_manager_ensure_image_requests_total{{pull_policy=\"{policy}\",\
             present_locally=\"{present}\",pull_required=\"{required}\"}} "
        )
    };
    world.shows(&(asked("always", "unknown", "true") + "1"));
    world.shows(&(asked("ifnotpresent", "true", "false") + "1"));
    let page = world.figures();
    assert!(page.contains(&asked("ifnotpresent", "true", "true")), "strangers: {page}");
    assert!(page.contains(&asked("never", "true", "true")), "{page}");
    let judged =
        |result: &str| format!("kubelet_imagemanager_image_mustpull_checks_total{{result=\"{result}\"}} ");
    world.shows(&(judged("credentialRecordFound") + "1"));
    assert!(page.contains(&judged("mustAuthenticate")), "{page}");
    world.shows("kubelet_imagemanager_ondisk_pulledrecords 1");
}

#[tokio::test]
async fn probes_decide_readiness_and_restarts() {
    let world = World::start().await;
    let probe = |command: &str| json!({ "exec": { "command": [command] }, "periodSeconds": 1, "failureThreshold": 1 });
    let unready = json!({ "name": "c", "image": "i:1", "readinessProbe": probe("false") });
    world.create("unready", one(unready)).await;
    world.pod_until("unready", |pod| pod["status"]["phase"] == "Running").await;
    let dying = json!({ "name": "d", "image": "i:1", "livenessProbe": probe("false") });
    world.create("dying", one(dying)).await;
    world.pod_until("dying", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    let pod = world.pod_until("unready", |_| true).await;
    assert_eq!(condition(&pod, "Ready"), "False");
}

#[tokio::test]
async fn a_missing_runtime_makes_the_node_not_ready_until_it_is_back() {
    let world = World::start().await;
    world.node_until(|node| condition(node, "Ready") == "True").await;
    world.runtime.set_down(true);
    let down = world.node_until(|node| condition(node, "Ready") == "False").await;
    let ready =
        down["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert!(ready["message"].as_str().unwrap().starts_with("container runtime is down: "));
    world.create("p", simple()).await;
    world.runtime.set_down(false);
    world.node_until(|node| condition(node, "Ready") == "True").await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
}

#[tokio::test]
async fn a_pod_whose_port_is_taken_fails_before_it_starts() {
    let world = World::start().await;
    let greedy = || {
        one(json!({ "name": "c", "image": "i:1", "ports": [{ "containerPort": 80, "hostPort": 21_017 }] }))
    };
    let ready = |pod: &Value| condition(pod, "Ready") == "True";
    world.create("first", greedy()).await;
    world.pod_until("first", ready).await;
    world.create("second", greedy()).await;
    let refused = world.pod_until("second", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], "NodePorts");
    assert_eq!(
        refused["status"]["message"],
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    );
    assert_eq!(world.runtime.count(), (1, 1));
    for name in ["second", "first"] {
        world.pods().delete(name, &DeleteParams::default()).await.unwrap();
        world.pod_until(name, Value::is_null).await;
    }
    world.create("third", greedy()).await;
    world.pod_until("third", ready).await;
}

#[tokio::test]
async fn resources_that_others_give_the_node_are_given_to_pods_and_run_out() {
    let world = World::start().await;
    let foo = "example.com/foo";
    world.node_until(|node| condition(node, "Ready") == "True").await;
    world.patch_node_status(json!({ "capacity": { foo: "3" } })).await;
    world.node_until(|node| node["status"]["allocatable"][foo] == "3").await;

    let wants = |amount: u32, priority: &str| {
        let resources = json!({ "requests": { foo: amount }, "limits": { foo: amount } });
        let mut spec = one(json!({ "name": "c", "image": "i:1", "resources": resources }));
        if !priority.is_empty() {
            spec["priorityClassName"] = json!(priority);
        }
        spec
    };
    let ready = |pod: &Value| condition(pod, "Ready") == "True";
    world.create("first", wants(2, "")).await;
    world.pod_until("first", ready).await;
    world.create("second", wants(2, "")).await;
    let refused = world.pod_until("second", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], format!("OutOf{foo}"));
    assert_eq!(
        refused["status"]["message"],
        format!(
            "Pod was rejected: Node didn't have enough resource: {foo}, requested: 2, used: 2, capacity: 3"
        )
    );

    // Only what the kubelet read from a file is static, and so critical.
    let says = json!({ "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x" });
    world.create_with("pretender", says, wants(2, "")).await;
    let refused = world.pod_until("pretender", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], format!("OutOf{foo}"));
    assert_eq!(condition(&world.pod_until("first", |_| true).await, "Ready"), "True");

    world.create("critical", wants(2, "system-node-critical")).await;
    world.pod_until("critical", ready).await;
    let ended = world.pod_until("first", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(ended["status"]["reason"], "Preempting");
    assert_eq!(ended["status"]["message"], "Preempted in order to admit critical pod");
    assert_eq!(condition(&ended, "DisruptionTarget"), "True");

    world.patch_node_status(json!({ "capacity": { foo: null } })).await;
    world.node_until(|node| node["status"]["allocatable"][foo].is_null()).await;
}

#[tokio::test]
async fn an_eviction_that_another_kubelet_began_is_gone_on_with() {
    let mut world = World::start().await;
    world.create("p", simple()).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.stop_kubelet().await;
    let status = json!({ "status": { "reason": "Evicted", "message": "m" } });
    world.pods().patch_status("p", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.start_kubelet();
    let ended = world.pod_until("p", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!((&ended["status"]["reason"], &ended["status"]["message"]), (&json!("Evicted"), &json!("m")));
    assert_eq!(world.runtime.stops(), [("c".to_owned(), Duration::from_secs(1))]);
}

/// What the node said of itself before the kubelet started, and what it shows that is not there.
#[tokio::test]
async fn nobody_is_judged_by_what_the_node_was() {
    let mut world = World::start().await;
    world.node_until(|node| condition(node, "Ready") == "True").await;
    world.stop_kubelet().await;
    let pressure = json!({ "type": "MemoryPressure", "status": "True" });
    let pages = json!({ "hugepages-64Ki": "128Ki" });
    world.patch_node_status(json!({ "conditions": [pressure], "capacity": pages })).await;
    world.create("p", simple()).await;
    world.start_kubelet();
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    let node = world.node_until(|node| condition(node, "MemoryPressure") == "False").await;
    assert_eq!(node["status"]["capacity"]["hugepages-64Ki"], Value::Null);
}

#[tokio::test]
async fn a_node_that_runs_short_of_memory_evicts_and_takes_no_more() {
    let mut world = World::start().await;
    world.create("greedy", simple()).await;
    world.pod_until("greedy", |pod| condition(pod, "Ready") == "True").await;
    world.stop_kubelet().await;
    // However much there is.
    let hard = json!({ "evictionHard": { "memory.available": "1Ei" } });
    world.eviction = EvictionSettings::read(&serde_json::from_value(hard).unwrap()).unwrap();
    world.start_kubelet();
    let evicted = world.pod_until("greedy", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    let message = evicted["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: ")
            && message.contains(", available: "),
        "{message}"
    );
    assert_eq!(condition(&evicted, "DisruptionTarget"), "True");
    let age = "\nkubelet_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"} ";
    assert!(world.figures().contains(age), "{}", world.figures());
    world.node_until(|node| condition(node, "MemoryPressure") == "True").await;
    // Judged by the kubelet's own copy of the node, which may be a moment younger: then it is evicted.
    world.create("late", simple()).await;
    let refused = world.pod_until("late", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(refused["status"]["reason"], "Evicted");
}

#[tokio::test]
async fn where_the_disk_is_short_what_ended_pods_left_goes_first() {
    let mut world = World::start().await;
    let spec =
        |name: &str| json!({ "restartPolicy": "Never", "containers": [{ "name": name, "image": "i:1" }] });
    for name in ["done", "runs"] {
        world.create(name, spec(name)).await;
        world.pod_until(name, |pod| condition(pod, "Ready") == "True").await;
    }
    world.runtime.exit("done", 0);
    let done = world.pod_until("done", |pod| pod["status"]["phase"] == "Succeeded").await;
    world.stop_kubelet().await;
    assert_eq!(world.runtime.count().1, 2);
    let hard = json!({ "evictionHard": { "nodefs.available": "1Ei" } });
    world.eviction = EvictionSettings::read(&serde_json::from_value(hard).unwrap()).unwrap();
    world.start_kubelet();
    until(async || json!(world.runtime.count().1), |left| *left == 1).await;
    let evicted = world.pod_until("runs", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    let there = world.pod_until("done", |_| true).await;
    assert_eq!(there["status"]["containerStatuses"], done["status"]["containerStatuses"], "it is still told");
}
