//! Gets, lists and patches of pods that are 2.2 KB each, as those of a running cluster are.

use crate::http::{Call, Target};
use crate::load::{Limit, closed_loop, count};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use std::time::Duration;

/// What one pod weighs in a list.
const POD_BYTES: usize = 2200;
const PODS: usize = 5000;

/// A pod for no scheduler, padded with an annotation.
pub fn pod(namespace: &str, n: u64, padding: usize) -> Call {
    let body = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("pod-{n}"),
            "labels": {"app": "bench", "pod-template-hash": "5d4f8c7b96"},
            "annotations": {"bench/padding": "x".repeat(padding)},
        },
        "spec": {
            "schedulerName": "nobody",
            "containers": [{
                "name": "main",
                "image": "registry.example/app:1.0",
                "env": [{"name": "MODE", "value": "bench"}],
                "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }],
        },
    });
    Call::post(format!("/api/v1/namespaces/{namespace}/pods"), body.to_string())
}

/// Makes the pods; the first one, without padding, says how much the others need.
pub async fn fill(target: &Target, amount: usize) -> Result<usize, Error> {
    let mut connection = target.connect().await?;
    let bare = connection.call(pod("default", 0, 0)).await?.len();
    connection.call(Call::delete("/api/v1/namespaces/default/pods/pod-0?gracePeriodSeconds=0")).await?;
    let padding = POD_BYTES.saturating_sub(bare);
    let limit = Limit { time: Duration::from_secs(60), calls: u64::try_from(amount)? };
    // The first fifth is a namespace of its own: the shorter list.
    let few = u64::try_from(amount / 5)?;
    closed_loop(target, 64, limit, move |n| pod(if n < few { "few" } else { "default" }, n, padding)).await?;
    // The first connection has been idle for long where the server is slow.
    let mut connection = target.connect().await?;
    Ok(connection.call(Call::get("/api/v1/pods")).await?.len() / amount)
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace("default").await?;
    server.namespace("few").await?;
    let pod_bytes = fill(&server.target, PODS).await?;
    let mut rows = vec![figure("weight of a pod in the lists below", count(pod_bytes), "B", PODS)];
    rows.extend(gets(settings, &server).await?);
    rows.extend(patches(settings, &server).await?);
    rows.extend(lists(settings, &server).await?);
    rows.push(figure("memory with 5,000 pods after the lists", server.process().rss_mib()?, "MiB", 1));
    rows.push(figure("peak memory of that", server.process().peak_mib()?, "MiB", 1));
    Ok(rows)
}

async fn gets(settings: &Settings, server: &Server) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (clients, label) in [(1, "1 client"), (16, "16 clients"), (64, "64 clients")] {
        let cpu = server.process().cpu()?;
        let limit = Limit::time(settings.time(3));
        let done = closed_loop(&server.target, clients, limit, |n| {
            Call::get(format!("/api/v1/namespaces/few/pods/pod-{}", n % 1000))
        });
        let done = done.await?;
        let n = done.latencies.len();
        rows.push(figure(format!("get of a pod, {label}"), done.per_second(), "/s", n));
        rows.push(figure(format!("get of a pod, {label}, p50"), done.percentile(50), "ms", n));
        if clients == 64 {
            let cpu = (server.process().cpu()? - cpu).as_secs_f64() * 1e6 / count(n);
            rows.push(figure("get of a pod: server CPU each", cpu, "us", n));
        }
    }
    Ok(rows)
}

/// Durable like every write; every patch is of another pod than its neighbours.
async fn patches(settings: &Settings, server: &Server) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (clients, label) in [(1, "1 client"), (64, "64 clients")] {
        let limit = Limit::time(settings.time(3));
        let done = closed_loop(&server.target, clients, limit, |n| {
            let body = format!("{{\"metadata\":{{\"labels\":{{\"patched\":\"{n}\"}}}}}}");
            Call::merge_patch(format!("/api/v1/namespaces/few/pods/pod-{}", n % 1000), body)
        });
        let done = done.await?;
        let n = done.latencies.len();
        rows.push(figure(format!("merge patch of a pod, {label}"), done.per_second(), "/s", n));
        rows.push(figure(format!("merge patch of a pod, {label}, p50"), done.percentile(50), "ms", n));
    }
    Ok(rows)
}

async fn lists(settings: &Settings, server: &Server) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let cases = [
        ("list of 1,000 pods", "/api/v1/namespaces/few/pods", 1),
        ("list of 1,000 pods, 16 clients", "/api/v1/namespaces/few/pods", 16),
        ("list of 5,000 pods", "/api/v1/pods", 1),
        ("list of 5,000 pods in pages of 500", "/api/v1/pods?limit=500", 1),
        ("list of 5,000 pods, 16 clients", "/api/v1/pods", 16),
    ];
    for (name, path, clients) in cases {
        if path.contains("limit=") {
            rows.push(pages(settings, server, name, path).await?);
            continue;
        }
        let done =
            closed_loop(&server.target, clients, Limit::time(settings.time(3)), move |_| Call::get(path))
                .await?;
        rows.push(figure(name, done.percentile(50), "ms", done.latencies.len()));
    }
    Ok(rows)
}

/// The whole list as kubectl and informers of old take it: page after page.
async fn pages(settings: &Settings, server: &Server, name: &str, first: &str) -> Result<Row, Error> {
    let mut connection = server.target.connect().await?;
    let mut latencies = Vec::new();
    for _ in 0..settings.amount(10) {
        let begun = std::time::Instant::now();
        let mut path = first.to_owned();
        loop {
            let page = connection.call(Call::get(&path)).await?;
            // The list's metadata comes first; taking it alone spares the clock the decoding of the pods.
            let head = String::from_utf8_lossy(&page[..page.len().min(600)]).into_owned();
            let Some((_, token)) = head.split_once("\"continue\":\"") else { break };
            let token = token.split('"').next().unwrap_or_default();
            if token.is_empty() {
                break;
            }
            path = format!("{first}&continue={token}");
        }
        latencies.push(begun.elapsed());
    }
    latencies.sort_unstable();
    Ok(figure(name, crate::load::percentile(&latencies, 50), "ms", latencies.len()))
}
