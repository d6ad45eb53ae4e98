//! Several servers on one etcd, beside one on its own store: requests, the hand-over of the controllers, and a crowd of agents.
//!
//! An agent is a node as its server sees it: two connections, on one a watch of its pods, on the other a Lease and a status
//! every ten seconds. A server that has too much to do says so (429), and an agent comes back after a second, as kubelets do.

use crate::etcd;
use crate::http::{Call, Connection, Refused, Target, Watch};
use crate::load::{Limit, closed_loop, count, percentile};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure, skipped};
use crate::writes::config_map;
use crate::{Error, Settings};
use coracle_tests::etcd::Etcd;
use http::StatusCode;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

const NAME: &str = "several servers";
const HAND_OVERS: usize = 5;
const AGENTS: usize = 5_000;
/// As a kubelet's.
const BEAT: Duration = Duration::from_secs(10);
/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a server that has too much to do asks for.
const COME_BACK: Duration = Duration::from_secs(1);
/// Agents are there at once nowhere; so many come at a time.
const COMING: usize = 50;

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = requests(settings, None, "sled").await?;
    let Some(etcd) = etcd::start().await? else {
        rows.push(skipped(NAME, "no etcd in PATH (Debian: etcd-server)"));
        return Ok(rows);
    };
    rows.extend(requests(settings, Some(&etcd), "etcd").await?);
    for (kill, name) in [(false, "stopped"), (true, "killed")] {
        rows.push(hand_overs(settings, name, kill).await?);
    }
    Ok(rows)
}

/// A crowd of agents, on a server's own store and on etcd.
pub async fn crowds(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = agents(settings, None, "sled").await?;
    match etcd::start().await? {
        Some(etcd) => rows.extend(agents(settings, Some(&etcd), "etcd").await?),
        None => rows.push(skipped("agents on etcd", "no etcd in PATH (Debian: etcd-server)")),
    }
    Ok(rows)
}

fn flags<'a>(etcd: Option<&'a Etcd>, further: &[&'a str]) -> Vec<&'a str> {
    let mut flags = ROOTLESS.to_vec();
    if let Some(etcd) = etcd {
        flags.extend(["--storage-backend", "etcd", "--etcd-servers", &etcd.url]);
    }
    flags.extend(further);
    flags
}

/// Creates and gets, of one client and of sixteen.
async fn requests(settings: &Settings, etcd: Option<&Etcd>, store: &str) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &flags(etcd, &[])).await?;
    let mut rows = Vec::new();
    for clients in [1, 16] {
        let limit = || Limit::time(settings.time(5));
        let name = format!("on {store}, {clients} clients");
        let cpu = server.process().cpu()?;
        let made = closed_loop(&server.target, clients, limit(), move |n| {
            config_map("default", &format!("c{clients}-{n}"))
        })
        .await?;
        let n = made.latencies.len();
        let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1000.0 / count(n);
        let there = u64::try_from(n.saturating_sub(clients).max(1))?;
        let get = move |n: u64| {
            Call::get(format!("/api/v1/namespaces/default/configmaps/c{clients}-{}", n % there))
        };
        let read = closed_loop(&server.target, clients, limit(), get).await?;
        rows.extend([
            figure(format!("create a ConfigMap {name}"), made.per_second(), "/s", n),
            figure(format!("create a ConfigMap {name}, p50"), made.percentile(50), "ms", n),
            figure(format!("create a ConfigMap {name}: server CPU each"), cpu, "ms", n),
            figure(format!("get a ConfigMap {name}"), read.per_second(), "/s", read.latencies.len()),
            figure(format!("get a ConfigMap {name}, p50"), read.percentile(50), "ms", read.latencies.len()),
        ]);
    }
    Ok(rows)
}

/// From the leader's end until the other server's controllers have made what a Deployment asks for.
async fn hand_overs(settings: &Settings, name: &str, kill: bool) -> Result<Row, Error> {
    let mut times = Vec::new();
    for _ in 0..settings.amount(HAND_OVERS) {
        let etcd = etcd::start().await?.ok_or("etcd went away")?;
        let leader = Server::start(&settings.binary, &flags(Some(&etcd), &[])).await?;
        leader.namespace("default").await?;
        let dir = tempfile::Builder::new().prefix("coracle-bench").tempdir()?;
        copy_keys(leader.dir(), dir.path())?;
        let other = Server::start_in(dir, &settings.binary, &flags(Some(&etcd), &[])).await?;
        let begun = Instant::now();
        let ended = tokio::task::spawn_blocking(move || if kill { leader.kill() } else { leader.stop() });
        // What it does until its end is no hand-over.
        drop(ended.await??);
        made(&other.target).await?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(figure(
        format!("hand-over of the controllers, leader {name}, p50"),
        percentile(&times, 50),
        "ms",
        times.len(),
    ))
}

fn copy_keys(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::create_dir(to.join("data"))?;
    let copied = Command::new("cp").arg("-r").arg(from.join("data/pki")).arg(to.join("data")).status()?;
    if copied.success() { Ok(()) } else { Err("the keys cannot be copied".into()) }
}

async fn made(target: &Target) -> Result<(), Error> {
    let mut connection = target.connect().await?;
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    connection.call(Call::post("/apis/apps/v1/namespaces/default/deployments", body.to_string())).await?;
    let begun = Instant::now();
    loop {
        let found = connection.json(Call::get("/apis/apps/v1/namespaces/default/replicasets")).await?;
        if found["items"].as_array().is_some_and(|items| !items.is_empty()) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("nobody took over".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What so many agents cost a server at rest, and how long one event takes to all of them.
async fn agents(settings: &Settings, etcd: Option<&Etcd>, store: &str) -> Result<Vec<Row>, Error> {
    crate::crowd::allow_descriptors()?;
    let wanted = settings.amount(AGENTS);
    let server = Server::start(
        &settings.binary,
        &flags(etcd, &["--disable", "kubelet,proxy,dns,scheduler,controllers"]),
    )
    .await?;
    let before = server.process().rss_mib()?;
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let (ready, mut readies) = tokio::sync::mpsc::channel(COMING);
    let refused = Arc::new(AtomicU32::new(0));
    for n in 0..wanted {
        let (target, arrived, ready) = (server.target.clone(), arrived.clone(), ready.clone());
        let refused = refused.clone();
        tasks.spawn(async move { agent(&target, n, &ready, &arrived, &refused).await });
        if n >= COMING {
            came(&mut readies, &mut tasks).await?;
        }
    }
    for _ in 0..wanted.min(COMING) {
        came(&mut readies, &mut tasks).await?;
    }
    // All beat from now on.
    tokio::time::sleep(BEAT).await;
    let (cpu, since) = (server.process().cpu()?, Instant::now());
    tokio::time::sleep(2 * BEAT).await;
    let busy = (server.process().cpu()? - cpu).as_secs_f64() * 100.0 / since.elapsed().as_secs_f64();
    let memory = server.process().rss_mib()?;
    let refused = f64::from(refused.load(Relaxed));
    let sent = Instant::now();
    server.target.connect().await?.call(config_map("default", "event")).await?;
    let mut latencies = Vec::with_capacity(wanted);
    while latencies.len() < wanted {
        let at: Instant = tokio::select! {
            at = arrivals.recv() => at.ok_or("no agents")?,
            Some(ended) = tasks.join_next() => return Err(ended?.err().unwrap_or_else(|| "an agent ended".into())),
            () = tokio::time::sleep(PATIENCE) => {
                return Err(format!("{} of {wanted} agents were told", latencies.len()).into());
            }
        };
        latencies.push(at.saturating_duration_since(sent));
    }
    latencies.sort_unstable();
    let name = format!("{wanted} agents on {store}");
    Ok(vec![
        figure(format!("{name}: server memory"), memory, "MiB", 1),
        figure(format!("{name}: server memory before them"), before, "MiB", 1),
        figure(format!("{name}: server CPU"), busy, "% of a core", 1),
        figure(format!("{name}: told to come back"), refused, "times", 1),
        figure(format!("{name}: one event to each, p50"), percentile(&latencies, 50), "ms", wanted),
        figure(format!("{name}: one event to the last"), percentile(&latencies, 100), "ms", wanted),
    ])
}

async fn came(
    readies: &mut tokio::sync::mpsc::Receiver<()>,
    tasks: &mut JoinSet<Result<(), Error>>,
) -> Result<(), Error> {
    tokio::select! {
        Some(()) = readies.recv() => Ok(()),
        // None ends but by a failure.
        Some(ended) = tasks.join_next() => ended?,
        () = tokio::time::sleep(PATIENCE) => Err("an agent does not come".into()),
    }
}

async fn agent(
    target: &Target,
    n: usize,
    ready: &tokio::sync::mpsc::Sender<()>,
    arrived: &UnboundedSender<Instant>,
    refused: &AtomicU32,
) -> Result<(), Error> {
    let mut connection = Patient { connection: target.connect().await?, refused };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("a{n}")}});
    connection.call(|| Call::post("/api/v1/nodes", node.to_string())).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": format!("a{n}"), "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": format!("a{n}"), "leaseDurationSeconds": 40},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    connection.call(|| Call::post(leases, lease.to_string())).await?;
    let mut watch = target
        .connect()
        .await?
        .watch(
            "/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name=event".to_owned(),
        )
        .await?;
    ready.send(()).await?;
    let (beats, event) = (beat(connection, leases, n), told(&mut watch, arrived));
    tokio::try_join!(beats, event).map(drop)
}

fn is_for_later(error: &Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == StatusCode::TOO_MANY_REQUESTS)
}

/// Comes back when it is told to.
struct Patient<'a> {
    connection: Connection,
    refused: &'a AtomicU32,
}

impl Patient<'_> {
    async fn call(&mut self, call: impl Fn() -> Call) -> Result<(), Error> {
        loop {
            match self.connection.call(call()).await {
                Err(error) if is_for_later(&error) => {
                    self.refused.fetch_add(1, Relaxed);
                    tokio::time::sleep(COME_BACK).await;
                }
                other => return other.map(drop),
            }
        }
    }
}

async fn beat(mut connection: Patient<'_>, leases: &str, n: usize) -> Result<(), Error> {
    loop {
        tokio::time::sleep(BEAT).await;
        let now = jiff::Timestamp::now();
        let renewed = json!({"spec": {"renewTime": format!("{now:.6}")}});
        let call = || Call::merge_patch(format!("{leases}/a{n}"), renewed.to_string());
        connection.call(call).await?;
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": format!("{now:.0}"),
        });
        let status = json!({"status": {"conditions": [condition]}});
        let call = || Call::merge_patch(format!("/api/v1/nodes/a{n}/status"), status.to_string());
        connection.call(call).await?;
    }
}

/// Ends by a failure alone.
async fn told(watch: &mut Watch, arrived: &UnboundedSender<Instant>) -> Result<(), Error> {
    watch.event().await?;
    // Nobody listens any more at the end.
    let _ = arrived.send(Instant::now());
    std::future::pending().await
}
