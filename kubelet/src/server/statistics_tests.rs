//! Statistics of pods, whoever they come from: the runtime, or control groups.

use super::*;
use crate::cri::api;

/// A pod `web` with one container, of which the runtime says what it is told to.
struct OnePod {
    pod: Arc<Pod>,
    cpu: Option<u64>,
    /// Containers, places and limits.
    checkpoints: parking_lot::Mutex<Vec<(String, PathBuf, Option<std::time::Duration>)>>,
    /// Whether the runtime writes no archives.
    fails: std::sync::atomic::AtomicBool,
}

impl OnePod {
    fn new(cpu: Option<u64>) -> Arc<Self> {
        let pod = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
            "spec": { "containers": [{ "name": "app" }] },
            "status": { "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{
                "name": "app", "image": "example/app:1", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": "2026-01-01T00:00:05Z" } },
            }] },
        });
        Arc::new(Self {
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            cpu,
            checkpoints: parking_lot::Mutex::default(),
            fails: false.into(),
        })
    }
}

#[async_trait::async_trait]
impl PodsApi for OnePod {
    fn pods(&self) -> Vec<Arc<Pod>> {
        vec![self.pod.clone()]
    }

    fn find(&self, _namespace: &str, name: &str, _uid: Option<&str>) -> Option<PodHandle> {
        let container = crate::pods_api::ContainerHandle {
            name: "app".to_owned(),
            id: "c2".to_owned(),
            attempt: 1,
            running: true,
            log_path: PathBuf::from("/nonexistent/1.log"),
            previous_log_path: None,
            stdin: false,
            tty: false,
        };
        (name == "web").then(|| PodHandle {
            pod: self.pod.clone(),
            uid: "u1".to_owned(),
            sandbox_id: Some("s1".to_owned()),
            host_network: false,
            ips: Vec::new(),
            containers: vec![container],
        })
    }

    fn volume_stats(&self) -> Arc<VolumeStats> {
        Arc::default()
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(cri::CriClient::new("unix:///nonexistent/containerd.sock"))
    }

    async fn checkpoint(
        &self,
        id: &str,
        location: &std::path::Path,
        limit: Option<std::time::Duration>,
    ) -> cri::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            let (method, code) = ("CheckpointContainer", tonic::Code::Unimplemented);
            return Err(cri::RuntimeError::Failed { method, code, message: "no CRIU".to_owned() });
        }
        self.checkpoints.lock().push((id.to_owned(), location.to_owned(), limit));
        Ok(())
    }

    async fn container_stats(&self) -> cri::Result<Vec<api::ContainerStats>> {
        let stats = |id: &str, pod: &str| {
            let labels = [("namespace", "default"), ("name", pod), ("uid", "u1")]
                .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()));
            let name = ("io.kubernetes.container.name".to_owned(), "app".to_owned());
            let number = |value: u64| Some(api::UInt64Value { value });
            api::ContainerStats {
                attributes: Some(api::ContainerAttributes {
                    id: id.to_owned(),
                    labels: labels.into_iter().chain([name]).collect(),
                    ..api::ContainerAttributes::default()
                }),
                cpu: Some(api::CpuUsage {
                    timestamp: 1_767_225_600_000_000_000,
                    usage_core_nano_seconds: self.cpu.and_then(number),
                    usage_nano_cores: None,
                }),
                memory: Some(api::MemoryUsage {
                    working_set_bytes: number(4096),
                    ..api::MemoryUsage::default()
                }),
                ..api::ContainerStats::default()
            }
        };
        // An earlier attempt, and one of a pod that has gone.
        Ok(vec![stats("c1", "web"), stats("c2", "web"), stats("c3", "gone")])
    }
}

/// Upstream's statuses and words. The archive lies beside the directories of pods, and nobody but root may look.
#[tokio::test]
async fn containers_are_written_to_archives() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let pods = OnePod::new(None);
    let mut server = built(pods.clone(), Arc::default(), dir.path(), Access::default());
    server.pods_dir = dir.path().join("kubelet/pods");
    let server = Arc::new(server);
    let admin = server.gate.peer(&[certificate("admin")]);
    let ask = async |method: Method, path: &str| ask(&server, &admin, method, path, "").await;
    for (path, status, text) in [
        ("/checkpoint/default/other/app", 404, "pod does not exist"),
        ("/checkpoint/default/web/other", 404, "container other does not exist"),
        ("/checkpoint/default/web/app?timeout=soon", 404, "cannot parse value of timeout parameter"),
        ("/checkpoint/default/web", 404, "404 page not found\n"),
    ] {
        assert_eq!(ask(Method::POST, path).await, (StatusCode::from_u16(status).unwrap(), text.to_owned()));
    }
    assert_eq!(ask(Method::GET, "/checkpoint/default/web/app").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert!(pods.checkpoints.lock().is_empty());
    let (status, answer) = ask(Method::POST, "/checkpoint/default/web/app?timeout=3&timeout=7").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (id, location, limit) = pods.checkpoints.lock()[0].clone();
    assert_eq!((id.as_str(), limit), ("c2", Some(std::time::Duration::from_secs(7))));
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), json!({ "items": [location] }));
    let name = location.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("checkpoint-web_default-app-2") && name.ends_with("Z.tar"), "{name}");
    let directory = dir.path().join("kubelet/checkpoints");
    assert_eq!(location.parent(), Some(directory.as_path()));
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    pods.fails.store(true, Ordering::SeqCst);
    let (status, text) = ask(Method::POST, "/checkpoint/default/web/app").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let expected = "checkpointing of default/web/app failed (rpc error: code = Unimplemented desc = no CRIU)";
    assert_eq!(text, expected);
}

async fn page(server: &Arc<Server>, path: &str) -> String {
    let admin = server.gate.peer(&[certificate("admin")]);
    let (status, text) = ask(server, &admin, Method::GET, path, "").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    text
}

#[tokio::test]
async fn statistics_come_from_the_runtime() {
    let server =
        server_of(OnePod::new(Some(2_500_000_000)), Arc::default(), std::path::Path::new("/nonexistent"));
    let summary: Value = serde_json::from_str(&page(&server, "/stats/summary").await).unwrap();
    assert_eq!(summary["pods"].as_array().unwrap().len(), 1);
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"], json!({ "name": "web", "namespace": "default", "uid": "u1" }));
    let container = &pod["containers"][0];
    assert_eq!(
        container["cpu"],
        json!({ "time": "2026-01-01T00:00:00Z", "usageCoreNanoSeconds": 2_500_000_000_u64 })
    );
    assert_eq!(
        (&container["memory"]["workingSetBytes"], &container["startTime"]),
        (&json!(4096), &json!("2026-01-01T00:00:05Z"))
    );
    assert_eq!(
        (&pod["cpu"]["usageCoreNanoSeconds"], &pod["memory"]["workingSetBytes"]),
        (&json!(2_500_000_000_u64), &json!(4096))
    );
    assert!(summary["node"]["cpu"]["usageCoreNanoSeconds"].as_u64().unwrap() > 0);
    assert!(summary["node"]["startTime"].is_string() && summary["node"]["swap"].is_object());
    let short: Value =
        serde_json::from_str(&page(&server, "/stats/summary?only_cpu_and_memory=true").await).unwrap();
    assert_eq!(short["pods"][0]["containers"][0]["memory"]["workingSetBytes"], 4096);
    assert!(short["node"]["memory"]["availableBytes"].is_number() && short["node"].get("fs").is_none());
    assert!(short["pods"][0].get("network").is_none() && short["pods"][0]["podRef"]["uid"] == "u1");
    let resource = page(&server, "/metrics/resource").await;
    for line in [
        "container_cpu_usage_seconds_total{container=\"app\",namespace=\"default\",pod=\"web\"} 2.5 1767225600000",
        "container_memory_working_set_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} 4096 1767225600000",
        "container_start_time_seconds{container=\"app\",namespace=\"default\",pod=\"web\"} 1767225605 1767225600000",
        "pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} 2.5 1767225600000",
        "resource_scrape_error 0",
        "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds",
    ] {
        assert!(resource.lines().any(|l| l == line), "no {line} in\n{resource}");
    }
    let cadvisor = page(&server, "/metrics/cadvisor").await;
    let cpu = "container_cpu_usage_seconds_total{container=\"app\",cpu=\"total\",id=\"/kubepods/besteffort/podu1/c2\",\
               image=\"example/app:1\",name=\"c2\",namespace=\"default\",pod=\"web\"} 2.5 1767225600000";
    assert!(cadvisor.lines().any(|l| l == cpu), "no {cpu} in\n{cadvisor}");
    assert!(!cadvisor.contains("[STABLE]"), "cAdvisor promises nothing: {cadvisor}");
    assert!(!cadvisor.contains("c1") && !cadvisor.contains("gone"), "{cadvisor}");
    assert!(page(&server, "/metrics/probes").await.starts_with("# HELP prober_probe_total [BETA] "));
    every_family_says_its_level(&page(&server, "/metrics").await);
    page(&server, "/healthz/ping").await;
    let objectives = page(&server, "/metrics/slis").await;
    for check in ["log", "ping", "syncloop"] {
        let line = format!("kubernetes_healthcheck{{name=\"{check}\",type=\"healthz\"}} 1");
        assert!(objectives.lines().any(|l| l == line), "no {line} in\n{objectives}");
    }
    let asked = "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} ";
    assert!(objectives.contains(asked) && !objectives.contains(&format!("{asked}0\n")), "{objectives}");
}

/// As upstream's kubelet, of whose names these are; what is ours or any process' says nothing.
fn every_family_says_its_level(page: &str) {
    let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# HELP ")).collect();
    assert!(heads.contains(&"kubelet_node_name [ALPHA] The node's name. The count is always 1."), "{page}");
    for head in heads {
        let (name, help) = head.split_once(' ').unwrap();
        let ours = ["coracle_", "process_"];
        let told = ["[ALPHA] ", "[BETA] ", "[STABLE] "].iter().any(|level| help.starts_with(level));
        assert_ne!(told, ours.iter().any(|ours| name.starts_with(ours)), "{head}");
    }
    let counted = "registered_metrics_total{deprecated_version=\"\",stability_level=\"BETA\"} ";
    assert!(page.contains(counted), "{page}");
    assert!(page.contains("kubelet_metrics_provider{provider=\"cri\"} 1"), "{page}");
}

#[tokio::test]
async fn what_the_runtime_leaves_out_control_groups_say() {
    let root = tempfile::tempdir().unwrap();
    let group = root.path().join("kubepods/besteffort/podu1");
    std::fs::write(root.path().join("cgroup.controllers"), "cpu").unwrap();
    std::fs::create_dir_all(group.join("c2")).unwrap();
    std::fs::write(group.join("cpu.stat"), "usage_usec 9000\n").unwrap();
    std::fs::write(group.join("c2/cpu.stat"), "usage_usec 7000\nuser_usec 4000\n").unwrap();
    std::fs::write(group.join("c2/memory.swap.max"), "8192\n").unwrap();
    let own = std::process::id();
    std::fs::write(group.join("c2/cgroup.procs"), format!("{own}\n")).unwrap();
    let server = server_of(OnePod::new(None), Arc::default(), root.path());
    let summary: Value = serde_json::from_str(&page(&server, "/stats/summary").await).unwrap();
    let pod = &summary["pods"][0];
    assert_eq!(pod["cpu"]["usageCoreNanoSeconds"], 9_000_000);
    assert_eq!(pod["containers"][0]["cpu"]["usageCoreNanoSeconds"], 7_000_000);
    let devices = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let own = devices.lines().filter(|line| line.contains(':') && !line.trim().starts_with("lo:")).count();
    let shown = pod["network"]["interfaces"].as_array().map_or(0, Vec::len);
    assert_eq!(shown, own, "the network of its process: {}", pod["network"]);
    let cadvisor = page(&server, "/metrics/cadvisor").await;
    assert!(cadvisor.contains("container_cpu_user_seconds_total{container=\"app\""), "{cadvisor}");
    assert!(!cadvisor.contains("container_cpu_cfs_periods_total{"), "no quota, no periods");
    let sockets = cadvisor.lines().find(|line| line.starts_with("container_sockets{container=\"app\""));
    assert!(sockets.is_some_and(|line| !line.contains("} 0 ")), "of this process: {sockets:?}");
    let resource = page(&server, "/metrics/resource").await;
    let limit = "container_swap_limit_bytes{container=\"app\",namespace=\"default\",pod=\"web\"} 8192 ";
    assert!(resource.contains(limit), "{resource}");
}
