//! The objects of 150,000 pods in one server, on its own store and on etcd: made, listed as administrators, dashboards and
//! kubelets do, watched by a thousand nodes, the past of them compacted, and read again at a start.

use crate::etcd;
use crate::http::Call;
use crate::load::{Limit, closed_loop, count, median, percentile};
use crate::process::Process;
use crate::server::Server;
use crate::table::{Row, figure, skipped};
use crate::{Error, Settings};
use coracle_tests::etcd::Etcd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const PODS: usize = 150_000;
/// As many pods each as the largest cluster that upstream promises has on one of its nodes.
const NODES: u64 = 5_000;
/// What one pod weighs in a list.
const POD_BYTES: usize = 2200;
const CLIENTS: usize = 64;
/// Nodes that watch their own pods.
const WATCHERS: u64 = 1_000;
/// A list in pieces, as kubectl asks for them.
const PAGE: usize = 500;
const MAKING: Duration = Duration::from_secs(300);
/// An event that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(60);
const PATH: &str = "/api/v1/namespaces/default/pods";

pub async fn on_sled(settings: &Settings) -> Result<Vec<Row>, Error> {
    run(settings, None).await
}

pub async fn on_etcd(settings: &Settings) -> Result<Vec<Row>, Error> {
    match etcd::start().await? {
        Some(etcd) => run(settings, Some(&etcd)).await,
        None => Ok(vec![skipped("150,000 pods on etcd", "no etcd in PATH (Debian: etcd-server)")]),
    }
}

/// What all steps share.
struct Stage<'s> {
    settings: &'s Settings,
    etcd: Option<&'s Etcd>,
    /// What the figures are called by.
    name: String,
    wanted: usize,
}

async fn run(settings: &Settings, etcd: Option<&Etcd>) -> Result<Vec<Row>, Error> {
    crate::crowd::allow_descriptors()?;
    let wanted = settings.amount(PODS);
    let store = if etcd.is_some() { "etcd" } else { "sled" };
    let stage = Stage { settings, etcd, name: format!("{wanted} pods on {store}"), wanted };
    // Whoever takes away pods of nodes that are not there may not be there either.
    let mut flags = vec!["--disable", "kubelet,proxy,dns,scheduler,controllers"];
    if let Some(etcd) = etcd {
        flags.extend(["--storage-backend", "etcd", "--etcd-servers", &etcd.url]);
    }
    let server = Server::start(&settings.binary, &flags).await?;
    let account =
        Call::post("/api/v1/namespaces/default/serviceaccounts", r#"{"metadata":{"name":"default"}}"#);
    server.target.connect().await?.call(account).await?;
    let mut rows = stage.make(&server).await?;
    rows.extend(stage.list(&server).await?);
    rows.extend(stage.watch(&server).await?);
    rows.extend(stage.compact(&server).await?);
    rows.push(figure(format!("{}: peak memory", stage.name), server.process().peak_mib()?, "MiB", 1));
    let again = Server::start_in(server.kill()?, &settings.binary, &flags).await?;
    let took = again.start_time.as_secs_f64() * 1000.0;
    rows.push(figure(format!("{}: ready after kill -9", stage.name), took, "ms", 1));
    Ok(rows)
}

/// A pod that is bound, so that a node may ask for it.
fn pod(n: u64, padding: usize) -> Call {
    let body = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("pod-{n}"),
            "labels": {"app": "bench", "pod-template-hash": "5d4f8c7b96"},
            "annotations": {"bench/padding": "x".repeat(padding)},
        },
        "spec": {
            "nodeName": node(n),
            "containers": [{
                "name": "main",
                "image": "registry.example/app:1.0",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }],
        },
    });
    Call::post(PATH, body.to_string())
}

fn node(n: u64) -> String {
    format!("node-{}", n % NODES)
}

fn label(n: u64, value: &str) -> Call {
    Call::merge_patch(
        format!("{PATH}/pod-{n}"),
        format!(r#"{{"metadata":{{"labels":{{"round":"{value}"}}}}}}"#),
    )
}

fn bytes_below(dir: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

impl Stage<'_> {
    fn row(&self, what: &str, value: f64, unit: &'static str, n: usize) -> Row {
        figure(format!("{}: {what}", self.name), value, unit, n)
    }

    fn on_disk(&self, server: &Server, when: &str) -> Result<Row, Error> {
        let dir = self.etcd.map_or_else(|| server.dir().join("data"), |etcd| etcd.dir().to_owned());
        let mib = u32::try_from(bytes_below(&dir)? >> 20)?;
        Ok(self.row(&format!("on disk {when}"), f64::from(mib), "MiB", 1))
    }

    async fn make(&self, server: &Server) -> Result<Vec<Row>, Error> {
        let mut connection = server.target.connect().await?;
        let bare = connection.call(pod(0, 0)).await?.len();
        connection.call(Call::delete(format!("{PATH}/pod-0?gracePeriodSeconds=0"))).await?;
        let padding = POD_BYTES.saturating_sub(bare);
        let (before, cpu) = (server.process().rss_mib()?, server.process().cpu()?);
        let limit = Limit { time: MAKING, calls: u64::try_from(self.wanted)? };
        let made = closed_loop(&server.target, CLIENTS, limit, move |n| pod(n, padding)).await?;
        let n = made.latencies.len();
        if n != self.wanted {
            return Err(format!("{n} of {} pods made", self.wanted).into());
        }
        let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1000.0 / count(n);
        // What the writes needed for a moment goes back.
        tokio::time::sleep(self.settings.time(15)).await;
        Ok(vec![
            self.row(&format!("made by {CLIENTS} clients"), made.per_second(), "/s", n),
            self.row("made: server CPU each", cpu, "ms", n),
            self.row("memory before", before, "MiB", 1),
            self.row("memory", server.process().rss_mib()?, "MiB", 1),
            self.on_disk(server, "then")?,
        ])
    }

    async fn list(&self, server: &Server) -> Result<Vec<Row>, Error> {
        let mut connection = server.target.connect().await?;
        let (mut whole, mut pages, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        for _ in 0..3 {
            let begun = Instant::now();
            bytes = connection.call(Call::get(PATH)).await?.len();
            whole.push(begun.elapsed());
        }
        let begun = Instant::now();
        let mut next = String::new();
        loop {
            let asked = Instant::now();
            let page = connection.json(Call::get(format!("{PATH}?limit={PAGE}&continue={next}"))).await?;
            pages.push(asked.elapsed());
            match page["metadata"]["continue"].as_str() {
                Some(more) if !more.is_empty() => next = more.to_owned(),
                _ => break,
            }
        }
        let paged = begun.elapsed().as_secs_f64() * 1000.0;
        for n in 0..50 {
            let asked = Instant::now();
            let found = connection
                .json(Call::get(format!("/api/v1/pods?fieldSelector=spec.nodeName={}", node(n))))
                .await?;
            own.push(asked.elapsed());
            let expected = self.wanted / usize::try_from(NODES)?;
            if found["items"].as_array().map(Vec::len) != Some(expected) {
                return Err(format!("a node has not {expected} pods").into());
            }
        }
        let n = pages.len();
        Ok(vec![
            self.row("weight of one in a list", count(bytes / self.wanted), "B", self.wanted),
            self.row("list of all, p50", median(whole), "ms", 3),
            self.row(&format!("list of all in pages of {PAGE}"), paged, "ms", 1),
            self.row("one page of that, p50", median(pages), "ms", n),
            self.row("list of one node's, p50", median(own), "ms", 50),
            self.row("memory after the lists", server.process().rss_mib()?, "MiB", 1),
        ])
    }

    /// One change of a pod of each of a thousand nodes that watch their own.
    async fn watch(&self, server: &Server) -> Result<Vec<Row>, Error> {
        let mut connection = server.target.connect().await?;
        let list = connection.json(Call::get(format!("{PATH}?limit=1"))).await?;
        let from = list["metadata"]["resourceVersion"].as_str().ok_or("a list without resourceVersion")?;
        let (arrived, mut arrivals) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let begun = Instant::now();
        for n in 0..WATCHERS {
            let path = format!(
                "/api/v1/pods?watch=true&resourceVersion={from}&fieldSelector=spec.nodeName={}",
                node(n)
            );
            let mut watch = server.target.connect().await?.watch(path).await?;
            let arrived = arrived.clone();
            tasks.spawn(async move {
                while watch.event().await.is_ok() {
                    // Nobody listens any more at the end.
                    let _ = arrived.send((n, Instant::now()));
                }
            });
        }
        let opened = begun.elapsed().as_secs_f64() * 1000.0;
        let cpu = server.process().cpu()?;
        let mut sent = Vec::new();
        for n in 0..WATCHERS {
            sent.push(Instant::now());
            connection.call(label(n, "watched")).await?;
        }
        let mut latencies = Vec::new();
        while latencies.len() < sent.len() {
            let (n, at): (u64, Instant) =
                tokio::time::timeout(PATIENCE, arrivals.recv()).await?.ok_or("no watchers")?;
            latencies.push(at.saturating_duration_since(sent[usize::try_from(n)?]));
        }
        latencies.sort_unstable();
        let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1e6 / count(sent.len());
        let n = latencies.len();
        Ok(vec![
            self.row("a thousand nodes begin to watch their own", opened, "ms", n),
            self.row("change asked for to its node's event, p50", percentile(&latencies, 50), "ms", n),
            self.row("change asked for to its node's event, p99", percentile(&latencies, 99), "ms", n),
            self.row("such a change: server CPU", cpu, "us", n),
        ])
    }

    /// A tenth of the pods is changed; then etcd is told to forget what was before, while somebody writes.
    async fn compact(&self, server: &Server) -> Result<Vec<Row>, Error> {
        let calls = u64::try_from(self.wanted / 10)?;
        let limit = Limit { time: MAKING, calls };
        let changed = closed_loop(&server.target, CLIENTS, limit, |n| label(n, "past")).await?;
        let n = changed.latencies.len();
        let mut rows = vec![
            self.row(&format!("changed by {CLIENTS} clients"), changed.per_second(), "/s", n),
            self.row("changed, p99", changed.percentile(99), "ms", n),
            self.on_disk(server, "after that")?,
        ];
        let Some(etcd) = self.etcd else { return Ok(rows) };
        let memory = Process(etcd.pid()).rss_mib()?;
        rows.push(figure(format!("{}: etcd's memory", self.name), memory, "MiB", 1));
        let mut connection = server.target.connect().await?;
        let list = connection.json(Call::get(format!("{PATH}?limit=1"))).await?;
        let now =
            list["metadata"]["resourceVersion"].as_str().ok_or("a list without resourceVersion")?.to_owned();
        let (url, begun) = (etcd.url.clone(), Instant::now());
        let compaction = tokio::task::spawn_blocking(move || {
            Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &url, "compact", "--physical=true", &now])
                .output()
        });
        let mut writes = Vec::new();
        while !compaction.is_finished() {
            let asked = Instant::now();
            connection.call(label(u64::try_from(writes.len())?, "meanwhile")).await?;
            writes.push(asked.elapsed());
        }
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        match compaction.await? {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).into()),
            Err(why) => {
                let why = format!("etcdctl (Debian: etcd-client): {why}");
                rows.push(skipped(format!("{}: etcd's compaction", self.name), why));
                return Ok(rows);
            }
        }
        writes.sort_unstable();
        rows.extend([
            self.row("etcd's compaction", took, "ms", 1),
            self.row("the longest write meanwhile", percentile(&writes, 100), "ms", writes.len()),
        ]);
        Ok(rows)
    }
}
