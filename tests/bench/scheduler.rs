//! The scheduler under load: plain pods, anti-affinity, spread, preemption and pods that fit nowhere, on 100 to 5,000
//! simulated nodes, creation through the API and binding included.

use crate::http::{Call, Target};
use crate::load::{Limit, closed_loop, count, percentile};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Without an event for so long, the rest will never be bound.
const PATIENCE: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";

/// One kind of pods.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    Plain,
    AntiAffinity,
    /// Beside the others by a label that all nodes share.
    Affinity,
    Spread,
    /// Of higher priority than what fills the cluster.
    Preempting,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::AntiAffinity => "required anti-affinity",
            Self::Affinity => "required affinity",
            Self::Spread => "topology spread",
            Self::Preempting => "preempting half",
        }
    }
}

async fn server(settings: &Settings, nodes: usize, kubelets: Kubelets) -> Result<Server, Error> {
    let number = nodes.to_string();
    let flags = [ROOTLESS[0], ROOTLESS[1], "--storage-backend", "memory", "--simulate-nodes", &number];
    let server = Server::start(&settings.binary, &flags).await?;
    server.namespace("default").await?;
    server.nodes_ready(nodes).await?;
    if kubelets == Kubelets::Absent {
        ignore_pods(&server.target, nodes).await?;
    }
    Ok(server)
}

fn pod(name: String, cpu: &str, app: &str, more: Value) -> String {
    let resources = json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
    let mut spec = json!({"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "main", "image": "registry.example/app:1.0", "resources": resources}]});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": spec})
        .to_string()
}

fn of(load: Load, n: u64) -> String {
    let selector = json!({"matchLabels": {"app": load.name().replace(' ', "-")}});
    let (app, name) = (load.name().replace(' ', "-"), format!("{}-{n}", load.name().replace(' ', "-")));
    match load {
        Load::Plain => pod(name, "1m", &app, json!({})),
        // As many groups as it takes for every pod to find a node of its own.
        Load::AntiAffinity => {
            let app = format!("{app}-{}", n / 1000);
            let selector = json!({"matchLabels": {"app": app}});
            let term = json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"});
            let more = json!({"affinity": {"podAntiAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
            pod(name, "1m", &app, more)
        }
        Load::Affinity => {
            let term = json!({"labelSelector": selector, "topologyKey": "kubernetes.io/os"});
            let more = json!({"affinity": {"podAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
            pod(name, "1m", &app, more)
        }
        Load::Spread => {
            let constraint = json!({"topologyKey": "kubernetes.io/hostname", "maxSkew": 5,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
            pod(name, "1m", &app, json!({"topologySpreadConstraints": [constraint]}))
        }
        Load::Preempting => pod(name, "15", &app, json!({"priorityClassName": "bench-high"})),
    }
}

/// The times at which as many pods were seen bound, in order.
async fn bound(target: &Target, wanted: usize) -> Result<JoinHandle<Result<Vec<Instant>, Error>>, Error> {
    let path = format!("{PODS}?watch=true&fieldSelector=spec.nodeName%21%3D");
    let mut watch = target.connect().await?.watch(&path).await?;
    Ok(tokio::spawn(async move {
        let mut seen = Vec::with_capacity(wanted);
        while seen.len() < wanted {
            let event = tokio::time::timeout(PATIENCE, watch.event()).await;
            let event =
                event.map_err(|_| format!("{} of {wanted} pods bound, then nothing", seen.len()))??;
            if event.starts_with(b"{\"type\":\"ADDED\"") {
                seen.push(Instant::now());
            }
        }
        Ok(seen)
    }))
}

async fn create(target: &Target, amount: usize, body: fn(u64) -> String) -> Result<(), Error> {
    let limit = Limit { time: PATIENCE * 5, calls: u64::try_from(amount)? };
    closed_loop(target, 64, limit, move |n| Call::post(PODS, body(n))).await.map(|_| ())
}

fn filler(n: u64) -> String {
    pod(format!("filler-{n}"), "15", "filler", json!({}))
}

fn hopeless(n: u64) -> String {
    pod(format!("hopeless-{n}"), "64", "hopeless", json!({}))
}

async fn prepare(server: &Server, load: Load, nodes: usize) -> Result<(), Error> {
    if load != Load::Preempting {
        return Ok(());
    }
    let class = json!({"metadata": {"name": "bench-high"}, "value": 1000});
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    server.target.connect().await?.call(Call::post(path, class.to_string())).await?;
    // Two of 15 cores on each node of 32.
    let full = bound(&server.target, nodes * 2).await?;
    create(&server.target, nodes * 2, filler).await?;
    full.await??;
    Ok(())
}

fn bodies(load: Load) -> fn(u64) -> String {
    match load {
        Load::Plain => |n| of(Load::Plain, n),
        Load::AntiAffinity => |n| of(Load::AntiAffinity, n),
        Load::Affinity => |n| of(Load::Affinity, n),
        Load::Spread => |n| of(Load::Spread, n),
        Load::Preempting => |n| of(Load::Preempting, n),
    }
}

/// From the first creation to the last binding; latency is a single pod's, one at a time, afterwards.
async fn rate(
    settings: &Settings,
    load: Load,
    nodes: usize,
    pods: usize,
    kubelets: Kubelets,
) -> Result<Vec<Row>, Error> {
    let server = server(settings, nodes, kubelets).await?;
    prepare(&server, load, nodes).await?;
    let amount = if load == Load::Preempting { pods.min(nodes) } else { settings.amount(pods) };
    let already = if load == Load::Preempting { nodes * 2 } else { 0 };
    let all = bound(&server.target, already + amount).await?;
    let (begun, cpu) = (Instant::now(), server.process().cpu()?);
    create(&server.target, amount, bodies(load)).await?;
    let last = all.await??.last().copied().unwrap_or(begun);
    let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1000.0 / count(amount);
    let label = match kubelets {
        Kubelets::Simulated => format!("{}, {nodes} nodes", load.name()),
        Kubelets::Absent => format!("{}, {nodes} nodes, {}", load.name(), kubelets.name()),
    };
    let mut rows = vec![figure(
        format!("pods bound: {label}"),
        count(amount) / (last - begun).as_secs_f64(),
        "/s",
        amount,
    )];
    rows.push(figure(format!("pods bound: {label}: server CPU each"), cpu, "ms", amount));
    rows.push(figure(format!("memory: {label}"), server.process().rss_mib()?, "MiB", 1));
    if load == Load::Plain {
        rows.extend(latency(&server, settings, &format!("{nodes} nodes"), "late").await?);
    }
    Ok(rows)
}

/// Who runs the pods of the simulated nodes.
#[derive(Clone, Copy, PartialEq)]
enum Kubelets {
    /// Simulated ones in the same process, which report each pod Running while others are bound.
    Simulated,
    /// Nobody: Node objects kept Ready, as in upstream's own measurements of the scheduler.
    Absent,
}

impl Kubelets {
    fn name(self) -> &'static str {
        match self {
            Self::Simulated => "pods run meanwhile",
            Self::Absent => "no kubelets",
        }
    }
}

async fn ignore_pods(target: &Target, nodes: usize) -> Result<(), Error> {
    let limit = Limit { time: PATIENCE, calls: u64::try_from(nodes)? };
    let annotations = json!({"simulate.coracle.local/pods": "ignored"});
    let patch = json!({"metadata": {"annotations": annotations}}).to_string();
    let call = move |n| Call::merge_patch(format!("/api/v1/nodes/sim-{n}"), patch.clone());
    closed_loop(target, 16, limit, call).await.map(|_| ())
}

/// How fast the scheduler works a queue off: the pods are all there before it may touch them.
async fn backlog(
    settings: &Settings,
    nodes: usize,
    pods: usize,
    kubelets: Kubelets,
) -> Result<Vec<Row>, Error> {
    let (server, amount) = (server(settings, nodes, kubelets).await?, settings.amount(pods));
    let all = bound(&server.target, amount).await?;
    let later = |n: u64| pod(format!("later-{n}"), "1m", "later", json!({"schedulerName": "later"}));
    create(&server.target, amount, later).await?;
    let config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                  profiles: [{schedulerName: default-scheduler}, {schedulerName: later}]\n";
    let map = json!({"data": {"config.yaml": config}});
    let path = "/api/v1/namespaces/kube-system/configmaps/kube-scheduler-config";
    let cpu = server.process().cpu()?;
    server.target.connect().await?.call(Call::merge_patch(path, map.to_string())).await?;
    let seen = all.await??;
    let ends = seen.last().zip(seen.first());
    let time = ends.map_or(f64::NAN, |(last, first)| (*last - *first).as_secs_f64());
    let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1000.0 / count(amount);
    let name = format!("pods bound from a backlog: plain, {nodes} nodes, {}", kubelets.name());
    Ok(vec![
        figure(name.clone(), count(amount) / time, "/s", amount),
        figure(format!("{name}: server CPU each"), cpu, "ms", amount),
        figure(format!("{name}: memory"), server.process().rss_mib()?, "MiB", 1),
    ])
}

/// From a pod's creation to its binding, one pod at a time.
async fn latency(server: &Server, settings: &Settings, label: &str, prefix: &str) -> Result<Vec<Row>, Error> {
    let amount = settings.amount(500);
    let mut connection = server.target.connect().await?;
    let path = format!("{PODS}?watch=true&fieldSelector=spec.nodeName%21%3D");
    let mut watch = server.target.connect().await?.watch(&path).await?;
    let mut times = Vec::with_capacity(amount);
    for n in 0..amount {
        let name = format!("{prefix}-{n}");
        let wanted = format!("\"name\":\"{name}\"");
        let begun = Instant::now();
        connection.call(Call::post(PODS, pod(name, "1m", "late", json!({})))).await?;
        loop {
            let event = tokio::time::timeout(PATIENCE, watch.event()).await;
            let event = event.map_err(|_| format!("pod {n} was not bound"))??;
            if event.windows(wanted.len()).any(|w| w == wanted.as_bytes()) {
                break;
            }
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(vec![
        figure(format!("scheduling latency p50: {label}"), percentile(&times, 50), "ms", amount),
        figure(format!("scheduling latency p99: {label}"), percentile(&times, 99), "ms", amount),
    ])
}

/// The same latency with 10,000 pods in the queue that fit nowhere.
async fn crowded(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = server(settings, 1000, Kubelets::Simulated).await?;
    let mut rows = latency(&server, settings, "1000 nodes, empty queue", "before").await?;
    create(&server.target, settings.amount(10_000), hopeless).await?;
    // Their conditions say that each was tried.
    let path = format!("{PODS}?labelSelector=app%3Dhopeless&limit=1&fieldSelector=status.phase%3DPending");
    let tried = |list: &Value| list["items"][0]["status"]["conditions"][0]["reason"] == "Unschedulable";
    let begun = Instant::now();
    while !tried(&server.target.connect().await?.json(Call::get(&path)).await?) {
        if begun.elapsed() > PATIENCE {
            return Err("pods without a node are not told so".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    rows.extend(latency(&server, settings, "1000 nodes, 10,000 unschedulable", "after").await?);
    Ok(rows)
}

pub async fn backlogs(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for kubelets in [Kubelets::Absent, Kubelets::Simulated] {
        for (nodes, pods) in [(1000, 10_000), (5000, 10_000)] {
            rows.extend(backlog(settings, nodes, pods, kubelets).await?);
        }
    }
    Ok(rows)
}

/// Pods of each kind on 1,000 and 5,000 nodes.
async fn each(settings: &Settings, loads: &[Load]) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for load in loads {
        for kubelets in [Kubelets::Absent, Kubelets::Simulated] {
            rows.extend(rate(settings, *load, 1000, 5000, kubelets).await?);
            rows.extend(rate(settings, *load, 5000, 10_000, kubelets).await?);
        }
    }
    Ok(rows)
}

/// Pods that look at other pods.
pub async fn affinity(settings: &Settings) -> Result<Vec<Row>, Error> {
    each(settings, &[Load::AntiAffinity, Load::Affinity, Load::Spread]).await
}

/// Pods that take the room of others.
pub async fn preemption(settings: &Settings) -> Result<Vec<Row>, Error> {
    each(settings, &[Load::Preempting]).await
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (nodes, pods) in [(100, 5000), (1000, 10_000), (5000, 30_000)] {
        rows.extend(rate(settings, Load::Plain, nodes, pods, Kubelets::Simulated).await?);
    }
    rows.extend(backlogs(settings).await?);
    rows.extend(affinity(settings).await?);
    rows.extend(preemption(settings).await?);
    rows.extend(crowded(settings).await?);
    Ok(rows)
}
