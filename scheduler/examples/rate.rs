//! How many pods a second the scheduler decides about, without an API in the way: `rate [NODES [PODS]]`.
//!
//! Each case fills nodes with pods that are assumed at once. What an API adds is measured by `tests/bench`.

use coracle_scheduler::Config;
use coracle_scheduler::cache::PodInfo;
use coracle_scheduler::core::SchedulerState;
use coracle_scheduler::cycle::Failure;
use coracle_scheduler::framework::{Framework, PostFilter};
use coracle_scheduler::plugins::{Handle, Registry};
use coracle_scheduler::queue::Rejection;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn core(nodes: usize) -> SchedulerState {
    let (registry, config) = (Registry::in_tree(), Config::default());
    let framework = Framework::new(&config.profiles[0], &registry, &Handle::offline()).expect("defaults");
    let mut core = SchedulerState::new([Arc::new(framework)], 0, config.backoff).seeded(1);
    for n in 0..nodes {
        let node = json!({"metadata": {"name": format!("node-{n}"), "labels": {
                "kubernetes.io/hostname": format!("node-{n}"), "topology.kubernetes.io/zone": format!("z{}", n % 10)}},
            "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}});
        core.set_node(Arc::new(serde_json::from_value(node).expect("a node")), tokio::time::Instant::now());
    }
    core
}

/// As far as its removal asks.
fn going(pod: &PodInfo) -> Arc<Pod> {
    let metadata = ObjectMeta { uid: Some(pod.uid.clone()), ..ObjectMeta::default() };
    Arc::new(Pod { metadata, ..Pod::default() })
}

fn pod(n: usize, priority: i32, labels: &Value, extra: &Value) -> Arc<Pod> {
    let mut value = json!({"metadata": {"name": format!("pod-{priority}-{n}"), "namespace": "default",
            "uid": format!("{priority}-{n}"), "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "priority": priority, "containers": [{"name": "c",
            "image": "app:1", "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}}}]}});
    json_patch::merge(&mut value["spec"], extra);
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

#[derive(Default)]
struct Run {
    placed: usize,
    refused: usize,
    preempted: usize,
    times: Vec<Duration>,
}

impl Run {
    /// Works the queue off. Victims go at once.
    fn work(&mut self, core: &mut SchedulerState) {
        while let Some(popped) = core.queue.pop(tokio::time::Instant::now()) {
            let begun = Instant::now();
            let mut found = core.find(&popped);
            match found.feasible {
                Ok(slots) => {
                    let totals = core.score(&popped, &mut found.class, &slots).expect("scores");
                    let slot = core.choose(&totals).expect("a node");
                    core.reserve(&popped, &mut found.class, slot, tokio::time::Instant::now()).expect("room");
                    core.done(&popped, found.class);
                    core.queue.remove(&popped.pod.uid);
                    self.placed += 1;
                }
                Err(Failure::Unschedulable(diagnosis)) => {
                    let answer =
                        core.post_filter(&popped, &mut found.class, &diagnosis, false).expect("an answer");
                    core.done(&popped, found.class);
                    let mut rejection =
                        Rejection { plugins: diagnosis.plugins.clone(), pending: false, nominated: None };
                    let now = tokio::time::Instant::now();
                    if let PostFilter::Preempt(candidates) = answer {
                        let candidate = &candidates[0];
                        rejection.nominated = Some(candidate.node.clone());
                        core.snapshot.nominate(popped.pod.clone(), &candidate.node);
                        core.queue.unschedulable(&popped.pod.uid, rejection, now);
                        for victim in &candidate.victims {
                            core.remove_pod(&going(victim), now);
                        }
                        self.preempted += candidate.victims.len();
                    } else {
                        core.queue.unschedulable(&popped.pod.uid, rejection, now);
                        self.refused += 1;
                    }
                }
                Err(Failure::Error(why)) => panic!("{why}"),
            }
            self.times.push(begun.elapsed());
        }
    }
}

/// Feeds pods as the API would and prints one line.
fn measure(name: &str, core: &mut SchedulerState, pods: impl Iterator<Item = Arc<Pod>>) {
    let (begun, mut run) = (Instant::now(), Run::default());
    for (n, pod) in pods.enumerate() {
        core.set_pod(&pod, None, tokio::time::Instant::now());
        if n % 64 == 63 {
            run.work(core);
        }
    }
    run.work(core);
    let seconds = begun.elapsed().as_secs_f64();
    run.times.sort_unstable();
    let at = |percent: usize| run.times[(run.times.len() * percent / 100).min(run.times.len() - 1)];
    let placed = f64::from(u32::try_from(run.placed).unwrap_or(u32::MAX));
    println!(
        "{name:34} {:>9.0} pods/s  placed {:>6}  refused {:>6}  preempted {:>5}  p50 {:>9.1?} p99 {:>9.1?}",
        placed / seconds,
        run.placed,
        run.refused,
        run.preempted,
        at(50),
        at(99)
    );
}

fn terms(kind: &str, key: &str) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": key}]}}})
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let nodes = arguments.next().unwrap_or(5000);
    let pods = arguments.next().unwrap_or(10_000);
    let (none, web, plain) = (json!({}), json!({"app": "web"}), json!({"app": "plain"}));
    println!("{nodes} nodes");
    measure("plain", &mut core(nodes), (0..pods).map(|n| pod(n, 0, &plain, &none)));
    let spread = json!({"topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    measure("topology spread", &mut core(nodes), (0..pods).map(|n| pod(n, 0, &web, &spread)));
    let anti = terms("podAntiAffinity", "kubernetes.io/hostname");
    measure("anti-affinity by host", &mut core(nodes), (0..pods.min(nodes)).map(|n| pod(n, 0, &web, &anti)));
    let near = terms("podAffinity", "topology.kubernetes.io/zone");
    measure("affinity by zone", &mut core(nodes), (0..pods.min(nodes * 3)).map(|n| pod(n, 0, &web, &near)));
    let mut full = core(nodes);
    measure("filling for preemption", &mut full, (0..nodes * 4).map(|n| pod(n, 0, &plain, &cpu("900m"))));
    measure("preempting", &mut full, (0..pods.min(nodes * 2)).map(|n| pod(n, 9, &plain, &cpu("900m"))));
    let mut crowded = core(nodes);
    measure("unschedulable", &mut crowded, (0..10_000).map(|n| pod(n, 1, &web, &cpu("64"))));
    measure("plain beside 10,000 unschedulable", &mut crowded, (0..pods).map(|n| pod(n, 0, &plain, &none)));
    let sizes = std::mem::size_of::<PodInfo>();
    println!("PodInfo {sizes} bytes");
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "app:1", "resources": {"requests": {"cpu": amount}}}]})
}
