//! Statistics of pods, whoever they come from: the runtime, or control groups.

use super::*;
use crate::cri::api;

/// A pod `web` with one container, of which the runtime says what it is told to.
struct OnePod {
    pod: Arc<Pod>,
    cpu: Option<u64>,
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
        Arc::new(Self { pod: Arc::new(serde_json::from_value(pod).unwrap()), cpu })
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
    ] {
        assert!(resource.lines().any(|l| l == line), "no {line} in\n{resource}");
    }
    let cadvisor = page(&server, "/metrics/cadvisor").await;
    let cpu = "container_cpu_usage_seconds_total{container=\"app\",cpu=\"total\",id=\"/kubepods/besteffort/podu1/c2\",\
               image=\"example/app:1\",name=\"c2\",namespace=\"default\",pod=\"web\"} 2.5 1767225600000";
    assert!(cadvisor.lines().any(|l| l == cpu), "no {cpu} in\n{cadvisor}");
    assert!(!cadvisor.contains("c1") && !cadvisor.contains("gone"), "{cadvisor}");
    assert!(page(&server, "/metrics/probes").await.starts_with("# HELP prober_probe_total"));
    page(&server, "/healthz/ping").await;
    let objectives = page(&server, "/metrics/slis").await;
    for check in ["log", "ping", "syncloop"] {
        let line = format!("kubernetes_healthcheck{{name=\"{check}\",type=\"healthz\"}} 1");
        assert!(objectives.lines().any(|l| l == line), "no {line} in\n{objectives}");
    }
    let asked = "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} ";
    assert!(objectives.contains(asked) && !objectives.contains(&format!("{asked}0\n")), "{objectives}");
}

#[tokio::test]
async fn what_the_runtime_leaves_out_control_groups_say() {
    let root = tempfile::tempdir().unwrap();
    let group = root.path().join("kubepods/besteffort/podu1");
    std::fs::write(root.path().join("cgroup.controllers"), "cpu").unwrap();
    std::fs::create_dir_all(group.join("c2")).unwrap();
    std::fs::write(group.join("cpu.stat"), "usage_usec 9000\n").unwrap();
    std::fs::write(group.join("c2/cpu.stat"), "usage_usec 7000\nuser_usec 4000\n").unwrap();
    let server = server_of(OnePod::new(None), Arc::default(), root.path());
    let summary: Value = serde_json::from_str(&page(&server, "/stats/summary").await).unwrap();
    let pod = &summary["pods"][0];
    assert_eq!(pod["cpu"]["usageCoreNanoSeconds"], 9_000_000);
    assert_eq!(pod["containers"][0]["cpu"]["usageCoreNanoSeconds"], 7_000_000);
    let cadvisor = page(&server, "/metrics/cadvisor").await;
    assert!(cadvisor.contains("container_cpu_user_seconds_total{container=\"app\""), "{cadvisor}");
    assert!(!cadvisor.contains("container_cpu_cfs_periods_total{"), "no quota, no periods");
}
