//! A node that starts while its server is away.

use crate::support::{World, condition, until};
use serde_json::{Value, json};

fn spec() -> Value {
    let secret = json!({ "name": "s", "secret": { "secretName": "s" } });
    let mount = json!({ "name": "s", "mountPath": "/s" });
    let env = json!([{ "name": "WORD", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "word" } } }]);
    json!({ "terminationGracePeriodSeconds": 1, "volumes": [secret],
        "containers": [{ "name": "main", "image": "i:1", "volumeMounts": [mount], "env": env }] })
}

async fn objects(world: &World) {
    for (path, kind, name, data) in [
        ("secrets", "Secret", "s", json!({ "word": "aHVzaA==" })),
        ("configmaps", "ConfigMap", "c", json!({ "word": "said" })),
    ] {
        let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name }, "data": data });
        world.create_at(&format!("/api/v1/namespaces/default/{path}"), object).await;
    }
}

fn secret_on_disk(world: &World, uid: &str) -> Option<String> {
    let path = world.root().join(format!("pods/{uid}/volumes/kubernetes.io~secret/s/word"));
    std::fs::read_to_string(path).ok()
}

#[tokio::test]
async fn pods_that_were_there_last_run_with_what_they_read_and_go_on_when_the_server_is_back() {
    let mut world = World::start().await;
    objects(&world).await;
    world.create("p", spec()).await;
    world.create("gone", spec()).await;
    let uid = world.pod_until("p", |pod| condition(pod, "Ready") == "True").await["metadata"]["uid"].clone();
    world.pod_until("gone", |pod| condition(pod, "Ready") == "True").await;
    world.stop_kubelet().await;
    world.reboot();
    std::fs::remove_dir_all(world.root().join(format!("pods/{}/volumes", uid.as_str().unwrap()))).unwrap();
    world.set_away(true);
    world.start_kubelet();
    let running = async || json!(world.runtime.running("main").len());
    until(running, |count| *count == json!(2)).await;
    assert_eq!(secret_on_disk(&world, uid.as_str().unwrap()).as_deref(), Some("hush"));
    let envs = world.runtime.config("main").envs;
    assert!(envs.iter().any(|env| env.key == "WORD" && env.value == "said"), "{envs:?}");

    // One of them is deleted before the server is back, and the other goes on as it is.
    let before = world.runtime.running("main");
    let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    world.pods().delete("gone", &now).await.unwrap();
    world.set_away(false);
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == json!(1);
    let pod = world.pod_until("p", |pod| restarted(pod) && condition(pod, "Ready") == "True").await;
    let id =
        pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap().rsplit('/').next().unwrap();
    until(running, |count| *count == json!(1)).await;
    assert_eq!(world.runtime.running("main"), [id]);
    assert!(before.contains(&id.to_owned()), "no container was started anew");
}

#[tokio::test]
async fn a_static_pod_starts_without_any_server() {
    let mut world = World::start().await;
    world.stop_kubelet().await;
    world.set_away(true);
    let dir = world.root().parent().unwrap().join("static-pods");
    std::fs::create_dir_all(&dir).unwrap();
    let manifest = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: fixed, image: i}]}\n";
    std::fs::write(dir.join("web.yaml"), manifest).unwrap();
    world.start_kubelet();
    let running = async || json!(world.runtime.running("fixed"));
    let id = until(running, |ids| ids.as_array().unwrap().len() == 1).await;
    world.set_away(false);
    let mirror = world.pod_until("web-n1", |pod| condition(pod, "Ready") == "True").await;
    assert!(mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string());
    assert_eq!(json!(world.runtime.running("fixed")), id);
}

#[tokio::test]
async fn a_static_pod_that_comes_back_is_counted() {
    let world = World::start().await;
    let dir = world.root().parent().unwrap().join("static-pods");
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str| {
        let spec = json!({ "terminationGracePeriodSeconds": 30, "containers": [{ "name": name, "image": "i",
            "lifecycle": { "preStop": { "exec": { "command": ["linger"] } } } }] });
        let manifest = json!({ "kind": "Pod", "metadata": { "name": name }, "spec": spec });
        std::fs::write(dir.join(name).with_extension("yaml"), manifest.to_string()).unwrap();
    };
    let running = async |name: &str| {
        until(async || json!(world.runtime.running(name).len()), |count| *count == 1).await;
        world.runtime.running(name)
    };
    write("web");
    let first = running("web").await;
    assert!(!world.figures().contains("kubelet_restarted_pods_total{"), "it has come once");
    std::fs::remove_file(dir.join("web.yaml")).unwrap();
    until(async || json!(world.runtime.ran("linger")), |count| *count == 1).await;
    write("web");
    // Whoever has read this one has read the other.
    write("witness");
    running("witness").await;
    world.runtime.hurry();
    until(
        async || json!(world.runtime.running("web")),
        |ids| ids.as_array().is_some_and(|ids| ids.len() == 1) && *ids != json!(first),
    )
    .await;
    world.shows("kubelet_restarted_pods_total{static=\"true\"} 1");
}
